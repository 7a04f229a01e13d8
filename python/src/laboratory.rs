//! The placement simulator: graphs on platforms that need not exist.

use super::failure::{Failure, Result};
use super::work::watched;
use anabranch_placement::format::{Loaded, LoadedProblem, parse, read};
use anabranch_report::trial::{Tried, TryOptions, try_problem};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// A graph that was placed and simulated.
#[pyclass(frozen)]
pub(crate) struct Schedule {
    problem: LoadedProblem,
    tried: Tried,
}

/// Path of a file, or its name and content.
type Source = (String, Option<Vec<u8>>);

/// Places the graph in a file on the devices in that or another file.
#[pyfunction]
#[pyo3(signature = (graph, platform, options))]
pub(crate) fn place(py: Python<'_>, graph: Source, platform: Option<Source>, options: &str) -> PyResult<Schedule> {
    watched(
        py,
        || (),
        None,
        |_| {
            let options: TryOptions = serde_json::from_str(options).map_err(Failure::argument)?;
            let problem = problem(&graph, platform.as_ref())?;
            let tried = try_problem(&problem, &options).map_err(Failure::argument)?;
            Ok(Schedule { problem, tried })
        },
    )
}

fn problem(graph: &Source, platform: Option<&Source>) -> Result<LoadedProblem> {
    let refuse = |(name, _): &Source, text: &str| Failure::argument(format_args!("{name}: {text}"));
    match (loaded(graph)?, platform) {
        (Loaded::Problems(mut problems), None) if problems.len() == 1 => Ok(problems.remove(0)),
        (Loaded::Problems(_), None) => Err(refuse(graph, "it has several problems; give one")),
        (Loaded::Graph(alone), Some(other)) => match loaded(other)? {
            Loaded::Platform(platform) => alone.on(platform).map_err(Failure::argument),
            _ => Err(refuse(other, "it does not hold devices")),
        },
        (Loaded::Graph(_), None) => Err(refuse(graph, "it needs a platform")),
        (Loaded::Problems(_), Some(_)) => Err(refuse(graph, "it has its own devices; leave out the platform")),
        _ => Err(refuse(graph, "it does not hold a graph")),
    }
}

fn loaded((name, content): &Source) -> Result<Loaded> {
    match content {
        Some(content) => parse(name, content),
        None => read(name),
    }
    .map_err(Failure::argument)
}

impl Schedule {
    fn tasks(&self) -> Vec<Value> {
        let names = self.problem.graph.tasks().iter();
        let row = |(at, (task, span)): (usize, (&anabranch_placement::graph::Task, &_))| {
            let span: &anabranch_placement::schedule::Span = span;
            json!({
                "task": at,
                "name": task.name,
                "device": self.problem.platform.device(span.device).name,
                "start": span.start,
                "end": span.end,
            })
        };
        names.zip(&self.tried.schedule.tasks).enumerate().map(row).collect()
    }

    fn transfers(&self) -> Vec<Value> {
        let (graph, platform) = (&self.problem.graph, &self.problem.platform);
        let row = |sent: &anabranch_placement::schedule::TransferSpan| {
            json!({
                "task": graph.producer(sent.datum).index(),
                "name": graph.task(graph.producer(sent.datum)).name,
                "from": platform.device(sent.from).name,
                "to": platform.device(sent.to).name,
                "bytes": sent.bytes,
                "start": sent.start,
                "end": sent.end,
            })
        };
        self.tried.schedule.transfers.iter().map(row).collect()
    }
}

#[pymethods]
impl Schedule {
    /// Returns the output of `anabranch simulate --json`, a row for each task, and a row for each transfer, all as
    /// JSON.
    fn data(&self) -> (String, String, String) {
        let text = |rows: Vec<Value>| Value::Array(rows).to_string();
        (self.tried.facts.to_string(), text(self.tasks()), text(self.transfers()))
    }

    /// Returns each device's activity over time, as SVG.
    fn svg(&self) -> &str {
        &self.tried.chart
    }
}
