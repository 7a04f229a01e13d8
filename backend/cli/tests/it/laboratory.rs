//! The placement simulator on the command line: simulate, sweep, and the task graphs of models.

use crate::command::{Anabranch, bundled};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../placement/tests/data").join(name).display().to_string()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

/// Given assignments cost the same as in the evaluation of Laich 2017, to the last digit.
#[test]
fn given_assignments_cost_what_the_thesis_says() {
    let laboratory = Anabranch::new();
    let cases: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(data("convolutional_network_assignments.json")).expect("there"))
            .expect("JSON");
    let graph = data("convolutional_network_graph.csv");
    for case in &cases {
        let device_of = case["device_of"].as_array().expect("devices");
        // The file numbers its nodes from 1.
        let map: Map<String, Value> =
            device_of.iter().enumerate().map(|(place, device)| ((place + 1).to_string(), device.clone())).collect();
        fs::write(laboratory.path("assignment.json"), Value::from(map).to_string()).expect("written");
        let devices = data(case["devices"].as_str().expect("a name"));
        let simulate = |order| {
            let assignment = ["--assignment", "assignment.json", "--order", order, "--send-ops", "10"];
            laboratory.json(&[&["simulate", &graph, &devices][..], &assignment].concat())
        };
        let report = simulate("pct");
        let name = &case["partitioner"];
        assert!((number(&report, "makespan") / number(case, "pct") - 1.0).abs() < 1e-9, "{name}: {report}");
        assert_eq!(report["traffic"], case["traffic"], "{name}");
        assert_eq!(report["traffic_per_edge"], case["traffic_by_edge"], "{name}");
        assert_eq!((&report["sends"], &report["cut_edges"]), (&case["sends"], &case["cut_edges"]), "{name}");
        assert!(number(&report, "bound") <= number(&report, "makespan") * (1.0 + 1e-9), "{name}");
        assert_eq!(report["place_seconds"], 0.0, "{name}");
        // The reference's ICP puts nodes on kinds of devices that they do not allow; it is simulated all the same.
        assert_eq!(report["valid"], json!(name != "ICP"), "{name}: {}", report["violations"]);
        assert!((number(&simulate("msr"), "makespan") / number(case, "msr") - 1.0).abs() < 0.02, "{name}");
    }
}

#[test]
fn a_placement_is_written_and_simulated_again() {
    let laboratory = Anabranch::new();
    let (graph, devices) = (data("convolutional_network_graph.csv"), data("devices_7.csv"));
    let placed = laboratory.json(&["simulate", &graph, &devices, "--place", "cp", "-o", "placement.json"]);
    assert_eq!((&placed["strategy"], &placed["valid"]), (&json!("cp"), &json!(true)));
    assert!(number(&placed, "place_seconds") > 0.0);
    let given = laboratory.json(&["simulate", &graph, &devices, "--assignment", "placement.json"]);
    for key in ["makespan", "traffic", "traffic_per_edge", "sends", "bound", "utilisation", "peak_memory"] {
        assert_eq!(given[key], placed[key], "{key}");
    }
    let tasks: u64 = placed["devices"]
        .as_array()
        .expect("devices")
        .iter()
        .map(|device| device["tasks"].as_u64().expect("tasks"))
        .sum();
    assert_eq!(Some(tasks), placed["tasks"].as_u64());
}

