//! `--split`: the rows of a batch divided among devices, as the command says it.

use crate::command::{Anabranch, bundled};
use serde_json::{Value, json};

/// Arguments for a batch of six rows on two cores.
fn divided<'a>(command: &'a str, model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let cores = ["--no-gpu", "--cpu-devices", "core", "--dim", "batch=6", "--split", "batch=cpu0:2,cpu1:4"];
    [&[command, model][..], &cores, more].concat()
}

/// Options of runs that need little time.
const QUICK: [&str; 4] = ["--repeat", "1", "--warmup", "0"];

#[test]
fn a_strategy_that_has_nothing_to_place_is_refused() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    for place in ["cp", "heft", "cpu1"] {
        let expected = ["`batch=cpu0:2,cpu1:4` decides the devices", &format!("`{place}` has nothing to place")];
        for name in ["run", "place"] {
            command.refuses(&divided(name, &mlp, &["--random", "1", "--place", place]), &expected);
        }
    }
    let whole = ["run", &mlp, "--no-gpu", "--dim", "batch=6", "--random", "1", "--place", "split"];
    command.refuses(&whole, &["strategy `split`", "no batch is divided"]);
}

#[test]
fn comparisons_measure_the_whole_batch_with_other_strategies() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let arguments = divided("bench", &mlp, &["--place", "cpu1", "--repeat", "2", "--warmup", "0"]);
    let results = command.json(&arguments);
    let outcomes = results["models"][0]["outcomes"].as_array().expect("outcomes");
    let nodes = |at: usize| outcomes[at]["devices"].as_array().expect("devices").iter().map(|device| &device["nodes"]);
    assert_eq!(outcomes[0]["configuration"]["place"], "split");
    assert!(nodes(0).all(|nodes| *nodes != 0), "{results}");
    assert_eq!(nodes(1).next(), Some(&json!(0)), "{results}");
}

#[test]
fn the_report_names_the_strategy_the_parts_and_what_memory_moved() {
    let command = Anabranch::new();
    let model = bundled("encoder.onnx");
    let run = |more: &[&str]| {
        let arguments = divided("run", &model, &["--dim", "seq=9", "--random", "1", "--no-learn"]);
        command.json(&[&arguments[..], &QUICK, more].concat())
    };
    let free = run(&["-o", "plan.json"]);
    assert_eq!(free["strategy"], "split");
    assert_eq!(free["split"], json!([{ "device": "cpu0", "rows": 2 }, { "device": "cpu1", "rows": 4 }]));
    assert_eq!(free["displaced"], Value::Null);
    assert_eq!(run(&["--place", "plan.json"])["strategy"], "plan.json");
    let peak = free["devices"][1]["planned_peak_bytes"].as_u64().expect("bytes");
    let limit = format!("cpu1={}", peak * 2 / 3);
    let short = run(&["--memory", &limit]);
    // A node of the other device may follow those that left.
    let mut displaced = short["displaced"].as_array().expect("devices").iter();
    assert!(displaced.any(|from| from["device"] == "cpu1" && from["nodes"].as_u64() > Some(0)), "{short}");
    let arguments = divided("run", &model, &["--dim", "seq=9", "--random", "1", "--no-learn", "--memory", &limit]);
    let text = command.text(&[&arguments[..], &QUICK].concat());
    assert!(text.contains("split     2 rows on cpu0, 4 rows on cpu1"), "{text}");
    assert!(text.contains(" of cpu1 run") && text.contains("elsewhere, because memory is short"), "{text}");
    let compile =
        divided("compile", &model, &["--dim", "seq=9", "--random", "1", "--memory", &limit, "-o", "m.anabranch"]);
    command.text(&compile);
    let compiled = command.json(&[&["run", "m.anabranch", "--random", "1", "--no-learn"], &QUICK[..]].concat());
    assert_eq!((&compiled["strategy"], &compiled["displaced"]), (&"split".into(), &short["displaced"]), "{compiled}");
}

#[test]
fn compiled_models_keep_or_take_a_split() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let cores = ["--no-gpu", "--cpu-devices", "core"];
    let nodes = |report: &Value| -> Vec<u64> {
        let devices = report["devices"].as_array().expect("devices");
        devices.iter().map(|device| device["nodes"].as_u64().expect("a number")).collect()
    };
    let run = |file: &str, more: &[&str]| {
        command.json(&[&["run", file, "--random", "1", "--no-learn"], &QUICK[..], more].concat())
    };
    // A model of the whole batch is divided if that is asked, and by `split` alone.
    let whole = ["compile", &mlp, "--dim", "batch=6", "--random", "1", "-o", "whole.anabranch"];
    command.text(&[&whole[..], &cores].concat());
    let split = [&cores[..], &["--split", "batch=cpu0:2,cpu1:4"]].concat();
    let report = run("whole.anabranch", &split);
    assert_eq!(report["strategy"], "split", "{report}");
    assert!(nodes(&report).iter().all(|nodes| *nodes > 0), "{report}");
    command.refuses(
        &[&["run", "whole.anabranch", "--random", "1", "--place", "split"], &cores[..]].concat(),
        &["no batch is divided"],
    );
    // A divided model stays so under other options.
    command.text(&divided("compile", &mlp, &["--random", "1", "-o", "parts.anabranch"]));
    for more in [&[][..], &["--order", "fifo"], &["--stream", "off"], &["--threads", "1"]] {
        let report = run("parts.anabranch", more);
        assert_eq!(report["strategy"], "split", "{more:?}: {report}");
        assert!(nodes(&report).iter().all(|nodes| *nodes > 0), "{more:?}: {report}");
    }
    command.refuses(&["bench", "parts.anabranch", "--random", "1"], &["parts.anabranch", "name the ONNX file"]);
    command.refuses(&divided("bench", &mlp, &["--cache", "kept"]), &["--cache cannot be used with --split"]);
}
