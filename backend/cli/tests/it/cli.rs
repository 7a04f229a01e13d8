//! The command line, from the outside: its output, its files, and its exit codes.

use crate::command::{Anabranch, bundled};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn the_built_in_model_runs_and_reports_what_was_promised() {
    let report = Anabranch::new().json(&["run", "--software-gpu", "--place", "mite", "--repeat", "3"]);
    for key in ["first", "median", "low", "high", "min", "p90"] {
        assert!(report["latency_ms"][key].as_f64().is_some_and(|ms| ms > 0.0), "latency {key}: {report}");
    }
    assert_eq!(report["latency_ms"]["runs"], 3);
    assert_eq!(report["latency_ms"]["median"], report["measured_makespan_ms"]);
    assert!(report["predicted_makespan_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(report["measured_makespan_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(report["traffic_bytes"].is_u64());
    assert!(!report["outputs"].as_array().expect("outputs").is_empty());
    let devices = report["devices"].as_array().expect("devices");
    let nodes: u64 = devices.iter().map(|device| device["nodes"].as_u64().expect("nodes")).sum();
    assert_eq!(Some(nodes), report["nodes"].as_u64());
    for device in devices {
        for key in ["name", "kind", "busy_ms", "peak_bytes", "limit_bytes"] {
            assert!(!device[key].is_null(), "{key} of {device}");
        }
    }
}

#[test]
fn a_cold_run_is_called_so_and_others_are_warmed_up() {
    let command = Anabranch::new();
    let cold = ["run", "--no-gpu", "--warmup", "0", "--repeat", "1"];
    let text = command.text(&cold);
    assert!(text.contains("one cold run") && !text.contains("median"), "{text}");
    let report = command.json(&cold);
    assert_eq!((&report["latency_ms"]["cold"], &report["latency_ms"]["warmup"]), (&true.into(), &0.into()));
    assert_eq!(report["latency_ms"]["first"], report["measured_makespan_ms"]);
    assert_eq!(report["profiled_makespan_ms"], report["measured_makespan_ms"]);
    let usual = command.json(&["run", "--no-gpu"]);
    assert_eq!((&usual["latency_ms"]["cold"], &usual["latency_ms"]["warmup"]), (&false.into(), &1.into()));
    assert!(usual["latency_ms"]["runs"].as_u64() >= Some(1), "{usual}");
    command.refuses(&["run", "--no-gpu", "--warmup", "1", "--refine", "1"], &["--warmup", "--refine"]);
}

#[test]
fn errors_and_transfers_are_the_same_in_text_and_json() {
    let command = Anabranch::new();
    let run = ["run", "--no-gpu", "--cpu-devices", "core", "--place", "heft", "--pin", "*conv1*=cpu0", "--repeat", "2"];
    let report = command.json(&run);
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} of {report}"));
    let (predicted, measured) = (number("predicted_makespan_ms"), number("measured_makespan_ms"));
    assert!((number("makespan_error_percent") - 100.0 * (predicted - measured) / measured).abs() < 1e-6);
    let worst = &report["worst_node"];
    let (long, sign) =
        (worst["predicted_ms"].as_f64() > worst["measured_ms"].as_f64(), worst["error_percent"].as_f64());
    assert!(sign.is_none_or(|percent| long == (percent > 0.0)), "{worst}");
    // Between CPU devices no data move.
    let traffic = &report["traffic"];
    assert_eq!((&report["transfers"], &report["traffic_bytes"], &report["links"]), (&0.into(), &0.into(), &json!([])));
    let text = command.text(&run);
    assert!(text.contains("(predicted − measured) / measured") && text.contains("Σ |predicted − measured|"), "{text}");
    assert!(!text.contains("-0.0"), "{text}");
    assert!(text.contains("0 B in 0 transfers"), "{text}");
    let in_place = traffic["in_place"]["transfers"].as_u64().expect("a count");
    assert_eq!(in_place > 0, text.contains("read in place"), "{text}");
}

#[test]
fn the_second_run_is_placed_with_the_costs_of_the_first() {
    let command = Anabranch::new();
    let first = command.json(&["run", "--no-gpu"]);
    assert_eq!(first["costs"]["measured"], 0);
    let second = command.json(&["run", "--no-gpu"]);
    assert_eq!(second["costs"]["measured"], second["nodes"]);
    let costs = command.json(&["costs"]);
    let machines = costs["machines"].as_object().expect("machines");
    assert!(machines.values().all(|machine| !machine["devices"].as_object().expect("devices").is_empty()));
    assert_eq!(machines.len(), 1);
}

#[test]
fn inputs_and_outputs_travel_in_files() {
    let command = Anabranch::new();
    let (model, reference) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let archive = command.path("out.npz");
    command.json(&["run", &model, "--input", &reference, "--output", "out", "--no-gpu"]);
    command.json(&["run", &model, "--input", &reference, "--output", "out.npz", "--no-gpu"]);
    let files: Vec<_> = std::fs::read_dir(command.path("out")).expect("made").flatten().collect();
    let written = anabranch_report::npy::read_npz(&archive).expect("readable");
    assert_eq!(files.len(), written.len());
    let expected = anabranch_report::npy::read_npz(Path::new(&reference)).expect("readable");
    for (name, tensor) in &written {
        let (ours, theirs) = (tensor.elements::<f32>(), expected[&format!("out__{name}")].elements::<f32>());
        let pairs = ours.expect("f32").iter().zip(theirs.expect("f32"));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-3 + 1e-4 * b.abs()), "{name}");
    }
}

