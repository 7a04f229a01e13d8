//! Promises about a user's files, terminal and memory, for any input (SECURITY.md).

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns names and contents of all files of a directory.
fn files(directory: &Path) -> Vec<(OsString, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap_or_default())).collect();
    files.sort();
    files
}

/// Returns a model with nodes between `x` and outputs of these names.
fn model(dims: &[i64], outputs: &[&str]) -> Vec<u8> {
    let graph = GraphProto {
        node: outputs.iter().map(|output| NodeProto::of("Relu", &["x"], &[output])).collect(),
        input: vec![ValueInfoProto::f32s("x", dims)],
        output: outputs.iter().map(|output| ValueInfoProto::f32s(output, dims)).collect(),
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

/// Runs the command with the given standard streams.
fn with_streams(command: &Anabranch, arguments: &[&OsStr], stdout: Stdio, stderr: Stdio) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    process.args(arguments).env("XDG_DATA_HOME", command.directory.path()).current_dir(command.directory.path());
    process.stdout(stdout).stderr(stderr).spawn().and_then(|child| child.wait_with_output()).expect("it starts")
}

fn raw(command: &Anabranch, arguments: &[&OsStr]) -> Output {
    with_streams(command, arguments, Stdio::piped(), Stdio::piped())
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("coreutils").success());
}

#[test]
fn what_is_no_cost_store_is_never_moved_or_written() {
    let command = Anabranch::new();
    fs::write(command.path("model.onnx"), model(&[4], &["y"])).expect("writable");
    fs::write(command.path("notes.txt"), "not for a program").expect("writable");
    fs::write(command.path("old.json"), "{\"version\": 1}").expect("writable");
    let before = files(command.directory.path());
    for store in ["model.onnx", "notes.txt", "old.json"] {
        for action in [
            &["costs"][..],
            &["costs", "clear"],
            &["platform", "--no-gpu"],
            &["run", "model.onnx", "--no-gpu"],
            &["place", "model.onnx", "--no-gpu", "--random", "1"],
            &["calibrate", "--no-gpu", "--cpu-devices", "machine"],
        ] {
            command.refuses(&[action, &["--costs", store]].concat(), &[store, "not a cost store", "name another file"]);
        }
    }
    assert_eq!(files(command.directory.path()), before);
}

#[test]
fn pipes_devices_and_directories_are_refused_and_not_waited_for() {
    let command = Anabranch::new();
    pipe(&command.path("pipe"));
    pipe(&command.path("pipe.npz"));
    let mlp = bundled("mlp.onnx");
    for file in ["pipe", "/dev/zero", "."] {
        command.refuses(&["costs", "--costs", file], &[file, "not a regular file"]);
        let (model, input) = match file {
            "." => ("without an ONNX file", "names its inputs"),
            _ => ("not a regular file; name an ONNX file", "not a regular file"),
        };
        command.refuses(&["run", file, "--no-gpu"], &[model]);
        command.refuses(&["run", &mlp, "--no-gpu", "--input", &format!("x={file}")], &[file, input]);
        command.refuses(&["place", &mlp, "--dim", "batch=2", "--platform", file], &[file, "not a regular file"]);
        command.refuses(&["costs", "--import", file, "--format", "json"], &[file, "not a regular file"]);
    }
    command.refuses(&["run", &mlp, "--no-gpu", "--input", "pipe.npz"], &["pipe.npz", "not a regular file"]);
}

