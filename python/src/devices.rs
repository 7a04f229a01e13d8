//! Functions for Python that list devices, list placement strategies, and write a text file atomically.

use super::failure::Failure;
use super::options;
use super::work::released;
use anabranch::Strategy;
use anabranch::device::detect;
use anabranch::files;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Returns the inventory of this machine as JSON. The options of a session choose the devices.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>, options: &str) -> PyResult<String> {
    released(py, || {
        let inventory = detect(&options::session(options)?.resolve().devices).map_err(Failure::argument)?;
        Ok(serde_json::to_string(&inventory)?)
    })
}

/// Returns the strategies: names, each with a line on what it does.
#[pyfunction]
pub(crate) fn strategies() -> Vec<(&'static str, &'static str)> {
    Strategy::algorithms().collect()
}

/// Writes a text to a file, atomically. Follows only links that the library allows.
#[pyfunction]
pub(crate) fn write_text(path: PathBuf, text: &str) -> PyResult<()> {
    Ok(files::write(&path, |out| out.write_all(text.as_bytes()))?)
}
