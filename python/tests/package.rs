//! Checks that the package's parts in different languages agree. Its behaviour is tested from Python.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_kind_of_error_has_its_exception() {
    let library = read("../backend/base/src/error_kind.rs");
    let variants = library.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(','));
    let is_told = |kind: &&str| *kind != "Internal" && kind.chars().all(char::is_alphanumeric);
    let kinds: Vec<&str> = variants.filter(is_told).collect();
    assert!(kinds.len() > 8);
    let errors = read("anabranch/errors.py");
    let classes: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": "))
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(classes, kinds);
}

#[test]
fn what_is_compiled_has_stubs() {
    let (stubs, module) = (read("anabranch/_native.pyi"), read("src/lib.rs"));
    let exported = module.lines().filter_map(|line| line.trim().strip_prefix("use super::")?.split_once("::"));
    let names: Vec<&str> = exported
        .flat_map(|(_, names)| names.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.len() > 8);
    for name in names {
        assert!(
            stubs.contains(&format!("class {name}:")) || stubs.contains(&format!("def {name}(")),
            "{name} has no stub"
        );
    }
}