#[test]
fn processes_that_share_a_store_lose_nothing() {
    const PROCESSES: u64 = 6;
    let command = Anabranch::new();
    let run = ["run", "--no-gpu", "--warmup", "0", "--repeat", "1", "--cpu-devices", "machine", "--costs", "c.json"];
    let samples = |store: &Value| -> Vec<u64> {
        let machine = store["machines"].as_object().and_then(|machines| machines.values().next()).expect("one");
        let device = machine["devices"].as_object().and_then(|devices| devices.values().next()).expect("one");
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let history = |node: &Value| -> u64 {
            let versions = node["versions"].as_object().expect("versions").values();
            versions.map(|h| number(&h["count"]) + number(&h["faded"]) + number(&h["cold"]["count"])).sum()
        };
        device["nodes"].as_object().expect("nodes").values().map(history).collect()
    };
    command.text(&run);
    let one = samples(&command.json(&["costs", "--costs", "c.json"]));
    std::thread::scope(|scope| {
        (1..PROCESSES).for_each(|_| _ = scope.spawn(|| command.text(&run)));
    });
    let all = samples(&command.json(&["costs", "--costs", "c.json"]));
    // Calibration measures each rate once; the model's nodes are measured once per run.
    let want: Vec<u64> = one.iter().map(|count| if *count == 1 { PROCESSES } else { *count }).collect();
    assert!(one.contains(&1));
    assert_eq!(all, want);
}

#[test]
fn a_store_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let command = Anabranch::new();
    for store in ["/proc/none/costs.json", "/dev/null/costs.json"] {
        let output = command.run(&["run", "--no-gpu", "--costs", store]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.contains(store) && message.contains("--costs FILE"), "{message}");
    }
    fs::write(command.path("kept.json"), "{\"version\": 2, \"machines\": {}}").expect("writable");
    fs::set_permissions(command.path("kept.json"), fs::Permissions::from_mode(0o444)).expect("its owner may");
    command.refuses(&["run", "--no-gpu", "--costs", "kept.json"], &["kept.json", "read-only"]);
}

#[test]
fn a_default_store_that_cannot_be_written_does_not_keep_a_model_from_running() {
    let command = Anabranch::new();
    let run = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["run", "--no-gpu", "--repeat", "1"])
        .env("XDG_DATA_HOME", "/proc/none")
        .current_dir(command.directory.path())
        .output()
        .expect("the command starts");
    let message = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{message}");
    assert!(
        message.contains("/proc/none") && message.contains("are not saved") && message.contains("--costs FILE"),
        "{message}"
    );
}

#[test]
fn without_a_home_commands_run_and_say_once_that_nothing_is_kept() {
    let command = Anabranch::unmeasured();
    fs::write(command.path("model.onnx"), model(&[4], &["y"])).expect("writable");
    fs::create_dir(command.path("anabranch")).expect("writable");
    fs::write(command.path("anabranch/costs.json"), "{\"version\": 77}").expect("writable");
    let own = command.directory.path().to_path_buf();
    let nowhere = own.join("none/of/these");
    let homes: [(&str, &[(&str, &Path)]); 3] = [
        ("no home", &[]),
        ("a home that cannot be made", &[("HOME", Path::new("/proc/none"))]),
        ("a store that is none", &[("XDG_DATA_HOME", &own), ("HOME", &nowhere)]),
    ];
    for (case, variables) in homes {
        let run = &["run", "model.onnx", "--no-gpu", "--repeat", "2", "--cache", "kept"][..];
        for arguments in [run, &["platform", "--no-gpu"], &["costs"]] {
            let mut process = Command::new(env!("CARGO_BIN_EXE_anabranch"));
            process.args(arguments).current_dir(&own);
            ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].iter().for_each(|name| {
                process.env_remove(name);
            });
            let output = process.envs(variables.iter().copied()).output().expect("it starts");
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{case}, {arguments:?}: {message}");
            let told = message.lines().filter(|line| line.contains("--costs FILE")).count();
            let reads_alone = matches!(arguments[0], "platform" | "costs") && case.contains("home that");
            assert_eq!(told, usize::from(!reads_alone), "{case}, {arguments:?}: {message}");
        }
    }
    assert_eq!(fs::read_to_string(command.path("anabranch/costs.json")).expect("kept"), "{\"version\": 77}");
    for arguments in [&["costs", "path"][..], &["costs", "clear"]] {
        let process = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(arguments)
            .env_remove("HOME")
            .env_remove("XDG_DATA_HOME")
            .output()
            .expect("it starts");
        let message = String::from_utf8_lossy(&process.stderr);
        assert!(process.status.code() == Some(2) && message.contains("neither XDG_DATA_HOME nor HOME"), "{message}");
    }
}

