//! `anabranch flow GRAPH`, from the outside: graphs of commands and files run for real. They run again only if
//! something is missing or has changed, and end with their commands.

use crate::command::Anabranch;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn word_count() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs/wordcount.graph").display().to_string()
}

const TEXT: &str =
    "one fish two fish\nred fish blue fish\nthis one has a little star\nthis one has a little car\nsay\n";

/// Returns the words of a text as the graph lists them: the most frequent first.
fn counted(text: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    text.split_whitespace().for_each(|word| *counts.entry(word).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(word, count)| (usize::MAX - count, *word));
    counts.iter().map(|(word, count)| format!("{count} {word}\n")).collect()
}

fn file(key: i32, path: &str) -> Value {
    json!({"key": key, "name": path, "category": "File", "categoryType": "Data", "fields": [{"name": "filepath", "value": path}]})
}

fn app(key: i32, name: &str, command: &str) -> Value {
    json!({"key": key, "name": name, "category": "BashShellApp", "categoryType": "Application", "fields": [{"name": "command", "value": command}]})
}

fn write(command: &Anabranch, name: &str, nodes: &[Value], links: &[(i32, i32)]) {
    let links: Vec<Value> = links.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
    let graph = json!({"nodeDataArray": nodes, "linkDataArray": links});
    fs::write(command.path(name), graph.to_string()).expect("written");
}

/// Writes a graph that turns two files into capitals, and joins the results.
fn joined(command: &Anabranch, second: &str) {
    let nodes = [
        file(1, "a"),
        file(2, "b"),
        app(3, "first", "tr a-z A-Z < %i0 > %o0"),
        app(4, "second", second),
        file(5, "A"),
        file(6, "B"),
        app(7, "join", "cat %i0 %i1 > %o0"),
        file(8, "joined"),
    ];
    let links = [(1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 7), (7, 8)];
    write(command, "join.graph", &nodes, &links);
    fs::write(command.path("a"), "a\n").expect("written");
    fs::write(command.path("b"), "b\n").expect("written");
}

fn counts(report: &Value) -> [u64; 4] {
    ["ran", "kept", "failed", "skipped"].map(|name| report[name].as_u64().expect(name))
}

#[test]
fn words_are_counted_under_every_scheduler_and_only_once() {
    let command = Anabranch::new();
    for (number, more) in
        [["--scheduler", "central"], ["--scheduler", "central-stealing"], ["--scheduler", "local"], ["--place", "heft"]]
            .iter()
            .enumerate()
    {
        let directory = format!("words{number}");
        fs::create_dir(command.path(&directory)).expect("a directory");
        fs::write(command.path(&format!("{directory}/text.txt")), TEXT).expect("written");
        let graph = word_count();
        let arguments = ["flow", &graph, "--dir", &directory, "--workers", "4", "--machines", "2"];
        let run = |more: &[&str]| command.json(&[&arguments[..], more].concat());
        let planned = run(&["--dry-run"]);
        assert_eq!((planned["would_run"].as_array().map(Vec::len), &planned["kept"]), (Some(5), &0.into()));
        let report = run(more);
        assert_eq!((counts(&report), &report["machines"]), ([5, 0, 0, 0], &2.into()));
        assert_eq!(command.read(&format!("{directory}/words.txt")), counted(TEXT), "{more:?}");
        assert_eq!(counts(&run(more)), [0, 5, 0, 0]);
        assert_eq!(run(&["--dry-run"])["would_run"], json!([]));
        assert_eq!(counts(&run(&["--fresh"])), [5, 0, 0, 0]);
    }
    let drops: Value = serde_json::from_str(&command.read("words0/wordcount.drops.json")).expect("JSON");
    assert_eq!((&drops["version"], &drops["drops"]["-7_0"]["state"]), (&1.into(), &"completed".into()));
    assert_eq!(drops["drops"]["-7_0"]["bytes"], counted(TEXT).len());
}

