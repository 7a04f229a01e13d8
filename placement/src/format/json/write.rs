//! Writing of documents, with one task, datum, device or row per line.

use super::document::DatumPart;
use super::{FORMAT, VERSION, network};
use crate::cost::CostModel;
use crate::format::{Costs, LoadedGraph, LoadedProblem, WriteError};
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Writes a whole problem. Reading it again gives an equal problem, except that figures that are not finite are left
/// out.
///
/// # Errors
/// Returns an error if the target fails.
pub fn write_problem(problem: &LoadedProblem, target: impl Write) -> Result<(), WriteError> {
    let mut writer = Writer::new(target)?;
    writer.member("name", &problem.name)?;
    if let Some(unit) = &problem.facts.time_unit {
        writer.member("time_unit", unit)?;
    }
    writer.graph(&problem.graph)?;
    writer.platform(&problem.platform)?;
    if let Costs::Times(_) = &problem.costs {
        writer.table("times", problem, |task, device| problem.nominal_time(task, device))?;
    }
    if let Some(table) = &problem.facts.uncertainties {
        writer.table("uncertainties", problem, |task, device| table.time(task, device))?;
    }
    if !problem.only_on.is_empty() {
        writer.member("only_on", &problem.only_on)?;
    }
    writer.member("memory_rule", &problem.memory_rule)?;
    writer.member("bytes_a_unit", &problem.facts.bytes_a_unit)?;
    // JSON has finite numbers only.
    let finite = problem.facts.figures.iter().filter(|(_, figure)| figure.is_finite());
    writer.member("figures", &finite.collect::<BTreeMap<_, _>>())?;
    writer.task_ids(&problem.facts.task_ids)?;
    writer.finish()
}

/// Writes a graph without a platform.
///
/// # Errors
/// Returns an error if the target fails.
pub fn write_graph(graph: &LoadedGraph, target: impl Write) -> Result<(), WriteError> {
    let mut writer = Writer::new(target)?;
    writer.member("name", &graph.name)?;
    if let Some(unit) = &graph.time_unit {
        writer.member("time_unit", unit)?;
    }
    writer.graph(&graph.graph)?;
    writer.member("memory_rule", &graph.memory_rule)?;
    writer.task_ids(&graph.task_ids)?;
    writer.finish()
}

/// Writes a platform without a graph.
///
/// # Errors
/// Returns an error if the target fails.
pub fn write_platform(platform: &Platform, target: impl Write) -> Result<(), WriteError> {
    let mut writer = Writer::new(target)?;
    writer.platform(platform)?;
    writer.finish()
}

struct Writer<W> {
    target: W,
}

impl<W: Write> Writer<W> {
    /// Opens the document.
    fn new(mut target: W) -> Result<Self, WriteError> {
        write!(target, "{{\n\"format\": \"{FORMAT}\",\n\"version\": {VERSION}")?;
        Ok(Writer { target })
    }

    fn member(&mut self, name: &str, value: &impl Serialize) -> Result<(), WriteError> {
        write!(self.target, ",\n\"{name}\": ")?;
        Ok(serde_json::to_writer(&mut self.target, value)?)
    }

    /// Writes `"name": [` and the values, one per line.
    fn list(&mut self, name: &str, values: impl Iterator<Item = impl Serialize>) -> Result<(), WriteError> {
        write!(self.target, "\"{name}\": [")?;
        let mut separator = "\n  ";
        for value in values {
            self.target.write_all(separator.as_bytes())?;
            serde_json::to_writer(&mut self.target, &value)?;
            separator = ",\n  ";
        }
        Ok(self.target.write_all(b"\n]")?)
    }

    fn graph(&mut self, graph: &TaskGraph) -> Result<(), WriteError> {
        write!(self.target, ",\n\"graph\": {{\n")?;
        self.list("tasks", graph.tasks().iter())?;
        self.next()?;
        let data = graph.datum_ids().map(|datum| DatumPart {
            producer: graph.producer(datum),
            bytes: graph.bytes(datum),
            consumers: graph.consumers(datum).to_vec(),
        });
        self.list("data", data)?;
        self.next()?;
        let groups = graph.unit_ids().map(|unit| graph.members(unit)).filter(|members| members.len() > 1);
        self.list("colocated", groups)?;
        Ok(self.target.write_all(b"\n}")?)
    }

