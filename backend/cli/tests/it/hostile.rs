//! Malicious names and numbers in files: no message is forged, no sum overflows, and each small file of past faults
//! ends soon.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use anabranch_placement::quoted::acts;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns a long name that tries to forge two lines, clear the screen and turn the direction of writing.
fn hostile() -> String {
    format!(
        "a\nanabranch: all is well\n  anabranch: all is well\u{1b}[2J\r\u{9b}31m\u{202e}\u{2028}\u{7}{}",
        "x".repeat(10_000)
    )
}

/// Returns the output of a command. Asserts that it has no characters that a terminal acts on, no forged line, and no
/// message that is too long to read.
fn sound(command: &Anabranch, arguments: &[&str]) -> Output {
    let output = command.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0..=3)), "{arguments:?}: {:?} {said}", output.status);
    for text in [said.as_str(), &String::from_utf8_lossy(&output.stdout)] {
        assert!(!text.contains(|c: char| acts(c) && c != '\n'), "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("anabranch: all")), "{arguments:?}: {text}");
    }
    assert!(!said.contains("panicked") && said.lines().all(|line| line.chars().count() < 4000), "{said}");
    output
}

/// Collects the pointers of all strings and keys of a document; only the first under each name.
fn places(value: &Value, at: &str, kind: &str, found: &mut Vec<String>, seen: &mut BTreeSet<String>) {
    match value {
        Value::String(_) if seen.insert(kind.to_owned()) => found.push(at.to_owned()),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(place, item)| places(item, &format!("{at}/{place}"), kind, found, seen));
        }
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            let escaped = key.replace('~', "~0").replace('/', "~1");
            places(member, &format!("{at}/{escaped}"), &format!("{kind}/{key}"), found, seen);
        }),
        _ => {}
    }
}

/// Returns the document with one string after the other replaced, and with a hostile key in each object.
fn variants(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    places(document, "", "", &mut found, &mut BTreeSet::new());
    let mut all: Vec<Value> = Vec::new();
    for place in found.iter().take(8) {
        let mut changed = document.clone();
        *changed.pointer_mut(place).expect("just found") = hostile().into();
        all.push(changed);
    }
    for place in found.iter().take(4) {
        let mut changed = document.clone();
        let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
        if let Some(Value::Object(members)) = changed.pointer_mut(parent) {
            let first = members.keys().next().cloned().expect("it has a text");
            let member = members.remove(&first).expect("just found");
            members.insert(hostile(), member);
            all.push(changed);
        }
    }
    all.iter().map(Value::to_string).collect()
}

#[test]
fn no_name_from_a_json_file_forges_a_line() {
    let command = Anabranch::new();
    command.text(&["formats", "--write", "."]);
    let place = ["place", &bundled("mlp.onnx"), "--dim", "batch=1", "--no-gpu", "--random", "1"];
    let with = |option| [&place[..], &[option]].concat();
    let readers: [(&str, Vec<&str>); 10] = [
        ("plan.json", with("--place")),
        ("platform.json", with("--platform")),
        ("platform.json", vec!["simulate", "graph.csv"]),
        ("problem.json", vec!["simulate"]),
        ("problem.json", vec!["simulate", "--problem", "nope"]),
        ("problem.json", vec!["fit"]),
        ("assignment.json", vec!["simulate", "problem.json", "--assignment"]),
        ("pipeline.json", vec!["pipeline"]),
        ("stages.json", vec!["pipe", "--no-gpu", "--count", "1", "--plan"]),
        ("costs.json", vec!["costs", "--costs"]),
    ];
    for (file, arguments) in readers {
        let document: Value = serde_json::from_str(&command.read(file)).expect("an example");
        for (number, text) in variants(&document).iter().enumerate() {
            let name = format!("hostile-{number}.json");
            fs::write(command.path(&name), text).expect("writable");
            sound(&command, &[&arguments[..], &[&name]].concat());
        }
    }
    let drops = serde_json::json!([{"oid": "a", "type": "app", "command": "true", "outputs": ["b"]}, {"oid": "b", "type": "plain"}]);
    for text in variants(&drops) {
        fs::write(command.path("drops.graph"), text).expect("writable");
        sound(&command, &["flow", "drops.graph", "--dry-run"]);
    }
}

