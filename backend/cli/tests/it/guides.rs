//! Runs every command in the guides: their shell blocks, one after the other in one directory, on bundled models.

use crate::command::{Anabranch, bundled};
use anabranch::session::SETTINGS;
use anabranch_report::npy::{read_npz, write_npy};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The guides whose blocks are run. A document of another part of the project belongs here once its blocks need nothing
/// but the command and the files of [`prepared`]; blocks in other languages, and those marked `sh no-run`, are left
/// out.
const GUIDES: [&str; 18] = [
    "run.md",
    "generate.md",
    "compare.md",
    "costs.md",
    "report.md",
    "flow.md",
    "troubleshooting.md",
    "start/install.md",
    "start/first-model.md",
    "start/compare.md",
    "start/refine.md",
    "start/language-model.md",
    "how/placement.md",
    "how/streaming.md",
    "how/memory.md",
    "how/costs.md",
    "reference/files.md",
    "reference/errors.md",
];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the shell blocks of a document, which begin with three backquotes and only `sh`.
fn blocks(document: &str) -> Vec<String> {
    let (mut blocks, mut block): (Vec<String>, Option<Vec<&str>>) = (Vec::new(), None);
    for line in document.lines() {
        match (&mut block, line.trim_end()) {
            (None, "```sh") => block = Some(Vec::new()),
            (None, _) => {}
            (Some(lines), "```") => {
                blocks.push(lines.join("\n"));
                block = None;
            }
            (Some(lines), _) => lines.push(line),
        }
    }
    assert!(block.is_none(), "a block has no end");
    blocks
}

/// Makes a directory with the files that guides mention. All guides share a cost store.
fn prepared(name: &str, store: &Anabranch) -> PathBuf {
    let directory = store.path(name);
    fs::create_dir_all(&directory).expect("a directory");
    for (file, here) in [("convnet.onnx", "model.onnx"), ("unet.onnx", "other.onnx"), ("convnet.npz", "arrays.npz")] {
        fs::copy(bundled(file), directory.join(here)).expect("bundled");
    }
    fs::create_dir(directory.join("model")).expect("a directory");
    for file in ["model.onnx", "genai_config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(bundled(&format!("language/llama/{file}")), directory.join("model").join(file)).expect("bundled");
    }
    for folder in ["t5", "whisper"] {
        fs::create_dir(directory.join(folder)).expect("a directory");
        for entry in fs::read_dir(bundled(&format!("language/{folder}"))).expect("bundled") {
            let path = entry.expect("readable").path();
            fs::copy(&path, directory.join(folder).join(path.file_name().expect("a name"))).expect("bundled");
        }
    }
    let arrays = read_npz(bundled("language/whisper/greedy.npz").as_ref()).expect("bundled");
    for speech in ["speech.npy", "more.npy"] {
        write_npy(&directory.join(speech), &arrays["features"]).expect("writable");
    }
    fs::copy(bundled("unet.onnx"), directory.join("denoise.onnx")).expect("bundled");
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs");
    for graph in ["wordcount.graph", "two-devices.json"] {
        fs::copy(graphs.join(graph), directory.join(graph)).expect("bundled");
    }
    directory
}

fn run(name: &str, block: &str, directory: &Path, store: &Anabranch) {
    let own = Path::new(env!("CARGO_BIN_EXE_anabranch")).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-eu", "-c", block])
        .env("PATH", format!("{}:{path}", own.display()))
        .env("XDG_DATA_HOME", store.directory.path())
        .current_dir(directory)
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}:\n{block}\nended with {}: {said}", output.status);
}

#[test]
fn every_command_of_the_guides_runs() {
    let store = Anabranch::new();
    for name in GUIDES {
        let document = fs::read_to_string(docs().join(name)).expect(name);
        let blocks = blocks(&document);
        assert!(!blocks.is_empty(), "{name} has no shell block");
        let directory = prepared(name, &store);
        blocks.iter().for_each(|block| run(name, block, &directory, &store));
    }
    for (file, beginning) in [
        ("run.md/plan.json", "{"),
        ("compare.md/schedule.csv", "task,device"),
        ("report.md/page.html", "<!"),
        ("flow.md/words/words.txt", "4 fish"),
        ("start/compare.md/compared.html", "<!"),
        ("start/refine.md/plan.json", "{"),
        ("how/placement.md/schedule.csv", "task,device"),
    ] {
        assert!(store.read(file).to_lowercase().starts_with(beginning), "{file}");
    }
}