    fn platform(&mut self, platform: &Platform) -> Result<(), WriteError> {
        write!(self.target, ",\n\"platform\": {{\n")?;
        self.list("devices", platform.devices().iter())?;
        let ids = || platform.device_ids();
        if let Some(network) = platform.network() {
            self.member("network", &network::part(platform, network))?;
            return Ok(self.target.write_all(b"\n}")?);
        }
        self.next()?;
        let latency = |from: DeviceId| ids().map(move |to| platform.latency(from, to)).collect::<Vec<_>>();
        self.list("latency", ids().map(latency))?;
        self.next()?;
        // Infinity becomes `null`.
        let rate = |from: DeviceId| ids().map(move |to| platform.rate(from, to)).collect::<Vec<_>>();
        self.list("rate", ids().map(rate))?;
        Ok(self.target.write_all(b"\n}")?)
    }

    /// Writes a number or `null` for each task and device, one task per line.
    fn table(
        &mut self,
        name: &str,
        problem: &LoadedProblem,
        entry: impl Fn(TaskId, DeviceId) -> Option<f64>,
    ) -> Result<(), WriteError> {
        self.next()?;
        let row = |task| problem.platform.device_ids().map(|device| entry(task, device)).collect::<Vec<_>>();
        self.list(name, problem.graph.task_ids().map(row))
    }

    fn task_ids(&mut self, ids: &[u64]) -> Result<(), WriteError> {
        if ids.is_empty() { Ok(()) } else { self.member("task_ids", &ids) }
    }

    fn next(&mut self) -> Result<(), WriteError> {
        Ok(self.target.write_all(b",\n")?)
    }

    fn finish(mut self) -> Result<(), WriteError> {
        self.target.write_all(b"\n}\n")?;
        Ok(self.target.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Loaded, TimeTable, json, parse};
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;

    fn awkward() -> LoadedProblem {
        let mut builder = GraphBuilder::new();
        let names = ["quote \" slash \\ line \n", "", "ünï"];
        let [a, b, c] = names.map(|name| builder.task(Task::new(name).with_operations(0.1 + 0.2)));
        let wide = builder.datum(a, u64::MAX);
        builder.consume(wide, b);
        builder.consume(wide, c);
        builder.datum(b, 0);
        builder.colocate(a, c);
        let devices =
            vec![Device::new("d", DeviceKind::Other).with_memory(u64::MAX), Device::new("e", DeviceKind::Tpu)];
        let platform =
            Platform::new(devices, |from, _| (f64::from(from.0) / 3.0, [f64::INFINITY, 1e-300][from.index()]));
        let graph = builder.build().unwrap();
        let mut problem = LoadedProblem::new("p", graph, platform.unwrap(), MemoryRule::SizeEstimate);
        problem.costs = Costs::Times(
            TimeTable::from_fn(3, 2, |task, device| (task.0 > 0).then_some(f64::from(device.0) / 7.0)).unwrap(),
        );
        problem.facts.figures.insert("of \"it\"".into(), 1.0 / 3.0);
        problem.facts.bytes_a_unit = 1e9;
        let uncertainty = |task: TaskId, device: DeviceId| (task.0 > 0).then_some(1.0 + f64::from(device.0) / 3.0);
        problem.facts.uncertainties = Some(TimeTable::from_fn(3, 2, uncertainty).unwrap());
        problem
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let problem = awkward();
        let mut bytes = Vec::new();
        write_problem(&problem, &mut bytes).unwrap();
        assert_eq!(parse("file", &bytes).unwrap(), Loaded::Problems(vec![problem.clone()]));

        let (memory_rule, time_unit) = (MemoryRule::SizeEstimate, Some("ms".into()));
        let graph =
            LoadedGraph { name: "g".into(), graph: problem.graph.clone(), memory_rule, time_unit, task_ids: vec![] };
        let graph = Box::new(graph);
        bytes.clear();
        write_graph(&graph, &mut bytes).unwrap();
        assert_eq!(json::parse("file", &bytes).unwrap(), Loaded::Graph(graph));

        bytes.clear();
        write_platform(&problem.platform, &mut bytes).unwrap();
        assert_eq!(json::parse("file", &bytes).unwrap(), Loaded::Platform(problem.platform));
    }

    #[test]
    fn nothing_at_all_is_written_and_read_too() {
        let graph = GraphBuilder::new().build().unwrap();
        let empty = LoadedProblem::new("", graph, Platform::uniform(vec![], 0.0, 1.0).unwrap(), MemoryRule::Ignore);
        let mut bytes = Vec::new();
        write_problem(&empty, &mut bytes).unwrap();
        assert_eq!(parse("file", &bytes).unwrap(), Loaded::Problems(vec![empty]));
    }
}
