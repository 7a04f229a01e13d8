//! Makes the library's options from Python's arguments: a session's JSON, a run's timeout, plans to compare.

use super::failure::{Failure, Result};
use anabranch::plan::StreamMode;
use anabranch::planning::PlanChoice;
use anabranch::session::SETTINGS;
use anabranch::{RunOptions, SessionConfig};
use serde_json::from_value;
use std::time::Duration;

/// Returns the names of a session's options, which the arguments of the Python class have.
#[pyo3::pyfunction]
pub(crate) fn option_names() -> Vec<&'static str> {
    SETTINGS.iter().map(|(name, _)| *name).collect()
}

/// Returns a session's configuration.
pub(crate) fn session(text: &str) -> Result<SessionConfig> {
    serde_json::from_str(text).map_err(Failure::argument)
}

/// Returns the options of a run with a token, and a time limit in seconds.
pub(crate) fn run(token: &anabranch::CancelToken, timeout: Option<f64>) -> Result<RunOptions> {
    let options = RunOptions::default().with_cancel(token.clone());
    let Some(seconds) = timeout else { return Ok(options) };
    let timeout = Duration::try_from_secs_f64(seconds);
    timeout.map(|timeout| options.with_timeout(timeout)).map_err(|error| {
        Failure::argument(format_args!("option `timeout` = {seconds}: {error}; write seconds, 0 or more"))
    })
}

/// Returns every combination of places, orders and streams. `base` holds all other choices.
pub(crate) fn configurations(
    base: &PlanChoice,
    places: &[String],
    orders: &[String],
    streams: &[String],
) -> Result<Vec<PlanChoice>> {
    let mut configurations = Vec::new();
    for place in places {
        for order in orders {
            for stream in streams {
                let order = order.parse().map_err(Failure::argument)?;
                let streaming = from_value::<StreamMode>(stream.as_str().into()).map_err(Failure::argument)?;
                let plan = base.plan.clone().with_streaming(streaming);
                let Ok(strategy) = place.parse();
                configurations.push(PlanChoice { strategy, order, plan });
            }
        }
    }
    Ok(configurations)
}
