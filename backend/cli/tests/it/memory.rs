//! Under a limit of its address space the command runs as without one, or ends with an error message. No limit makes it
//! abort or panic.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{DimensionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type};
use std::process::{Command, Output};

/// KiB between two limits.
const STEP: u64 = 768;

/// Runs the command in an address space of `kibibytes` KiB.
fn within(anabranch: &Anabranch, kibibytes: u64, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_anabranch")]).args(arguments);
    command.env("XDG_DATA_HOME", anabranch.directory.path()).env("RUST_BACKTRACE", "0");
    command.current_dir(anabranch.directory.path()).output().expect("there is a shell")
}

/// Returns the least limit at which the system loads the program and its libraries. Below it, failures are not ours.
fn least(anabranch: &Anabranch) -> u64 {
    let starts = |limit: &u64| within(anabranch, *limit, &["--version"]).status.success();
    (8 << 10..).step_by(STEP as usize).find(starts).expect("it starts somewhere")
}

/// Whether a message is left out. The standard libraries of Rust and C end a process if a thread finds no memory for
/// its signals or its cleanup. SECURITY.md excludes that.
fn is_left_out(told: &str) -> bool {
    told.contains("alternative stack") || told.contains("TLS destructor")
}

/// Raises the limit by `step` KiB at a time until the command has run well three times. Returns the errors before that.
fn raised(anabranch: &Anabranch, arguments: &[&str], step: u64) -> Vec<String> {
    let (mut limit, mut well, mut errors) = (least(anabranch), 0, Vec::new());
    while well < 3 {
        let output = within(anabranch, limit, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if is_left_out(&told) {
            limit += step;
            continue;
        }
        assert!(!told.contains("panicked"), "{arguments:?} within {limit} KiB: {told}");
        match output.status.code() {
            Some(0) => well += 1,
            Some(2) => {
                let named = told.starts_with("anabranch: ") || told.contains("\nanabranch: ");
                let says = ["memory", "thread", "Ctrl-C"].iter().any(|word| told.contains(word));
                assert!(named && says, "{arguments:?} within {limit} KiB: {told}");
                errors.push(told);
            }
            code => panic!("{arguments:?} within {limit} KiB: {code:?} {:?}: {told}", output.status),
        }
        limit += step;
    }
    errors
}

#[test]
fn under_any_limit_of_memory_the_command_runs_or_says_why_not() {
    let anabranch = Anabranch::new();
    let (encoder, vit) = (bundled("encoder.onnx"), bundled("vit.onnx"));
    let cpu = ["--no-gpu", "--cpu-devices", "machine", "--repeat", "1", "--warmup", "0", "--no-learn"];
    for model in [&["run", &encoder, "--dim", "batch=64", "--dim", "seq=64"][..], &["run", &vit, "--dim", "batch=32"]] {
        let errors = raised(&anabranch, &[model, &cpu].concat(), STEP);
        assert!(errors.len() > 3, "{model:?}: {errors:?}");
    }
}

/// Commands with threads of their own, and a step whose list depends on values: the system refuses a thread or a list.
#[test]
fn under_any_limit_of_memory_threads_and_lists_are_made_or_it_is_said_why_not() {
    let anabranch = Anabranch::new();
    let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT, vec![DimensionProto::known(6_000_000)])];
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let node = vec![NodeProto::of("NonZero", &["x"], &["i"]), NodeProto::of("Neg", &["i"], &["y"])];
    let graph = GraphProto { node, input, output, ..GraphProto::default() };
    std::fs::write(anabranch.path("list.onnx"), ModelProto::of(graph, 17).to_bytes()).expect("written");
    let cpu = ["--no-gpu", "--cpu-devices", "machine"];
    let encoder = bundled("encoder.onnx");
    let commands: [(&[&str], u64); 3] = [
        (
            &[
                "sweep",
                "fft:8",
                "--devices",
                "unrelated:2",
                "--strategies",
                "heft,hash",
                "--seeds",
                "4",
                "--threads",
                "4",
            ],
            4,
        ),
        (&["pipe", &encoder, "--random", "4", "--dim", "batch=1", "--dim", "seq=16"], 4),
        (&["run", "list.onnx", "--repeat", "1", "--warmup", "0", "--no-learn"], 16),
    ];
    for (command, steps) in commands {
        let arguments = if command[0] == "sweep" { command.to_vec() } else { [command, &cpu].concat() };
        let errors = raised(&anabranch, &arguments, steps * STEP);
        assert!(!errors.is_empty(), "{arguments:?}");
    }
}

/// Devices of unknown rates are measured first.
#[test]
fn under_any_limit_of_memory_devices_are_measured_or_it_is_said_why_not() {
    let errors = raised(&Anabranch::unmeasured(), &["place", "--no-gpu", "--cpu-devices", "machine"], 3 * STEP);
    assert!(errors.iter().any(|error| error.contains("calibration")), "{errors:?}");
}
