//! Written files match their schemas, and the examples can be read.

use crate::command::{Anabranch, bundled};
use jsonschema::validator_for;
use serde_json::{Value, json};
use std::fs;

/// Returns the schema of a format, as the command prints it.
fn schema_of(command: &Anabranch, format: &str) -> Value {
    serde_json::from_str(&command.text(&["formats", format, "--schema"])).expect("a schema is JSON")
}

/// Returns the faults of a value, each with its position; empty if it matches the schema.
fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let validator = validator_for(schema).expect("a valid schema");
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Asserts that a file matches its format's schema, and that the schema rejects invalid files.
fn conforms(command: &Anabranch, format: &str, file: &str) {
    let (schema, value) = (schema_of(command, format), read(command, file));
    assert_eq!(faults(&schema, &value), Vec::<String>::new(), "{file} and the schema of {format}");
    assert!(!faults(&schema, &json!([1])).is_empty(), "{format}: a list is none");
}

fn read(command: &Anabranch, file: &str) -> Value {
    serde_json::from_str(&command.read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn files_of_models_and_runs_are_as_their_schemas_say() {
    let command = Anabranch::new();
    let model = bundled("decoder.onnx");
    let on_two = ["--no-gpu", "--cpu-devices", "core", "--dim", "batch=2", "--dim", "seq=12", "--random", "1"];
    let with = |first: &[&str], more: &[&str]| command.text(&[first, &[&model], &on_two, more].concat());
    with(&["run"], &["--repeat", "2", "--profile", "events.json"]);
    let streams = ["--no-fuse", "--stream", "always", "--chunk", "3rows"];
    with(
        &["place"],
        &[&["-o", "plan.json", "--schedule", "schedule.json", "--trace", "trace.json"], &streams[..]].concat(),
    );
    with(&["place"], &["-o", "auto.json", "--place", "auto"]);
    with(&["graph"], &["-o", "problem.json"]);
    command.text(&["platform", "--no-gpu", "--cpu-devices", "core", "-o", "platform.json"]);
    command.text(&["costs", "--export", "costs.json"]);
    for file in ["events", "plan", "schedule", "problem", "platform", "costs"] {
        conforms(&command, file, &format!("{file}.json"));
    }
    conforms(&command, "plan", "auto.json");
    assert!(!read(&command, "plan.json")["blocks"].as_array().expect("blocks").is_empty());
    let schedule = read(&command, "schedule.json");
    assert!(schedule["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["device"] == "cpu0")));
    assert!(command.read("trace.json").contains("traceEvents"));
    // The store of a machine with a GPU matches the schema, too.
    fs::copy(bundled("files/costs.json"), command.path("bundled.json")).expect("bundled");
    conforms(&command, "costs", "bundled.json");
}

#[test]
fn examples_are_written_and_can_be_used() {
    let command = Anabranch::new();
    let written = command.run(&["formats", "--write", "examples"]);
    let told = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success() && told.contains("wrote examples/graph.csv"), "{told}");
    for format in ["plan", "platform", "problem", "events", "costs", "schedule", "assignment", "pipeline", "stages"] {
        conforms(&command, format, &format!("examples/{format}.json"));
    }
    // A second run changes nothing. Files of others stay.
    command.text(&["formats", "--write", "examples"]);
    fs::create_dir(command.path("own")).expect("writable");
    fs::write(command.path("own/plan.json"), "mine").expect("writable");
    command.refuses(&["formats", "--write", "own"], &["own/plan.json", "other content"]);
    assert_eq!(command.read("own/plan.json"), "mine");
    let in_examples = |file: &str| format!("examples/{file}");
    let simulated = command.json(&["simulate", &in_examples("graph.csv"), &in_examples("devices.csv")]);
    assert_eq!(simulated["tasks"], 6);
    let columns = |file: &str| command.read(&in_examples(file)).lines().next().expect("a heading").to_owned();
    let tables = [
        ("graph", "graph.csv"),
        ("devices", "devices.csv"),
        ("schedule-csv", "schedule.csv"),
        ("pipeline-csv", "stages.csv"),
    ];
    for (format, file) in tables {
        let schema = schema_of(&command, format);
        let names: Vec<_> = schema["fields"].as_array().expect("fields").iter().map(|f| f["name"].as_str()).collect();
        let names: Vec<_> = names.into_iter().flatten().collect();
        let heading: Vec<_> = columns(file).split(',').map(|name| name.trim().to_owned()).collect();
        assert_eq!(heading, names, "{format}");
    }
    let problem = in_examples("problem.json");
    let given = command.json(&["simulate", &problem, "--assignment", &in_examples("assignment.json")]);
    assert_eq!(given["valid"], true);
    for file in ["pipeline.json", "stages.csv"] {
        let mapped = command.json(&["pipeline", &in_examples(file)]);
        assert!(mapped["chosen"]["period"].as_f64() > Some(0.0), "{mapped}");
    }
    let piped = ["pipe", "--no-gpu", "--cpu-devices", "core", "--random", "8", "--write-plan", "written.json"];
    command.text(&piped);
    conforms(&command, "stages", "written.json");
    command.refuses(&["pipe", "--random", "8", "--plan", &in_examples("stages.csv")], &["`anabranch formats stages`"]);
    let platform = in_examples("platform.json");
    let placed = command.json(&["place", "--no-gpu", "--platform", &platform, "--place", "heft"]);
    assert!(placed["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()));
    assert!(command.text(&["costs", "--costs", &in_examples("costs.json")]).contains("Negate"));
    assert_eq!(command.json(&["formats"]).as_array().map(Vec::len), Some(13));
    command.refuses(&["formats", "plam"], &["did you mean `plan`?", "platform"]);
}

#[test]
fn simulate_takes_platform_files() {
    let command = Anabranch::new();
    command.text(&["formats", "--write", "."]);
    // Graphs of operations: 290 operations take 29 s on the only device, which does 10 per second.
    let rates = |flops: f64| json!({ "matmul_flops": flops, "conv_flops": 1.0, "map_flops": 1.0, "bandwidth": 1.0, "launch": 0.0 });
    let platform = |extends: bool, devices: Value| {
        let file = json!({ "format": "anabranch-platform", "version": 1, "extends": extends, "devices": devices });
        fs::write(command.path("p.json"), file.to_string()).expect("writable");
    };
    platform(false, json!([{ "name": "only", "kind": "cpu", "rates": rates(10.0) }]));
    let report = command.json(&["simulate", "graph.csv", "p.json"]);
    assert_eq!((&report["makespan"], &report["time_unit"]), (&json!(29.0), &json!("s")));
    // A whole problem, with a GPU ten times slower.
    let before = command.json(&["simulate", "problem.json", "--place", "gpu"])["makespan"].as_f64().expect("a time");
    platform(true, json!([{ "name": "gpu0", "times": 10.0 }]));
    let after = command.json(&["simulate", "problem.json", "p.json", "--place", "gpu"]);
    assert!(after["makespan"].as_f64() > Some(5.0 * before), "{after} after {before}");
    platform(true, json!([{ "name": "gpu7" }]));
    command.refuses(&["simulate", "problem.json", "p.json"], &["p.json", "`gpu7`", "cpu0, gpu0", "anabranch graph"]);
    platform(true, json!([]));
    command.refuses(&["simulate", "graph.csv", "p.json"], &["p.json", "extends"]);
}

#[test]
fn schedules_are_written_for_other_tools() {
    let command = Anabranch::new();
    command.text(&["formats", "--write", "."]);
    let simulate = ["simulate", "graph.csv", "devices.csv", "--place", "heft"];
    let files = |more: &[&str]| command.json(&[&simulate, more].concat());
    let report = files(&["--schedule", "s.csv", "--trace", "s.paje"]);
    files(&["--schedule", "s.json"]);
    let csv = command.read("s.csv");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let last = rows.iter().filter_map(|row| row[3].parse::<f64>().ok()).fold(0.0, f64::max);
    assert_eq!((rows.len(), Some(last)), (6, report["makespan"].as_f64()));
    let schema = schema_of(&command, "schedule");
    assert_eq!(faults(&schema, &read(&command, "s.json")), Vec::<String>::new());
    assert!(command.read("s.paje").contains("PajePushState"));
    command.refuses(&[&simulate[..], &["--schedule", "s.txt"]].concat(), &["s.txt", ".csv or .json"]);
}

/// The rates in a platform file change nothing as written, and count if they are edited.
#[test]
fn rates_are_written_and_can_be_edited() {
    let command = Anabranch::new();
    let here = ["--no-gpu", "--cpu-devices", "machine"];
    let place = |more: &[&str]| -> f64 {
        let plan = command.json(&[&["place"], &here[..], more].concat());
        plan["makespan_us"].as_f64().expect("a time")
    };
    command.text(&[&["run", "--repeat", "3"], &here[..]].concat());
    let measured = place(&[]);
    command.text(&[&["platform", "-o", "here.json"], &here[..]].concat());
    let mut file = read(&command, "here.json");
    assert!(file["devices"][0]["rates"]["matmul_flops"].as_f64() > Some(0.0), "{file}");
    let same = place(&["--platform", "here.json"]);
    assert!((same - measured).abs() <= 0.25 * measured, "{same} and {measured} µs");
    for rate in ["matmul_flops", "conv_flops", "map_flops", "bandwidth"] {
        let slower = file["devices"][0]["rates"][rate].as_f64().expect("a rate") / 1e3;
        file["devices"][0]["rates"][rate] = json!(slower);
    }
    fs::write(command.path("slow.json"), file.to_string()).expect("writable");
    let slow = place(&["--platform", "slow.json"]);
    assert!(slow > 20.0 * measured, "{slow} after {measured} µs");
}
