//! Every command and file describes the whole run of a model in phases.

use crate::command::Anabranch;
use anabranch::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use serde_json::Value;

/// Columns of the matrices of the second phase.
const WIDTH: usize = 64;

/// Returns a comparison, then products of the positive elements: their number is computed, and nearly all work is in
/// the second phase.
fn picked() -> Vec<u8> {
    let width = WIDTH as i64;
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|at| ((at * 7 % 13) as f32 - 6.0) / 64.0).collect();
    let constants = vec![
        TensorProto::f32s("zero", &[], &[0.0]),
        TensorProto::f32s("row", &[1, width], &[0.5; WIDTH]),
        TensorProto::f32s("weights", &[width, width], &weights),
        TensorProto::i64s("axis", &[1], &[1]),
    ];
    let mut nodes = vec![
        NodeProto::of("Greater", &["x", "zero"], &["is"]),
        NodeProto::of("Compress", &["x", "is"], &["p"]).named("compress"),
        NodeProto::of("Unsqueeze", &["p", "axis"], &["column"]),
        NodeProto::of("Mul", &["column", "row"], &["v0"]),
    ];
    for at in 0..4 {
        let (from, to) = (format!("v{at}"), format!("v{}", at + 1));
        nodes.push(NodeProto::of("MatMul", &[&from, "weights"], &[&to]).named(&format!("heavy/MatMul_{at}")));
    }
    let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT, vec![DimensionProto::symbol("n")])];
    let output = vec![ValueInfoProto { name: "v4".into(), r#type: None }];
    let graph = GraphProto { node: nodes, initializer: constants, input, output, ..GraphProto::default() };
    ModelProto::of(graph, 17).to_bytes()
}

/// Arguments of all commands.
const MODEL: [&str; 8] = ["m.onnx", "--random", "1", "--dim", "n=900", "--no-gpu", "--cpu-devices", "machine"];

fn command() -> Anabranch {
    let command = Anabranch::new();
    std::fs::write(command.path("m.onnx"), picked()).expect("written");
    command
}

fn with<'a>(name: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [&[name], &MODEL[..], options].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Whether two times in milliseconds, or two counts, are the same. Events and pages have whole nanoseconds.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs()) + 1e-6
}

