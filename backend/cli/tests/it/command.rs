//! The command `anabranch` as its user sees it, for tests.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use tempfile::TempDir;

/// Cost store of a machine whose devices were measured, so that not each test measures them again.
static MEASURED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let command = Anabranch::unmeasured();
    for cpu_devices in ["machine", "core"] {
        command.text(&["place", "--cpu-devices", cpu_devices]);
    }
    fs::read(command.path(STORE)).expect("the measurements are kept")
});

/// Path of the cost store below the directory for data.
const STORE: &str = "anabranch/costs.json";

/// Returns the path of a file of the repository's tests.
pub(crate) fn bundled(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name).display().to_string()
}

/// The command in a directory of its own, with a cost store of its own.
pub(crate) struct Anabranch {
    pub(crate) directory: TempDir,
}

impl Anabranch {
    /// Creates a command whose cost store holds measurements of the machine's devices.
    pub(crate) fn new() -> Self {
        let command = Self::unmeasured();
        let store = command.path(STORE);
        fs::create_dir(store.parent().expect("a directory of its own")).expect("created");
        fs::write(store, &*MEASURED).expect("written");
        command
    }

    /// Creates a command without a cost store: its first run measures the machine's devices.
    pub(crate) fn unmeasured() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(arguments).env("XDG_DATA_HOME", self.directory.path()).current_dir(self.directory.path());
        let output = command.output().expect("the command starts");
        let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        // Keys and values of JSON are for programs.
        for text in texts.iter().filter(|text| !text.starts_with('{')) {
            assert_eq!(plural_of_one(text), None, "{arguments:?}: {text}");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("(os error "), "{arguments:?}: {said}");
        output
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Returns the names of all commands, as the help lists them by purpose.
    pub(crate) fn commands(&self) -> Vec<String> {
        let help = self.text(&["--help"]);
        let lists = help.split("\n\n").filter(|part| !part.starts_with("Options:") && !part.starts_with("Exit codes:"));
        let lines = lists.flat_map(str::lines).filter_map(|line| line.strip_prefix("  "));
        let names: Vec<_> = lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        assert!(names.len() > 20 && names.contains(&"bench".to_owned()), "{names:?}");
        names
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        let text = self.text(&arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Asserts that the command fails with code 2, and that its message contains all of `parts`.
    pub(crate) fn refuses(&self, arguments: &[&str], parts: &[&str]) {
        let output = self.run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        let missing: Vec<_> = parts.iter().filter(|part| !message.contains(**part)).collect();
        assert!(missing.is_empty(), "{arguments:?}: no {missing:?} in {message}");
    }
}

/// Finds a count of one with a noun in the plural, as in `1 nodes`.
fn plural_of_one(text: &str) -> Option<String> {
    let is_plural = |word: &str| {
        let letters = word.len() > 3 && word.chars().all(|letter| letter.is_ascii_lowercase());
        let is_noun =
            !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) && !["gives", "has", "makes"].contains(&word);
        // Keys of the cost store stay as they are: measurements are found by them.
        letters && word.ends_with('s') && is_noun && !["cores", "packages", "threads"].contains(&word)
    };
    // Columns of tables stand apart: a number there counts nothing.
    let pairs = text.lines().flat_map(|line| line.split("  ")).flat_map(|part| {
        let words: Vec<&str> = part.split(' ').collect();
        // `1 of 1 outputs` is right, limits of one are given by tests alone, and the value of an option counts nothing.
        let counts =
            |at: &usize| *at < 2 || !(["of", "than"].contains(&words[at - 2]) || words[at - 2].starts_with('-'));
        let pairs = (1..words.len()).filter(counts);
        pairs.map(|at| (words[at - 1].to_owned(), words[at].to_owned())).collect::<Vec<_>>()
    });
    let counted = |(number, noun): (String, String)| {
        let noun = noun.trim_end_matches(|end: char| end.is_ascii_punctuation()).to_owned();
        let number = number.trim_start_matches(|start: char| start.is_ascii_punctuation());
        (number == "1" && is_plural(&noun)).then(|| format!("{number} {noun}"))
    };
    pairs.filter_map(counted).next()
}

#[test]
fn counts_of_one_are_found_with_a_plural() {
    assert_eq!(plural_of_one("m: 1 nodes, placed"), Some("1 nodes".into()));
    assert_eq!(plural_of_one("2 nodes (1 runs)"), Some("1 runs".into()));
    for text in ["1 node, 2 nodes", "21 nodes", "1  nodes", "1 is assumed", "opset 1 has", "0.1 tokens", "1 class"] {
        assert_eq!(plural_of_one(text), None, "{text}");
    }
}
