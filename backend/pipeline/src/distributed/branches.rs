//! Divides a model into parts that run on several devices at the same time for one input.
//!
//! The nodes become a graph of tasks between a source and a sink, which stand for the process that gives inputs and
//! takes results. Neighbours in a row are one task, so that branches are placed as a whole. The strategies of
//! [`place`](anabranch_placement::place) place the tasks, and [`best_parts`] makes their placements into parts.

use super::super::feedback::stages_of;
use super::super::mapping::refused;
use super::division::{Devices, Division, DivisionMessage, DivisionStage, OUTSIDE};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement::bound::lower_bound;
use anabranch_placement::cost::CostTable;
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::parts::{Part, best_parts};
use anabranch_placement::pipeline::{Port, Processors};
use anabranch_placement::place::PlaceError;
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_planning::PlanningError;
use anabranch_session::SessionError;
use std::collections::BTreeSet;

/// Placements that `auto` evaluates after those of the strategies.
const EVALUATIONS: u64 = 500;
/// Share of the least memory that nodes in a row may take as one task.
const MEMORY_SHARE: u64 = 8;

/// Parts of a model, and their predictions.
pub(super) struct Branches {
    pub(super) how: String,
    pub(super) stages: Vec<DivisionStage>,
    pub(super) messages: Vec<DivisionMessage>,
    pub(super) period: f64,
    pub(super) latency: f64,
    /// Lower bound of the latency of all placements.
    pub(super) lower_bound: f64,
}

impl Branches {
    /// Returns the parts of the least latency that was found; `None` if the devices' memory admits none. `hand_over`
    /// holds the time that each part costs its device, by device, and `values` the bytes that each device leaves free
    /// for values.
    pub(super) fn of(
        program: &Program,
        devices: &Devices<'_>,
        processors: &Processors,
        hand_over: &[f64],
        values: u64,
    ) -> Result<Option<Self>, SessionError> {
        let rows = Rows::of(program, devices.memory.iter().flatten().min().map(|least| least / MEMORY_SHARE));
        let graph = rows.graph(program)?;
        let (source, sink) = (TaskId(rows.nodes.len() as u32), TaskId(rows.nodes.len() as u32 + 1));
        let platform = platform(devices, processors, values)?;
        let outside = DeviceId(devices.names.len() as u32);
        let seconds = |task: TaskId, device: DeviceId| match (task == source || task == sink, device == outside) {
            (true, true) => Some(0.0),
            (false, false) => {
                Some(rows.nodes[task.index()].iter().map(|node| devices.seconds[device.index()][node.index()]).sum())
            }
            _ => None,
        };
        let wrong = |error: &dyn std::fmt::Display| refused(format!("the platform cannot be planned for: {error}"));
        let costs = CostTable::from_fn(&graph, &platform, seconds).map_err(|error| wrong(&error))?;
        // Not enough memory for a task on any device, or for all of them: the chain's error says what is missing.
        let Ok(problem) = Problem::new(&graph, &platform, &costs, MemoryRule::Resident) else { return Ok(None) };
        let overhead: Vec<f64> = hand_over.iter().copied().chain([0.0]).collect();
        let found = match best_parts(&problem, &overhead, EVALUATIONS) {
            Ok(Some(found)) => found,
            Err(error @ PlaceError::Interrupted) => return Err(PlanningError::from(error).into()),
            Ok(None) | Err(_) => return Ok(None),
        };
        let name = |device: DeviceId| devices.names.get(device.index()).map_or(OUTSIDE, String::as_str).to_owned();
        let kept: Vec<&Part> = found.parts.iter().filter(|part| part.device != outside).collect();
        let messages = found.forecast.messages.iter().map(|message| DivisionMessage {
            from: name(found.parts[message.from].device),
            to: name(message.to),
            bytes: message.bytes,
            seconds: message.end - message.start,
        });
        Ok(Some(Self {
            how: format!("parts of a placement by {}", found.strategy),
            messages: messages.collect(),
            period: found.forecast.period,
            latency: found.forecast.latency,
            lower_bound: lower_bound(&problem).value,
            stages: rows.stages(&kept, program, devices),
        }))
    }

