//! From a planned model, and a run of it, to a report's data.

use super::critical::{self, Chain};
use super::data::{
    BlockData, CostData, DeviceData, EdgeData, FactsData, NodeData, PortData, ReportData, Role, Steps, TotalData,
    TransferData,
};
use super::layout::{NODE_HEIGHT, NODE_WIDTH, layout};
use super::spans::Spans;
use super::{memory, why};
use anabranch::device::{DeviceRef, Inventory};
use anabranch::plan::{Plan, Route};
use anabranch::planning::{Planned, PlanningError};
use anabranch::profile::CostStore;
use anabranch::program::{NodeId, Program, ValueId};
use anabranch::session::Run;
use anabranch_kernels::op::Op;
use anabranch_placement::graph::{DatumId, TaskId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a report says beside the plan and the run.
pub(crate) struct About<'a> {
    /// The model's name.
    pub(crate) model: String,
    /// The command, as it was typed.
    pub(crate) command: String,
    /// When, see [`utc`](super::utc).
    pub(crate) date: String,
    /// The devices.
    pub(crate) inventory: &'a Inventory,
    /// What was known of the costs when the plan was made.
    pub(crate) costs: &'a CostStore,
    /// Latency of every run, the first first.
    pub(crate) latencies: &'a [Duration],
}

impl ReportData {
    /// The report of a plan and, if given, of a run that followed it.
    ///
    /// # Errors
    /// If the placement's problem cannot be built again, which is a fault of Anabranch.
    pub(crate) fn of(planned: &Planned, run: Option<&Run>, about: &About<'_>) -> Result<Self, PlanningError> {
        let collect = Collect {
            planned,
            program: &planned.program,
            plan: planned.plan(),
            about,
            predicted: Timing::new(planned, Spans::predicted(planned.plan(), &planned.placed))?,
            measured: run.map(|run| Timing::new(planned, Spans::measured(run))).transpose()?,
        };
        let (mut nodes, mut edges) = (collect.nodes(), collect.edges());
        let ends: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let drawn = layout(nodes.len(), &ends);
        nodes.iter_mut().zip(&drawn.nodes).for_each(|(node, at)| node.at = pixels(*at));
        for (edge, bends) in edges.iter_mut().zip(&drawn.bends) {
            edge.bends = bends.iter().copied().map(pixels).collect();
        }
        let total = |traffic, spans: &Spans| TotalData { makespan_ns: spans.makespan, traffic };
        Ok(Self {
            facts: collect.facts(),
            predicted: total(planned.plan().predicted().traffic, &collect.predicted.spans),
            measured: run
                .zip(collect.measured.as_ref())
                .map(|(run, timing)| total(run.measured.traffic(), &timing.spans)),
            devices: collect.devices(run),
            transfers: collect.transfers(),
            nodes,
            edges,
            drawing: [drawn.width.round(), drawn.height.round(), NODE_WIDTH, NODE_HEIGHT],
        })
    }
}

/// What is in a streaming block; `None` of other ops.
fn block(op: &Op) -> Option<BlockData> {
    let Op::Block(block) = op else { return None };
    let member = |member: &anabranch_kernels::op::Member| {
        let made = member.spec.outputs.first().map(ToString::to_string);
        (member.spec.op.name().to_owned(), made.unwrap_or_default())
    };
    let members = block.members.iter().map(member).collect();
    Some(BlockData { rows: block.rows, chunk_rows: block.chunk_rows, members })
}

/// To a tenth of a pixel, so that the file stays small.
fn pixels((x, y): (f64, f64)) -> [f64; 2] {
    [(x * 10.0).round() / 10.0, (y * 10.0).round() / 10.0]
}

/// Times, and what follows from them.
struct Timing {
    spans: Spans,
    chain: Chain,
    memory: Vec<Steps>,
    executable: Vec<Steps>,
}

