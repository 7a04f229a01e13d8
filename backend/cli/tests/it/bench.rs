//! `anabranch bench` and `anabranch compare`: models in several configurations, and changes since an earlier result.

use crate::command::{Anabranch, bundled};
use serde_json::Value;
use std::fs;
use std::process::Command;

const QUICK: [&str; 5] = ["--no-gpu", "--repeat", "6", "--warmup", "1"];

#[test]
fn models_and_configurations_are_measured_in_one_table() {
    let command = Anabranch::new();
    let (mlp, unet) = (bundled("mlp.onnx"), bundled("unet.onnx"));
    let bench = [&["bench", &mlp, &unet, "--place", "heft,cpu,cpu0,dynamic"], &QUICK[..]].concat();
    let results = command.json(&[&bench[..], &["--csv", "r.csv", "--markdown", "r.md", "-o", "r.json"]].concat());
    let models = results["models"].as_array().expect("models");
    assert_eq!(models.iter().map(|model| model["model"].as_str()).collect::<Vec<_>>(), [Some(&*mlp), Some(&*unet)]);
    for model in models {
        let outcomes = model["outcomes"].as_array().expect("outcomes");
        let configurations: Vec<_> =
            outcomes.iter().map(|outcome| outcome["configuration"]["place"].as_str()).collect();
        assert_eq!(configurations, ["heft", "cpu", "cpu0", "dynamic"].map(Some));
        for outcome in outcomes {
            let figure =
                |key: &str| outcome["latencies_ms"][key].as_f64().unwrap_or_else(|| panic!("{key}: {outcome}"));
            assert!(figure("min") > 0.0 && figure("p50") <= figure("p95") && figure("p95") <= figure("p99"));
            assert_eq!(outcome["samples_ms"].as_array().map(Vec::len), Some(6));
            assert!(outcome["runs_per_second"].as_f64() > Some(0.0) && outcome["outputs"]["within"] == true);
        }
    }
    let rows = command.read("r.md");
    assert!(rows.starts_with("| model | configuration | runs |") && rows.lines().count() == 2 + 2 * 4, "{rows}");
    let csv = command.read("r.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * 4);
    assert!(csv.starts_with("model,place,order,stream,runs,callers,") && csv.contains("p99_ms"), "{csv}");
    let text = command.text(&bench);
    for part in ["unet.onnx", "dynamic", "runs/s", "× best", "p99"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn changes_since_an_earlier_result_are_told_with_their_certainty() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    fn arguments<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["bench", model, "--place", "heft,cpu"], &QUICK[..], more].concat()
    }
    let bench = |more| arguments(&mlp, more);
    let results = command.json(&bench(&["-o", "now.json"]));
    assert!(results["changes"].is_null());
    // Earlier results that took a hundredth of the time, or a hundred times as long, the latter under an earlier key.
    let scaled = |file: &str, scale: f64, key: &str| {
        let mut earlier: Value = serde_json::from_str(&command.read("now.json")).expect("JSON");
        for outcome in earlier["models"][0]["outcomes"].as_array_mut().expect("outcomes") {
            for sample in outcome["samples_ms"].as_array_mut().expect("samples") {
                *sample = (sample.as_f64().expect("a time") * scale).into();
            }
        }
        let text = earlier.to_string().replace("\"configuration\"", key);
        fs::write(command.path(file), text).expect("writable");
    };
    scaled("fast.json", 0.01, "\"configuration\"");
    scaled("slow.json", 100.0, "\"way\"");
    let slower = command.run(&bench(&["--compare-to", "fast.json", "--fail-above", "5%"]));
    let (told, said) = (String::from_utf8_lossy(&slower.stdout), String::from_utf8_lossy(&slower.stderr));
    assert_eq!(slower.status.code(), Some(3), "{told}{said}");
    assert!(told.contains("% slower") && said.contains("2 of 2 are slower by more than 5 %"), "{told}{said}");
    let faster = command.json(&bench(&["--compare-to", "slow.json", "--fail-above", "5"]));
    let changes = faster["changes"]["changed"].as_array().expect("changes");
    assert!(changes.len() == 2 && changes.iter().all(|c| c["ratio"]["high"].as_f64() < Some(1.0)), "{faster}");
    // Other configurations are reported as missing or new. Other numbers of callers are not compared.
    let other =
        command.text(&[&["bench", &mlp, "--place", "heft,cpu0", "--compare-to", "slow.json"], &QUICK[..]].concat());
    assert!(other.contains("cpu: not measured this time") && other.contains("cpu0: not measured before"), "{other}");
    // If changes decide, a missing measurement is not a success.
    let missing = ["bench", &mlp, "--place", "heft", "--compare-to", "slow.json", "--fail-above", "5%"];
    command.refuses(&[&missing[..], &QUICK[..]].concat(), &["--fail-above", "by cpu", "nothing to compare to"]);
    command.refuses(&bench(&["--compare-to", "slow.json", "--parallel", "2"]), &["slow.json", "--parallel 1"]);
}