#[test]
fn a_template_is_run_as_the_graph_that_it_was_made_of() {
    let command = Anabranch::new();
    fs::write(command.path("text.txt"), TEXT).expect("written");
    command.text(&["fit", &word_count(), "--physical", "template.json"]);
    let text = command.text(&["flow", "template.json", "--gantt", "run.svg", "--trace", "run.json"]);
    assert!(text.contains("of 5 applications 5 ran, 0 were kept") && text.contains("BashShellApp"), "{text}");
    assert_eq!(command.read("words.txt"), counted(TEXT));
    assert!(command.read("run.svg").contains("merge -6_0-0") && command.read("run.json").contains("count -3_0-3"));
}

#[test]
fn what_depends_on_a_change_is_run_and_no_other() {
    let command = Anabranch::new();
    joined(&command, "tr a-z A-Z < %i0 | sed 's/ //' > %o0");
    let run = || counts(&command.json(&["flow", "join.graph"]));
    assert_eq!((run(), run()), ([3, 0, 0, 0], [0, 3, 0, 0]));
    fs::write(command.path("b"), "c\n").expect("written");
    assert_eq!((run(), command.read("joined").as_str()), ([2, 1, 0, 0], "A\nC\n"));
    // The second application makes an unchanged output from it.
    fs::write(command.path("b"), "c \n").expect("written");
    assert_eq!(run(), [1, 2, 0, 0]);
    fs::remove_file(command.path("joined")).expect("made");
    assert_eq!((run(), command.read("joined").as_str()), ([1, 2, 0, 0], "A\nC\n"));
}

#[test]
fn a_failure_names_what_depends_on_it_and_is_mended_alone() {
    let command = Anabranch::new();
    joined(&command, "echo torn > %o0; printf 'no \\033[31mluck\\n' >&2; exit 3");
    let output = command.run(&["flow", "join.graph"]);
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("second 4_0 failed: its command ended with exit status: 3"), "{error}");
    assert!(said.contains("no \\u{1b}[31mluck"), "{said}");
    assert!(said.contains("3 drops depend on it: B 6_0, join 7_0, joined 8_0"), "{said}");
    assert!(said.contains("of 3 applications 2 ran, 0 were kept, 1 failed, 1 were skipped"), "{said}");
    assert!(command.path("A").exists() && !command.path("B").exists());
    let report: Value = serde_json::from_slice(&command.run(&["flow", "join.graph", "--json"]).stdout).expect("JSON");
    assert_eq!((counts(&report), &report["failures"][0]["dependent_count"]), ([1, 1, 1, 1], &3.into()));
    joined(&command, "cat %i0 > %o0");
    assert_eq!(counts(&command.json(&["flow", "join.graph"])), [2, 1, 0, 0]);
    assert_eq!(command.read("joined"), "A\nb\n");
}

/// Waits until a condition holds.
fn wait_until(mut holds: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Whether the process whose number is in a file has ended, even if it was not reaped.
fn is_gone(command: &Anabranch, file: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", command.read(file).trim())).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    matches!(state, None | Some('Z' | 'X'))
}

/// Writes a graph with a command that writes its process numbers and waits for a file.
fn waiting(command: &Anabranch) {
    let wait = "echo torn > %o0; sleep 1000 & echo $! > child; echo $$ > leader; test -e go || wait; echo done > %o0";
    write(
        command,
        "wait.graph",
        &[app(1, "quick", "echo 1 > %o0"), file(2, "one"), app(3, "slow", wait), file(4, "two")],
        &[(1, 2), (2, 3), (3, 4)],
    );
}

fn after_the_end(command: &Anabranch) {
    wait_until(|| is_gone(command, "leader") && is_gone(command, "child"), "the commands end with the run");
    assert!(!command.path("two").exists(), "what is left of it is removed");
    let states: Value = serde_json::from_str(&command.read("wait.drops.json")).expect("JSON");
    let state = |id: &str| states["drops"][id]["state"].clone();
    assert_eq!([state("1_0"), state("3_0"), state("4_0")], ["finished", "cancelled", "cancelled"]);
    fs::write(command.path("go"), "").expect("written");
    assert_eq!(counts(&command.json(&["flow", "wait.graph"])), [1, 1, 0, 0]);
    assert_eq!(command.read("two"), "done\n");
}

#[test]
fn the_end_of_the_time_ends_the_commands() {
    let command = Anabranch::new();
    waiting(&command);
    let output = command.run(&["flow", "wait.graph", "--timeout", "3"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("after 3 s") && error.contains("run the command again"), "{error}");
    // On a very busy machine the command has not begun by then.
    if fs::read_to_string(command.path("leader")).is_ok_and(|text| text.ends_with('\n')) {
        after_the_end(&command);
    }
}

#[test]
fn an_interruption_ends_the_commands() {
    let command = Anabranch::new();
    waiting(&command);
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["flow", "wait.graph"])
        .current_dir(command.directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait_until(
        || fs::read_to_string(command.path("leader")).is_ok_and(|text| text.ends_with('\n')),
        "the command runs",
    );
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().is_ok());
    wait_until(|| child.try_wait().expect("it is our child").is_some(), "the run ends");
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("of 2 applications 1 ran, 0 were kept, 1 were cancelled"), "{told}");
    after_the_end(&command);
}

