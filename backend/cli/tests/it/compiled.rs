//! Compiled models at the command line: made, shown, run like the model, and rejected with an error.

use crate::command::{Anabranch, bundled};
use std::fs;

/// Options with which `mlp` is compiled.
const SIZES: [&str; 5] = ["--dim", "batch=4", "--no-gpu", "--cpu-devices", "core"];

fn compile<'a>(model: &'a str, file: &'a str) -> Vec<&'a str> {
    [&["compile", model, "-o", file], &SIZES[..]].concat()
}

#[test]
fn a_compiled_model_runs_like_the_model_and_says_what_it_is() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    let made = command.json(&compile(&model, "m.anabranch"));
    assert_eq!((&made["file"], &made["compiled"]["strategy"]), (&"m.anabranch".into(), &"heft".into()), "{made}");
    let once = ["--repeat", "1", "--warmup", "0", "--no-learn", "--output"];
    command.text(&[&["run", &model][..], &SIZES, &once, &["from_model.npz"]].concat());
    let report = command.json(&[&["run", "m.anabranch"][..], &once, &["from_file.npz"]].concat());
    assert_eq!(report["nodes"], made["compiled"]["nodes"], "{report}");
    let bytes = |name: &str| fs::read(command.path(name)).expect("written");
    assert!(bytes("from_model.npz") == bytes("from_file.npz"));
    command.text(&compile(&model, "again.anabranch"));
    assert!(bytes("m.anabranch") == bytes("again.anabranch"));
    let shown = command.json(&["inspect", "m.anabranch"]);
    assert_eq!((&shown["runs"], &shown["compiled"]), (&true.into(), &made["compiled"]), "{shown}");
    let text = command.text(&["inspect", "m.anabranch"]);
    assert!(text.contains("compiled from") && text.contains("mlp.onnx") && text.contains("x: f32[4×"), "{text}");
    let bench = command.json(&["bench", "m.anabranch", "--place", "heft,cpu", "--repeat", "2", "--warmup", "0"]);
    assert!(bench.to_string().contains("m.anabranch"), "{bench}");
}

#[test]
fn what_cannot_be_compiled_or_opened_is_refused_in_words() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    command.refuses(&compile(&model, "m.txt"), &[".anabranch"]);
    command.refuses(&["compile", &model, "-o", "m.anabranch", "--no-gpu"], &["batch", "--dim"]);
    command.text(&compile(&model, "m.anabranch"));
    command.refuses(&["run", "m.anabranch", "--dim", "batch=5"], &["m.anabranch", "batch=4", "`anabranch compile`"]);
    command
        .refuses(&["compile", "m.anabranch", "-o", "n.anabranch"], &["compiled already", "its source, /", "mlp.onnx"]);
    let mut bytes = fs::read(command.path("m.anabranch")).expect("written");
    bytes[100] ^= 1;
    fs::write(command.path("m.anabranch"), bytes).expect("writable");
    for name in ["run", "bench", "inspect"] {
        command.refuses(&[name, "m.anabranch"], &["m.anabranch", "its checksum is wrong", "`anabranch compile`"]);
    }
}

#[test]
fn a_compiled_model_shows_its_options_and_is_named_if_they_do_not_fit() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    let options = ["--order", "msr", "--stream", "off", "--chunk", "7rows", "--memory", "cpu0=1GiB", "--no-fuse"];
    command.text(&[&compile(&model, "m.anabranch")[..], &options, &["--pin", "*=cpu1"]].concat());
    let shown = command.json(&["inspect", "m.anabranch"]);
    let with = &shown["compiled_with"];
    assert_eq!((&with["order"], &with["stream"]), (&"msr".into(), &"off".into()), "{shown}");
    let text = command.text(&["inspect", "m.anabranch"]);
    for option in ["order=msr", "stream=off", "memory=", "pin=", "fuse=", "dims=", "chunk="] {
        assert!(text.contains(option), "{option} is missing: {text}");
    }
    let whole = ["run", "m.anabranch", "--cpu-devices", "machine"];
    command.refuses(&whole, &["m.anabranch: its own options", "`*` is pinned to `cpu1`", "the devices are cpu0"]);
    command.text(&[&whole[..], &["--pin", "*=cpu0", "--repeat", "1", "--no-learn"]].concat());
    command.text(&[&compile(&model, "slow.anabranch")[..], &["--emulate", "cpu1=4"]].concat());
    command.refuses(
        &["run", "slow.anabranch", "--cpu-devices", "machine"],
        &["slow.anabranch: its own options", "cpu1", "`anabranch compile`"],
    );
}

#[test]
fn each_option_of_a_compiled_model_can_be_said_anew() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    command.text(&[&compile(&model, "m.anabranch")[..], &["--place", "cpu1"]].concat());
    let run =
        |more: &[&str]| command.json(&[&["run", "m.anabranch", "--repeat", "1", "--no-learn"][..], more].concat());
    assert_eq!(run(&[])["strategy"], "cpu1", "one device for all");
    assert_eq!(run(&["--place", "heft"])["strategy"], "heft", "though that is the default");
    assert_eq!(run(&["--order", "fifo"])["strategy"], "cpu1", "each by itself");
}