#[test]
fn no_name_from_another_file_forges_a_line() {
    let command = Anabranch::new();
    command.text(&["formats", "--write", "."]);
    let quoted = format!("\"{}\"", hostile());
    for (file, cell, arguments) in [
        ("graph.csv", "n0", vec!["simulate", "hostile.csv", "devices.csv"]),
        ("graph.csv", "NO", vec!["simulate", "hostile.csv", "devices.csv"]),
        ("devices.csv", "CPU", vec!["simulate", "graph.csv", "hostile.csv"]),
        ("devices.csv", "Id", vec!["simulate", "graph.csv", "hostile.csv"]),
        ("stages.csv", "decode", vec!["pipeline", "hostile.csv"]),
        ("stages.csv", "cpu0", vec!["pipeline", "hostile.csv"]),
    ] {
        fs::write(command.path("hostile.csv"), command.read(file).replacen(cell, &quoted, 1)).expect("writable");
        sound(&command, &arguments);
    }
    let mlp = bundled("mlp.onnx");
    let run = ["run", &mlp, "--dim", "batch=1", "--no-gpu", "--repeat", "1", "--no-learn"];
    sound(&command, &[&run[..], &["--input", &bundled("hostile/newline.safetensors")]].concat());
    // A member's name occurs twice in an archive, without a checksum.
    command.text(&[&run[..], &["--random", "1", "--output", "out.npz"]].concat());
    let mut archive = fs::read(command.path("out.npz")).expect("written");
    let name = b"logits.npy";
    let found: Vec<usize> = (0..archive.len() - name.len()).filter(|at| archive[*at..].starts_with(name)).collect();
    assert_eq!(found.len(), 2);
    found.into_iter().for_each(|at| archive[at..at + 6].copy_from_slice(b"a\n\x1b[2J"));
    fs::write(command.path("hostile.npz"), archive).expect("writable");
    sound(&command, &[&run[..], &["--input", "hostile.npz"]].concat());
    sound(&command, &[&run[..], &["--random", "1", "--expect", "hostile.npz"]].concat());
    for change in [
        |graph: &mut GraphProto| graph.node[0].op_type = hostile(),
        |graph: &mut GraphProto| graph.node[0].domain = hostile(),
        |graph: &mut GraphProto| graph.node[0].name = hostile(),
        |graph: &mut GraphProto| graph.name = hostile(),
        |graph: &mut GraphProto| graph.input[0] = ValueInfoProto::f32s(&hostile(), &[4]),
    ] {
        let mut graph = GraphProto {
            node: vec![NodeProto::of("Relu", &["x"], &["y"])],
            input: vec![ValueInfoProto::f32s("x", &[4])],
            output: vec![ValueInfoProto::f32s("y", &[4])],
            ..GraphProto::default()
        };
        change(&mut graph);
        fs::write(command.path("hostile.onnx"), ModelProto::of(graph, 17).to_bytes()).expect("writable");
        for action in [&["inspect"][..], &["run", "--random", "1", "--no-gpu", "--repeat", "1", "--no-learn"]] {
            sound(&command, &[action, &["hostile.onnx"]].concat());
        }
    }
}

#[test]
fn what_names_a_models_producer_begins_no_line() {
    let command = Anabranch::new();
    let graph = GraphProto {
        node: vec![NodeProto::of("Relu", &["x"], &["y"])],
        input: vec![ValueInfoProto::f32s("x", &[4])],
        output: vec![ValueInfoProto::f32s("y", &[4])],
        ..GraphProto::default()
    };
    let mut model = ModelProto::of(graph, 17);
    (model.producer_name, model.producer_version) = (hostile(), hostile());
    fs::write(command.path("hostile.onnx"), model.to_bytes()).expect("writable");
    sound(&command, &["inspect", "hostile.onnx"]);
}

