//! Traces of a real run: well formed and nested. Counters end at their first value, and flows have both ends.

use crate::command::Anabranch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const RUN: [&str; 8] = ["run", "--software-gpu", "--cpu-devices", "core", "--place", "heft", "--pin", "*conv*=gpu0"];

/// Returns track, start and end, in nanoseconds.
fn interval(event: &Value) -> ((u64, u64), u64, u64) {
    let nanoseconds = |key: &str| (event[key].as_f64().expect("microseconds") * 1e3).round() as u64;
    let number = |key: &str| event[key].as_u64().expect("an id");
    ((number("pid"), number("tid")), nanoseconds("ts"), nanoseconds("ts") + nanoseconds("dur"))
}

#[test]
fn perfetto_gets_nested_slices_whole_flows_and_counters() {
    let command = Anabranch::new();
    let report = command.json(&[&RUN[..], &["--trace", "t.json"]].concat());
    let trace: Value = serde_json::from_str(&command.read("t.json")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);

    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    of("X").map(interval).for_each(|(track, start, end)| tracks.entry(track).or_default().push((start, end)));
    for (track, slices) in &tracks {
        let mut open: Vec<u64> = Vec::new();
        for (start, end) in slices {
            open.retain(|outer| outer > start);
            assert!(open.iter().all(|outer| end <= outer), "track {track:?}: {slices:?}");
            open.push(*end);
        }
    }
    let nodes = of("X").filter(|event| event["cat"] == "node").count();
    assert_eq!(Some(nodes as u64), report["nodes"].as_u64());
    let named = |name: &str| of("M").filter(|event| event["name"] == name).count();
    assert_eq!((named("process_name"), named("thread_name")), (3, named("thread_sort_index")));
    assert_eq!(of("X").filter(|event| event["cat"] == "predicted").count(), nodes, "each node has a predicted time");
    let facts = &trace["otherData"];
    assert!(facts["model"].is_string() && facts["machine"].is_string() && facts["version"].is_string(), "{facts}");
    assert!(tracks.len() >= 4, "the run, a CPU, the GPU and a link: {tracks:?}");

    let mut flows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    events
        .iter()
        .filter(|event| event["cat"] == "flow")
        .for_each(|event| flows.entry(event["id"].as_u64().expect("an id")).or_default().push(event));
    assert!(!flows.is_empty());
    for ends in flows.values() {
        assert_eq!(ends.iter().map(|end| &end["ph"]).collect::<Vec<_>>(), ["s", "f"], "{ends:?}");
        assert!(ends[0]["ts"].as_f64() <= ends[1]["ts"].as_f64(), "{ends:?}");
        for end in ends {
            let time = (end["ts"].as_f64().expect("a time") * 1e3).round() as u64;
            let track = (end["pid"].as_u64().expect("a process"), end["tid"].as_u64().expect("a thread"));
            assert!(tracks[&track].iter().any(|(start, end)| *start <= time && time <= *end), "{end}");
        }
    }

    let mut counters: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in of("C") {
        let value = event["args"]["value"].as_u64().expect("never negative");
        counters.entry(event["name"].as_str().expect("a name")).or_default().push(value);
    }
    let links: Vec<_> = counters.iter().filter(|(name, _)| name.starts_with("bytes in flight of ")).collect();
    assert!(!links.is_empty() && counters.keys().any(|name| *name == "memory in use of gpu0"), "{counters:?}");
    for (name, values) in links {
        assert!(values.iter().any(|value| *value > 0) && values.last() == Some(&0), "{name}: {values:?}");
    }
}

#[test]
fn paje_is_written_by_name_or_on_request_and_read_by_pj_dump() {
    let command = Anabranch::new();
    command.json(&[&RUN[..], &["--trace", "t.paje"]].concat());
    command.json(&[&RUN[..], &["--trace", "other", "--trace-format", "paje"]].concat());
    for name in ["t.paje", "other"] {
        assert!(command.read(name).starts_with("%EventDef PajeDefineContainerType 0\n"), "{name}");
    }
    command.refuses(&[&RUN[..], &["--trace-format", "paje"]].concat(), &["--trace"]);
    let Ok(output) = Command::new("pj_dump").arg(command.path("t.paje")).output() else {
        assert!(std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_none(), "scripts/setup --tests installs pj_dump");
        eprintln!("skipped: pj_dump is not installed; `apt-get install pajeng` brings it");
        return;
    };
    let (text, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    for kind in ["Container", "State", "Link", "Variable"] {
        assert!(text.lines().any(|line| line.starts_with(kind)), "no {kind} in {text}");
    }
}
