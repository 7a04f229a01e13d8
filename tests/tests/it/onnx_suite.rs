//! A selection of the backend tests of the package `onnx` passes: the tests in `onnx/selection`, which need no Python.

use anabranch_tests::onnx_suite::{Outcome, Target, cases, run};
use std::num::NonZeroUsize;
use std::path::Path;

#[test]
fn the_selected_tests_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx/selection");
    let cases = cases(&root).expect("the selection is committed");
    assert!(cases.len() >= 75, "{} tests are selected", cases.len());
    let outcomes = run(&cases, Target::Cpu, NonZeroUsize::MIN);
    for (case, outcome) in cases.iter().zip(outcomes) {
        assert_eq!(outcome, Outcome::Passed, "{}", case.name);
    }
}