/// Returns the arguments that read a file of past faults.
fn reading<'a>(file: &'a str, mlp: &'a str) -> Vec<&'a str> {
    let once = ["--no-gpu", "--repeat", "1", "--no-learn"];
    match Path::new(file).extension().and_then(|ending| ending.to_str()) {
        Some("json") => vec!["pipeline", file],
        Some("safetensors") => [&["run", mlp, "--dim", "batch=1", "--input", file][..], &once].concat(),
        _ => [&["run", file, "--random", "1", "--timeout", "30"][..], &once].concat(),
    }
}

#[test]
fn every_hostile_file_ends_in_one_line_or_a_result() {
    let command = Anabranch::new();
    let (folder, mlp) = (bundled("hostile"), bundled("mlp.onnx"));
    for entry in fs::read_dir(folder).expect("there").flatten().filter(|entry| entry.file_name() != "README.md") {
        let file = entry.path().display().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(reading(&file, &mlp))
            .env("XDG_DATA_HOME", command.directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(120);
        while child.try_wait().expect("our child").is_none() {
            if Instant::now() > deadline {
                child.kill().expect("our child");
                panic!("{file} takes too long");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(2) => {
                let lines: Vec<_> = said.lines().filter(|line| line.starts_with("anabranch: ")).collect();
                assert_eq!(lines.len(), 1, "{file}: {said}");
            }
            code => panic!("{file}: {code:?} {said}"),
        }
    }
}

#[test]
fn times_that_overflow_when_they_are_added_are_refused_by_name() {
    let command = Anabranch::new();
    command.text(&["formats", "--write", "."]);
    let huge = |file: &str, from: &str, to: &str| {
        let text = command.read(file);
        assert!(text.contains(from), "{file}: {from}");
        fs::write(command.path("huge.json"), text.replace(from, to)).expect("writable");
    };
    huge("pipeline.json", "0.024, 0.048", "1e308, 1e308");
    command.refuses(&["pipeline", "huge.json"], &["exceeds the range of a number"]);
    huge("pipeline.json", "\"latency\": 1e-6", "\"latency\": 1e308");
    command.refuses(&["pipeline", "huge.json"], &["exceeds the range of a number"]);
    huge("problem.json", "[5e-3, 2e-4]", "[1.7e308, 1.7e308]");
    for reader in ["simulate", "fit"] {
        command.refuses(&[reader, "huge.json"], &["exceeds the range of a number"]);
    }
    huge("platform.json", "\"latency\": 2e-5", "\"latency\": 1e308");
    let place = ["place", &bundled("mlp.onnx"), "--dim", "batch=1", "--no-gpu", "--random", "1", "--platform"];
    command.refuses(&[&place[..], &["huge.json"]].concat(), &["latency", "10^10"]);
    huge("platform.json", "\"bandwidth\": 1.7e10", "\"bandwidth\": 1e-300");
    command.refuses(&[&place[..], &["huge.json"]].concat(), &["rates", "10^-9"]);
    // Entries of a store that cannot be times are dropped individually, with a note.
    let mut store: Value = serde_json::from_str(&command.read("costs.json")).expect("an example");
    let machines = store["machines"].as_object_mut().expect("machines").values_mut();
    for device in machines.flat_map(|machine| machine["devices"].as_object_mut().expect("devices").values_mut()) {
        for node in device["nodes"].as_object_mut().expect("nodes").values_mut() {
            for history in node["versions"].as_object_mut().expect("versions").values_mut() {
                (history["mean"], history["min"]) = (1e308.into(), 1e308.into());
                history.as_object_mut().expect("a history").remove("recent");
            }
        }
    }
    fs::write(command.path("huge.json"), store.to_string()).expect("writable");
    let output = sound(&command, &["costs", "--costs", "huge.json"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid entries"), "{output:?}");
}

#[test]
fn a_platform_of_too_many_devices_is_refused_by_its_number() {
    let command = Anabranch::new();
    let device = |number: usize| serde_json::json!({"name": format!("cpu{number}"), "kind": "cpu"});
    let devices: Vec<_> = (0..1000).map(device).collect();
    let platform = serde_json::json!({"format": "anabranch-platform", "version": 1, "devices": devices});
    fs::write(command.path("platform.json"), platform.to_string()).expect("writable");
    let place = ["place", "--no-gpu", "--random", "1", "--platform", "platform.json"];
    command.refuses(&place, &["1000 devices", "256"]);
}
