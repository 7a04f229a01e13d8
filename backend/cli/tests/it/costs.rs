//! `anabranch calibrate` and `anabranch costs`: measurements are kept, and can be moved in files.

use crate::command::Anabranch;
use std::fs;

#[test]
fn calibration_goes_on_where_it_was_and_costs_travel_in_files() {
    let command = Anabranch::new();
    let first = command.json(&["calibrate", "--no-gpu", "--cpu-devices", "machine"]);
    assert!(first["measured"].as_u64().is_some_and(|steps| steps >= 2) && first["measured"] == first["steps"]);
    assert!(first["devices"][0]["rates"]["matmul_flops"].as_f64().is_some_and(|rate| rate > 0.0), "{first}");
    let again = command.json(&["calibrate", "--no-gpu", "--cpu-devices", "machine"]);
    assert_eq!(again["measured"], 0);
    // The output of a job lists every step.
    let said = command.run(&["calibrate", "--redo", "--no-gpu", "--cpu-devices", "machine"]);
    let stderr = String::from_utf8_lossy(&said.stderr).into_owned();
    let all = first["steps"].as_u64().expect("a number");
    assert!(stderr.contains("calibrating 1/") && stderr.contains(&format!("calibrating {all}/{all}: ")), "{stderr}");

    let nodes = |costs: &serde_json::Value| -> usize {
        let machines = costs["machines"].as_object().expect("machines").values();
        let devices = machines.flat_map(|machine| machine["devices"].as_object().expect("devices").values().cloned());
        devices.map(|device| device["nodes"].as_object().expect("nodes").len()).sum()
    };
    let known = nodes(&command.json(&["costs"]));
    for (file, format) in [("c.json", "json"), ("models", "starpu")] {
        command.json(&["costs", "--export", file, "--format", format]);
        let costs = format!("from-{format}.json");
        let imported = command.json(&["costs", "--import", file, "--format", format, "--costs", &costs]);
        assert_eq!(imported["nodes"], known, "{format}");
        assert_eq!(imported["other_machines"], serde_json::json!([]), "{format}");
        assert_eq!(nodes(&command.json(&["costs", "--costs", &costs])), known, "{format}");
    }
    let kept = fs::read(command.path("from-json.json")).expect("written");
    fs::write(command.path("bad.json"), "{\"version\": 77}").expect("writable");
    command.refuses(&["costs", "--import", "bad.json", "--costs", "from-json.json"], &["bad.json", "format is 77"]);
    assert_eq!(fs::read(command.path("from-json.json")).expect("kept"), kept);
}