#[test]
fn a_plan_is_written_and_followed() {
    let command = Anabranch::new();
    let model = bundled("unet.onnx");
    let place = ["place", &model, "--software-gpu", "--random", "1", "-o", "plan.json", "--pin", "*=cpu0"];
    assert!(command.run(&place).status.success());
    let plan: Value =
        serde_json::from_slice(&std::fs::read(command.path("plan.json")).expect("written")).expect("JSON");
    assert!(plan["nodes"].as_array().expect("nodes").iter().all(|node| node["device"] == "cpu0"));
    let report = command.json(&["run", &model, "--software-gpu", "--random", "1", "--place", "plan.json"]);
    let on = |name: &str| report["devices"].as_array().expect("devices").iter().find(|d| d["name"] == name).cloned();
    assert_eq!(on("cpu0").expect("cpu0")["nodes"], report["nodes"]);
    assert_eq!(on("gpu0").expect("gpu0")["nodes"], 0);
    let dot = command.run(&["place", &model, "--no-gpu", "--random", "1", "--format", "dot"]);
    assert!(String::from_utf8_lossy(&dot.stdout).starts_with("digraph"));
}

#[test]
fn blocks_are_planned_reported_and_edited() {
    let command = Anabranch::new();
    let model = bundled("decoder.onnx");
    let common = ["--no-gpu", "--no-fuse", "--random", "1", "--dim", "batch=2", "--dim", "seq=12"];
    let run = |more: &[&str]| command.json(&[&["run", &model], &common[..], more].concat());
    assert_eq!(run(&["--stream", "off"])["blocks"].as_array().map(Vec::len), Some(0));
    let place = [&["place", &model, "--stream", "always", "--chunk", "3rows", "-o", "plan.json"], &common[..]].concat();
    assert!(command.run(&place).status.success());
    let plan: Value = serde_json::from_str(&command.read("plan.json")).expect("JSON");
    let blocks = plan["blocks"].as_array().expect("blocks");
    assert!(!blocks.is_empty());
    let report = run(&["--place", "plan.json", "--trace", "t.json"]);
    let ran = report["blocks"].as_array().expect("blocks");
    assert_eq!(ran.len(), blocks.len());
    for (ran, planned) in ran.iter().zip(blocks) {
        assert_eq!((&ran["members"], &ran["chunk_rows"]), (&planned["members"], &planned["chunk_rows"]));
        assert!(ran["measured_ms"].as_f64() > Some(0.0) && ran["without"]["ms"].as_f64() > Some(0.0), "{ran}");
    }
    assert!(command.read("t.json").contains("\"members\""));
    assert_eq!(run(&["--place", "plan.json", "--stream", "off"])["blocks"].as_array().map(Vec::len), Some(0));
    // Nothing is cut if there is no terminal.
    let text = command.text(&[&["run", &model, "--place", "plan.json"], &common[..]].concat());
    let name = ran[0]["block"].as_str().expect("a name");
    assert!(text.contains(&format!("{name} on cpu0\n")) && !text.contains('…'), "{text}");

    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut plan = plan.clone();
        edit(&mut plan["blocks"]);
        std::fs::write(command.path("edited.json"), plan.to_string()).expect("written");
    };
    let again = [&["run", &model, "--place", "edited.json"], &common[..]].concat();
    edited(&|blocks| _ = blocks.as_array_mut().expect("a list").remove(0));
    assert_eq!(command.json(&again)["blocks"].as_array().map(Vec::len), Some(blocks.len() - 1));
    let (name, member) =
        (blocks[0]["block"].as_str().expect("a name"), blocks[0]["members"][0].as_str().expect("a node"));
    edited(&|blocks| blocks[0]["members"][0] = "nowhere".into());
    command.refuses(&again, &["edited.json", name, "nowhere"]);
    edited(&|blocks| blocks[0]["device"] = "gpu9".into());
    command.refuses(&again, &[name, member, "gpu9", "cpu0"]);
    edited(&|blocks| blocks[0]["chunk_rows"] = 0.into());
    command.refuses(&again, &[name, "chunk_rows"]);
    edited(&|blocks| blocks[0]["members"] = Value::Array(vec![member.into(), member.into()]));
    command.refuses(&again, &[name, member, "twice"]);
    let others = plan["nodes"].as_array().expect("nodes").iter().map(|node| node["node"].clone());
    let others: Vec<Value> = others
        .filter(|node| blocks.iter().all(|b| !b["members"].as_array().expect("members").contains(node)))
        .collect();
    edited(&|blocks| blocks[0]["members"].as_array_mut().expect("a list").extend(others.clone()));
    command.refuses(&again, &[name, "rows"]);
}

