//! The committed header equals cbindgen's output for the crate.

use std::path::Path;
use std::process::Command;

#[test]
fn the_header_is_what_cbindgen_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.join("target/tools/bin/cbindgen").exists() {
        let asked = std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_some();
        assert!(!asked, "`scripts/header --install` installs cbindgen");
        return;
    }
    let output = Command::new(root.join("scripts/header")).arg("--check").output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "run scripts/header and look at what has changed: {told}");
}