/// Every command that is mentioned outside of blocks exists. `scripts/book` checks links.
#[test]
fn commands_that_are_named_exist() {
    let command = Anabranch::new();
    let known = command.commands();
    for name in GUIDES.into_iter().chain(["glossary.md", "index.md", "how/overview.md"]) {
        let document = fs::read_to_string(docs().join(name)).expect(name);
        for part in document.split("`anabranch ").skip(1) {
            let named = part.split(['`', ' ']).next().unwrap_or_default();
            assert!(known.iter().any(|known| known == named), "{name}: {named}");
        }
    }
}

#[test]
fn blocks_are_found_by_their_marks() {
    let document = "a\n```sh\none\ntwo\n```\n```rust\nno\n```\n```sh no-run\nno\n```\n```sh\nthree\n```\n";
    assert_eq!(blocks(document), ["one\ntwo", "three"]);
}

#[test]
fn the_page_of_commands_names_each_command() {
    let page = fs::read_to_string(docs().join("commands.md")).expect("the page is there");
    let is_missing = |name: &String| name != "help" && !page.contains(&format!("anabranch {name}"));
    let missing: Vec<_> = Anabranch::new().commands().into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/commands.md does not name {missing:?}");
}

#[test]
fn exit_codes_of_help_and_documentation_are_those_that_commands_end_with() {
    let command = Anabranch::new();
    let help = command.text(&["--help"]);
    let listed: Vec<(&str, &str)> = help
        .lines()
        .skip_while(|line| *line != "Exit codes:")
        .skip(1)
        .map_while(|line| line.trim().split_once(' '))
        .map(|(code, meaning)| (code, meaning.trim()))
        .collect();
    let page = fs::read_to_string(docs().join("commands.md")).expect("the page of commands");
    let section =
        page.split("## Exit codes").nth(1).and_then(|rest| rest.split("##").next()).expect("a table of codes");
    let documented: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(listed, documented);

    let ended = |arguments: &[&str]| command.run(arguments).status.code().expect("an exit code");
    let (sound, unlike) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let seen = [
        ended(&["inspect", &sound, "--no-gpu"]),
        ended(&["inspect", "none.onnx", "--no-gpu"]),
        ended(&["inspect", &sound, "--no-gpu", "--no-such-option"]),
        ended(&["run", &sound, "--no-gpu", "--random", "1", "--dim", "batch=4", "--expect", &unlike]),
    ];
    assert_eq!(seen, [0, 2, 2, 3]);
    for code in seen {
        assert!(listed.iter().any(|(known, _)| *known == code.to_string()), "{code} is not in {listed:?}");
    }
}

#[test]
fn run_has_each_option_of_a_session_under_its_name() {
    // Flags that are given once for each entry are singular, and those that turn something off begin with `no`. A run
    // has one set of shapes and always calibrates.
    let named = |name: &'static str| match name {
        "gpu" => Some("no-gpu"),
        "fuse" => Some("no-fuse"),
        "pinned" => Some("no-pinned"),
        "dims" => Some("dim"),
        "limits" => Some("limit"),
        "platform" | "calibrate" | "plan_capacity" => None,
        other => Some(other),
    };
    let command = Anabranch::new();
    let help = command.text(&["run", "--help"]);
    for (name, _) in SETTINGS {
        let Some(flag) = named(name).map(|flag| format!("--{}", flag.replace('_', "-"))) else { continue };
        let has = |line: &str| line.split([' ', '[', '=', ',']).any(|word| word == flag);
        assert!(help.lines().filter(|line| line.trim_start().starts_with('-')).any(has), "run --help has no {flag}");
    }
    assert!(command.text(&["place", "--help"]).contains("--platform"));
}