#[test]
fn events_and_charts_are_written() {
    let command = Anabranch::new();
    let files = ["--profile", "p.json", "--gantt", "g.svg"];
    let text = command.text(&[&["run", "--software-gpu", "--place", "gpu"], &files[..]].concat());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("gpu0            predicted") && text.contains('█'), "{text}");
    let profile: Value = serde_json::from_str(&command.read("p.json")).expect("JSON");
    let events = profile["events"].as_array().expect("events");
    assert!(events.iter().any(|event| event["kind"] == "node" && event["on"] == "gpu0"));
    assert!(events.iter().any(|event| event["kind"] == "transfer" && event["bytes"].as_u64() > Some(0)));
    for event in events {
        let time = |key: &str| event[key].as_u64().expect("a time");
        assert!(time("ready_ns") <= time("start_ns") && time("start_ns") <= time("end_ns"), "{event}");
    }
    let chart = command.read("g.svg");
    assert!(chart.contains("gpu0 predicted") && chart.contains(">measured<"));
}

#[test]
fn what_cannot_be_used_is_refused_with_the_next_step() {
    let command = Anabranch::new();
    let model = bundled("convnet.onnx");
    std::fs::write(command.path("broken.onnx"), b"no model").expect("written");
    command.refuses(&["run", "missing.onnx"], &["missing.onnx"]);
    command.refuses(&["run", "broken.onnx"], &["broken.onnx"]);
    command.refuses(&["run", &model, "--place", "best", "--no-gpu"], &["`best`", "heft"]);
    command.refuses(&["run", &model, "--place", "gpu", "--no-gpu"], &["--software-gpu"]);
    command.refuses(&["run", &model, "--pin", "nothing=cpu0", "--no-gpu"], &["`nothing`", "`anabranch place`"]);
    command.refuses(&["run", &model, "--pin", "*=gpu7", "--no-gpu"], &["gpu7", "cpu0", "`anabranch devices`"]);
    command.refuses(&["run", &model, "--memory", "cpu0=1000", "--no-gpu"], &["cpu0", "1000", "--memory"]);
    command.refuses(&["run", &model, "--memory", "tpu0=1G", "--no-gpu"], &["tpu0", "cpu0"]);
    for size in ["-1GiB", "1e400"] {
        command.refuses(&["run", &model, "--memory", &format!("cpu0={size}")], &["--memory", size, "as in 512M"]);
    }
    for count in ["0", "-1", "1e3", "99999999999999999999"] {
        command.refuses(&["run", &model, &format!("--threads={count}")], &["--threads", "write "]);
    }
    command.refuses(&["run", &model, "--dim", "=3"], &["--dim", "batch=4"]);
    command.refuses(&["run", &model, "--input", "y=x.npy", "--no-gpu"], &["x.npy"]);
    command.refuses(&["place", &model, "--platform", "no.json"], &["no.json", "`anabranch platform -o FILE`"]);
    command.refuses(&["run", &model, "--costs", "/dev/null/store.json"], &["/dev/null/store.json", "--costs"]);
    command.refuses(&["run", &model, "--repeat", "0"], &["--repeat"]);
    command.refuses(&["run", &model, "--chunk", "0rows"], &["--chunk", "at least one"]);
    command.refuses(&["run", &model, "--stream", "often"], &["--stream", "auto", "always"]);
}

