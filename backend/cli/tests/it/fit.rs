//! `anabranch fit`: models that are run with less, and graphs that are answered by calculation.

use crate::command::{Anabranch, bundled};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../placement/tests/data").join(name).display().to_string()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The smallest part, one core, is found, and run with one thread.
#[test]
fn a_model_is_run_with_the_smallest_part_that_keeps_the_time() {
    let anabranch = Anabranch::new();
    let model = bundled("convnet.onnx");
    let fit = ["fit", &model, "--no-gpu", "--place", "heft", "--repeat", "3"];
    let report = anabranch.json(&[&fit[..], &["--deadline", "10000"]].concat());
    let fewest = &report["fewest"];
    assert_eq!(
        (&fewest["part"]["cores"], &fewest["part"]["count"], &fewest["kept"]),
        (&json!(1), &json!(1), &json!(true))
    );
    let least = &report["least_memory"];
    assert!(number(&least["planned_bytes"]) <= number(&fewest["planned_bytes"]), "{report}");
    assert!(number(&least["measured_bytes"]) > 0.0 && number(&least["measured_ms"]["median"]) <= 10_000.0);
    // The measured memory is within the planned memory, and the bound of any order covers both.
    let beside = &report["beside"];
    assert!(number(&beside["measured"]) <= number(&beside["planned"]), "{beside}");
    assert!(number(&beside["each_order"]) <= number(&beside["any_order"]), "{beside}");
    assert_eq!(beside["holds"], json!(true), "{beside}");
    let text = anabranch.text(&[&fit[..], &["--deadline", "10000"]].concat());
    assert!(text.contains("with 1 core and") && text.contains("in any order"), "{text}");
    let impossible = anabranch.json(&[&fit[..], &["--deadline", "0.000001"]].concat());
    assert_eq!(impossible["fewest"], Value::Null);
}

/// A few devices of Laich's evaluation do as well as all.
#[test]
fn a_graph_loses_devices_that_it_does_not_need() {
    let anabranch = Anabranch::new();
    let fit = ["fit", &data("convolutional_network_graph.csv"), &data("devices_7.csv"), "--place", "heft,cp"];
    let report = anabranch.json(&fit);
    let devices = report["devices"].as_array().expect("devices").len();
    assert!(devices <= 7 && number(&report["bound"]) as usize <= devices, "{report}");
    assert!(number(&report["makespan"]) <= 1.05 * number(&report["best"]) * (1.0 + 1e-9));
    let half = anabranch.json(&[&fit[..], &["--within", "100%"]].concat());
    assert!(half["devices"].as_array().expect("devices").len() <= devices);
    assert!(anabranch.text(&fit).contains("at least are needed"));
    anabranch.refuses(&[&fit[..], &["--memory", "gpu9=1KiB"]].concat(), &["gpu9", "the devices are"]);
    let first = report["devices"][0]["name"].as_str().expect("a name");
    let limited = anabranch.json(&[&fit[..], &["--within", "1000%", "--memory", &format!("{first}=1")]].concat());
    assert!(limited["devices"].as_array().expect("devices").iter().all(|device| device["name"] != *first), "{limited}");
}

/// Four parallel tasks, between two others: 4 cores for the longest path of 3, 2 cores for a third more.
#[test]
fn a_graph_without_devices_is_put_on_alike_ones() {
    let anabranch = Anabranch::new();
    let task = |name: &str| json!({"name": name, "operations": 1});
    let datum = |producer: u32, consumer: u32| json!({"producer": producer, "bytes": 8, "consumers": [consumer]});
    let tasks = ["split", "a", "b", "c", "d", "join"].map(task);
    let data: Vec<Value> = (1..5).flat_map(|middle| [datum(0, middle), datum(middle, 5)]).collect();
    let graph = json!({"format": "anabranch-problem", "version": 1, "graph": {"tasks": tasks, "data": data}});
    fs::write(anabranch.path("fork.json"), graph.to_string()).expect("written");
    let fit = |options: &[&str]| anabranch.json(&[&["fit", "fork.json", "--cores", "2"], options].concat());
    let report = fit(&["--within", "0"]);
    assert_eq!(
        (&report["cores"]["count"], &report["cores"]["bound"], &report["parallelism"]),
        (&json!(4), &json!(4), &json!(4))
    );
    assert_eq!((&report["devices"]["count"], &report["devices"]["bound"]), (&json!(2), &json!(2)));
    assert_eq!(report["live_bytes"]["any_order"], json!(64));
    let longer = fit(&["--deadline", "4"]);
    assert_eq!((&longer["cores"]["count"], &longer["devices"]["count"]), (&json!(2), &json!(1)));
    let slow = fit(&["--within", "0", "--bandwidth", "1"]);
    assert!(slow["devices"]["none"].as_str().is_some_and(|none| none.contains("the shortest takes")), "{slow}");
    assert!(anabranch.text(&["fit", "fork.json"]).contains("edge zeroing alone"));
    anabranch.refuses(&["fit", "fork.json", "--memory", "cpu0=1"], &["--memory", "--device-memory"]);
    anabranch.refuses(&["fit", "fork.json", "--deadline", "2"], &["fork.json", "longest path alone takes 3"]);
    anabranch.refuses(&["fit", "fork.json", "--physical", "out.json"], &["logical graphs"]);
}

#[test]
fn a_logical_graph_is_unrolled_and_written_as_a_physical_one() {
    let anabranch = Anabranch::new();
    let graph = json!({"modelData": {}, "nodeDataArray": [
        {"key": 1, "name": "raw", "category": "File", "categoryType": "Data"},
        {"key": 2, "name": "parts", "category": "Scatter", "fields": [{"name": "num_of_copies", "value": "4"}]},
        {"key": 3, "name": "work", "category": "BashShellApp", "categoryType": "Application", "group": 2,
            "fields": [{"name": "execution_time", "value": "10"}]},
        {"key": 4, "name": "made", "category": "File", "categoryType": "Data", "group": 2},
    ], "linkDataArray": [{"from": 1, "to": 3}, {"from": 3, "to": 4}]});
    fs::write(anabranch.path("pipe.graph"), graph.to_string()).expect("written");
    let fit = ["fit", "pipe.graph", "--cores", "2", "--deadline", "30"];
    let report = anabranch.json(&[&fit[..], &["--physical", "pg.json"]].concat());
    assert_eq!(
        (&report["tasks"], &report["parallelism"], &report["cores"]["count"]),
        (&json!(9), &json!(4), &json!(2))
    );
    let drops: Vec<Value> = serde_json::from_str(&anabranch.read("pg.json")).expect("JSON");
    assert!(drops.len() == 9 && drops.iter().all(|drop| drop["node"].is_string()), "{drops:?}");
    let simulated = anabranch.run(&["simulate", "pipe.graph"]);
    assert!(String::from_utf8_lossy(&simulated.stderr).contains("has no platform"));
    fs::write(anabranch.path("bad.graph"), graph.to_string().replace("\"4\"", "\"none\"")).expect("written");
    anabranch.refuses(&["fit", "bad.graph"], &["bad.graph", "num_of_copies of node \"parts\""]);
    anabranch.refuses(&["fit", &bundled("mlp.onnx"), "devices.csv"], &["leave out the file of devices"]);
    anabranch.refuses(&["fit", "none.graph"], &["none.graph"]);
}
