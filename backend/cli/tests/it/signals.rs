//! Signals end the command without a half-written file, and with their own exit code (SECURITY.md).

use crate::command::{Anabranch, bundled};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Whether the process catches the signal, by the kernel's mask.
fn catches(child: &Child, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:").map(str::trim)).unwrap_or("0");
    u64::from_str_radix(mask, 16).unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Waits until a condition holds.
fn wait_until(mut holds: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Sends a command a signal as soon as it catches it. It must end with its code and message, and leave only the cost
/// store.
fn ends_cleanly(command: &Anabranch, arguments: &[&str], (signal, number): (&str, u32)) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(arguments)
        .env("XDG_DATA_HOME", command.directory.path())
        .current_dir(command.directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let ready = |child: &mut Child| {
        assert_eq!(child.try_wait().expect("it is our child"), None, "it takes long");
        catches(child, number)
    };
    wait_until(|| ready(&mut child), "the command catches the signal before its work");
    assert!(Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status().is_ok());
    wait_until(|| child.try_wait().expect("it is our child").is_some(), "the command ends");
    let output = child.wait_with_output().expect("it has ended");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "SIG{signal}: {message}");
    assert!(message.contains("interrupted"), "SIG{signal}: {message}");
    let left = fs::read_dir(command.directory.path()).expect("a directory").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "anabranch").collect();
    assert!(left.is_empty(), "SIG{signal}: {left:?}");
}

#[test]
fn interrupt_terminate_and_hang_up_end_a_run_with_its_code_and_write_nothing() {
    let command = Anabranch::new();
    // The machine is measured once; the measurements are kept.
    command.text(&["run", "--no-gpu", "--repeat", "1"]);
    for signal in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let files = ["--output", "out.npz", "--profile", "p.json"];
        let arguments = [&["run", "--no-gpu", "--repeat", "100000"][..], &files].concat();
        ends_cleanly(&command, &arguments, signal);
    }
}

#[test]
fn an_interrupted_generation_ends_with_its_code() {
    let command = Anabranch::new();
    let model = bundled("language/llama");
    command.text(&["generate", &model, "--no-gpu", "--prompt", "x", "--max-length", "4"]);
    ends_cleanly(&command, &["generate", &model, "--no-gpu", "--bench", "64,64", "--repeat", "100000"], ("INT", 2));
}

#[test]
fn what_is_being_written_is_abandoned_at_once() {
    let command = Anabranch::unmeasured();
    let left = || fs::read_dir(command.directory.path()).expect("a directory").count();
    let written = anabranch::files::write(&command.path("file"), |_| {
        assert_eq!(left(), 1, "what is written is beside its place");
        anabranch::files::abandon();
        assert_eq!(left(), 0);
        Ok(())
    });
    assert!(written.is_err() && left() == 0, "what was abandoned is not put into its place");
}

#[test]
fn an_interrupted_compilation_leaves_nothing() {
    // The machine is measured first, which takes long enough for a signal to arrive before the end.
    let arguments = ["compile", "--no-gpu", "--random", "1", "-o", "model.anabranch"];
    ends_cleanly(&Anabranch::new(), &arguments, ("INT", 2));
}

#[test]
fn a_calibration_ends_at_an_interruption() {
    ends_cleanly(&Anabranch::new(), &["calibrate", "--no-gpu"], ("INT", 2));
}

#[test]
fn a_placement_of_a_sweep_ends_at_an_interruption() {
    let sweep = ["sweep", "random:100", "--devices", "random:8", "--strategies", "auto", "--evaluations", "1000000000"];
    ends_cleanly(&Anabranch::new(), &sweep, ("INT", 2));
}

/// The worst instances that were found so far are printed before the command ends with its code.
#[test]
fn a_search_for_worst_instances_ends_at_an_interruption() {
    let sweep = ["sweep", "--adversarial", "heft,cpop", "--seeds", "1000000", "--steps", "1000"];
    ends_cleanly(&Anabranch::new(), &sweep, ("INT", 2));
}

#[test]
fn closed_standard_streams_are_no_files_of_ours() {
    // A file that is opened later must not take the place of a stream that the shell has closed.
    let command = Anabranch::new();
    for closed in ["<&- >&- 2>&-", ">&- 2>&-", "2>&-"] {
        let script = format!("exec \"$0\" place --no-gpu --random 1 -o plan.json {closed}");
        let status = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_anabranch")])
            .env("XDG_DATA_HOME", command.directory.path())
            .current_dir(command.directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.expect("a shell").code(), Some(0), "{closed}");
        let plan: serde_json::Value = serde_json::from_str(&command.read("plan.json")).expect("a whole plan");
        assert!(plan["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{closed}");
        fs::remove_file(command.path("plan.json")).expect("just written");
    }
}
