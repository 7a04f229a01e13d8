//! Messages besides results: files that were written, suggestions, slow work, and help that fits a screen.

use crate::command::{Anabranch, bundled};
use serde_json::Value;
use std::process::Command;

/// Columns of help, and lines of a screen for short help.
const SCREEN: (usize, usize) = (100, 52);

/// Columns of a narrow terminal.
const NARROW: usize = 80;

/// Lines of the list of all options.
const MOST_LINES: usize = 120;

/// Returns the output of a command in a narrow terminal.
fn narrow(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let output = command.args(arguments).env("COLUMNS", NARROW.to_string()).output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn short_help_fits_a_screen_and_no_line_is_wrapped_twice() {
    let command = Anabranch::new();
    for name in command.commands().iter().map(String::as_str).chain([""]).filter(|name| *name != "help") {
        let of = |length| command.text(&[name, length][usize::from(name.is_empty())..]);
        let (help, all) = (of("-h"), of("--help"));
        for (columns, all) in [(SCREEN.0, all), (NARROW, narrow(&[name, "--help"][usize::from(name.is_empty())..]))] {
            assert!(all.lines().count() <= MOST_LINES, "{name} --help has {} lines at {columns}", all.lines().count());
        }
        let lines: Vec<&str> = help.lines().collect();
        assert!(lines.len() <= SCREEN.1, "{name} -h has {} lines", lines.len());
        for line in &lines {
            assert!(line.chars().count() <= SCREEN.0, "{name}: {line}");
        }
        // A line that continues does so only once.
        let indent = |line: &str| line.len() - line.trim_start().len();
        for three in lines.windows(3) {
            let goes_on = |line: &str| indent(line) >= 10 && !line.trim_start().starts_with('-');
            assert!(!three.iter().all(|line| goes_on(line)), "{name} -h wraps twice:\n{}", three.join("\n"));
        }
    }
}

#[test]
fn help_explains_in_three_lengths() {
    let command = Anabranch::new();
    let [short, options, all] = [&["run", "-h"], &["run", "--help"], &["help", "run"]].map(|help| command.text(help));
    let flags = |help: &str| {
        help.lines().map(str::trim_start).filter(|line| line.starts_with('-') && !line.starts_with("- ")).count()
    };
    assert!(flags(&short) + 10 < flags(&options) && flags(&options) <= flags(&all), "{options}");
    // Rarely used options, the values of a choice, and examples are in the list; explanations are not.
    assert!(options.contains("--on-device-loss") && options.contains("possible values"));
    assert!(options.contains("`anabranch help run` explains each option."));
    let explanation = "A plan file has its own order.";
    assert!(all.contains(explanation) && !options.contains(explanation) && !short.contains(explanation));
    assert!(!command.text(&["help", "help"]).is_empty());
    assert_eq!(command.text(&["help", "-h"]), command.text(&["-h"]));
}

#[test]
fn every_file_that_is_written_is_told_and_quiet_tells_nothing() {
    let command = Anabranch::new();
    let files =
        ["--profile", "p.json", "--trace", "t.paje", "--gantt", "g.svg", "--report", "r.html", "--output", "o.npz"];
    let run = [&["run", "--no-gpu", "--repeat", "2", "-o", "plan.json"], &files[..]].concat();
    let loud = command.run(&run);
    let told = String::from_utf8_lossy(&loud.stderr).into_owned();
    for file in ["p.json", "t.paje", "g.svg", "r.html", "o.npz", "plan.json"] {
        assert!(told.contains(&format!("wrote {file}")), "{file}: {told}");
    }
    let quiet = command.run(&[&run[..], &["-q"]].concat());
    let (result, told) = (String::from_utf8_lossy(&quiet.stdout), String::from_utf8_lossy(&quiet.stderr));
    assert!(quiet.status.success() && told.is_empty(), "{told}");
    assert!(result.lines().count() <= 2 && result.contains("median") && result.contains("p99"), "{result}");
    let exported = command.run(&["costs", "--export", "costs.json"]);
    assert!(String::from_utf8_lossy(&exported.stderr).contains("wrote costs.json"));
    assert!(command.text(&["run", "--no-gpu", "--repeat", "2", "-v"]).contains("slowest nodes"));
}

#[test]
fn output_files_are_seen_to_before_anything_runs() {
    let command = Anabranch::unmeasured();
    for (flag, file, part) in [
        ("--trace", "t.txt", ".json or .paje"),
        ("--gantt", "g.png", ".svg"),
        ("--report", "r.pdf", ".html"),
        ("--profile", "p.csv", ".json"),
        ("--write-plan", "p.yaml", ".json"),
        ("--profile", "none/p.json", "the directory none does not exist"),
        ("--report", "/proc/page.html", "no file can be created"),
        ("--output", "o.txt", ".npz"),
        ("--output", "none/o.npz", "the directory none does not exist"),
    ] {
        let output = command.run(&["run", "--no-gpu", flag, file]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(file) && said.contains(part), "{flag} {file}: {said}");
    }
    for (flag, file, part) in [
        ("-o", "p.csv", ".json or .txt"),
        ("--gantt", "g.png", ".svg"),
        ("--trace", "t.txt", ".json or .paje"),
        ("--trace", "none/t.paje", "the directory none does not exist"),
    ] {
        command.refuses(&["flow", "lcs", "--size", "10", flag, file], &[file, part]);
    }
    assert!(!command.path("anabranch/costs.json").exists(), "nothing was measured");
}

#[test]
fn what_was_meant_is_said() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let run = |more: &[&str], meant: &str| {
        let arguments = [&["run", &mlp, "--no-gpu", "--dim", "batch=2"], more].concat();
        command.refuses(&arguments, &[&format!("`{meant}`")]);
    };
    run(&["--place", "hetf"], "heft");
    run(&["--place", "cpu1"], "cpu");
    run(&["--pin", "*=cpu9"], "cpu0");
    run(&["--memory", "cpu7=1GiB"], "cpu0");
    command.refuses(&["run", &mlp, "--stream", "alwais"], &["always"]);
    command.refuses(&["comprae", &mlp], &["'compare'"]);
    command.refuses(&["run", &mlp, "--repaet", "2"], &["--repeat"]);
    command.refuses(&["simulate", &bundled("files/none.csv"), "--place", "heft"], &["none.csv"]);
    command.refuses(
        &["place", &mlp, "--no-gpu", "--dim", "batch=2", "--why", "/fc1/Gmem+Relu"],
        &["did you mean `/fc1/Gemm+Relu`?"],
    );
    command.refuses(&["run", &mlp, "--cpu-devices", "cores"], &["core"]);
}

