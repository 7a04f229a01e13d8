//! Tests the provider in ONNX Runtime as installed from PyPI.

use std::path::Path;
use std::process::{Command, Output};

/// Runs Python with a program of the repository, further arguments, and the library as it was built with this test.
/// Returns `None` if there is no ONNX Runtime and tools are not required.
fn python(program: &str, arguments: &[&str]) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/venv/bin/python");
    if !python.exists() {
        let asked = std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_some();
        assert!(!asked, "`scripts/venv plugin/ort/tests/requirements.txt` installs ONNX Runtime");
        return None;
    }
    let test = std::env::current_exe().expect("a test is a file");
    let library =
        test.with_file_name(format!("{}anabranch_ort{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
    let mut command = Command::new(python);
    command.arg(root.join(program)).args(arguments.iter().map(|argument| root.join(argument))).arg(library);
    Some(command.output().expect("it starts"))
}

#[test]
fn onnx_runtime_runs_models_through_the_provider() {
    let Some(output) = python("plugin/ort/tests/provider.py", &[]) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("\nOK"), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn whatever_buffer_is_refused_onnx_runtime_is_told_and_the_next_run_is_right() {
    let Some(output) = python("tests/faults/faults.py", &["plugin/ort/tests/under_faults.py"]) else { return };
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.ends_with("as it should be\n"), "{}: {told}{error}", output.status);
}
