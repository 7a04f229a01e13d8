//! Runs, plans, flows and comparisons as JSON, SVG, HTML and traces, as the command writes them.

use crate::comparison::{self, Compared};
use crate::report::{About, data, trace, typed, utc};
use crate::run::{Gantt, Report};
use crate::text::file_name;
use crate::trace::Trace;
use crate::{flow, report as pages};
use anabranch::Session;
use anabranch::compare::{Comparison, Series};
use anabranch::flow::{FlowReport, Scheduler};
use anabranch::planning::{Planned, PlanningError};
use anabranch::session::Run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::time::SystemTime;

/// Returns the page of `place --report` or, with the plan's measurements, of `run --report`.
///
/// # Errors
/// If the placement's problem cannot be built again, which is a bug in Anabranch.
pub fn page(
    session: &Session,
    model: &str,
    planned: &Planned,
    series: Option<&Series>,
) -> Result<String, PlanningError> {
    let (costs, date) = (session.costs(), utc(SystemTime::now()));
    let about = About { model, command: typed(), date, inventory: session.inventory(), costs: &costs, series };
    Ok(pages::page(model, &data(planned, &about)?))
}

/// Returns the output of `run --json`, and the chart of `run --gantt`.
///
/// # Errors
/// If it cannot be written as JSON, which is a bug in Anabranch.
pub fn report(session: &Session, model: &str, series: &Series) -> serde_json::Result<(Value, String)> {
    let report = Report::new(model.to_owned(), session, series);
    let chart = gantt(&Gantt::of(&series.run), model, &report);
    Ok((serde_json::to_value(&report)?, chart))
}

/// Returns the chart of `run --gantt`: the run that `report` shows.
pub fn gantt(gantt: &Gantt, model: &str, report: &Report) -> String {
    gantt.svg(format!("{}: the profiled run nearest to the median", file_name(model)), report.headline())
}

/// Returns the trace of `run --trace`, in Chrome's format.
///
/// # Errors
/// If it cannot be written, which is a bug in Anabranch.
pub fn chrome_trace(run: &Run) -> io::Result<String> {
    chrome(&trace(run))
}

/// Returns the chart of `flow --gantt`.
pub fn flow_chart(name: &str, scheduler: Scheduler, report: &FlowReport) -> String {
    flow::timeline(name, scheduler, report).svg()
}

/// Returns the trace of `flow --trace`, in Chrome's format.
///
/// # Errors
/// If it cannot be written, which is a bug in Anabranch.
pub fn flow_trace(report: &FlowReport) -> io::Result<String> {
    chrome(&flow::trace(report))
}

fn chrome(trace: &Trace) -> io::Result<String> {
    let mut text = Vec::new();
    trace.write_chrome(&mut text)?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// Returns the page of `compare --html`.
pub fn comparison(session: &Session, comparison: &Comparison) -> String {
    comparison::page(&[Compared::new(session, comparison.clone(), BTreeMap::new())])
}
