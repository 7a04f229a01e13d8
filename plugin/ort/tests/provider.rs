//! The provider in ONNX Runtime as installed from PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library as it was built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    test.with_file_name(format!("{}anabranch_ort{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX))
}

#[test]
fn onnx_runtime_runs_models_through_the_provider() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/venv/bin/python");
    if !python.exists() {
        let asked = std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_some();
        assert!(!asked, "`scripts/venv plugin/ort/tests/requirements.txt` installs ONNX Runtime");
        return;
    }
    let output = Command::new(python).arg(here.join("tests/provider.py")).arg(library()).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("\nOK"), "{told}");
}