impl Timing {
    fn new(planned: &Planned, spans: Spans) -> Result<Self, PlanningError> {
        let (plan, placed) = (planned.plan(), &planned.placed);
        let mut executable = vec![Steps::new(); plan.devices().len()];
        for decision in placed.decisions(&spans.schedule(plan, placed))? {
            let steps = &mut executable[decision.device.index()];
            steps.push([super::spans::nanoseconds(decision.time), decision.executable.max(1) as u64]);
        }
        Ok(Self {
            chain: critical::chain(plan, placed, &spans),
            memory: memory::over_time(&planned.program, plan, &spans),
            executable,
            spans,
        })
    }
}

struct Collect<'a> {
    planned: &'a Planned,
    program: &'a Program,
    plan: &'a Plan,
    about: &'a About<'a>,
    predicted: Timing,
    measured: Option<Timing>,
}

impl Collect<'_> {
    fn facts(&self) -> FactsData {
        let host = &self.about.inventory.host;
        FactsData {
            model: self.about.model.clone(),
            command: self.about.command.clone(),
            date: self.about.date.clone(),
            machine: format!("{} ({} cores, {}, {})", host.model, host.allowed_cores, host.os, host.arch),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            strategy: self.plan.strategy().to_owned(),
            place_ns: self.planned.place_time.as_nanos() as u64,
            latencies_ns: self.about.latencies.iter().map(|latency| latency.as_nanos() as u64).collect(),
        }
    }

    fn devices(&self, run: Option<&Run>) -> Vec<DeviceData> {
        let description = |name: &str| match self.about.inventory.device(name) {
            Some(DeviceRef::Cpu(cpu)) => cpu.description.clone(),
            Some(DeviceRef::Gpu(gpu)) => gpu.description.clone(),
            None => String::new(),
        };
        let measured = |steps: fn(&Timing) -> &Vec<Steps>, index: usize| {
            self.measured.as_ref().map(|timing| steps(timing)[index].clone()).unwrap_or_default()
        };
        let device = |(index, device): (usize, &anabranch::plan::PlanDevice)| {
            let memory = &self.plan.memory().devices()[index];
            DeviceData {
                name: device.name.clone(),
                kind: device.kind.to_string(),
                description: description(&device.name),
                limit: device.limit,
                resident: memory.resident(),
                planned_peak: memory.peak(),
                measured_peak: run.and_then(|run| run.measured.peaks.get(index).copied()),
                memory_predicted: self.predicted.memory[index].clone(),
                memory_measured: measured(|timing| &timing.memory, index),
                executable_predicted: self.predicted.executable[index].clone(),
                executable_measured: measured(|timing| &timing.executable, index),
            }
        };
        self.plan.devices().iter().enumerate().map(device).collect()
    }

    /// The program's nodes, then its inputs and outputs: by task.
    fn nodes(&self) -> Vec<NodeData> {
        let program = self.program;
        let port = |value: ValueId, spec: &anabranch_kernels::TensorSpec| PortData {
            name: program.value(value).name.clone(),
            spec: spec.to_string(),
            bytes: spec.bytes() as u64,
            constant: program.constant(value).is_some(),
        };
        let nodes = program.node_ids().map(|id| {
            let node = program.node(id);
            let operators: Vec<_> = node.operators.iter().map(|operator| operator.name.clone()).collect();
            NodeData {
                name: node.name.clone(),
                op: node.spec.op.name().to_owned(),
                class: node.spec.class().to_string(),
                flops: node.spec.work().flops,
                inputs: node.inputs.iter().zip(&node.spec.inputs).map(|(value, spec)| port(*value, spec)).collect(),
                outputs: node.outputs.iter().zip(&node.spec.outputs).map(|(value, spec)| port(*value, spec)).collect(),
                operators: if operators == [&*node.name] { Vec::new() } else { operators },
                block: block(&node.spec.op),
                costs: self.costs(id),
                ..NodeData::default()
            }
        });
        let inputs = program.inputs.iter().map(|value| {
            let made = port(*value, &program.value(*value).spec);
            let (name, op) = (made.name.clone(), "input".to_owned());
            NodeData { name, op, role: Role::Input, outputs: vec![made], ..NodeData::default() }
        });
        let outputs = program.outputs.iter().map(|output| {
            let (name, op) = (output.name.clone(), "output".to_owned());
            let inputs = vec![port(output.value, &output.spec)];
            NodeData { name, op, role: Role::Output, inputs, ..NodeData::default() }
        });
        let mut all: Vec<_> = nodes.chain(inputs).chain(outputs).collect();
        all.iter_mut().enumerate().for_each(|(task, node)| self.add_placement(task, node));
        all
    }

    /// Where, when and why.
    fn add_placement(&self, task: usize, node: &mut NodeData) {
        let placed = &self.planned.placed;
        node.device = placed.placement.device_of[task].index();
        node.predicted = self.predicted.spans.tasks[task];
        node.critical_predicted = self.predicted.chain.tasks[task];
        if let Some(measured) = &self.measured {
            node.measured = Some(measured.spans.tasks[task]);
            node.critical_measured = measured.chain.tasks[task];
        }
        if let Some(reason) = placed.placement.reasons.get(task) {
            let name = |task: TaskId| placed.tasks.graph().task(task).name.as_str();
            node.why = why::why(reason, name, |device| &self.plan.device(device).name);
        }
    }

    fn costs(&self, node: NodeId) -> Vec<Option<CostData>> {
        let key = self.program.node(node).spec.key();
        let devices = self.plan.devices().iter().zip(&self.planned.placed.costs[node.index()]);
        let cost = |(device, cost): (&anabranch::plan::PlanDevice, &Option<anabranch::profile::NodeCost>)| {
            let cost = cost.as_ref()?;
            let filed = self.about.inventory.device(&device.name).map(|device| device.key().to_string());
            let statistics = filed.and_then(|filed| self.about.costs.here().node(&filed, &key));
            let statistics = statistics.filter(|statistics| statistics.count > 1);
            Some(CostData {
                ns: cost.seconds * 1e9,
                source: cost.source.to_string(),
                deviation_ns: statistics.filter(|found| found.count > 1).map(|found| found.deviation()),
            })
        };
        devices.map(cost).collect()
    }

    fn edges(&self) -> Vec<EdgeData> {
        let (tasks, plan) = (&self.planned.placed.tasks, self.plan);
        let graph = tasks.graph();
        let sent: BTreeMap<_, _> =
            plan.transfers().iter().enumerate().map(|(index, sent)| ((sent.value, sent.to), index)).collect();
        let mut ports: BTreeMap<TaskId, usize> = BTreeMap::new();
        let mut edges = Vec::new();
        for datum in graph.datum_ids() {
            let from = graph.producer(datum);
            // A maker's data are in the order of its outputs.
            let port = ports.entry(from).and_modify(|port| *port += 1).or_default();
            edges.extend(graph.consumers(datum).iter().map(|to| EdgeData {
                from: from.index(),
                to: to.index(),
                port: *port,
                transfer: sent.get(&(tasks.value(datum), self.planned.placed.placement.device_of[to.index()])).copied(),
                bends: Vec::new(),
            }));
        }
        edges
    }

    fn transfers(&self) -> Vec<TransferData> {
        let tasks = &self.planned.placed.tasks;
        let node = |datum: DatumId| tasks.graph().producer(datum).index();
        let transfer = |(index, transfer): (usize, &anabranch::plan::Transfer)| {
            let (route, chunks, into) = match &transfer.route {
                Route::Shared => ("shared", 1, None),
                Route::Copied => ("copied", 1, None),
                Route::Streamed(stream) => ("streamed", stream.chunks(), Some(stream.node.index())),
            };
            TransferData {
                name: self.program.value(transfer.value).name.clone(),
                node: tasks.datum(transfer.value).map(node).unwrap_or_default(),
                from: transfer.from.index(),
                to: transfer.to.index(),
                bytes: transfer.bytes,
                route,
                chunks,
                into,
                predicted: self.predicted.spans.transfers[index],
                measured: self.measured.as_ref().and_then(|timing| timing.spans.transfers[index]),
                critical_predicted: self.predicted.chain.transfers[index],
                critical_measured: self.measured.as_ref().is_some_and(|timing| timing.chain.transfers[index]),
            }
        };
        self.plan.transfers().iter().enumerate().map(transfer).collect()
    }
}