#[test]
fn callers_at_the_same_time_are_measured_together() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let bench = ["bench", &mlp, "--place", "heft,dynamic", "--parallel", "3", "--no-gpu", "--repeat", "10"];
    let results = command.json(&bench);
    assert_eq!(results["models"][0]["callers"], 3);
    for outcome in results["models"][0]["outcomes"].as_array().expect("outcomes") {
        assert_eq!(outcome["samples_ms"].as_array().map(Vec::len), Some(30), "{outcome}");
        // The waiting time of a caller is not a makespan.
        assert!(outcome["error_percent"].is_null(), "{outcome}");
    }
    let run = ["run", &mlp, "--no-gpu", "--random", "1", "--dim", "batch=2", "--repeat", "4", "--parallel", "2"];
    let report = command.json(&run);
    assert_eq!((&report["parallel"]["callers"], &report["parallel"]["runs"]), (&2.into(), &8.into()));
    assert!(command.text(&run).contains("2 callers at a time, 8 runs"));
}

#[test]
fn one_model_that_fails_does_not_lose_the_others() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    fs::write(command.path("broken.onnx"), "no model").expect("writable");
    for name in ["bench", "compare"] {
        let measure = [&[name, "broken.onnx", &mlp, "--place", "cpu", "-o", "r.json"], &QUICK[..]].concat();
        command.refuses(&measure, &["broken.onnx", "1 of 2 models"]);
        let results: Value = serde_json::from_str(&command.read("r.json")).expect("JSON");
        assert_eq!(results["models"].as_array().map(Vec::len), Some(1));
        assert_eq!(results["failed"][0][0], "broken.onnx");
        let table = command.run(&measure).stdout;
        assert!(String::from_utf8_lossy(&table).contains("mlp.onnx"), "{name}");
        let output = command.run(&[&measure[..], &["--json"]].concat());
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(printed["failed"][0][0], "broken.onnx", "{printed}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().next().map(|line| line.matches("broken.onnx").count()), Some(1), "{said}");
    }
}

#[test]
fn all_models_are_opened_before_the_first_is_measured() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    for name in ["bench", "compare"] {
        // The strategy is unknown, which is an error of the first model's placement.
        let output = command.run(&[&[name, &mlp, "none.onnx", "--place", "hetf"], &QUICK[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("no {part} in {said}"));
        assert!(at("anabranch: none.onnx: ") < at("did you mean `heft`?"), "{said}");
        assert!(output.status.code() == Some(2) && said.contains("2 of 2 models"), "{said}");
    }
}

#[test]
fn a_size_holds_for_the_models_that_have_its_dimension() {
    let command = Anabranch::new();
    let (mlp, unet) = (bundled("mlp.onnx"), bundled("unet.onnx"));
    for more in [&[][..], &["--cache", "kept"]] {
        let sizes = ["bench", &mlp, &unet, "--place", "cpu", "--dim", "batch=2"];
        let results = command.json(&[&sizes[..], &QUICK, more].concat());
        assert_eq!(results["models"].as_array().map(Vec::len), Some(2), "{results}");
    }
    let none = ["bench", &mlp, &unet, "--place", "cpu", "--dim", "bach=2"];
    command.refuses(&[&none[..], &QUICK].concat(), &["--dim bach: no model", "anabranch inspect"]);
}

#[test]
fn models_of_given_sizes_come_from_the_cache() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    for name in ["bench", "compare"] {
        let measure = [&[name, &mlp, "--place", "cpu"], &QUICK[..]].concat();
        command.refuses(&[&measure[..], &["--cache", "kept"]].concat(), &["batch", "--dim"]);
        for told in ["wrote kept", "opened from kept"] {
            let folder = format!("kept-{name}");
            let output = command.run(&[&measure[..], &["--dim", "batch=2", "--cache", &folder]].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains(told), "{name}: no {told} in {said}");
        }
        let mut environment = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        environment.args(&measure).env("XDG_DATA_HOME", command.directory.path());
        let output = environment.env("ANABRANCH_CACHE", command.path("other")).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("size 1 is assumed for batch"), "{name}: {said}");
    }
}

