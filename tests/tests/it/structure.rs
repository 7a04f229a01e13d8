//! Tests of the repository's structure: dependencies between crates, that each file is compiled, and that documents
//! name tests that exist.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns all files under a folder with this ending, without build outputs.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository").map(|entry| entry.expect("an entry")) {
            let (path, name) = (entry.path(), entry.file_name());
            match entry.file_type().expect("a kind").is_dir() {
                true if name == "target" || name.to_string_lossy().starts_with('.') => {}
                true => folders.push(path),
                false if path.extension().is_some_and(|found| found == ending) => found.push(path),
                false => {}
            }
        }
    }
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a file that declares modules names this file as one.
fn is_named(file: &Path) -> bool {
    let (mut name, mut folder) = (file.with_extension(""), file.parent().expect("in a folder").to_owned());
    if file.file_name().is_some_and(|name| name == "mod.rs") {
        name = folder.clone();
        folder = folder.parent().expect("in a crate").to_owned();
    }
    let name = name.file_name().expect("a name").to_string_lossy().into_owned();
    let parents = [folder.join("mod.rs"), folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    let names = |line: &str| {
        let words: Vec<_> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        words.windows(2).any(|pair| *pair == ["mod", &name])
    };
    parents.iter().filter(|parent| parent.exists()).any(|parent| text(parent).lines().any(names))
}

#[test]
fn every_source_file_is_compiled() {
    let is_root = |file: &Path| {
        let name = file.file_name().expect("a name").to_string_lossy();
        matches!(&*name, "lib.rs" | "main.rs")
    };
    let in_crate = |file: &Path| {
        let path = file.display().to_string();
        path.contains("/src/") || path.contains("/tests/it/")
    };
    let all = files(&root(), "rs");
    let lost: Vec<_> = all.iter().filter(|file| in_crate(file) && !is_root(file) && !is_named(file)).collect();
    assert!(all.len() > 500 && lost.is_empty(), "no `mod` names {lost:?}");
}

/// The names of all functions in Rust, Python and C.
fn functions() -> HashSet<String> {
    let mut names = HashSet::new();
    for file in ["rs", "py", "c"].into_iter().flat_map(|ending| files(&root(), ending)) {
        let content = text(&file);
        for keyword in ["fn ", "def ", "int "] {
            let after = content.split(keyword).skip(1).filter_map(|after| after.split_once('('));
            names.extend(after.map(|(name, _)| name.to_owned()).filter(|name| !name.contains(char::is_whitespace)));
        }
    }
    names
}

#[test]
fn every_test_that_documents_name_is_there() {
    let functions = functions();
    let mut named = 0;
    for document in ["SECURITY.md", "tests/README.md"] {
        let content = text(&root().join(document));
        let quoted = content.split('`').skip(1).step_by(2);
        let is_test = |name: &&str| {
            name.matches('_').count() >= 3 && name.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_'))
        };
        for name in quoted.filter(is_test) {
            assert!(functions.contains(name), "{document} names the test {name}, and no source has it");
            named += 1;
        }
    }
    assert!(named > 200, "{named}");
}

/// The package and all packages beneath it, each as its name and version, in builds with these options.
fn packages_beneath(package: &str, options: &[&str]) -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--locked", "--offline"])
        .args(options)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let package = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    tree.lines().filter_map(package).collect()
}

#[test]
fn models_are_imported_and_lowered_without_gpus_and_schedulers() {
    let packages = packages_beneath("anabranch-onnx", &[]);
    let has = |name: &str| packages.iter().any(|(package, _)| package == name);
    assert!(has("anabranch-ir"), "{packages:?}");
    for above in ["wgpu", "anabranch-placement", "anabranch-plan", "anabranch-device", "anabranch-execute"] {
        assert!(!has(above), "{above} is beneath anabranch-onnx: {packages:?}");
    }
}

#[test]
fn the_library_without_features_has_few_packages() {
    let packages = packages_beneath("anabranch", &["--no-default-features"]);
    let has = |name: &str| packages.iter().any(|(package, _)| package == name);
    assert!(has("anabranch-session") && !has("wgpu") && !has("anabranch-flow"), "{packages:?}");
    assert!(packages.len() <= 65, "{} packages: {packages:?}", packages.len());
}