    pub(super) fn division(self, lower_bound: f64, bytes_out: u64) -> Division {
        Division {
            how: self.how,
            stages: self.stages,
            chain: false,
            messages: self.messages,
            period: self.period,
            latency: self.latency,
            lower_bound,
            bytes_out,
            state: Vec::new(),
        }
    }
}

/// Returns the values that the nodes of a stage read of inputs and of other stages.
fn arriving(program: &Program, nodes: &[NodeId], stage_of: &[usize]) -> BTreeSet<ValueId> {
    let passes = &|node: NodeId, value: &ValueId| match program.value(*value).origin {
        Origin::Node(maker) => stage_of[maker.index()] != stage_of[node.index()],
        Origin::Input => true,
        Origin::Constant(_) => false,
    };
    let read = |node: NodeId| program.node(node).inputs.iter().copied().filter(move |value| passes(node, value));
    nodes.iter().copied().flat_map(read).collect()
}

/// Returns the constants that nodes read.
fn constants(program: &Program, nodes: &[NodeId]) -> BTreeSet<ValueId> {
    let inputs = nodes.iter().flat_map(|node| &program.node(*node).inputs);
    inputs.copied().filter(|input| program.constant(*input).is_some()).collect()
}

fn bytes_of(program: &Program, values: &BTreeSet<ValueId>) -> u64 {
    values.iter().map(|value| program.value(*value).spec.bytes() as u64).fold(0, u64::saturating_add)
}

/// Returns the devices of all machines, with memory except for `values`, and behind them the process that gives inputs
/// and takes results.
fn platform(devices: &Devices<'_>, processors: &Processors, values: u64) -> Result<Platform, SessionError> {
    let device = |(name, memory): (&String, &Option<u64>)| {
        let memory = memory.map(|bytes| bytes.saturating_sub(values));
        Device { memory, ..Device::new(name, DeviceKind::Cpu) }
    };
    let mut all: Vec<Device> = devices.names.iter().zip(&devices.memory).map(device).collect();
    let outside = all.len();
    all.push(Device::new(OUTSIDE, DeviceKind::Other));
    let port = |device: DeviceId| match device.index() {
        at if at == outside => Port::Outside,
        at => Port::Processor(at),
    };
    let link = |from, to| {
        let link = processors.link(port(from), port(to));
        (link.latency, link.bandwidth)
    };
    Platform::new(all, link).map_err(|error| refused(error.to_string()))
}

/// Nodes in rows. Each row is one task: a node alone reads all that the node before it in the row makes.
struct Rows {
    /// Nodes of each row, in the order of the program.
    nodes: Vec<Vec<NodeId>>,
    /// Row of each node.
    of: Vec<usize>,
}

impl Rows {
    /// Puts nodes into rows whose constants take no more than `most` bytes. O(nodes + edges).
    fn of(program: &Program, most: Option<u64>) -> Self {
        let consumers = program.consumers();
        let leaving: BTreeSet<ValueId> = program.outputs.iter().map(|output| output.value).collect();
        let (mut rows, mut weights) = (Self { nodes: Vec::new(), of: Vec::new() }, Vec::new());
        for node in program.node_ids() {
            let before = only_source(program, node).filter(|before| {
                let mut made = program.node(*before).outputs.iter();
                made.all(|value| {
                    !leaving.contains(value) && consumers[value.index()].iter().all(|reader| *reader == node)
                })
            });
            let bytes = bytes_of(program, &constants(program, &[node]));
            let row = before.map(|before| rows.of[before.index()]).filter(|row| {
                let sum = bytes.saturating_add(weights[*row]);
                most.is_none_or(|most| sum <= most)
            });
            let row = row.unwrap_or_else(|| {
                rows.nodes.push(Vec::new());
                weights.push(0u64);
                rows.nodes.len() - 1
            });
            rows.nodes[row].push(node);
            rows.of.push(row);
            weights[row] = weights[row].saturating_add(bytes);
        }
        rows
    }

