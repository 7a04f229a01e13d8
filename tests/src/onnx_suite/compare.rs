//! The tolerance of a test.

use anabranch::compare::Tolerance;
use std::fs;
use std::path::Path;

/// The tolerance that a test's file gives.
pub(super) fn tolerance(path: &Path) -> Tolerance {
    let text = fs::read_to_string(path).expect("each test has a tolerance");
    let fields: serde_json::Value = serde_json::from_str(&text).expect("written by the script");
    let field = |name: &str| fields[name].as_f64().expect("written by the script");
    Tolerance { rtol: field("rtol"), atol: field("atol") }
}
