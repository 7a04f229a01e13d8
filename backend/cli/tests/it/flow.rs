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

/// Returns the processes that the command has started.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

#[cfg(target_os = "linux")]
fn is_there(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn machines_as_processes_give_the_same_and_send_what_is_counted() {
    let command = Anabranch::new();
    for (program, size, block) in
        [("lcs", "90", "15"), ("matmul", "40", "10"), ("forkjoin", "1000", "100"), ("pipeline", "1000", "50")]
    {
        let sized = ["flow", program, "--size", size, "--block", block, "--runs", "1"];
        let spread = ["--workers", "4", "--machines", "2", "--processes", "--scheduler", ALL];
        let report = command.json(&[&sized[..], &spread].concat());
        assert_eq!(report["processes"], true);
        for row in rows(&report) {
            let operands = &row["sent"]["operands"];
            assert_eq!(
                (&operands["messages"], &operands["bytes"]),
                (&row["messages"], &row["bytes"]),
                "{program} {row}"
            );
            assert!(row["sent"]["all"]["bytes"].as_u64() >= row["bytes"].as_u64(), "{program} {row}");
            assert_eq!(row["workers"].as_array().map(Vec::len), Some(4), "{program} {row}");
        }
    }
    // The counts equal those of emulated machines if nodes are placed identically.
    let sized =
        ["flow", "lcs", "--size", "60", "--block", "10", "--machines", "3", "--workers", "3", "--scheduler", "local"];
    let run = |more: &[&str]| command.json(&[&sized[..], more].concat());
    let apart = run(&["--processes", "--place", "hash", "-o", "list.txt"]);
    let emulated = run(&["--allocation", "list.txt"]);
    let counts = |report: &Value| (rows(report)[0]["messages"].clone(), rows(report)[0]["bytes"].clone());
    assert_eq!(counts(&apart), counts(&emulated));
    assert_eq!(rows(&emulated)[0]["sent"], Value::Null);
    let text = command.text(&[&sized[..], &["--processes", "--gantt", "chart.svg", "--trace", "trace.json"]].concat());
    assert!(text.contains("each a process") && text.contains("over sockets"), "{text}");
    assert!(command.read("chart.svg").contains("machine 2 worker2"));
}

/// A process that is killed ends the run with an error that names it. No other process is left.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_dies_ends_the_run_and_none_is_left() {
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    for (scheduler, victim, signal, code, says) in [
        ("local", "machine", "KILL", Some(2), "machine 1"),
        ("central", "machine", "KILL", Some(2), "machine 1"),
        ("local", "leader", "INT", Some(130), "interrupted"),
        ("central", "leader", "TERM", Some(130), "interrupted"),
        ("local", "leader", "KILL", None, ""),
        ("central", "leader", "KILL", None, ""),
    ] {
        // Runs of some tenths of a second, without end.
        let mut leader = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args([
                "flow",
                "pipeline",
                "--size",
                "100000000",
                "--block",
                "100000",
                "--runs",
                "10000",
                "--place",
                "hash",
            ])
            .args(["--machines", "3", "--workers", "3", "--processes", "--scheduler", scheduler])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut seen = Vec::new();
        while leader.try_wait().expect("it is our child").is_none() {
            assert!(Instant::now() < deadline, "{scheduler} {victim} {signal}");
            let others = children(leader.id());
            // The leader is signalled only once: a second signal would end it at once.
            if let ([first, _], true) = (&others[..], victim == "machine" || seen.is_empty()) {
                // A machine whose part of a run is over is not missed until the next run.
                let to = if victim == "leader" { leader.id() } else { *first };
                assert!(
                    Command::new("kill")
                        .arg(format!("-{signal}"))
                        .arg(to.to_string())
                        .stderr(Stdio::null())
                        .status()
                        .is_ok()
                );
                seen.extend(others);
            }
            sleep(Duration::from_millis(50));
        }
        let output = leader.wait_with_output().expect("it has ended");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{scheduler} {victim} {signal}: {message}");
        assert!(message.contains(says), "{scheduler} {victim} {signal}: {message}");
        assert!(!seen.is_empty());
        while seen.iter().any(|process| is_there(*process)) {
            assert!(Instant::now() < deadline, "a process is left: {scheduler} {victim} {signal}");
            sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn processes_are_refused_where_they_cannot_be() {
    let command = Anabranch::new();
    command.refuses(&["flow", "lcs", "--processes"], &["--machines"]);
    let many = ["flow", "lcs", "--size", "10", "--machines", "33", "--workers", "33", "--processes"];
    command.refuses(&many, &["33 machines", "fewer --machines"]);
    let list: String = (0..4).map(|node| format!("{node} 1\n")).collect();
    fs::write(command.path("far.txt"), list).expect("written");
    let far = [
        "flow",
        "pipeline",
        "--size",
        "10",
        "--machines",
        "2",
        "--workers",
        "2",
        "--processes",
        "--allocation",
        "far.txt",
    ];
    command.refuses(&far, &["\"kept\"", "machine 0"]);
    command.refuses(&["flow-machine"], &["--processes", "by hand"]);
    assert!(!command.text(&["--help"]).contains("flow-machine"));
}
