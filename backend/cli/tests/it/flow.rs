//! `anabranch flow`, from the outside: right answers under every scheduler, placements as files, charts, and clear
//! refusals.

use crate::command::Anabranch;
use serde_json::Value;
use std::fs;

const ALL: &str = "central,central-stealing,local,stealing";

fn rows(report: &Value) -> &[Value] {
    report["schedulers"].as_array().expect("schedulers")
}

#[test]
fn every_program_is_right_under_every_scheduler() {
    let command = Anabranch::new();
    for (program, size, block, nodes) in [
        ("lcs", "90", "20", 5 * 5 + 3),
        ("matmul", "40", "16", 3 + 3 + 9 + 2),
        ("forkjoin", "1000", "100", 13),
        ("pipeline", "1000", "90", 4),
    ] {
        let sized = ["flow", program, "--size", size, "--block", block, "--runs", "2"];
        let spread = ["--workers", "4", "--machines", "2", "--scheduler", ALL];
        let report = command.json(&[&sized[..], &spread].concat());
        assert_eq!(report["nodes"], nodes, "{program}");
        let names: Vec<&str> = rows(&report).iter().filter_map(|row| row["scheduler"].as_str()).collect();
        assert_eq!(names.join(","), ALL);
        for row in rows(&report) {
            assert_eq!(row["all_seconds"].as_array().map(Vec::len), Some(2), "{row}");
            assert_eq!(row["workers"].as_array().map(Vec::len), Some(4), "{row}");
            assert!(row["tasks"].as_u64() >= Some(nodes), "{row}");
        }
        assert_eq!((&rows(&report)[2]["stolen"], &rows(&report)[0]["stolen"]), (&0.into(), &0.into()));
    }
    let text = command.text(&["flow", "lcs", "--size", "50", "--block", "10"]);
    assert!(text.contains("a plain loop") && text.contains("stealing"), "{text}");
}

#[test]
fn placements_are_written_read_and_kept() {
    let command = Anabranch::new();
    let sized =
        ["flow", "lcs", "--size", "60", "--block", "10", "--workers", "2", "--machines", "2", "--scheduler", "local"];
    let run = |more: &[&str]| command.json(&[&sized[..], more].concat());
    let placed = run(&["--place", "heft", "-o", "plan.json"]);
    run(&["--place", "heft", "-o", "list.txt"]);
    let plan: Value = serde_json::from_str(&command.read("plan.json")).expect("JSON");
    assert_eq!((&plan["strategy"], plan["nodes"].as_array().map(Vec::len)), (&"heft".into(), Some(39)));
    assert_eq!(command.read("list.txt").lines().count(), 39);
    for file in ["plan.json", "list.txt"] {
        let given = run(&["--allocation", file]);
        assert_eq!(
            (&given["place"], &rows(&given)[0]["messages"]),
            (&"given".into(), &rows(&placed)[0]["messages"]),
            "{file}"
        );
    }
    // All nodes on the first worker: nothing has to be sent.
    let lone: String = (0..39).map(|node| format!("{node} 0\n")).collect();
    fs::write(command.path("lone.txt"), lone).expect("written");
    assert_eq!(rows(&run(&["--allocation", "lone.txt"]))[0]["messages"], 0);
}

#[test]
fn measured_weights_go_through_the_cost_store() {
    let command = Anabranch::new();
    let sized = ["flow", "forkjoin", "--size", "100000", "--block", "10000", "--workers", "2"];
    let report =
        command.json(&[&sized[..], &["--weights", "measured", "--costs", "costs.json", "--place", "heft"]].concat());
    assert!(report["predicted_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0 && seconds < 1.0), "{report}");
    assert!(command.read("costs.json").contains("workers of flow forkjoin 100000/10000"));
    assert!(command.text(&["costs", "show", "--costs", "costs.json"]).contains("workers of flow forkjoin"));
}

#[test]
fn runs_are_drawn_and_traced() {
    let command = Anabranch::new();
    let sized = ["flow", "pipeline", "--size", "100000", "--block", "10000", "--workers", "2", "--machines", "2"];
    command.text(&[&sized[..], &["--gantt", "chart.svg", "--trace", "trace.json"]].concat());
    let svg = command.read("chart.svg");
    assert!(svg.contains("machine 1 worker1") && svg.contains("parts, iteration 3"), "{svg}");
    let trace: Value = serde_json::from_str(&command.read("trace.json")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let parts = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "parts").count();
    assert!(parts >= 10, "{parts}");
}

#[test]
fn what_cannot_be_run_is_refused_with_the_next_step() {
    let command = Anabranch::new();
    command.refuses(&["flow", "lcs", "--workers", "3", "--machines", "2"], &["3 workers", "multiple of the machines"]);
    command.refuses(&["flow", "lcs", "--workers", "0"], &["1 to 1024"]);
    command.refuses(&["flow", "lcs", "--size", "10000", "--block", "1"], &["--block 1", "larger blocks"]);
    command.refuses(&["flow", "matmul", "--size", "100000"], &["at most 16384"]);
    command.refuses(&["flow", "lcs", "--size", "10", "--place", "best"], &["\"best\"", "heft"]);
    command.refuses(&["flow", "lcs", "--size", "10", "--allocation", "none.txt"], &["none.txt"]);
    fs::write(command.path("bad.txt"), "0 0\nx y\n").expect("written");
    command.refuses(&["flow", "lcs", "--size", "10", "--allocation", "bad.txt"], &["bad.txt", "line 2"]);
    fs::write(command.path("bad.json"), "{\"version\": 1, \"nodes\": []}").expect("written");
    command.refuses(&["flow", "lcs", "--size", "10", "--allocation", "bad.json"], &["bad.json", "\"edge\""]);
    fs::write(command.path("wide.txt"), "0 0\n1 7\n2 0\n3 0\n4 0\n5 0\n6 0\n").expect("written");
    let wide = ["flow", "lcs", "--size", "20", "--block", "10", "--workers", "2", "--allocation", "wide.txt"];
    command.refuses(&wide, &["wide.txt", "on worker 7", "0 to 1"]);
    command.refuses(&["flow", "sort"], &["sort", "pipeline"]);
}
