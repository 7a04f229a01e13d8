//! Machines that do not exist: platform files, and CPU devices that emulate slower ones.

use crate::command::Anabranch;
use serde_json::{Value, json};
use std::fs;

/// Returns the number of nodes that a plan for the platform file `file` has on each of these devices.
fn placed(command: &Anabranch, file: &Value, devices: &[&str]) -> Vec<usize> {
    fs::write(command.path("other.json"), file.to_string()).expect("writable");
    let plan = command.json(&["place", "--no-gpu", "--platform", "other.json", "--place", "heft"]);
    let nodes = plan["nodes"].as_array().expect("nodes");
    devices.iter().map(|device| nodes.iter().filter(|node| node["device"] == **device).count()).collect()
}

#[test]
fn a_model_is_placed_on_a_machine_that_is_not_there() {
    let command = Anabranch::new();
    let rates = |flops: f64| json!({ "matmul_flops": flops, "conv_flops": flops, "map_flops": flops, "bandwidth": flops / 4.0, "launch": 1e-9 });
    let file = |flops: f64, rate: f64| {
        json!({
            "format": "anabranch-platform", "version": 1, "extends": true,
            "devices": [{ "name": "gpu7", "kind": "gpu", "memory": "4 GiB", "rates": rates(flops) }],
            "links": [
                { "from": "cpu0", "to": "gpu7", "latency": 1e-9, "rate": rate },
                { "from": "gpu7", "to": "cpu0", "latency": 1e-9, "rate": rate }
            ]
        })
    };
    let fast = placed(&command, &file(1e16, 1e15), &["cpu0", "gpu7"]);
    assert!(fast[1] > fast[0], "a fast GPU behind a fast link takes most nodes: {fast:?}");
    let slow = placed(&command, &file(1e3, 1e15), &["gpu7"]);
    assert_eq!(slow, [0], "a slow GPU takes none");
    let far = placed(&command, &file(1e16, 1.0), &["gpu7"]);
    assert_eq!(far, [0], "nor does one behind a slow link");
    let small = json!({
        "format": "anabranch-platform", "version": 1, "extends": true,
        "devices": [{ "name": "cpu0", "memory": 1000 }]
    });
    fs::write(command.path("small.json"), small.to_string()).expect("writable");
    command.refuses(&["place", "--no-gpu", "--platform", "small.json"], &["cpu0", "1000 bytes"]);
}

#[test]
fn the_present_platform_is_written_and_places_as_the_machine_does() {
    let command = Anabranch::new();
    command.json(&["place", "--software-gpu", "--place", "mite"]);
    command.text(&["platform", "--software-gpu", "-o", "here.json"]);
    let written: Value = serde_json::from_str(&command.read("here.json")).expect("JSON");
    let names: Vec<_> = written["devices"].as_array().expect("devices").iter().map(|d| d["name"].clone()).collect();
    assert!(names.contains(&json!("cpu0")) && names.contains(&json!("gpu0")), "{names:?}");
    let here = command.json(&["place", "--software-gpu", "--place", "mite"]);
    let there = command.json(&["place", "--software-gpu", "--place", "mite", "--platform", "here.json"]);
    let devices = |plan: &Value| -> Vec<Value> {
        plan["nodes"].as_array().expect("nodes").iter().map(|node| node["device"].clone()).collect()
    };
    assert_eq!(devices(&here), devices(&there));
    assert!(command.text(&["platform", "--software-gpu"]).contains("cpu0 -> gpu0"));
    fs::write(command.path("bad.json"), "{}").expect("writable");
    command.refuses(&["place", "--platform", "bad.json"], &["bad.json", "anabranch platform -o"]);
    command.refuses(&["graph", "-o", "g.json", "--platform", "none.json"], &["none.json"]);
}

#[test]
fn a_slowed_device_computes_the_same_and_is_measured_as_slow() {
    let command = Anabranch::new();
    let plain = ["run", "--no-gpu", "--repeat", "3", "--output", "plain.npz"];
    let slow = ["run", "--no-gpu", "--repeat", "3", "--output", "slow.npz", "--emulate", "cpu0=50"];
    command.json(&plain);
    command.json(&slow);
    assert_eq!(fs::read(command.path("plain.npz")).ok(), fs::read(command.path("slow.npz")).ok());
    let costs = command.json(&["costs"]);
    let machines = costs["machines"].as_object().expect("machines").values();
    let devices = machines.flat_map(|machine| machine["devices"].as_object().expect("devices").keys());
    let keys: Vec<_> = devices.collect();
    assert_eq!(keys.iter().filter(|key| key.ends_with("50 times slower")).count(), 1, "{keys:?}");
    command.refuses(&["run", "--no-gpu", "--emulate", "gpu0=2"], &["gpu0", "cpu0"]);
    command.refuses(&["run", "--no-gpu", "--emulate", "cpu0=0"], &["1 to 1000"]);
}
