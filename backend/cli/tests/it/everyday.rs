//! Everyday commands: time per operator, reasons for a node's device, lists, manuals and completions.

use crate::command::{Anabranch, bundled};
use std::fs;

#[test]
fn a_run_tells_where_its_time_goes() {
    let command = Anabranch::new();
    let run = ["run", "--no-gpu", "--repeat", "3", "--top", "2"];
    let report = command.json(&run);
    let (nodes, operators) = (&report["slowest"]["nodes"], &report["slowest"]["operators"]);
    let times = |lines: &serde_json::Value| -> Vec<f64> {
        let lines = lines.as_array().expect("lines").iter();
        lines.map(|line| line["measured_ms"].as_f64().expect("a time")).collect()
    };
    assert_eq!(times(nodes).len(), 2);
    assert!(times(nodes).is_sorted_by(|a, b| a >= b) && times(operators).is_sorted_by(|a, b| a >= b), "{report}");
    let counted: u64 = operators.as_array().expect("lines").iter().filter_map(|line| line["nodes"].as_u64()).sum();
    assert_eq!(Some(counted), report["nodes"].as_u64());
    let shares: f64 =
        operators.as_array().expect("lines").iter().filter_map(|line| line["share_percent"].as_f64()).sum();
    assert!((shares - 100.0).abs() < 1e-6, "{shares}");
    let text = command.text(&run);
    assert!(text.contains("slowest nodes") && text.contains("runs a second") && text.contains("p99"), "{text}");
}

#[test]
fn runs_are_measured_for_a_time() {
    let command = Anabranch::new();
    let report = command.json(&["run", "--no-gpu", "--duration", "0.05", "--warmup", "0"]);
    let latency = &report["latency_ms"];
    assert!(latency["runs"].as_u64() >= Some(1), "{latency}");
    assert!(latency["p90"].as_f64() <= latency["p95"].as_f64() && latency["p95"].as_f64() <= latency["p99"].as_f64());
    assert!(latency["runs_per_second"].as_f64() > Some(0.0));
    command.refuses(&["run", "--duration", "0"], &["more than 0 seconds"]);
    command.refuses(&["run", "--duration", "1", "--repeat", "2"], &["--duration", "--repeat"]);
}

#[test]
fn a_node_tells_why_it_is_where_it_is() {
    let command = Anabranch::new();
    let model = bundled("convnet.onnx");
    fn place<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["place", model, "--no-gpu", "--cpu-devices", "core", "--random", "1"], more].concat()
    }
    let plan = command.json(&place(&model, &[]));
    let node =
        plan["nodes"].as_array().expect("nodes").last().expect("a node")["node"].as_str().expect("a name").to_owned();
    let pin = format!("{node}=cpu0");
    let why = command.json(&place(&model, &["--why", &node, "--pin", &pin]));
    assert_eq!((why["node"].as_str(), &why["device"]), (Some(&node[..]), &"cpu0".into()));
    assert!(why["devices"].as_array().is_some_and(|devices| !devices.is_empty()), "{why}");
    assert!(!why["reason"].as_str().expect("a reason").is_empty() && why["inputs"].as_array().is_some());
    assert!(why["end_ms"].as_f64() >= why["start_ms"].as_f64());
    assert!(command.text(&place(&model, &["--why", &node])).contains("because"), "{node}");
    command.refuses(&place(&model, &["--why", "none such"]), &["no node is called `none such`", "anabranch place"]);
}

#[test]
fn strategies_completions_and_manuals_are_at_hand() {
    let command = Anabranch::new();
    let strategies = command.json(&["strategies"]);
    let heft = strategies.as_array().expect("a list").iter().find(|entry| entry["name"] == "heft").expect("HEFT");
    for key in ["does", "source", "time", "when"] {
        assert!(!heft[key].as_str().unwrap_or_default().is_empty(), "{key}: {heft}");
    }
    let text = command.text(&["strategies"]);
    assert!(text.contains("Topcuoglu 2002") && text.contains("list:est:path"));
    for shell in ["bash", "zsh", "fish"] {
        let script = command.text(&["completions", shell]);
        assert!(script.contains("inspect") && script.contains("no-fuse"), "{shell}");
    }
    let written = command.run(&["man", "pages"]);
    assert!(written.status.success() && String::from_utf8_lossy(&written.stderr).contains("wrote pages/anabranch.1"));
    let page = fs::read_to_string(command.path("pages/anabranch-run.1")).expect("written");
    assert!(page.contains("\\-\\-top") && page.contains(".TH"), "{page}");
    let version = command.text(&["--version"]);
    for part in ["kernels", "wgpu", "hwloc"] {
        assert!(version.contains(part), "{version}");
    }
    assert_eq!(command.text(&["-V"]).lines().count(), 1);
}
