//! Both formats, written from one trace.

use super::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns two nodes on two devices, a transfer between them, and names with quotes.
fn trace() -> Trace {
    let mut trace = Trace::default();
    let (devices, links) = (trace.group("devices"), trace.group("links"));
    let (cpu, gpu, link) =
        (trace.track(devices, "cpu0"), trace.track(devices, "gpu0"), trace.track(links, "cpu0 → gpu0"));
    let mut slice = |track, name: &str, op: &[&str], start, end| {
        let arguments = op.iter().map(|op| ("op_name".to_owned(), json!(op))).collect();
        let category = if op.is_empty() { "transfer" } else { "node" };
        trace.slice(Slice { track, name: name.to_owned(), category, start, end, arguments })
    };
    let relu = slice(gpu, "relu", &["map"], 5_000, 7_000);
    let conv = slice(cpu, "conv \"1\"\n", &["conv"], 1_500, 4_000);
    slice(cpu, "nothing", &["map"], 4_000, 4_000);
    let sent = slice(link, "", &[], 4_100, 6_000);
    trace.flow("t", conv, sent);
    trace.flow("", sent, relu);
    trace.counter(gpu, "memory in use", vec![[0, 1], [5_000, 7]]);
    trace.counter(link, "bytes in flight", vec![[4_100, 64], [6_000, 0]]);
    trace
}

fn chrome() -> Vec<Value> {
    let mut text = Vec::new();
    trace().write_chrome(&mut text).expect("a vector takes all");
    let read: Value = serde_json::from_slice(&text).expect("JSON");
    read["traceEvents"].as_array().expect("an array").clone()
}

fn paje() -> String {
    let mut text = Vec::new();
    trace().write_paje(&mut text).expect("a vector takes all");
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn no_arrow_leads_to_a_slice_that_ends_before_its_source_begins() {
    let mut trace = trace();
    let (relu, conv) = (SliceId(0), SliceId(1));
    trace.flow("back", relu, conv);
    assert_eq!(trace.flows.len(), 2);
}

#[test]
fn chrome_events_are_named_sorted_and_within_slices() {
    let events = chrome();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
    assert_eq!(["M", "X", "s", "f", "C"].map(|phase| of(phase).len()), [10, 4, 2, 2, 4]);
    assert_eq!((&of("X")[0]["ts"], &of("X")[0]["dur"]), (&json!(1.5), &json!(2.5)));
    let times: Vec<f64> = events.iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(times.is_sorted(), "{times:?}");
    for end in of("s").into_iter().chain(of("f")) {
        let time = end["ts"].as_f64().expect("a time");
        let around = |slice: &&&Value| {
            let start = slice["ts"].as_f64().expect("a time");
            (&slice["pid"], &slice["tid"]) == (&end["pid"], &end["tid"])
                && (start..start + slice["dur"].as_f64().expect("a time")).contains(&time)
        };
        assert_eq!(of("X").iter().filter(around).count(), 1, "{end}");
    }
    // The reader of the stream begins before all data have arrived: the arrow ends at the end of the transfer.
    assert_eq!((&of("s")[1]["ts"], &of("f")[1]["ts"]), (&json!(5.999), &json!(6.0)));
    let memory: Vec<_> = of("C").iter().filter(|c| c["name"] == "memory in use of gpu0").map(|c| &c["args"]).collect();
    assert_eq!(memory, [&json!({ "value": 1 }), &json!({ "value": 7 })]);
}

/// Returns the fields of a line without their quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("one").push(character),
        }
    }
    assert!(!quoted, "{line}");
    fields
}

#[test]
fn paje_types_precede_their_use_and_everything_that_opens_closes() {
    let text = paje();
    assert!(!text.contains("\"\""), "pj_dump miscounts empty strings");
    let mut lengths: BTreeMap<String, usize> = BTreeMap::new();
    let (mut known, mut open) = (BTreeSet::from(["0".to_owned()]), BTreeMap::<String, i32>::new());
    let (mut event, mut last, mut keys) = (String::new(), 0.0, BTreeMap::<String, i32>::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('%') {
            let words: Vec<_> = head.split_whitespace().collect();
            match words[0] {
                "EventDef" => event = words[2].to_owned(),
                "EndEventDef" => {}
                _ => *lengths.entry(event.clone()).or_default() += 1,
            }
            continue;
        }
        let fields = fields(line);
        assert_eq!(fields.len() - 1, lengths[&fields[0]], "{line}");
        let kind: usize = fields[0].parse().expect("a number");
        if kind >= 5 {
            let time: f64 = fields[1].parse().expect("seconds");
            assert!(time >= last, "{line}");
            last = time;
        }
        match kind {
            0..=5 => {
                let used = if kind == 5 { &fields[3..5] } else { &fields[2..3] };
                assert!(used.iter().all(|name| known.contains(name)), "{line}");
                known.insert(fields[if kind == 5 { 2 } else { 1 }].clone());
            }
            7 => *open.entry(fields[3].clone()).or_default() += 1,
            8 => *open.entry(fields[3].clone()).or_default() -= 1,
            10 => *keys.entry(fields[6].clone()).or_default() += 1,
            11 => *keys.entry(fields[6].clone()).or_default() -= 1,
            _ => assert!(known.contains(&fields[2]), "{line}"),
        }
        assert!(open.values().chain(keys.values()).all(|count| *count >= 0), "{line}");
    }
    assert_eq!((open.len(), keys.len()), (3, 2));
    assert!(open.values().chain(keys.values()).all(|count| *count == 0));
    assert!(text.contains("\"conv '1' \""), "{text}");
}

/// Reads a trace by Paje's own reader, if it is installed (Debian: `pajeng`).
#[test]
fn paje_is_read_by_pj_dump() {
    let started = Command::new("pj_dump").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut reader) = started else {
        assert!(std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_none(), "scripts/setup --tests installs pj_dump");
        eprintln!("skipped: pj_dump is not installed; `apt-get install pajeng` brings it");
        return;
    };
    reader.stdin.take().expect("piped").write_all(paje().as_bytes()).expect("it reads");
    let output = reader.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = |kind: &str| text.lines().filter(|line| line.starts_with(kind)).count();
    assert_eq!((count("State"), count("Link"), count("Variable")), (4, 2, 4), "{text}");
}