#[test]
fn a_second_interruption_ends_the_commands_at_once() {
    let command = Anabranch::new();
    let deaf = "trap '' TERM; sleep 1000 & echo $! > child; echo $$ > leader; wait";
    write(&command, "deaf.graph", &[app(1, "deaf", deaf)], &[]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["flow", "deaf.graph"])
        .current_dir(command.directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    wait_until(
        || fs::read_to_string(command.path("leader")).is_ok_and(|text| text.ends_with('\n')),
        "the command runs",
    );
    let mut status = None;
    let interrupt = || {
        let _ = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
        status = child.try_wait().expect("it is our child");
        status.is_some()
    };
    wait_until(interrupt, "the run ends");
    assert_eq!(status.and_then(|status| status.code()), Some(130));
    wait_until(|| is_gone(&command, "leader") && is_gone(&command, "child"), "the commands end with the run");
}

#[test]
fn nothing_that_a_graph_calls_a_file_leaves_the_directory() {
    let command = Anabranch::new();
    let refused = |path: &str, parts: &[&str]| {
        write(&command, "g.graph", &[app(1, "a\u{1b}[2J", "echo x > %o0"), file(2, path)], &[(1, 2)]);
        command.refuses(&["flow", "g.graph", "--dir", "inside"], parts);
        assert!(!command.path("inside").exists(), "{path}");
    };
    refused("../../x", &["g.graph", "`../../x`", "leaves the directory"]);
    refused("a\u{1b}[31m", &["control characters", "\\u{1b}"]);
    refused("g.drops.json", &["reserved for the run"]);
    let outside = command.path("outside.txt").display().to_string();
    refused(&outside, &["--outside"]);
    let report = command.json(&["flow", "g.graph", "--dir", "inside", "--outside"]);
    assert_eq!((counts(&report), command.read("outside.txt").as_str()), ([1, 0, 0, 0], "x\n"));
    // Generated names are harmless, regardless of the drops' names.
    let mut named = file(2, "");
    named["name"] = json!("../$(touch hit) -rf\n");
    write(&command, "g.graph", &[app(1, "a", "echo x > %o0"), named], &[(1, 2)]);
    assert_eq!(counts(&command.json(&["flow", "g.graph", "--dir", "inside"])), [1, 0, 0, 0]);
    let made = fs::read_dir(command.path("inside")).expect("made").flatten().map(|entry| entry.file_name());
    assert_eq!(made.filter(|name| name != "g.drops.json").collect::<Vec<_>>(), ["_..___touch_hit__-rf_.2_0"]);
}

#[test]
fn memory_and_functions_run_without_files() {
    let command = Anabranch::new();
    let data = |key: i32, name: &str| json!({"key": key, "name": name, "category": "Memory", "categoryType": "Data"});
    let function = |key: i32, class: &str| {
        let class = format!("dlg.apps.simple.{class}");
        json!({"key": key, "name": class, "category": "PythonApp", "categoryType": "Application", "fields": [{"name": "dropclass", "value": class}]})
    };
    let nodes = [
        function(1, "HelloWorldApp"),
        data(2, "greeting"),
        app(3, "loud", "tr a-z A-Z < %i0 > %o0"),
        data(4, "louder"),
        function(5, "CopyApp"),
        file(6, "said"),
    ];
    write(&command, "hello.graph", &nodes, &[(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]);
    assert_eq!(counts(&command.json(&["flow", "hello.graph"])), [3, 0, 0, 0]);
    assert_eq!(command.read("said"), "HELLO WORLD");
    assert_eq!(counts(&command.json(&["flow", "hello.graph"])), [0, 3, 0, 0]);
    fs::remove_file(command.path("said")).expect("made");
    assert_eq!(counts(&command.json(&["flow", "hello.graph"])), [3, 0, 0, 0]);
    write(&command, "random.graph", &[function(1, "RandomArrayApp")], &[]);
    command.refuses(&["flow", "random.graph"], &["`RandomArrayApp`", "CopyApp", "BashShellApp"]);
}

#[test]
fn measured_times_go_through_the_cost_store() {
    let command = Anabranch::new();
    joined(&command, "sleep 0.05; cat %i0 > %o0");
    let measured = ["flow", "join.graph", "--weights", "measured", "--costs", "costs.json", "--place", "heft"];
    command.json(&measured);
    let known = command.text(&["costs", "show", "--costs", "costs.json"]);
    assert!(
        known.contains("workers of flow join") && known.contains("second 4_0") && !known.contains("joined"),
        "{known}"
    );
    let before = command.read("costs.json");
    assert_eq!(counts(&command.json(&measured)), [0, 3, 0, 0]);
    assert_eq!(command.read("costs.json"), before, "what was kept is not measured");
}

#[test]
fn what_cannot_be_run_is_refused_with_the_next_step() {
    let command = Anabranch::new();
    joined(&command, "cat %i0 > %o0");
    command.refuses(&["flow", "join.graph", "--scheduler", "local,central"], &["one scheduler"]);
    command.refuses(&["flow", "join.graph", "--runs", "2"], &["--runs", "programs"]);
    command.refuses(&["flow", "lcs", "--dry-run"], &["--dry-run", "graphs"]);
    command.refuses(&["flow", "none.graph"], &["none.graph"]);
    command.refuses(&["flow", "join.graph", "--dry-run", "--dir", "nowhere"], &["nowhere", "a run creates it"]);
    assert!(!command.path("nowhere").exists());
    command.refuses(&["flow", "join.graph", "--place", "best"], &["\"best\"", "heft"]);
    fs::write(command.path("join.drops.json"), "{\"precious\": true}").expect("written");
    command.refuses(&["flow", "join.graph"], &["join.drops.json", "move it away"]);
    command.refuses(&["flow", "join.graph", "--fresh"], &["join.drops.json", "move it away"]);
    assert_eq!(command.read("join.drops.json"), "{\"precious\": true}");
    for (text, part) in [
        ("[{\"oid\": 1", "EOF"),
        ("{}", "known format"),
        ("", "known format"),
        ("[{\"oid\":\"a\",\"inputs\":[\"b\"]}]", "\"b\""),
    ] {
        fs::write(command.path("bad.json"), text).expect("written");
        command.refuses(&["flow", "bad.json"], &["bad.json", part]);
    }
}

#[test]
fn no_application_writes_over_the_graph() {
    let command = Anabranch::new();
    let nodes = [app(1, "make", "echo gone > %o0"), file(2, "own.graph")];
    write(&command, "own.graph", &nodes, &[(1, 2)]);
    let before = command.read("own.graph");
    command.refuses(&["flow", "own.graph", "--dir", "."], &["own.graph", "would overwrite", "rename one"]);
    assert_eq!(command.read("own.graph"), before);
}

#[test]
fn what_a_field_says_is_shown_as_it_stands() {
    let command = Anabranch::new();
    let scatter = json!({"key": 1, "name": "parts", "category": "Scatter", "isGroup": true, "fields": [{"name": "num_of_copies", "value": "x"}]});
    write(&command, "odd.graph", &[scatter, file(2, "a")], &[]);
    command.refuses(&["flow", "odd.graph", "--dir", "."], &["odd.graph", "num_of_copies", "\"x\""]);
}
