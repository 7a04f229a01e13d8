//! Measurements of runs, as data and as pictures.

use super::failure::{Failure, Result};
use anabranch::Session;
use anabranch::compare::Series;
use anabranch::execute::{Activity, Event};
use anabranch::plan::HOST;
use anabranch::session::{HostOperator, Part};
use anabranch_report::show;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Measured runs, with all times of the profiled run that is nearest to their median.
#[pyclass(frozen)]
pub(crate) struct Profile {
    report: String,
    /// A row for each event of the profiled run, as JSON.
    rows: String,
    gantt: String,
    page: String,
    trace: String,
}

impl Profile {
    /// Keeps only the data to be shown: the run itself would hold its plan with the memory, and perhaps a caller's
    /// inputs.
    pub(crate) fn new(session: &Session, model: &str, series: &Series) -> Result<Self> {
        let (mut report, gantt) = show::report(session, model, series)?;
        report["samples_ms"] = json!(series.samples_ms);
        let run = &series.run;
        let page = show::page(session, model, run.prepared.planned(), Some(series)).map_err(Failure::internal)?;
        let parts = run.parts();
        let phased = |number| run.later.is_some().then_some(number);
        let numbered = parts.iter().enumerate();
        let mut rows: Vec<Value> = numbered
            .flat_map(|(number, part)| part.events().map(move |event| row(part, &event, phased(number))))
            .collect();
        let host = run.prepared.plan().device(HOST).name.as_str();
        rows.extend(run.host_operators().iter().map(|step| step_row(step, host)));
        let start = |row: &Value| row["start_ms"].as_f64().unwrap_or(0.0);
        rows.sort_by(|one, other| start(one).total_cmp(&start(other)));
        let trace = show::chrome_trace(run).map_err(Failure::internal)?;
        Ok(Self { report: report.to_string(), rows: serde_json::to_string(&rows)?, gantt, page, trace })
    }
}

/// Returns the row of a plan's event. If there are several plans, `phase` is the plan's number.
fn row(part: &Part<'_>, event: &Event, phase: Option<usize>) -> Value {
    let predicted = part.planned.plan().predicted();
    let (kind, (start, end)) = match event.what {
        Activity::Node(node) => ("node", predicted.nodes[node.index()]),
        Activity::Transfer(transfer) => ("transfer", predicted.transfers[transfer.index()]),
    };
    let ms = |nanoseconds: u64| nanoseconds as f64 * 1e-6;
    json!({
        "kind": kind,
        "name": part.name(event.what),
        "on": part.lane_name(event.lane),
        "ready_ms": ms(event.ready),
        "start_ms": ms(event.start),
        "end_ms": ms(event.end),
        "waited_ms": ms(event.waited),
        "bytes": event.bytes,
        "predicted_ms": (end - start) * 1e3,
        "phase": phase,
    })
}

/// Returns the row of an operator that the host computed between two plans, which has no prediction.
fn step_row(step: &HostOperator, host: &str) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    json!({
        "kind": "step",
        "name": step.name,
        "on": host,
        "ready_ms": ms(step.begun),
        "start_ms": ms(step.begun),
        "end_ms": ms(step.begun + step.took),
        "waited_ms": 0.0,
        "bytes": step.bytes,
        "predicted_ms": null,
        "phase": null,
    })
}

#[pymethods]
impl Profile {
    /// Returns the report of `anabranch run --json`, and a row for each event of the profiled run, both as JSON.
    fn data(&self) -> (&str, &str) {
        (&self.report, &self.rows)
    }

    /// Returns the profiled run over time, predicted and measured, as SVG.
    fn svg(&self) -> &str {
        &self.gantt
    }

    /// Returns the page that `anabranch run --report` writes.
    fn page(&self) -> &str {
        &self.page
    }

    /// Returns the profiled run for viewers of Chrome's trace format.
    fn trace(&self) -> &str {
        &self.trace
    }
}
