//! Files of a model's folder, read within bounds.

use super::error::GenerateError;
use anabranch_base::files::{json_problem, read_text};
use serde_json::Value;
use std::path::Path;

/// Bytes of a configuration or a template at most.
const CONFIGURATION: u64 = 16 << 20;

/// The text of a file.
pub(crate) fn text(path: &Path) -> Result<String, GenerateError> {
    read_text(path, CONFIGURATION).map_err(|error| GenerateError::file(path, error))
}

/// The object in a JSON file.
pub(crate) fn json(path: &Path) -> Result<Value, GenerateError> {
    let value: Value =
        serde_json::from_str(&text(path)?).map_err(|error| GenerateError::file(path, json_problem(&error)))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(GenerateError::file(path, "it is not a JSON object; export the model again")),
    }
}

/// The object in a JSON file, or `None` if there is no such file.
pub(crate) fn json_if_there(path: &Path) -> Result<Option<Value>, GenerateError> {
    if path.exists() { json(path).map(Some) } else { Ok(None) }
}
