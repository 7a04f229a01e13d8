//! Devices, strategies, and files that are written by the library's rule.

use super::failure::Failure;
use super::options;
use super::work::released;
use anabranch::Strategy;
use anabranch::device::detect;
use anabranch::files;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The inventory of this machine as JSON, with the options of a session that say which devices there are.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>, options: &str) -> PyResult<String> {
    released(py, || {
        let inventory = detect(&options::session(options)?.devices).map_err(Failure::argument)?;
        Ok(serde_json::to_string(&inventory)?)
    })
}

/// The strategies: names, and a line on what each does.
#[pyfunction]
pub(crate) fn strategies() -> Vec<(&'static str, &'static str)> {
    Strategy::algorithms().collect()
}

/// Writes a text to a file, whole or not at all. Which links are followed is the library's rule.
#[pyfunction]
pub(crate) fn write_text(path: PathBuf, text: &str) -> PyResult<()> {
    Ok(files::write(&path, |out| out.write_all(text.as_bytes()))?)
}
