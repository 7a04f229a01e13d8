//! What the workspace depends on comes from the registry, and under licences that let anybody use it: what `deny.toml` says, in every test run.

use serde_json::Value;
use std::process::Command;

/// Licences of which one must do for each crate.
const ALLOWED: [&str; 8] = ["MIT", "Apache-2.0", "BSD-2-Clause", "ISC", "Zlib", "Unicode-3.0", "CC0-1.0", "Unlicense"];

/// Whether an SPDX expression holds with these licences: its parts in parentheses first, `AND` before `OR`; older crates write `/` for `OR`.
fn is_allowed(expression: &str) -> bool {
    let text = expression.replace('/', " OR ").replace(" WITH LLVM-exception", "");
    if let Some((before, (inside, after))) =
        text.rsplit_once('(').and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    {
        let inside = if is_allowed(inside) { "MIT" } else { "none" };
        return is_allowed(&format!("{before}{inside}{after}"));
    }
    let all = |part: &str| part.split(" AND ").all(|licence| ALLOWED.contains(&licence.trim()));
    text.split(" OR ").any(all)
}

#[test]
fn every_dependency_is_from_the_registry_and_of_an_allowed_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50);
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or(""));
        assert!(is_allowed(licence), "{name} has the licence {licence:?}; see deny.toml");
        let source = package["source"].as_str();
        assert!(source.is_none_or(|source| source.starts_with("registry+")), "{name} comes from {source:?}");
    }
}

#[test]
fn expressions_of_licences_are_read_with_their_signs() {
    let sound = [
        "MIT",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "GPL-3.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception",
    ];
    assert!(sound.into_iter().all(is_allowed));
    assert!(
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND GPL-2.0"].into_iter().all(|text| !is_allowed(text))
    );
}