#[test]
fn a_compiled_model_is_refused_under_another_precision() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    command.text(&compile(&model, "m.anabranch"));
    command.text(&[&compile(&model, "halves.anabranch")[..], &["--precision", "f16x3"]].concat());
    let once = ["--repeat", "1", "--warmup", "0", "--no-learn", "--no-gpu", "--output", "y.npz"];
    let run = |file: &'static str, more: &[&'static str]| [&["run", file][..], &once, more].concat();
    let bytes = || fs::read(command.path("y.npz")).expect("written");
    command.text(&run("m.anabranch", &[]));
    let expected = bytes();
    command.text(&run("m.anabranch", &["--precision", "f32"]));
    command.text(&run("halves.anabranch", &["--precision", "f16x3"]));
    // Without a GPU, all products are in f32.
    assert!(expected == bytes());
    command.text(&run("halves.anabranch", &[]));
    assert!(expected == bytes());
    for (file, precision, parts) in [
        ("m.anabranch", "f16", ["m.anabranch: was compiled for products in f32, not in f16", "`anabranch compile`"]),
        ("halves.anabranch", "f16", ["for products in f16x3, not in f16", "`anabranch compile`"]),
        ("halves.anabranch", "f32", ["for products in f16x3, not in f32", "`anabranch compile`"]),
    ] {
        command.refuses(&run(file, &["--precision", precision]), &parts);
    }
}

/// A cached model fits inputs of the same shapes, with any elements and file names.
#[test]
fn a_cache_knows_inputs_by_their_shapes() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    let run = |more: &[&str]| {
        let once = ["run", &model, "--no-gpu", "--cache", "kept", "--repeat", "1", "--no-learn"];
        command.json(&[&once[..], more].concat())
    };
    let kept = || fs::read_dir(command.path("kept")).expect("made").map(|entry| entry.expect("there").path());
    let first = run(&["--dim", "batch=4", "--random", "1"]);
    for seed in ["2", "3"] {
        assert_eq!(run(&["--dim", "batch=4", "--random", seed])["compiled"], first["compiled"], "{seed}");
    }
    assert_eq!(kept().count(), 1);
    let other = run(&["--dim", "batch=5", "--random", "1"]);
    assert!(other["compiled"] != first["compiled"] && kept().count() == 2);
    // Without sizes the run is rejected, even if a model is cached.
    command.refuses(&["run", &model, "--no-gpu", "--cache", "kept"], &["batch", "--dim"]);
    // If the weights of a cached model are damaged, it is compiled again.
    let file = command.path(first["compiled"].as_str().expect("kept"));
    let mut bytes = fs::read(&file).expect("written");
    let at = bytes.len() - 1024;
    bytes[at] ^= 1;
    fs::write(&file, bytes).expect("writable");
    assert_eq!(run(&["--dim", "batch=4", "--random", "1"])["outputs"], first["outputs"]);
    // Reads all of its weights.
    command.text(&["inspect", &file.display().to_string()]);
    // A directory that cannot be used is refused if the command line names it, and else told.
    fs::write(command.path("taken"), "").expect("writable");
    let once = ["run", &model, "--dim", "batch=4", "--no-gpu", "--repeat", "1", "--no-learn"];
    command.refuses(&[&once[..], &["--cache", "taken"]].concat(), &["--cache", "taken", "name another"]);
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
    process.args(once).env("ANABRANCH_CACHE", "taken").env("XDG_DATA_HOME", command.directory.path());
    let output = process.current_dir(command.directory.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("is not kept") && said.contains("taken"), "{said}");
}

#[test]
fn a_cache_keeps_models_and_their_results() {
    let command = Anabranch::new();
    let model = bundled("mlp.onnx");
    let once = ["--repeat", "1", "--warmup", "0", "--no-learn", "--output"];
    let run = |more: &[&str], out: &str| {
        command.text(&[&["run", &model][..], &SIZES, more, &once, &[out]].concat());
        fs::read(command.path(out)).expect("written")
    };
    let expected = run(&[], "plain.npz");
    let kept = || fs::read_dir(command.path("kept")).expect("made").count();
    assert!(run(&["--cache", "kept"], "miss.npz") == expected && kept() == 1);
    assert!(run(&["--cache", "kept"], "hit.npz") == expected && kept() == 1);
    run(&["--cache", "kept", "--place", "cpu"], "other.npz");
    assert_eq!(kept(), 2, "another strategy is another plan");
    command.refuses(&["run", "--cache", "kept"], &["--cache", "name a model"]);
    command.refuses(&[&compile(&model, "m.anabranch")[..], &["--cache", "kept"]].concat(), &["--cache"]);
}
