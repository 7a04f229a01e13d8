//! The page of `--report` in a browser: it draws, every control works, and there is no error.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Names of Chromium's executable.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A name that tries to become a part of the page.
const HOSTILE: &str = "</script><script>throw 'a name became code'</script><!--<script>&amp;\"'";

/// Returns the document after the page has tested itself; `None` if there is no browser.
fn tested(command: &Anabranch, page: &Path) -> Option<String> {
    let browser = BROWSERS.iter().find(|browser| Command::new(browser).arg("--version").output().is_ok());
    let Some(browser) = browser else {
        assert!(std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_none(), "scripts/setup --tests installs Chromium");
        eprintln!("skipped: Chromium is not installed; `apt-get install chromium` brings it");
        return None;
    };
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--enable-logging=stderr", "--virtual-time-budget=60000"])
        .arg(format!("--user-data-dir={}", command.path("browser").display()))
        .args(["--window-size=1400,900", "--dump-dom"])
        .arg(format!("file://{}#selftest", page.display()))
        .env("XDG_CACHE_HOME", command.path("cache"))
        .env("XDG_CONFIG_HOME", command.path("config"))
        .output()
        .expect("the browser starts");
    let log = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(output.status.success() && said.is_empty(), "{said:?} in {log}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn assert_passes(command: &Anabranch, page: &str) {
    let Some(document) = tested(command, &command.path(page)) else { return };
    let found = document.split("data-selftest=\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(found, Some("pass"), "{page}");
}

/// Returns the data in the page.
fn data(command: &Anabranch, page: &str) -> Value {
    let text = command.read(page);
    let json = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    serde_json::from_str(json).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn the_page_of_a_run_works_and_tells_what_was_measured() {
    let command = Anabranch::new();
    let place = ["--software-gpu", "--cpu-devices", "core", "--place", "mite", "--pin", "*conv*=gpu0"];
    let report = command.json(&[&["run", "--repeat", "3", "--report", "page.html"], &place[..]].concat());
    let data = data(&command, "page.html");
    assert_eq!(data["predicted"]["traffic"], report["predicted_traffic_bytes"]);
    assert_eq!(data["measured"]["traffic"], report["traffic_bytes"]);
    let (moved, in_place) = (&data["measured"]["moved"], &data["measured"]["in_place"]);
    assert_eq!((moved, in_place), (&data["predicted"]["moved"], &data["predicted"]["in_place"]));
    assert_eq!((&moved["transfers"], &moved["bytes"]), (&report["transfers"], &report["traffic_bytes"]));
    assert_eq!(in_place, &report["traffic"]["in_place"]);
    let runs = &data["facts"]["runs"];
    assert_eq!(runs["latencies_ns"].as_array().map(Vec::len), Some(3));
    assert_eq!((&runs["count"], &runs["every"]), (&3.into(), &1.into()));
    assert!(number(&runs["min_ns"]) <= number(&runs["p90_ns"]) && runs["p99_ns"] == runs["max_ns"], "{runs}");
    let milliseconds = |ns: &Value| number(ns) as f64 * 1e-6;
    let same = |ns: &Value, ms: &Value| (milliseconds(ns) - ms.as_f64().expect("a time")).abs() < 1e-5;
    assert!(same(&runs["median_ns"], &report["measured_makespan_ms"]), "{runs} {report}");
    assert!(same(&data["predicted"]["makespan_ns"], &report["predicted_makespan_ms"]), "{data}");
    assert!(same(&data["measured"]["makespan_ns"], &report["profiled_makespan_ms"]), "{data}");
    assert!(data["facts"]["command"].as_str().is_some_and(|line| line.contains("--pin '*conv*=gpu0'")));
    let nodes = data["nodes"].as_array().expect("nodes");
    let program: Vec<_> = nodes.iter().filter(|node| node["role"] == "node").collect();
    assert_eq!(Some(program.len() as u64), report["nodes"].as_u64());
    for node in &program {
        let measured = &node["measured"];
        assert!(number(&measured["ready"]) <= number(&measured["start"]), "{node}");
        assert!(number(&measured["start"]) < number(&measured["end"]), "{node}");
        assert!(number(&measured["busy"]) <= number(&measured["end"]) - number(&measured["start"]), "{node}");
        assert!(!node["why"]["text"].as_str().expect("a text").is_empty(), "{node}");
    }
    let convolution = program.iter().find(|node| node["op"] == "conv").expect("a convolution");
    let attributes = convolution["attributes"].as_array().expect("parameters");
    let then = |name: &str| attributes.iter().find(|attribute| attribute[0] == name).map(|attribute| &attribute[1]);
    assert_eq!((then("window"), then("strides")), (Some(&"3 × 3".into()), Some(&"1 × 1".into())), "{convolution}");
    assert_eq!(then("then"), Some(&"relu(result + input 3)".into()), "{convolution}");
    let mite = program.iter().find(|node| node["why"]["terms"].as_array().is_some_and(|terms| terms.len() == 5));
    assert!(mite.is_some(), "no node shows MITE's factors");
    for device in data["devices"].as_array().expect("devices") {
        for steps in ["memory_predicted", "memory_measured"] {
            let steps = device[steps].as_array().expect("steps");
            assert!(steps.iter().all(|step| number(&step[1]) >= number(&device["resident"])), "{device}");
            assert!(steps.windows(2).all(|pair| number(&pair[0][0]) < number(&pair[1][0])), "{device}");
        }
    }
    for device in data["devices"].as_array().expect("devices") {
        for steps in ["executable_predicted", "executable_measured"] {
            let last = device[steps].as_array().expect("steps").last();
            assert!(last.is_none_or(|last| last[1] == 0), "something is executable at the end: {device}");
        }
    }
    // Every chain of waits ends with the last item to end.
    for when in ["critical_predicted", "critical_measured"] {
        assert!(nodes.iter().any(|node| node[when] == true), "nothing is {when}");
    }
    // Both chains lead from step to step to the end.
    for when in ["predicted", "measured"] {
        let times = |step: &Value| {
            let things = if step["kind"] == "node" { &data["nodes"] } else { &data["transfers"] };
            things[number(&step["index"]) as usize][when].clone()
        };
        let chain = data[when]["chain"].as_array().expect("a chain");
        assert!(chain.first().is_some_and(|step| step["after"] == "start"), "{chain:?}");
        assert!(
            chain[1..].iter().all(|step| ["value", "device", "link"].contains(&step["after"].as_str().expect("why")))
        );
        let ended = chain.iter().map(|step| number(&times(step)["end"])).max();
        assert!(ended <= Some(number(&data[when]["makespan_ns"])), "{chain:?}");
        for pair in chain.windows(2) {
            let (end, start) = (number(&times(&pair[0])["end"]), number(&times(&pair[1])["start"]));
            assert_eq!(number(&pair[1]["pause_ns"]), start.saturating_sub(end), "{pair:?}");
        }
    }
    let moved = data["transfers"].as_array().expect("transfers").iter().find(|sent| sent["route"] != "shared");
    assert!(moved.is_some_and(|sent| !sent["measured"].is_null()), "the pinned nodes need transfers");
    assert_passes(&command, "page.html");
}

#[test]
fn the_page_of_a_plan_with_5000_nodes_works_whatever_they_are_called() {
    let command = Anabranch::new();
    std::fs::write(command.path("large.onnx"), large(6_800)).expect("written");
    let place = ["place", "large.onnx", "--no-gpu", "--cpu-devices", "core", "--report", "page.html"];
    command.text(&place);
    let data = data(&command, "page.html");
    assert!(data["nodes"].as_array().expect("nodes").len() >= 5_000);
    assert!(data["nodes"].as_array().expect("nodes").iter().any(|node| node["name"] == HOSTILE));
    assert!(data["measured"].is_null());
    let is_wide = |node: &&Value| node["inputs"].as_array().is_some_and(|inputs| inputs.len() == 21);
    assert!(data["nodes"].as_array().expect("nodes").iter().any(|node| is_wide(&node)), "no node has many weights");
    // Scopes of names are groups, and every node of a scope is in its group.
    let scopes = data["scopes"].as_array().expect("scopes");
    assert!(scopes.len() > 100, "{} scopes", scopes.len());
    for node in data["nodes"].as_array().expect("nodes").iter().filter(|node| node["role"] == "node") {
        let name = node["name"].as_str().expect("a name");
        let group = node["scope"].as_u64().map(|scope| scopes[scope as usize]["name"].as_str().expect("a name"));
        assert!(
            group.is_none_or(|group| name.starts_with(&format!("{group}/")) || group.starts_with("part ")),
            "{name} in {group:?}"
        );
    }
    assert_passes(&command, "page.html");
}

#[test]
fn a_comparison_of_several_models_is_one_page_with_a_matrix() {
    let command = Anabranch::new();
    let models = ["fire.onnx", "unet.onnx"].map(bundled);
    let configurations = ["--no-gpu", "--cpu-devices", "core", "--place", "heft,cpu", "--repeat", "2", "--warmup", "0"];
    let all = command.json(&[&["compare", &models[0], &models[1], "--html", "all.html"], &configurations[..]].concat());
    assert_eq!(all["models"].as_array().map(Vec::len), Some(2), "a comparison for each model");
    let page = command.read("all.html");
    let matrix = page.split("All models").nth(1).and_then(|rest| rest.split("</table>").next()).expect("a matrix");
    for part in ["fire.onnx", "unet.onnx", "geometric mean", ">heft<", ">cpu<", ">dynamic<"] {
        assert!(matrix.contains(part), "no {part} in {matrix}");
    }
    assert!(!page.contains(&format!("<h1>{}", models[0])) && page.matches("<h2>").count() == 2, "titles are names");
    if let Some(document) = tested(&command, &command.path("all.html")) {
        assert!(document.contains("<th><button type=\"button\">configuration</button></th>"), "tables can be sorted");
    }
    let text = command.text(&[&["compare", &models[0], &models[1]], &configurations[..]].concat());
    assert!(text.contains("median, and how many times the model's fastest it is"), "{text}");
}

/// Returns sums, softmaxes and hyperbolic tangents of near predecessors: a graph with many paths.
fn large(nodes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut back = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let value = |number: usize| if number == 0 { "x".to_owned() } else { format!("v{number}") };
    let mut used = vec![false; nodes + 1];
    let mut made = Vec::new();
    for number in 1..=nodes {
        let near = number - 1 - back(6.min(number));
        let far = number - 1 - back(40.min(number));
        let (op, inputs) = match number % 3 {
            0 => ("Add", vec![near, far]),
            1 => ("Softmax", vec![near]),
            _ => ("Tanh", vec![near]),
        };
        inputs.iter().for_each(|input| used[*input] = true);
        let inputs: Vec<String> = inputs.into_iter().map(value).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let name = if number == 4 { HOSTILE.to_owned() } else { format!("block{}/{op}_{number}", number / 50) };
        made.push(NodeProto::of(op, &inputs, &[&value(number)]).named(&name));
    }
    let outputs = (1..=nodes).filter(|number| !used[*number]);
    let mut output: Vec<_> = outputs.map(|number| ValueInfoProto::f32s(&value(number), &[1, 16])).collect();
    // A node with more weights than its details list at once.
    let weights: Vec<String> = (0..20).map(|number| format!("w{number}")).collect();
    let read: Vec<&str> = std::iter::once("x").chain(weights.iter().map(String::as_str)).collect();
    made.push(NodeProto::of("Concat", &read, &["wide"]).with(AttributeProto::int("axis", 1)));
    output.push(ValueInfoProto::f32s("wide", &[1, 36]));
    let initializer = weights.iter().map(|name| TensorProto::f32s(name, &[1, 1], &[0.5])).collect();
    let input = vec![ValueInfoProto::f32s("x", &[1, 16])];
    ModelProto::of(GraphProto { node: made, input, output, initializer, ..GraphProto::default() }, 17).to_bytes()
}