/// Returns the data in a page.
fn data(command: &Anabranch, page: &str) -> Value {
    let text = command.read(page);
    let json = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn report_events_trace_chart_and_page_are_of_all_phases() {
    let command = command();
    let files = ["--profile", "events.json", "--trace", "t.json", "--gantt", "g.svg", "--report", "page.html"];
    let report = command.json(&with("run", &[&["--repeat", "3", "--top", "50"], &files[..]].concat()));
    let phases = &report["phases"];
    let each = phases["each"].as_array().expect("a line for each plan");
    let sum = |key: &str| each.iter().map(|line| number(&line[key])).sum::<f64>();
    assert_eq!(each.len(), 2, "{phases}");
    assert!(near(number(&report["profiled_makespan_ms"]), number(&phases["took_ms"])), "{report}");
    assert!(number(&phases["took_ms"]) >= sum("measured_ms") + number(&phases["steps_ms"]), "{phases}");
    assert!(number(&report["predicted_makespan_ms"]) >= sum("predicted_ms"), "{report}");
    assert!(near(number(&report["nodes"]), sum("nodes")) && sum("nodes") > number(&each[0]["nodes"]), "{report}");
    assert_eq!(report["measured_makespan_ms"], report["latency_ms"]["median"]);
    let peaks = each.iter().map(|line| number(&line["peak_bytes"][0]));
    assert!(near(number(&report["devices"][0]["peak_bytes"]), peaks.fold(0.0, f64::max)), "{report}");

    let events: Value = serde_json::from_str(&command.read("events.json")).expect("JSON");
    assert!(near(number(&events["makespan_ns"]) * 1e-6, number(&phases["took_ms"])));
    let events = events["events"].as_array().expect("events");
    let of = |kind: &'static str| events.iter().filter(move |event| event["kind"] == kind);
    assert_eq!(of("step").map(|step| &step["name"]).collect::<Vec<_>>(), ["compress"]);
    let heavy = of("node").filter(|node| node["name"].as_str().is_some_and(|name| name.contains("MatMul")));
    assert!(heavy.clone().count() == 4 && heavy.clone().all(|node| node["phase"] == 1), "{events:?}");
    let busy = |event: &Value| number(&event["end_ns"]) - number(&event["start_ns"]) - number(&event["waited_ns"]);
    let nodes = of("node").map(busy).sum::<f64>() * 1e-6;
    assert!(near(number(&report["devices"][0]["busy_ms"]), nodes), "{report}");

    let slowest = report["slowest"]["nodes"].as_array().expect("nodes");
    assert_eq!(slowest.len(), of("node").count() + 1);
    let named = |name: &str| slowest.iter().any(|node| node["node"].as_str().is_some_and(|own| own.contains(name)));
    assert!(named("MatMul") && named("compress"), "{slowest:?}");

    let trace: Value = serde_json::from_str(&command.read("t.json")).expect("JSON");
    let slices = trace["traceEvents"].as_array().expect("events");
    let count = |category: &str| slices.iter().filter(|slice| slice["ph"] == "X" && slice["cat"] == category).count();
    assert_eq!((count("phase"), count("step"), count("node")), (2, 1, of("node").count()));
    assert!(command.read("g.svg").contains("MatMul") && command.read("g.svg").contains("host operators"));

    let data = data(&command, "page.html");
    assert!(near(number(&data["measured"]["makespan_ns"]) * 1e-6, number(&phases["took_ms"])));
    assert!(
        near(number(&data["predicted"]["makespan_ns"]) * 1e-6, number(&report["predicted_makespan_ms"])),
        "{report}"
    );
    let shown = data["nodes"].as_array().expect("nodes");
    let place = |name: &str| shown.iter().position(|node| node["name"].as_str().is_some_and(|own| own.contains(name)));
    let (step, heavy) = (place("compress").expect("the step"), place("MatMul").expect("a product"));
    assert!(number(&shown[heavy]["measured"]["start"]) >= number(&shown[step]["measured"]["end"]));
    // The output of the step leads to the second phase.
    let edges = data["edges"].as_array().expect("edges");
    assert!(edges.iter().any(|edge| edge["from"] == step) && edges.iter().any(|edge| edge["to"] == step), "{edges:?}");
    assert!(edges.iter().all(|edge| (number(&edge["to"]) as usize) < shown.len()));
    assert_eq!(data["facts"]["phases"]["each"].as_array().map(Vec::len), Some(2));
}

#[test]
fn before_the_first_run_nothing_is_predicted_of_phases() {
    let command = command();
    let cold = ["--repeat", "1", "--warmup", "0"];
    let report = command.json(&with("run", &cold));
    assert_eq!((&report["predicted_makespan_ms"], &report["makespan_error_percent"]), (&Value::Null, &Value::Null));
    assert_eq!(report["prediction"], "unknown_before_the_first_run");
    let text = command.text(&with("run", &cold));
    assert!(text.contains("predicted unknown before the first run"), "{text}");
    assert!(text.contains("shapes follow from computed values"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn other_commands_measure_whole_runs_too() {
    let command = command();
    let report = command.json(&with("run", &["--repeat", "2"]));
    let (nodes, peak) = (&report["nodes"], &report["devices"][0]["peak_bytes"]);
    let same = |told: &Value, device: &Value| {
        assert_eq!((&device["nodes"], device.get("peak_bytes").unwrap_or(&device["peak"])), (nodes, peak), "{told}")
    };
    let watched = command.json(&with("watch", &["--duration", "0.3"]));
    same(&watched, &watched["devices"][0]);
    let compared = command.json(&with("compare", &["--place", "heft", "--repeat", "2"]));
    same(&compared, &compared["outcomes"][0]["devices"][0]);
    assert!(compared["outcomes"][0]["predicted_ms"].is_f64(), "{compared}");
    let benched = command.json(&[
        "bench",
        "m.onnx",
        "--random",
        "1",
        "--dim",
        "n=900",
        "--no-gpu",
        "--cpu-devices",
        "machine",
        "--place",
        "heft",
        "--repeat",
        "2",
    ]);
    same(&benched, &benched["models"][0]["outcomes"][0]["devices"][0]);
    let quiet = command.text(&with("run", &["--repeat", "2", "--quiet"]));
    assert!(quiet.starts_with("m.onnx: median of 2 "), "{quiet}");
    let fitted = command.json(&with("fit", &["--place", "heft", "--repeat", "2", "--within", "1000%"]));
    assert!(fitted["whole"]["predicted_ms"].is_f64() && fitted["beside"].is_null(), "{fitted}");
    assert_eq!(&fitted["whole"]["measured_bytes"], peak, "{fitted}");
}