#[test]
fn missing_inputs_sizes_and_gpus_are_named_with_their_flags() {
    let command = Anabranch::new();
    let model = bundled("encoder.onnx");
    command.refuses(&["run", &model, "--random", "1", "--no-gpu"], &["batch", "--dim"]);
    let arrays = anabranch_report::npy::read_npz(Path::new(&bundled("encoder.npz"))).expect("bundled");
    anabranch_report::npy::write_npy(&command.path("mask.npy"), &arrays["in__mask"]).expect("writable");
    command.refuses(&["run", &model, "--input", "mask=mask.npy", "--no-gpu"], &["`x`", "--random"]);
    if command.json(&["devices"])["gpus"].as_array().is_some_and(Vec::is_empty) {
        assert!(command.text(&["devices"]).contains("--software-gpu"), "llvmpipe is there, and not counted");
    }
}

#[test]
fn costs_can_be_located_and_forgotten() {
    let command = Anabranch::new();
    command.json(&["run", "--no-gpu"]);
    let path = command.json(&["costs", "path"])["path"].as_str().expect("a path").to_owned();
    assert!(Path::new(&path).starts_with(command.directory.path()) && Path::new(&path).exists());
    assert!(command.json(&["costs", "clear"])["forgotten"].as_u64() > Some(0));
    assert_eq!(command.json(&["costs", "clear"])["forgotten"], 0);
}

#[test]
fn devices_are_listed() {
    let devices = Anabranch::new().json(&["devices", "--software-gpu"]);
    assert_eq!(devices["cpus"][0]["name"], "cpu0");
    assert_eq!(devices["gpus"][0]["name"], "gpu0");
}

