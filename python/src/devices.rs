//! What there is: devices, and ways to place.

use super::failure::Failure;
use super::options;
use super::work::released;
use anabranch::Strategy;
use anabranch::device::detect;
use pyo3::prelude::*;

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
