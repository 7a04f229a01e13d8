//! Tests in a child process: what reads environment variables once a process, or may not return, is asked there.
#![forbid(unsafe_code)]

use std::process::Command;

/// Set in the child process only.
const MARK: &str = "ANABRANCH_TEST_CHILD";

/// Whether this process is such a child. A test that plays the child's part does nothing elsewhere.
pub(super) fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs the one test `name` (with its module path) of this test program with `variables` set; what it wrote to its
/// standard output.
pub(super) fn run(name: &str, variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("a test knows its own program");
    let path = name.split_once("::").map_or(name, |(_, path)| path);
    let output = Command::new(program)
        .args(["--exact", path, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("the test program runs once more");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