#[test]
fn both_commands_take_inputs_write_pages_and_read_each_others_results() {
    let command = Anabranch::new();
    let (mlp, given) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let own = [&mlp, "--place", "heft", "--order", "pct,fifo", "--weights", "resident", "--input", &given];
    let measure = |name: &'static str, more: &[&'static str]| [&[name][..], &own, &QUICK, more].concat();
    let compared = command.json(&measure("compare", &["-o", "before.json", "--html", "compare.html"]));
    assert!(compared["outcomes"].is_array() && compared["models"].is_null(), "its keys are those of a comparison");
    let benched = command.json(&measure("bench", &["--compare-to", "before.json", "--html", "bench.html"]));
    assert_eq!(benched["changes"]["missing"][0][1]["place"], "dynamic", "{benched}");
    assert_eq!(benched["changes"]["changed"].as_array().map(Vec::len), Some(2), "{benched}");
    for page in ["compare.html", "bench.html"] {
        assert!(command.read(page).contains("heft/pct"), "{page}");
    }
    command.json(&measure("bench", &["-o", "after.json", "--refine", "1"]));
    let text = command.text(&measure("compare", &["--compare-to", "after.json"]));
    assert!(text.contains("since the earlier results") && text.contains("heft/fifo"), "{text}");
    assert!(text.contains("dynamic: not measured before"), "{text}");
    let changed = command.json(&measure("compare", &["--compare-to", "after.json"]));
    assert!(changed["changes"]["changed"].is_array() && changed["format"] == "anabranch-bench", "{changed}");
    let together = command.text(&[&["compare", &mlp, "--parallel", "2", "--place", "cpu"], &QUICK[..]].concat());
    assert!(together.contains("runs of each configuration in turn by each of 2 callers at a time"), "{together}");
    let timed = command.json(&["compare", &mlp, "--no-gpu", "--place", "cpu", "--duration", "0.05"]);
    assert!(timed["outcomes"][0]["samples_ms"].as_array().is_some_and(|samples| !samples.is_empty()));
}

#[test]
fn times_bound_what_is_measured_and_nonsense_is_refused() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let timed = command.json(&["bench", &mlp, "--no-gpu", "--place", "cpu", "--duration", "0.05"]);
    assert!(timed["models"][0]["outcomes"][0]["samples_ms"].as_array().is_some_and(|samples| !samples.is_empty()));
    fs::write(command.path("other.json"), "{}").expect("writable");
    fs::write(command.path("plan.json"), "{\"format\": \"x\"}").expect("writable");
    for (more, parts) in [
        (&["--compare-to", "none.json"][..], &["none.json"][..]),
        (&["--compare-to", "other.json"], &["other.json", "anabranch bench MODEL -o"]),
        (&["--fail-above", "5%"], &["--compare-to"]),
        (&["--compare-to", "other.json", "--fail-above", "much"], &["5%"]),
        (&["--place", "dynamic"], &["--place", "add a strategy"]),
        (&["--place", "hetf"], &["did you mean `heft`?"]),
        // The earlier name of --place.
        (&["--ways", "hetf"], &["did you mean `heft`?"]),
        (&["--parallel", "0"], &["1 to 1024"]),
        (&["--csv", "r.txt"], &["r.txt", ".csv"]),
        (&["-o", "none/such.json"], &["the directory none does not exist"]),
    ] {
        for name in ["bench", "compare"] {
            command.refuses(&[&[name, &mlp, "--no-gpu", "--repeat", "1"], more].concat(), parts);
        }
    }
    for name in ["bench", "compare"] {
        command.refuses(&[name, &mlp, &mlp, "--input", "x.npy"], &["--input", "one model", "folders of tests"]);
    }
    command.refuses(&["bench", &mlp, "--no-gpu", "--duration", "1e300"], &["less than a year"]);
    command.refuses(&["bench", &mlp, "--no-gpu", "--duration", "1", "--repeat", "2"], &["--duration", "--repeat"]);
}
