//! `anabranch dataflow`, from the outside: schedules that are proven, models as graphs, and clear refusals.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type};
use serde_json::Value;
use std::fs;

/// Returns the schedules of a report.
fn schedules(report: &Value) -> &[Value] {
    report["schedules"].as_array().expect("schedules")
}

#[test]
fn one_processing_element_is_counted_as_one() {
    let text = Anabranch::new().text(&["dataflow", "chain:1", "--pes", "1"]);
    assert!(text.contains("on 1 processing element: makespan"), "{text}");
}

#[test]
fn schedules_are_proven_by_simulation_and_no_longer_than_without_streaming() {
    let command = Anabranch::new();
    let mut shortest = Vec::new();
    for variant in ["best", "lts", "rlx"] {
        let report = command.json(&["dataflow", "cholesky:4", "--pes", "4,8", "--variant", variant, "--seed", "3"]);
        assert_eq!((report["tasks"].as_u64(), schedules(&report).len()), (Some(20), 2));
        for (number, schedule) in schedules(&report).iter().enumerate() {
            let (makespan, list) = (schedule["makespan"].as_u64(), schedule["list_makespan"].as_u64());
            if variant == "best" {
                assert!(makespan <= list && schedule["simulated_makespan"].as_u64() <= makespan, "{schedule}");
                shortest.push(makespan);
            }
            assert!(shortest[number] <= makespan, "{schedule}");
            assert!(schedule["simulated_makespan"].is_u64() && schedule["not_simulated"].is_null(), "{schedule}");
        }
    }
    let unproven = command.json(&["dataflow", "cholesky:4", "--steps", "10"]);
    assert!(
        schedules(&unproven)[0]["not_simulated"]
            .as_str()
            .expect("a reason")
            .contains("the limit of the simulation is 10")
    );
    let list = command.json(&["dataflow", "cholesky:4", "--variant", "none"]);
    assert_eq!(schedules(&list)[0]["makespan"], schedules(&list)[0]["list_makespan"]);
}

#[test]
fn a_file_s_graph_is_scheduled_task_by_task_and_drawn() {
    let command = Anabranch::new();
    let graph = r#"{"nodes": [{"id": 0, "out": 32, "pseudo": true}, {"id": 1, "in": 32, "out": 4}, {"id": 2, "in": 4, "out": 2},
        {"id": 3, "in": 2, "out": 32}, {"id": 4, "in": 32, "out": 32}, {"id": 5, "in": 32, "out": 32}],
        "edges": [[0, 5, 32], [5, 1, 32], [5, 4, 32], [1, 2, 4], [2, 3, 2], [3, 4, 32]]}"#;
    fs::write(command.path("graph.json"), graph).expect("written");
    let report = command.json(&["dataflow", "graph.json", "--pes", "8", "--variant", "rlx", "--gantt", "chart.svg"]);
    let schedule = &schedules(&report)[0];
    assert_eq!((schedule["makespan"].as_u64(), schedule["blocks"].as_u64()), (Some(51), Some(1)));
    let channel = &schedule["channels"][0];
    assert_eq!(
        (channel["from"].as_str(), channel["to"].as_str(), channel["capacity"].as_u64()),
        (Some("5"), Some("4"), Some(18))
    );
    let svg = command.read("chart.svg");
    assert_eq!(svg.matches("<title>").count(), 1 + 5);
    assert!(svg.contains("block 1") && svg.contains("units in which a task reads"), "{svg}");
    // Each block has its own colour.
    command.text(&["dataflow", "graph.json", "--pes", "2", "--gantt", "chart.svg"]);
    let svg = command.read("chart.svg");
    assert!(["class=\"c1\"", ">block 2<", "of block 2:"].iter().all(|part| svg.contains(part)), "{svg}");
}

#[test]
fn models_become_graphs_of_the_granularity_that_is_asked_for() {
    let command = Anabranch::new();
    let model = bundled("vit.onnx");
    let tasks = |arguments: &[&str]| {
        let report = command.json(&[&["dataflow", &model, "--pes", "16", "--dim", "batch=2"], arguments].concat());
        assert!(report["streaming_depth"].is_u64() && report["conversion_seconds"].is_f64(), "{report}");
        report["tasks"].as_u64().expect("tasks")
    };
    let (fine, coarse, unfused) = (tasks(&[]), tasks(&["--tasks", "1"]), tasks(&["--tasks", "1", "--no-fuse"]));
    assert!(fine > 4 * coarse && coarse < 100 && unfused > coarse, "{fine} {coarse} {unfused}");
}

/// Returns a convolution between QuantizeLinear and DequantizeLinear: CPUs compute it in integers, GPUs in floats.
fn quantised_convolution() -> Vec<u8> {
    let scaled = |kind: &str, from: &str, to: &str| NodeProto::of(kind, &[from, "scale", "zero"], &[to]);
    let node = vec![
        scaled("QuantizeLinear", "x", "xq"),
        scaled("DequantizeLinear", "xq", "xd"),
        scaled("DequantizeLinear", "wq", "w"),
        NodeProto::of("Conv", &["xd", "w"], &["c"]),
        NodeProto::of("Relu", &["c"], &["r"]),
        scaled("QuantizeLinear", "r", "rq"),
        scaled("DequantizeLinear", "rq", "y"),
    ];
    let initializer = vec![
        TensorProto::f32s("scale", &[], &[0.125]),
        TensorProto::raw("zero", data_type::UINT8, &[], vec![7]),
        TensorProto::raw("wq", data_type::UINT8, &[4, 2, 3, 3], (0..72).collect()),
    ];
    let input = vec![ValueInfoProto::f32s("x", &[1, 2, 8, 8])];
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    ModelProto::of(GraphProto { node, initializer, input, output, ..GraphProto::default() }, 17).to_bytes()
}

#[test]
fn a_model_is_lowered_as_runs_on_the_same_devices_compute_it() {
    let command = Anabranch::new();
    std::fs::write(command.path("q.onnx"), quantised_convolution()).expect("writable");
    let nodes = |devices: &str| {
        let report = command.json(&["dataflow", "q.onnx", "--tasks", "1", devices]);
        let placed = command.json(&["place", "q.onnx", devices]);
        let nodes = placed["nodes"].as_array().expect("nodes").len();
        assert_eq!(report["operators"], nodes, "{devices}");
        nodes
    };
    assert_ne!(nodes("--no-gpu"), nodes("--software-gpu"));
}

#[test]
fn what_cannot_be_scheduled_is_refused_with_the_next_step() {
    let command = Anabranch::new();
    for (arguments, part) in [
        (&["dataflow", "spiral:4"][..], "the shapes are chain"),
        (&["dataflow", "residual:51"], "50, 101 or 152"),
        (&["dataflow", "chain:x"], "not a whole number"),
        (&["dataflow", "missing.json"], "missing.json"),
        (&["dataflow", "chain:8", "--pes", "2,4", "--gantt", "a.svg"], "one number to --pes"),
        (&["dataflow"], "required"),
        // The earlier name of the command.
        (&["stream", "spiral:4"], "the shapes are chain"),
    ] {
        command.refuses(arguments, &[part]);
    }
}
