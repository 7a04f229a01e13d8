//! `anabranch graph`: a model's task graph on this machine's devices, for the placement simulator and for other tools.

use super::args::{ConstraintArgs, DeviceArgs, ModelArgs, PlaceArgs, WhatIfArgs};
use super::files::file_of;
use super::open::{self, open};
use super::progress::waiting;
use super::{CliError, Output, lossy, write_file};
use anabranch::device::format_bytes;
use anabranch_placement::format::{LoadedProblem, dot, json, thesis};
use anabranch_placement::graph::{GraphBuilder, GraphError, Task, TaskGraph, TaskId};
use anabranch_report::text::count;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  anabranch graph model.onnx -o graph.json && anabranch simulate graph.json --place heft
  anabranch graph model.onnx --dim batch=8 -o graph.dot
  anabranch graph model.onnx -o graph.csv && anabranch simulate graph.csv devices.csv";

/// Write the task graph of a model, the input of placement
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GraphCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Write the graph as .json, .csv or .dot
    ///
    /// .json holds the whole problem with this machine's devices, in seconds. .csv is that of Laich 2017: operations
    /// instead of times, and CPU constraints instead of pins. .dot is for Graphviz.
    #[arg(short, long, value_name = "FILE", value_parser = file_of(&["json", "csv", "dot"]))]
    output: PathBuf,
    #[command(flatten)]
    constraints: ConstraintArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
}

impl GraphCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let form = Form::of(&self.output)?;
        // Nothing is placed, so any strategy will do.
        let place = PlaceArgs::any(&self.constraints);
        let opened = open(&self.devices, self.what_if.read()?, &self.model, &place, true)?;
        open::print_notes(&opened.session, output);
        let mut problem = waiting(output, "measuring this machine", || opened.session.problem(&opened.inputs))?;
        opened.save_costs()?;
        let stem = self.model.model.as_ref().and_then(|path| path.file_stem());
        problem.name = stem.map_or("built-in".into(), |stem| stem.to_string_lossy().into_owned());
        let text = form.write(&problem)?;
        write_file(&self.output, text)?;
        let (graph, platform) = (&problem.graph, &problem.platform);
        let bytes: u64 = graph.datum_ids().map(|datum| graph.bytes(datum)).fold(0, u64::saturating_add);
        let (tasks, edges, devices) = (graph.task_count(), graph.edge_count(), platform.device_count());
        let text = || {
            let (file, data) = (self.output.display(), format_bytes(bytes));
            let (tasks, edges, devices) = (count(tasks, "task"), count(edges, "edge"), count(devices, "device"));
            format!("{file}: {tasks}, {edges}, {data} of data, {devices}\n")
        };
        let facts =
            json!({ "file": lossy(&self.output), "tasks": tasks, "edges": edges, "bytes": bytes, "devices": devices });
        output.text_or_json(text, &facts)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
    Dot,
}

impl Form {
    fn of(path: &Path) -> Result<Self, CliError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(Form::Json),
            Some("csv") => Ok(Form::Csv),
            Some("dot") => Ok(Form::Dot),
            _ => Err(CliError::input(format!(
                "{}: a graph is written as .json, .csv or .dot; use one of these extensions",
                path.display()
            ))),
        }
    }

    fn write(self, problem: &LoadedProblem) -> Result<Vec<u8>, CliError> {
        let mut text = Vec::new();
        match self {
            Form::Json => json::write_problem(problem, &mut text)?,
            Form::Csv => thesis::write_graph(&as_in_the_thesis(&problem.graph)?, &mut text)?,
            Form::Dot => dot::write_graph(&problem.graph, &mut text)?,
        }
        Ok(text)
    }
}

/// Returns the graph in a form that Laich's CSV format can hold. Each task has one datum, of the size of all its
/// outputs, which all its successors read. Tasks that are pinned to the host may run on any CPU.
fn as_in_the_thesis(graph: &TaskGraph) -> Result<TaskGraph, GraphError> {
    let mut builder = GraphBuilder::new();
    for (id, task) in graph.task_ids().zip(graph.tasks()) {
        let copy: TaskId = builder.task(Task { pinned: None, ..task.clone() });
        let bytes = graph.outputs(id).iter().map(|&datum| graph.bytes(datum)).fold(0, u64::saturating_add);
        let datum = builder.datum(copy, bytes);
        graph.successors(id).iter().for_each(|&successor| builder.consume(datum, successor));
    }
    for unit in graph.unit_ids() {
        graph.members(unit).windows(2).for_each(|pair| builder.colocate(pair[0], pair[1]));
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement::platform::{DeviceId, DeviceKinds};

    #[test]
    fn the_thesis_form_has_one_datum_a_task_and_no_pins() {
        let mut builder = GraphBuilder::new();
        let host = Task::new("input").with_allowed(DeviceKinds::CPU).with_pin(DeviceId(0));
        let [input, split, left, right] =
            [host, Task::new("split"), Task::new("left"), Task::new("right")].map(|task| builder.task(task));
        builder.edge(input, split, 4);
        builder.edge(split, left, 10);
        builder.edge(split, right, 20);
        builder.colocate(left, right);
        let graph = as_in_the_thesis(&builder.build().expect("a graph")).expect("a graph");
        assert_eq!((graph.task(input).pinned, graph.task(input).allowed), (None, DeviceKinds::CPU));
        assert_eq!(graph.outputs(split).iter().map(|&datum| graph.bytes(datum)).collect::<Vec<_>>(), [30]);
        assert_eq!((graph.successors(split), graph.unit(left)), (&[left, right][..], graph.unit(right)));
        assert!(thesis::write_graph(&graph, Vec::new()).is_ok());
    }
}