#[test]
fn an_absent_gpu_is_told_where_it_is_missed() {
    let command = Anabranch::new();
    let said = |arguments: &[&str]| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        process.args(arguments).env("XDG_DATA_HOME", command.directory.path()).current_dir(command.directory.path());
        // No driver is found here, on any machine.
        process.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
        process.env_remove("XDG_RUNTIME_DIR").env("WAYLAND_DISPLAY", "none");
        let output = process.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // On a busy machine, the command reports that, and work that takes longer than a second.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines()
            .filter(|line| !line.ends_with('…') && !line.contains("busy machine"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let model = bundled("mlp.onnx");
    let run = said(&["run", &model, "--dim", "batch=2", "--random", "1", "--repeat", "2"]);
    assert_eq!(run, "", "a run on the CPU says nothing of GPUs, nor does the driver's loader");
    let bench = said(&["bench", &model, &model, "--place", "cpu", "--repeat", "1", "--dim", "batch=2"]);
    assert_eq!(bench.matches("no GPU").count(), 1, "{bench}");
}

/// Mesa's layer that selects a desktop's GPU asks a display server, and complains if there is none.
#[test]
fn no_driver_complains_of_a_missing_display() {
    let command = Anabranch::new();
    let said = |selected: Option<&str>| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        process
            .args(["devices", "--software-gpu", "--json"])
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("WAYLAND_DISPLAY");
        process.env_remove("DISPLAY").env_remove("NODEVICE_SELECT").env_remove("DRI_PRIME");
        process.env_remove("MESA_VK_DEVICE_SELECT").envs(selected.map(|gpu| ("MESA_VK_DEVICE_SELECT", gpu)));
        let output = process.env("XDG_DATA_HOME", command.directory.path()).output().expect("it starts");
        assert!(output.status.success());
        let inventory: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (inventory["gpus"].clone(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (listed, complaints) = said(None);
    assert_eq!(complaints, "");
    // A user's setting of the layer is kept, and the devices are the same.
    assert_eq!(said(Some("")).0, listed);
}