#[test]
fn configurations_are_compared_as_text_json_and_csv() {
    let command = Anabranch::new();
    let configurations =
        ["compare", "--software-gpu", "--place", "heft,cpu,gpu0", "--order", "pct,fifo", "--stream", "off"];
    let quick = ["--repeat", "2", "--warmup", "1", "--csv", "configurations.csv", "--html", "configurations.html"];
    let comparison = command.json(&[&configurations[..], &quick[..]].concat());
    let outcomes = comparison["outcomes"].as_array().expect("outcomes");
    let names: Vec<_> =
        outcomes.iter().map(|o| (o["configuration"]["place"].as_str(), o["configuration"]["order"].as_str())).collect();
    assert_eq!(names.len(), 7);
    assert_eq!((names[1], names[6]), ((Some("heft"), Some("fifo")), (Some("dynamic"), None)));
    assert!(outcomes.iter().all(|outcome| outcome["outputs"]["within"] == true), "{comparison}");
    let page = command.read("configurations.html");
    // Configurations of one plan are listed together, in all charts and tables.
    let plans: std::collections::BTreeSet<_> = outcomes.iter().filter_map(|outcome| outcome["plan"].as_u64()).collect();
    let table =
        page.split("<h3>Configurations</h3>").nth(1).and_then(|rest| rest.split("</table>").next()).expect("a table");
    assert_eq!(table.matches("<tr><td").count(), plans.len() + 1, "{table}");
    let plan = |at: usize| outcomes[at]["plan"].as_u64();
    assert_eq!(plan(2) == plan(3), page.contains("cpu/pct = cpu/fifo"), "{comparison}");
    for part in [
        "Makespan",
        "Traffic",
        "Utilisation",
        "Memory",
        "not predicted",
        "<td>dynamic</td>",
        "fastest",
        "Schedules",
        "shortest median",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    assert!(page.matches("<script").count() == 1 && !page.contains("src="));
    let csv = command.read("configurations.csv");
    assert_eq!(csv.lines().count(), 8);
    let columns = csv.lines().map(|line| line.split(',').count());
    assert!(
        columns.into_iter().all(|count| count == 22 + 5 * comparison["devices"].as_array().expect("devices").len())
    );
    let text = command.text(&["compare", "--no-gpu", "--place", "heft", "--repeat", "1", "--warmup", "0"]);
    assert!(text.contains("dynamic") && text.contains("fastest"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_plan_is_refined_saved_and_run_again() {
    let command = Anabranch::new();
    let refine = ["run", "--software-gpu", "--refine", "2", "--repeat", "5", "-o", "plan.json"];
    let report = command.json(&refine);
    let rounds = report["refinement"]["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 2);
    assert!(rounds.iter().all(|round| round["plan"]["measured_ms"]["median"].as_f64() > Some(0.0)));
    // The final prediction uses the learned costs.
    assert_eq!(report["costs"]["measured"], report["nodes"], "{report}");
    let again = command.json(&["run", "--software-gpu", "--place", "plan.json"]);
    let nodes = |report: &Value| -> Vec<Value> {
        report["devices"].as_array().expect("devices").iter().map(|device| device["nodes"].clone()).collect()
    };
    assert_eq!(nodes(&report), nodes(&again));
}

#[test]
fn nonsense_is_refused_by_compare_and_refine() {
    let command = Anabranch::new();
    command.refuses(&["compare", "--no-gpu", "--place", "best"], &["`best`", "heft"]);
    command.refuses(&["compare", "--no-gpu", "--place", "gpu"], &["--software-gpu"]);
    command.refuses(&["compare", "--no-gpu", "--place", "dynamic"], &["--place"]);
    command.refuses(&["compare", "--no-gpu", "--order", "lifo"], &["lifo", "pct"]);
    command.refuses(&["compare", "--no-gpu", "--stream", "maybe"], &["maybe", "always"]);
    command.refuses(&["compare", "--no-gpu", "--repeat", "0"], &["--repeat"]);
    command.refuses(&["run", "--no-gpu", "--refine", "0"], &["--refine"]);
    command.refuses(&["run", "--no-gpu", "--refine", "2", "--no-learn"], &["--no-learn"]);
    command.refuses(&["run", "--no-gpu", "--refine", "1", "--refine-threshold", "200"], &["0 to 100"]);
    command.refuses(&["run", "--no-gpu", "--refine-threshold", "3"], &["--refine"]);
    command.refuses(&["run", "--no-gpu", "--order", "lifo"], &["lifo", "pct"]);
}

#[test]
fn a_model_in_phases_is_told_apart_from_its_first() {
    let command = Anabranch::new();
    let model = bundled("../onnx/selection/simple/test_sequence_model6/model.onnx");
    let report = command.json(&["run", "--no-gpu", "--repeat", "1", &model]);
    let phases = &report["phases"];
    assert!(phases["steps"].as_u64() >= Some(2), "{phases}");
    let number = |key: &str| phases[key].as_f64().unwrap_or_else(|| panic!("{key} of {phases}"));
    let parts = ["first_ms", "plans_ms", "steps_ms", "planning_ms", "between_ms"].map(number);
    assert!(parts.iter().sum::<f64>() >= 0.999 * number("took_ms"), "{phases}");
    let text = command.text(&["place", "--no-gpu", &model]);
    assert!(text.contains("this plan is of the first phase"), "{text}");
}

#[test]
fn the_demo_compares_learns_and_keeps_a_memory_limit() {
    let command = Anabranch::unmeasured();
    let found = command.json(&["demo", "--no-gpu", "--html", "demo.html"]);
    let page = command.read("demo.html");
    assert!(page.contains("One network on devices of different speed") && page.contains("speed-up"), "{page}");
    let places = |comparison: &Value| -> Vec<String> {
        let outcomes = comparison["outcomes"].as_array().expect("outcomes").iter();
        outcomes.map(|outcome| outcome["configuration"]["place"].as_str().expect("a name").to_owned()).collect()
    };
    for comparison in [&found["before"], &found["after"]] {
        for expected in ["auto", "heft", "mite", "cpu0", "dynamic"] {
            assert!(places(comparison).iter().any(|place| place == expected), "{expected}: {comparison}");
        }
    }
    let topics: Vec<_> = found["verdicts"].as_array().expect("verdicts").iter().map(|verdict| &verdict[0]).collect();
    assert_eq!(topics, ["configurations", "placement", "learning", "memory", "other machines", "use it"]);
    assert!(page.contains("nodes after fusion"), "{page}");
    let elsewhere = found["elsewhere"].as_array().expect("other machines");
    assert!(elsewhere.len() == 2 && elsewhere.iter().all(|machine| machine["predicted_ms"].as_f64() > Some(0.0)));
    // One device holds values that several can only hold together.
    if found["after"]["devices"].as_array().is_some_and(|devices| devices.len() > 1) {
        let limited = &found["limited"];
        let refused = limited["refused"].as_array().expect("each device alone").iter();
        assert!(refused.clone().count() > 1 && refused.clone().all(|one| one[1].is_string()), "{limited}");
        let limit = limited["limit_bytes"].as_u64().expect("a limit");
        let peaks = limited["comparison"]["outcomes"][0]["devices"].as_array().expect("devices").iter();
        assert!(peaks.clone().count() > 1 && peaks.clone().all(|device| device["peak_bytes"].as_u64() <= Some(limit)));
    }
    // The user's costs are unchanged.
    assert_eq!(command.json(&["costs"])["machines"].as_object().map(serde_json::Map::len), Some(0));
}

#[test]
fn memory_limits_hold_for_the_devices_of_a_platform() {
    let command = Anabranch::new();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/towers.onnx");
    let here = ["place", "--no-gpu", "--cpu-devices", "machine", "--platform", "one-gpu", model];
    let place = |limits: &[&str]| {
        let limits = limits.iter().flat_map(|limit| ["--memory", limit]);
        command.json(&here.into_iter().chain(limits).collect::<Vec<_>>())
    };
    let device = |plan: &Value, name: &str| -> [u64; 2] {
        let devices = plan["devices"].as_array().expect("devices");
        let device = devices.iter().find(|device| device["device"] == name).expect("a device");
        let peak = device["peak_bytes"].as_u64().unwrap_or_else(|| panic!("no peak in {device}"));
        [device["order"].as_array().expect("nodes").len() as u64, peak]
    };
    let free = place(&[]);
    let ([nodes, peak], [others, _]) = (device(&free, "gpuA"), device(&free, "cpu0"));
    assert!(nodes > others && peak > 1 << 20, "{free}");
    let limited = place(&["gpuA=1MiB"]);
    let ([less, peak], [others, _]) = (device(&limited, "gpuA"), device(&limited, "cpu0"));
    assert!(less < nodes && others > 0 && peak <= 1 << 20, "{limited}");
    let text = command.text(&[&here[..], &["--memory", "gpuA=1MiB"]].concat());
    assert!(text.starts_with("With assumed gpuA (GPU, 1 MiB, 6000 Gflop/s, 280 GB/s): "), "{text}");
    assert!(text.contains("\nOn this machine: ") && !text.contains("no plan"), "{text}");
    // `cpu0` is here, `gpuA` is only in the platform file, and `gpuB` is in neither.
    assert!(device(&place(&["cpu0=1GiB", "gpuA=1MiB"]), "gpuA")[1] <= 1 << 20);
    command.refuses(
        &["place", "--no-gpu", "--platform", "one-gpu", model, "--memory", "gpuB=1MiB"],
        &["gpuB", "the devices are"],
    );
}

#[test]
fn built_in_platforms_add_gpus_and_a_file_of_that_name_goes_before() {
    let command = Anabranch::new();
    let devices = |platform: &str| -> Vec<String> {
        let plan = command.json(&["place", "--no-gpu", "--platform", platform]);
        let devices = plan["devices"].as_array().expect("devices").iter();
        devices.map(|device| device["device"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(devices("one-gpu").iter().filter(|name| name.starts_with("gpu")).count(), 1);
    assert_eq!(devices("two-gpus").iter().filter(|name| name.starts_with("gpu")).count(), 2);
    let text = command.text(&["place", "--no-gpu", "--platform", "one-gpu"]);
    let [assumed, here] = [0, 1].map(|line| text.lines().nth(line).unwrap_or_default());
    assert!(assumed.starts_with("With assumed gpuA (GPU, 8 GiB, 6000 Gflop/s, 280 GB/s): "), "{text}");
    assert!(here.starts_with("On this machine: ") && here.ends_with("predicted, not measured."), "{text}");
    std::fs::write(command.path("one-gpu"), "{}").expect("writable");
    command.refuses(&["place", "--no-gpu", "--platform", "one-gpu"], &["one-gpu"]);
    let one_device = ["--no-gpu", "--cpu-devices", "machine"];
    let cores = command.json(&["devices", "--no-gpu", "--cpu-devices", "core"])["cpus"].as_array().map_or(0, Vec::len);
    for several in [
        &["place", "--report", "page.html"][..],
        &["run", "--repeat", "1", "--report", "page.html"],
        &["compare", "--repeat", "1", "--html", "page.html"],
    ] {
        let text = command.text(&[several, &one_device].concat());
        assert!(text.contains("`anabranch place --platform one-gpu` shows"), "{text}");
        assert!(command.read("page.html").contains("there is one device. "), "{several:?}");
        let text = command.text(&[several, &["--no-gpu", "--cpu-devices", "core"]].concat());
        assert_eq!(text.contains("there is one device"), cores == 1, "{text}");
        assert_eq!(command.read("page.html").contains("there is one device. "), cores == 1, "{several:?}");
    }
    assert!(!command.text(&[&["run", "--repeat", "1", "-q"][..], &one_device].concat()).contains("one device"));
}
