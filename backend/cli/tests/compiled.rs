//! Compiled models at the command line: made, shown, run like the model, and refused in words.

mod command;

use command::{Anabranch, bundled};
use std::fs;

/// Where and with what `mlp` is compiled.
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
    let bench = command.json(&["bench", "m.anabranch", "--ways", "heft,cpu", "--repeat", "2", "--warmup", "0"]);
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
    command.refuses(&["compile", "m.anabranch", "-o", "n.anabranch"], &["compiled already"]);
    let mut bytes = fs::read(command.path("m.anabranch")).expect("written");
    bytes[100] ^= 1;
    fs::write(command.path("m.anabranch"), bytes).expect("writable");
    for name in ["run", "bench", "inspect"] {
        command.refuses(&[name, "m.anabranch"], &["m.anabranch", "its checksum is wrong", "`anabranch compile`"]);
    }
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