#[test]
fn a_failed_write_is_told_and_leaves_the_earlier_file() {
    let command = Anabranch::new();
    for flag in ["--profile", "--trace", "--gantt", "--report"] {
        let run = ["run", "--no-gpu", "--repeat", "2", flag, "/dev/full"];
        command.refuses(&run, &["/dev/full", "No space left"]);
        let reported = String::from_utf8(command.run(&run).stdout).expect("UTF-8");
        assert!(reported.contains("makespan  predicted"), "the run is reported: {reported}");
    }
    let compared = command.run(&["compare", "--no-gpu", "--repeat", "1", "--html", "/dev/full"]);
    assert!(compared.status.code() == Some(2) && String::from_utf8_lossy(&compared.stdout).contains("fastest: "));
    command.refuses(&["place", "--no-gpu", "-o", "/dev/full"], &["/dev/full", "No space left"]);
    command.refuses(&["run", "--no-gpu", "--output", "none/such.npz"], &["none/such.npz"]);
    // A directory in place of a file, and a file in place of a directory.
    fs::write(command.path("file"), "kept").expect("writable");
    command.refuses(&["run", "--no-gpu", "--output", "file"], &["file"]);
    command.refuses(&["run", "--no-gpu", "--profile", "."], &["."]);
    assert_eq!(command.read("file"), "kept");
}

#[test]
fn every_file_is_attempted_after_the_results_are_printed() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    // The inputs of the file are not given, so that the outputs differ.
    let run = ["run", &model, "--no-gpu", "--repeat", "2", "--random", "1", "--dim", "batch=4"];
    let unlike = bundled("mlp.npz");
    let full = ["--profile", "/dev/full", "--gantt", "/dev/full", "-o", "/dev/full"];
    let files = ["--trace", "t.json", "--output", "o.npz", "--report", "r.html"];
    let written = |names: &[&str]| {
        for name in names {
            assert!(fs::remove_file(command.path(name)).is_ok(), "{name} is not written");
        }
    };
    let failed = |output: &Output, code: i32, count: usize| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("anabranch: /dev/full: ")).count(), count, "{said}");
        said
    };
    failed(&command.run(&[&run[..], &full, &files].concat()), 2, 3);
    written(&["t.json", "o.npz", "r.html"]);
    // A failed check decides the exit code before a failed write.
    let said = failed(&command.run(&[&run[..], &full, &files, &["--expect", &unlike]].concat()), 3, 3);
    assert!(said.contains("outputs differ"), "{said}");
    written(&["t.json", "o.npz", "r.html"]);

    let arguments: Vec<&OsStr> = [&run[..], &files].concat().into_iter().map(OsStr::new).collect();
    let full_output = File::create("/dev/full").expect("a device");
    let output = with_streams(&command, &arguments, full_output.into(), Stdio::piped());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("standard output"), "{said}");
    written(&["t.json", "o.npz", "r.html"]);

    let both = File::create(command.path("both")).expect("writable");
    let again = both.try_clone().expect("a file");
    assert!(with_streams(&command, &arguments, both.into(), again.into()).status.success());
    let text = command.read("both");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    assert!(at("makespan  predicted") < at("wrote "), "{text}");

    let compare = ["compare", "--no-gpu", "--place", "cpu", "--repeat", "1", "--warmup", "0"];
    failed(&command.run(&[&compare[..], &["--csv", "/dev/full", "--html", "/dev/full"]].concat()), 2, 2);
    failed(&command.run(&[&compare[..], &["--csv", "/dev/full", "--html", "c.html"]].concat()), 2, 1);
    written(&["c.html"]);
}

