//! Compares the outputs of an ONNX backend test with the expected values, within the tolerance that the test states.

use anabranch::Item;
use anabranch::compare::Tolerance;
use std::fs;
use std::path::Path;

/// Returns the tolerance in a test's file.
pub(super) fn tolerance(path: &Path) -> Tolerance {
    let text = fs::read_to_string(path).expect("each test has a tolerance");
    let fields: serde_json::Value = serde_json::from_str(&text).expect("written by the script");
    let field = |name: &str| fields[name].as_f64().expect("written by the script");
    Tolerance { rtol: field("rtol"), atol: field("atol") }
}

/// Compares values of any kind.
pub(super) fn same(tolerance: Tolerance, found: &Item, expected: &Item) -> Result<(), String> {
    match (found, expected) {
        (Item::Tensor(found), Item::Tensor(expected)) => tolerance.compare(found, expected),
        (Item::Absent, Item::Absent) => Ok(()),
        (Item::Sequence(found), Item::Sequence(expected)) if found.len() == expected.len() => {
            found.iter().zip(&**expected).try_for_each(|(found, expected)| tolerance.compare(found, expected))
        }
        _ => Err(format!("{found:?} is not {expected:?}")),
    }
}
