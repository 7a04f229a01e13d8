//! What the command draws and tells, for programs that show it elsewhere: the Python package, in notebooks.

use crate::command;
use crate::report::{About, data, trace, utc};
use crate::trace::Trace;
use anabranch::Session;
use anabranch::compare::{Comparison, Series};
use anabranch::flow::{FlowReport, Scheduler};
use anabranch::planning::{Planned, PlanningError};
use anabranch::session::Run;
use serde_json::Value;
use std::io;
use std::time::SystemTime;

pub use command::{Tried, TryOptions, dot, plan_file, try_problem};

/// The page of `place --report`, and, with what was measured of the plan, of `run --report`.
///
/// # Errors
/// If the placement's problem cannot be built again, which is a fault of Anabranch.
pub fn page(
    session: &Session,
    model: &str,
    planned: &Planned,
    series: Option<&Series>,
) -> Result<String, PlanningError> {
    let (costs, date) = (session.costs(), utc(SystemTime::now()));
    let about = About { model, command: command::typed(), date, inventory: session.inventory(), costs: &costs, series };
    Ok(crate::report::page(model, &data(planned, &about)?))
}

/// What `run --json` tells, and the chart of `run --gantt`.
///
/// # Errors
/// If it cannot be written as JSON, which is a fault of Anabranch.
pub fn report(session: &Session, model: &str, series: &Series) -> serde_json::Result<(Value, String)> {
    command::reported(session, model, series)
}

/// The trace of `run --trace`, in Chrome's format.
///
/// # Errors
/// If it cannot be written, which is a fault of Anabranch.
pub fn chrome_trace(run: &Run) -> io::Result<String> {
    chrome(&trace(run))
}

/// The chart of `flow --gantt`.
pub fn flow_chart(name: &str, scheduler: Scheduler, report: &FlowReport) -> String {
    command::flow_timeline(name, scheduler, report).svg()
}

/// The trace of `flow --trace`, in Chrome's format.
///
/// # Errors
/// If it cannot be written, which is a fault of Anabranch.
pub fn flow_trace(report: &FlowReport) -> io::Result<String> {
    chrome(&command::flow_trace(report))
}

fn chrome(trace: &Trace) -> io::Result<String> {
    let mut text = Vec::new();
    trace.write_chrome(&mut text)?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// The page of `compare --html`.
pub fn comparison(session: &Session, comparison: &Comparison) -> String {
    command::comparison_page(session, comparison)
}
