//! Runs tests in a child process: code that reads environment variables once per process, or that may not return.
#![forbid(unsafe_code)]

use std::process::Command;

/// Variable that is set only in the child process.
const MARK: &str = "ANABRANCH_TEST_CHILD";

/// Whether this process is the child process of a test. A test that plays the child's part does nothing elsewhere.
pub(super) fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs the test `name` (with its module path) of this test program with `variables` set. Returns its standard output.
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