/// The search knows the rules by which its placement is judged, and repeats itself for the same seed.
#[test]
fn the_search_is_at_least_as_good_as_every_strategy() {
    let laboratory = Anabranch::new();
    let (graph, devices) = (data("convolutional_network_graph.csv"), data("devices_7.csv"));
    let rules = ["--send-ops", "10", "--evaluations", "200"];
    let simulate = |seed: &str| {
        let auto = ["simulate", &graph, &devices, "--place", "auto", "--seed", seed];
        laboratory.json(&[&auto[..], &rules].concat())
    };
    let auto = simulate("1");
    assert_eq!((&auto["strategy"], &auto["seed"], &auto["evaluations"]), (&json!("auto"), &json!(1), &json!(200)));
    assert_eq!(simulate("1")["makespan"], auto["makespan"]);
    let sweep = ["sweep", &graph, "--devices", &devices, "--strategies", "all,auto", "--seeds", "1..3"];
    let rows = laboratory.json(&[&sweep[..], &rules].concat());
    let rows = rows.as_array().expect("rows");
    let (searched, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["strategy"] == "auto");
    assert_eq!(searched.iter().map(|row| row["seed"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(searched[0]["makespan"], auto["makespan"]);
    let best = others.iter().map(|row| number(row, "makespan")).fold(f64::INFINITY, f64::min);
    assert!(number(&auto, "makespan") < best, "{auto} against {best}");
}

/// Whole problems need no devices: lists of heterogeneous instances, profiled networks, our own format.
#[test]
fn whole_problems_are_read_from_json() {
    let laboratory = Anabranch::new();
    let set = laboratory.json(&["simulate", &data("formats/unrelated.json"), "--order", "planned"]);
    let example =
        set.as_array().expect("a report each").iter().find(|report| report["problem"] == "topcuoglu2002_fig2");
    assert_eq!(number(example.expect("Topcuoglu's example"), "makespan"), 80.0);
    let one = laboratory.json(&[
        "simulate",
        &data("formats/unrelated.json"),
        "--problem",
        "topcuoglu2002_fig2",
        "--order",
        "planned",
    ]);
    assert_eq!(number(&one, "makespan"), 80.0);
    let profiled = laboratory.json(&["simulate", &data("formats/bert24_layers.json")]);
    assert!(number(&profiled, "makespan") >= number(&profiled, "bound") * (1.0 - 1e-9));
    assert_eq!(profiled["time_unit"], "ms");
    let workflow = laboratory.json(&["simulate", &data("formats/workflow_1.6.json"), &data("devices_7.csv")]);
    assert!(number(&workflow, "makespan") > 0.0);
    let text = laboratory.text(&["simulate", &data("formats/example.json")]);
    assert!(["makespan", "lower bound", "traffic", "gpu0"].iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn send_costs_contention_and_memory_rules_take_effect() {
    let laboratory = Anabranch::new();
    let simulate = |more: &[&str]| {
        let (graph, devices) = (data("convolutional_network_graph.csv"), data("devices_7.csv"));
        laboratory.json(&[&["simulate", &graph, &devices, "--place", "hash"][..], more].concat())
    };
    let makespan = |more: &[&str]| number(&simulate(more), "makespan");
    let plain = makespan(&[]);
    assert!(makespan(&["--send-ops", "10"]) > plain);
    assert!(makespan(&["--contention"]) > plain);
    assert_eq!(simulate(&[])["memory_rule"], "size-estimate");
    assert_eq!(simulate(&["--memory-rule", "ignore"])["memory_rule"], "ignore");
}

#[test]
fn schedules_are_drawn() {
    let laboratory = Anabranch::new();
    let (graph, devices) = (data("fig2_3_graph.csv"), data("fig2_3_devices.csv"));
    laboratory.text(&["simulate", &graph, &devices, "--gantt", "schedule.svg", "--send-ops", "10"]);
    let svg = laboratory.read("schedule.svg");
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    assert!(["device 0", "lower bound", "Executable tasks"].iter().all(|part| svg.contains(part)));
    assert!(
        !svg.contains(&graph) && svg.contains("time (") && svg.contains(" pale\""),
        "names, units, tasks told apart: {svg}"
    );
    laboratory.text(&["simulate", &graph, &devices, "--gantt", "schedule.html"]);
    let html = laboratory.read("schedule.html");
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg") && html.contains("makespan"));
}

#[test]
fn what_cannot_be_simulated_is_refused_with_the_next_step() {
    let laboratory = Anabranch::new();
    let (graph, devices) = (data("convolutional_network_graph.csv"), data("devices_7.csv"));
    fs::write(laboratory.path("few.json"), "{\"1\": 0}").expect("written");
    laboratory.refuses(&["simulate", &graph], &["platform"]);
    laboratory.refuses(&["simulate", &graph, &devices, "--place", "best"], &["`best`", "heft", "icp"]);
    laboratory
        .refuses(&["simulate", &graph, &devices, "--place", "hash", "--order", "planned"], &["`hash`", "--order"]);
    laboratory
        .refuses(&["simulate", &graph, &devices, "--assignment", "few.json"], &["few.json", "without a device: 345"]);
    laboratory.refuses(&["simulate", &graph, &devices, "--gantt", "x.png"], &["x.png", ".svg"]);
    laboratory.refuses(&["simulate", &graph, &devices, "--send-ops=-1"], &["-1"]);
    laboratory.refuses(&["simulate", &data("formats/unrelated.json"), &devices], &["has its own devices"]);
    laboratory.refuses(&["simulate", &data("formats/unrelated.json"), "-o", "p.json"], &["--problem"]);
    laboratory.refuses(
        &["simulate", &data("formats/unrelated.json"), "--problem", "none"],
        &["`none`", "topcuoglu2002_fig2"],
    );
    laboratory.refuses(&["simulate", "missing.json"], &["missing.json"]);
}

/// A sweep that was cut off continues where it was, and ends with the results of an uninterrupted one.
#[test]
fn a_sweep_goes_on_where_it_was_cut_off() {
    let laboratory = Anabranch::new();
    let sweep = |file: &str| {
        let cases = ["fft:8", "layered:3", "--devices", "random:4", "--devices", "unrelated:3:0.5", "--seeds", "2"];
        let choice = ["--strategies", "heft,cp,hash", "--orders", "pct,fifo", "--threads", "2", "-o", file];
        laboratory.json(&[&["sweep"][..], &cases, &choice].concat())
    };
    let measured = |rows: &Value| -> Vec<Value> {
        let mut rows = rows.as_array().expect("rows").clone();
        for row in &mut rows {
            let row = row.as_object_mut().expect("an object");
            row.remove("place_seconds");
            row.remove("simulate_seconds");
        }
        rows
    };
    let file = "results.csv";
    let first = sweep(file);
    assert_eq!(first.as_array().map(Vec::len), Some(2 * 2 * 2 * 3 * 2));
    assert!(first.as_array().expect("rows").iter().all(|row| row["error"].is_null() && number(row, "slr") >= 1.0));
    let text = laboratory.read(file);
    assert_eq!(sweep(file), first, "nothing is computed again");
    assert_eq!(laboratory.read(file), text);
    let cut = &text[..text.len() * 2 / 3];
    fs::write(laboratory.path(file), cut).expect("written");
    let resumed = sweep(file);
    assert_eq!(measured(&resumed), measured(&first));
    assert_eq!(laboratory.read(file).lines().count(), text.lines().count());
    let kept = cut.rfind('\n').expect("a whole line");
    assert!(laboratory.read(file).starts_with(&cut[..kept]), "what was there is kept");
}

#[test]
fn a_sweep_says_why_a_strategy_has_no_result_and_draws_the_others() {
    let laboratory = Anabranch::new();
    let (graph, devices) = (data("convolutional_network_graph.csv"), data("devices_7.csv"));
    let arguments = ["sweep", &graph, "--devices", &devices, "--strategies", "heft,hash", "--orders", "planned,pct"];
    let text = laboratory.text(&[&arguments[..], &["--chart", "charts"]].concat());
    assert!(text.contains("convolutional_network_graph (346 tasks"), "{text}");
    assert!(text.lines().any(|line| line.contains("hash") && line.contains("plans no order")), "{text}");
    for chart in ["makespan.svg", "relative.svg", "traffic.svg", "place_seconds.svg", "index.html"] {
        assert!(laboratory.read(&format!("charts/{chart}")).contains("heft"), "{chart}");
    }
    assert!(laboratory.read("charts/makespan.svg").contains("no placement"));
    // On one CPU, nodes that need a GPU cannot run. That is no reason to leave out the other graph.
    let rows =
        laboratory.json(&["sweep", "layered:8", "fft:4", "--devices", "unrelated:1", "--strategies", "heft,cpu"]);
    let rows = rows.as_array().expect("rows");
    let of = |graph: &str| rows.iter().filter(|row| row["graph"] == graph).collect::<Vec<_>>();
    assert!(
        of("layered:8").iter().all(|row| row["error"].as_str().is_some_and(|error| error.contains("GPU"))),
        "{rows:?}"
    );
    assert!(of("fft:4").iter().all(|row| number(row, "makespan") > 0.0));
    assert_eq!((of("layered:8").len(), of("fft:4").len()), (2, 2));
}

#[test]
fn a_sweep_names_the_unit_of_makespans() {
    let laboratory = Anabranch::new();
    let problem = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/graphs/two-devices.json");
    let text = laboratory.text(&["sweep", problem, "--strategies", "heft", "--chart", "charts"]);
    assert!(text.contains("on 2 devices of its own; makespans in ms"), "{text}");
    assert!(laboratory.read("charts/makespan.svg").contains(">makespan (ms)<"));
    let drawn = laboratory.text(&["sweep", problem, "--strategies", "heft", "--stochastic", "--draws", "2"]);
    assert!(drawn.split_whitespace().collect::<Vec<_>>().join(" ").contains("; makespans in ms"), "{drawn}");
    let family = laboratory.text(&["sweep", "fft:4", "--devices", "unrelated:2", "--strategies", "heft"]);
    assert!(family.contains("; makespans in time units"), "{family}");
    // Seconds stand with each figure.
    laboratory.text(&["platform", "--no-gpu", "-o", "here.json"]);
    let here = laboratory.text(&["sweep", "fft:4", "--devices", "here.json", "--strategies", "heft"]);
    let row = here.lines().find(|line| line.trim_start().starts_with("heft")).expect("a row");
    assert!(
        !here.contains("makespans in")
            && ["ns", "µs", "ms", "s"].contains(&row.split_whitespace().nth(3).expect("a unit")),
        "{here}"
    );
}

#[test]
fn what_cannot_be_swept_is_refused_with_the_next_step() {
    let laboratory = Anabranch::new();
    laboratory.refuses(&["sweep", "fft:8"], &["--devices random:10"]);
    laboratory.refuses(&["sweep", "fft:7", "--devices", "random:3"], &["fft:7 on random:3"]);
    laboratory.refuses(&["sweep", "none:7", "--devices", "random:3"], &["`none`", "cholesky"]);
    laboratory.refuses(&["sweep", "fft:8", "--devices", "random:3", "--strategies", "best"], &["`best`", "heft"]);
    laboratory.refuses(&["sweep", "fft:8", "--devices", "random:3", "--seeds", "0"], &["seeds"]);
    laboratory.refuses(&["sweep", "fft:8", "--devices", "random:3", "--seeds", "999999999"], &["the limit is"]);
    laboratory.refuses(&["sweep", "fft:8", "--devices", "random:3", "-o", "x.txt"], &["x.txt", ".csv"]);
}

/// `simulate` takes the families of `sweep`, and draws the same problem for the same seed.
#[test]
fn families_are_simulated_as_they_are_swept() {
    let laboratory = Anabranch::new();
    let (graph, devices) = ("layered:6,tasks=5-9,decay=0.5", "random:4,cpu-share=0.5");
    let one = |graph: &str, seed: &str| laboratory.json(&["simulate", graph, devices, "--place", "cp", "--seed", seed]);
    let rows = laboratory.json(&["sweep", graph, "--devices", devices, "--strategies", "cp", "--seeds", "2"]);
    for (row, seed) in rows.as_array().expect("rows").iter().zip(["0", "1"]) {
        let report = one(graph, seed);
        assert_eq!((&report["makespan"], &report["problem"]), (&row["makespan"], &json!(graph)));
    }
    assert_ne!(one(graph, "0")["makespan"], one(graph, "1")["makespan"]);
    assert_ne!(one(graph, "0")["makespan"], one("layered:6,tasks=5-9", "0")["makespan"]);
    laboratory.json(&["simulate", &data("convolutional_network_graph.csv"), "unrelated:3:0.5"]);
    laboratory.json(&["simulate", "fft:8", &data("devices_7.csv"), "-o", "placement.json"]);
    laboratory.json(&["simulate", "fft:8", &data("devices_7.csv"), "--assignment", "placement.json"]);
    laboratory.text(&["formats", "platform", "--write", "formats"]);
    laboratory.json(&["simulate", "fft:8", "formats/platform.json"]);
    laboratory.json(&["sweep", "fft:8", "--devices", "formats/platform.json", "--strategies", "heft"]);
    laboratory.refuses(&["simulate", "fft:8"], &["fft:8", "random:10"]);
    laboratory.refuses(&["simulate", &data("formats/unrelated.json"), "random:3"], &["its own devices", "random:3"]);
    laboratory.refuses(&["simulate", "layered:6,width=3", "random:3"], &["`width`", "edge-probability"]);
}

/// The help names every parameter of the generators that messages list.
#[test]
fn the_help_names_all_parameters_of_generators() {
    let laboratory = Anabranch::new();
    let help = laboratory.text(&["sweep", "--help"]);
    for (graph, devices) in [("layered:4,x=1", "random:3"), ("fft:4", "random:3,x=1")] {
        let output = laboratory.run(&["sweep", graph, "--devices", devices]);
        let message = String::from_utf8_lossy(&output.stderr);
        let (_, listed) = message.split_once("the parameters are ").expect("a list");
        let keys: Vec<&str> = listed.split("), ").filter_map(|part| part.split(' ').next()).collect();
        assert!(keys.len() >= 4 && keys.iter().all(|key| help.contains(key)), "{keys:?}");
    }
}

/// Any model's task graph becomes a problem that can be simulated, and a CSV that other tools read.
#[test]
fn a_models_task_graph_is_written_and_simulated() {
    let laboratory = Anabranch::new();
    let model = bundled("unet.onnx");
    let written = laboratory.json(&["graph", &model, "--software-gpu", "-o", "graph.json"]);
    assert_eq!(written["devices"], 2);
    let report = laboratory.json(&["simulate", "graph.json", "--place", "heft"]);
    assert_eq!((&report["tasks"], &report["time_unit"]), (&written["tasks"], &json!("s")));
    assert_eq!(report["problem"], "unet");
    assert!(number(&report, "makespan") >= number(&report, "bound") * (1.0 - 1e-9) && number(&report, "bound") > 0.0);
    laboratory.json(&["graph", &model, "--no-gpu", "-o", "graph.csv"]);
    let placed = laboratory.json(&["simulate", "graph.csv", &data("devices_7.csv")]);
    assert_eq!(placed["tasks"], written["tasks"]);
    laboratory.json(&["graph", &model, "--no-gpu", "-o", "graph.dot"]);
    assert!(laboratory.read("graph.dot").starts_with("digraph tasks"));
    laboratory.refuses(&["graph", &model, "--no-gpu", "-o", "graph.xml"], &["graph.xml", ".json"]);
}

/// The worked example of Benoit and Robert 2007: period 7, latency 12, and latency 14 within a period of 10.
#[test]
fn pipelines_are_mapped_by_all_methods() {
    let laboratory = Anabranch::new();
    let stages: Vec<Value> = [14, 4, 2, 4].map(|work| json!({"work": work})).into();
    let processors: Vec<Value> =
        [2, 1, 1, 1].iter().enumerate().map(|(it, speed)| json!({"name": format!("P{it}"), "speed": speed})).collect();
    let file = json!({"format": "anabranch-pipeline", "version": 1, "stages": stages, "data": [0, 0, 0, 0, 0], "processors": processors});
    fs::write(laboratory.path("chain.json"), file.to_string()).expect("written");
    let run = |options: &[&str]| laboratory.json(&[&["pipeline", "chain.json", "--no-replication"], options].concat());
    for (options, period, latency) in [
        (&["--chart", "front.svg"][..], 7.0, 17.0),
        (&["--goal", "latency"], 12.0, 12.0),
        (&["--period", "10"], 10.0, 14.0),
        (&["--latency", "15"], 9.0, 15.0),
    ] {
        let report = run(options);
        let chosen = &report["chosen"];
        assert_eq!((number(chosen, "period"), number(chosen, "latency")), (period, latency), "{options:?}");
        assert_eq!((&chosen["proven"], &report["front_proven"]), (&json!(true), &json!(true)), "{options:?}");
        assert_eq!(report["front"].as_array().map(Vec::len), Some(4), "{options:?}");
        assert_eq!(report["heuristics"].as_array().map(Vec::len), Some(12), "{options:?}");
    }
    let chart = laboratory.read("front.svg");
    assert!(chart.starts_with("<svg") && chart.contains("front, proven") && chart.contains("chosen"), "{chart}");
    let text = laboratory.text(&["pipeline", &data("pipeline/example.csv"), "--bandwidth", "1e10"]);
    assert!(text.contains("chosen: period") && text.contains("h7b") && text.contains("decode"), "{text}");
    laboratory.refuses(
        &["pipeline", "chain.json", "--period", "1"],
        &["chain.json", "within the limit", "nearest", "raise --period"],
    );
    laboratory.refuses(&["pipeline", &data("fig2_3_graph.csv")], &["`stage`", "it needs stage, in, out"]);
    laboratory.refuses(&["pipeline", "none.json"], &["none.json"]);
    laboratory.refuses(&["pipeline", "chain.json", "--bandwidth", "1"], &["--bandwidth", "its own links"]);
    laboratory.refuses(&["pipeline"], &["FILE.json"]);
    let text = laboratory.text(&["pipeline", "--help"]);
    assert!(text.contains("stage,in,out") && text.contains("anabranch-pipeline"), "{text}");
}

#[test]
fn experiments_compare_heuristics_with_the_optimum() {
    let laboratory = Anabranch::new();
    let small = ["--stages", "4,6", "--processors", "4", "--instances", "3"];
    for (options, best) in [(&["--experiments"][..], 8), (&["--experiments", "e2", "--latency-factor", "1.5"], 2)] {
        let rows = laboratory.json(&[&["pipeline"], options, &small[..]].concat());
        let rows = rows.as_array().expect("rows");
        let chosen: Vec<&Value> = rows.iter().filter(|row| row["method"] == "choose").collect();
        assert_eq!((rows.len(), chosen.len()), (13 * best, best), "{options:?}");
        for row in chosen {
            assert_eq!((&row["proven"], &row["optimal"]), (&json!(3), &json!(3)), "{row}");
        }
        assert!(
            rows.iter().all(|row| row["over_optimum"].as_f64().is_none_or(|ratio| ratio >= 1.0 - 1e-9)),
            "{rows:?}"
        );
    }
    assert!(laboratory.text(&[&["pipeline", "--experiments", "e1"], &small[..]].concat()).contains("e1: balanced"));
    laboratory.refuses(&["pipeline", "--experiments", "e9"], &["e9", "e1, e2, e3, e4"]);
    laboratory.refuses(&["pipeline", "--experiments", "--period", "3"], &["--latency-factor"]);
}