    /// Returns the graph of the rows, with the source behind them, and then the sink. Each row gets a message of the
    /// source if it reads nothing else, and sends one to the sink if nothing else reads it.
    fn graph(&self, program: &Program) -> Result<TaskGraph, SessionError> {
        let mut builder = GraphBuilder::new();
        for (at, nodes) in self.nodes.iter().enumerate() {
            let memory = bytes_of(program, &constants(program, nodes));
            builder.task(Task::new(at.to_string()).with_memory(memory));
        }
        let [source, sink] = ["inputs", "results"].map(|name| builder.task(Task::new(name)));
        let (mut reads, mut is_read) = (vec![false; self.nodes.len()], vec![false; self.nodes.len()]);
        let leaving: BTreeSet<ValueId> = program.outputs.iter().map(|output| output.value).collect();
        for ((value, consumers), id) in program.values.iter().zip(program.consumers()).zip(0..) {
            let maker = match value.origin {
                Origin::Node(node) => Some(self.of[node.index()]),
                Origin::Input => None,
                Origin::Constant(_) => continue,
            };
            let readers: BTreeSet<usize> = consumers.iter().map(|node| self.of[node.index()]).collect();
            let readers: Vec<usize> = readers.into_iter().filter(|row| Some(*row) != maker).collect();
            let leaves = maker.is_some() && leaving.contains(&ValueId(id));
            let datum = builder.datum(maker.map_or(source, |row| TaskId(row as u32)), value.spec.bytes() as u64);
            readers.iter().for_each(|row| builder.consume(datum, TaskId(*row as u32)));
            readers.iter().for_each(|row| reads[*row] = true);
            if leaves {
                builder.consume(datum, sink);
            }
            if let Some(row) = maker {
                is_read[row] |= leaves || !readers.is_empty();
            }
        }
        for row in 0..self.nodes.len() {
            let task = TaskId(row as u32);
            if !reads[row] {
                builder.edge(source, task, 0);
            }
            if !is_read[row] {
                builder.edge(task, sink, 0);
            }
        }
        builder.build().map_err(|error| refused(error.to_string()))
    }

    /// Returns parts as stages.
    fn stages(&self, parts: &[&Part], program: &Program, devices: &Devices<'_>) -> Vec<DivisionStage> {
        let rows = |part: &&Part| part.tasks.iter().flat_map(|task| &self.nodes[task.index()]).copied().collect();
        let nodes: Vec<Vec<NodeId>> = parts.iter().map(rows).collect();
        let sizes: Vec<usize> = nodes.iter().map(Vec::len).collect();
        let stage_of = stages_of(&nodes.concat(), &sizes);
        let stage = |(part, nodes): (&&Part, &Vec<NodeId>)| {
            let device = part.device.index();
            DivisionStage {
                devices: vec![devices.names[device].clone()],
                nodes: nodes.iter().map(|node| program.node(*node).name.clone()).collect(),
                seconds: vec![nodes.iter().map(|node| devices.seconds[device][node.index()]).sum()],
                bytes_in: bytes_of(program, &arriving(program, nodes, &stage_of)),
                weights: bytes_of(program, &constants(program, nodes)),
                state: 0,
            }
        };
        parts.iter().zip(&nodes).map(stage).collect()
    }
}

/// Returns the one node that makes everything that a node reads besides constants, if there is one.
fn only_source(program: &Program, node: NodeId) -> Option<NodeId> {
    let mut found = None;
    for input in &program.node(node).inputs {
        match program.value(*input).origin {
            Origin::Node(maker) if found.is_none_or(|known| known == maker) => found = Some(maker),
            Origin::Node(_) | Origin::Input => return None,
            Origin::Constant(_) => {}
        }
    }
    found
}