#[test]
fn a_limit_of_file_sizes_is_a_failed_write_and_no_signal() {
    let command = Anabranch::new();
    fs::write(command.path("out.npz"), "kept").expect("writable");
    let program =
        format!("ulimit -f 0; exec '{}' run --no-gpu --no-learn --output out.npz", env!("CARGO_BIN_EXE_anabranch"));
    let mut shell = std::process::Command::new("sh");
    let ended = shell.args(["-c", &program]).current_dir(command.path(".")).output().expect("a shell");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(2) && said.contains("out.npz") && said.contains("too large"), "{ended:?}");
    assert_eq!(command.read("out.npz"), "kept");
    let left = files(&command.path("."));
    assert!(left.iter().all(|(name, _)| !name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn every_output_has_a_file_and_none_leaves_its_directory() {
    let command = Anabranch::new();
    let outputs = ["a/b", "a:b", "../../escaped", "/escaped", ".."];
    fs::write(command.path("model.onnx"), model(&[4], &outputs)).expect("writable");
    command.text(&["run", "model.onnx", "--no-gpu", "--output", "deep/out"]);
    assert_eq!(files(&command.path("deep/out")).len(), outputs.len());
    assert_eq!(files(&command.path("deep")).len(), 1);
    assert!(!Path::new("/escaped.npy").exists() && !command.path("escaped.npy").exists());
    command.text(&["run", "model.onnx", "--no-gpu", "--output", "out.npz"]);
    let arrays = anabranch_report::npy::read_npz(&command.path("out.npz")).expect("readable");
    assert_eq!(arrays.keys().collect::<Vec<_>>(), [".._.._escaped", "___", "_escaped", "a/b", "a:b"]);
}

#[test]
fn what_does_not_fit_is_known_from_sizes_alone() {
    let command = Anabranch::new();
    fs::write(command.path("huge.onnx"), model(&[1 << 20, 1 << 20], &["y"])).expect("writable");
    for memory in ["8GiB", "1MiB"] {
        let memory = format!("cpu0={memory}");
        let run = ["run", "huge.onnx", "--no-gpu", "--cpu-devices", "machine", "--memory", &memory];
        command.refuses(&run, &["inputs up to `x`", "bytes", "--memory cpu0"]);
    }
    let mlp = bundled("mlp.onnx");
    for size in ["99999999999", "9999999999999999"] {
        let dim = format!("batch={size}");
        let run = ["run", &mlp, "--no-gpu", "--random", "1", "--dim", &dim];
        command.refuses(&run, &["smaller sizes"]);
    }
}

#[test]
fn what_is_said_twice_is_refused() {
    let command = Anabranch::new();
    let place = ["place", "--no-gpu", "--random", "1"];
    for (flag, first, second) in [("--memory", "cpu0=1GiB", "cpu0=2GiB"), ("--emulate", "cpu0=1", "cpu0=2")] {
        command.refuses(&[&place[..], &[flag, first, flag, second]].concat(), &[flag, "cpu0 twice"]);
        command.refuses(&["devices", "--no-gpu", flag, first, flag, second], &[flag, "cpu0 twice"]);
    }
    command.refuses(
        &["place", &bundled("mlp.onnx"), "--dim", "batch=1", "--dim", "batch=2"],
        &["--dim names batch twice"],
    );
}

#[test]
fn damaged_files_are_refused_in_words_with_the_place_and_the_next_step() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    for (text, problem) in [
        ("[", "its JSON is cut off at line 1, column 1"),
        ("garbage", "it is not JSON: expected value at line 1, column 1"),
        ("\"x\"", "invalid type: string \"x\" at line 1, column 3, but an object is expected"),
        ("{\n}", "at line 2, column 1"),
    ] {
        fs::write(command.path("f.json"), text).expect("writable");
        let place = ["place", &mlp, "--no-gpu", "--dim", "batch=2"];
        command.refuses(
            &[&place[..], &["--place", "f.json"]].concat(),
            &["plan f.json", problem, "anabranch place -o FILE"],
        );
        command.refuses(
            &[&place[..], &["--platform", "f.json"]].concat(),
            &["f.json", problem, "anabranch platform -o FILE"],
        );
        command.refuses(&["costs", "--costs", "f.json"], &["f.json", problem, "name another file"]);
        command.refuses(
            &["costs", "--import", "f.json", "--format", "json"],
            &["f.json", problem, "nothing was imported"],
        );
    }
}

#[test]
fn paths_need_not_be_utf8() {
    let command = Anabranch::new();
    let os = OsStr::new;
    let strange = OsStr::from_bytes(b"gr\xff\xfeph.json");
    let page = OsStr::from_bytes(b"p\xffge.html");
    let store = OsStr::from_bytes(b"c\xffsts.json");
    for arguments in [
        &[os("graph"), os("--no-gpu"), os("-o"), strange, os("--json")][..],
        &[os("run"), os("--no-gpu"), os("--repeat"), os("1"), os("--report"), page, os("--costs"), store],
        &[os("costs"), os("--costs"), store, os("--json")],
        &[os("costs"), os("path"), os("--costs"), store, os("--json")],
        &[os("costs"), os("--export"), OsStr::from_bytes(b"\xff.json"), os("--json")],
    ] {
        let output = raw(&command, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    }
    for file in [strange, page, store] {
        assert!(command.directory.path().join(file).exists());
    }
}

#[test]
fn closed_and_full_streams_end_with_the_right_code() {
    let command = Anabranch::new();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("Linux has it"));
    let code = |arguments: &[&str], stdout: Stdio, stderr: Stdio| {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        with_streams(&command, &arguments, stdout, stderr).status.code()
    };
    assert_eq!(code(&["run", "none.onnx"], Stdio::null(), full()), Some(2));
    assert_eq!(code(&["run", "--no-such-flag"], Stdio::null(), full()), Some(2));
    for shown in [&["--help"][..], &["run", "--help"], &["--version"], &["costs"]] {
        assert_eq!(code(shown, full(), Stdio::null()), Some(2), "{shown:?}");
        assert_eq!(code(shown, Stdio::null(), Stdio::null()), Some(0), "{shown:?}");
    }
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    for shown in [&["--help"][..], &["costs"], &["costs", "--json"]] {
        assert_eq!(code(shown, closed(), Stdio::null()), Some(0), "{shown:?}: who went away is no error");
    }
    assert_eq!(code(&["run", "none.onnx"], Stdio::null(), closed()), Some(2));
}

#[test]
fn nothing_that_a_file_says_acts_on_the_terminal() {
    let command = Anabranch::new();
    // Control characters in names of nodes and values are rejected when the file is read.
    let name = format!("\u{202e}{}", "n".repeat(60_000));
    let graph = GraphProto {
        node: vec![NodeProto::of("Relu", &["x"], &["y"]).named(&name)],
        input: vec![ValueInfoProto::f32s("x", &[4])],
        output: vec![ValueInfoProto::f32s("y", &[4])],
        ..GraphProto::default()
    };
    let mut unknown = graph.clone();
    unknown.node[0].op_type = format!("\u{1b}[31m{name}");
    fs::write(command.path("named.onnx"), ModelProto::of(graph, 17).to_bytes()).expect("writable");
    fs::write(command.path("unknown.onnx"), ModelProto::of(unknown, 17).to_bytes()).expect("writable");
    let acts = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(['\u{1b}', '\u{202e}']);
    let placed = command.run(&["place", "named.onnx", "--no-gpu", "--random", "1"]);
    assert!(placed.status.success() && !acts(&placed.stdout));
    let strange = OsStr::from_bytes(b"\x1b[31mno.onnx");
    for arguments in [&[OsStr::new("run"), OsStr::new("unknown.onnx")][..], &[OsStr::new("run"), strange]] {
        let output = raw(&command, arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(!acts(&output.stderr) && output.stderr.len() < 10_000, "{}", output.stderr.len());
    }
}
