//! One plan of a run as a part of the page's data: its nodes, inputs, outputs, edges and transfers, with their
//! positions among those of the whole run.

use super::attributes::attributes;
use super::critical::{self, Chain};
use super::spans::{Spans, Steps, Times};
use super::{memory, why};
use anabranch::compare::Series;
use anabranch::costs::CostStore;
use anabranch::device::Inventory;
use anabranch::execute::RunOutput;
use anabranch::plan::{Plan, Route};
use anabranch::planning::{Planned, PlanningError};
use anabranch::program::{NodeId, Program, ValueId};
use anabranch::session::Part;
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::Op;
use anabranch_placement::graph::{DatumId, TaskId};
use anabranch_placement::place::Reason;
use anabranch_placement::platform::DeviceId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Facts of a report besides the plan and the run.
pub struct About<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// The command, as it was typed.
    pub command: String,
    /// Date of the report, see [`utc`](super::utc).
    pub date: String,
    /// Devices of the machine.
    pub inventory: &'a Inventory,
    /// Costs that were known when the plan was made.
    pub costs: &'a CostStore,
    /// Measured runs, if the plan was run.
    pub series: Option<&'a Series>,
}

/// Positions of a plan's first node, input, output and transfer in the page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub(super) nodes: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) transfers: usize,
}

/// A value on its way from the node that makes it to a node that reads it.
#[derive(serde::Serialize)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Index among the outputs of its node.
    pub(super) port: usize,
    /// Index of its transfer, if the nodes are on different devices.
    pub(super) transfer: Option<usize>,
}

/// Times, and figures derived from them.
pub(super) struct Timing {
    pub(super) spans: Spans,
    pub(super) chain: Chain,
    /// Bytes in use, by device.
    pub(super) memory: Vec<Steps>,
    /// Number of tasks that a device can choose from when it starts one (Laich 2017, figure 7.10), by device; 0 while
    /// it is idle.
    pub(super) executable: Vec<Steps>,
    /// Start of the plan's run.
    pub(super) begun: u64,
}

/// A plan, and the measurements of a run of it.
pub(super) struct PlanPart<'a> {
    pub(super) planned: &'a Planned,
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    about: &'a About<'a>,
    pub(super) predicted: Timing,
    pub(super) measured: Option<Timing>,
    pub(super) places: Places,
}

/// Returns the members of a streaming block: op, type and shape of the output, and parameters. Null for other ops.
fn block(op: &Op) -> Value {
    let Op::Block(block) = op else { return Value::Null };
    let member = |member: &anabranch_kernels::op::Member| {
        let made = member.spec.outputs.first().map(ToString::to_string);
        (member.spec.op.name().to_owned(), made.unwrap_or_default(), attributes(&member.spec))
    };
    let members: Vec<_> = block.members.iter().map(member).collect();
    json!({ "rows": block.rows, "chunk_rows": block.chunk_rows, "members": members })
}

impl Timing {
    fn new(planned: &Planned, spans: Spans, begun: u64) -> Result<Self, PlanningError> {
        let (plan, placed) = (planned.plan(), &planned.placed);
        let mut executable = vec![Steps::new(); plan.devices().len()];
        for decision in placed.decisions(&spans.schedule(plan, placed))? {
            let times = spans.tasks[decision.task.index()];
            let steps = &mut executable[decision.device.index()];
            decide(steps, times, decision.executable.max(1) as u64, spans.makespan / 1000);
        }
        Ok(Self {
            chain: critical::chain(plan, placed, &spans),
            memory: memory::over_time(&planned.program, plan, &spans),
            executable,
            spans: spans.later(begun),
            begun,
        })
    }
}

/// Adds a task that a device chose from `executable` tasks. Once it is done, the count is 0 until the next task starts.
/// A `pause` between two tasks is not idle time: the next task was ready.
fn decide(steps: &mut Steps, times: Times, executable: u64, pause: u64) {
    steps.pop_if(|idle| idle[1] == 0 && times.start <= idle[0] + pause);
    for step in [[times.start, executable], [times.end.max(times.start), 0]] {
        steps.pop_if(|last| last[0] == step[0]);
        steps.push(step);
    }
}

impl<'a> PlanPart<'a> {
    /// Returns a plan that was not run.
    pub(super) fn planned(planned: &'a Planned, about: &'a About<'a>) -> Result<Self, PlanningError> {
        let predicted = Timing::new(planned, Spans::predicted(planned), 0)?;
        Ok(Self::new(planned, about, predicted, None))
    }

    /// Returns a plan's run within a run.
    pub(super) fn ran(part: &Part<'a>, about: &'a About<'a>) -> Result<Self, PlanningError> {
        let Part { planned, measured, .. } = *part;
        let [foreseen, begun] = [part.foreseen, part.begun].map(|time| time.as_nanos() as u64);
        let predicted = Timing::new(planned, Spans::predicted(planned), foreseen)?;
        let measured: &RunOutput = measured;
        let measured = Timing::new(planned, Spans::measured(planned, measured), begun)?;
        Ok(Self::new(planned, about, predicted, Some(measured)))
    }

    fn new(planned: &'a Planned, about: &'a About<'a>, predicted: Timing, measured: Option<Timing>) -> Self {
        let (program, plan, places) = (&*planned.program, &**planned.plan(), Places::default());
        Self { planned, program, plan, about, predicted, measured, places }
    }

    /// Returns the position of a task in the page.
    pub(super) fn place(&self, task: usize) -> usize {
        let (nodes, inputs) = (self.program.nodes.len(), self.program.inputs.len());
        match task {
            node if node < nodes => self.places.nodes + node,
            input if input < nodes + inputs => self.places.inputs + input - nodes,
            output => self.places.outputs + output - nodes - inputs,
        }
    }

    /// Returns the program's nodes.
    pub(super) fn nodes(&self) -> Vec<Value> {
        let node = |id: NodeId| {
            let node = self.program.node(id);
            let operators: Vec<_> = node.operators.iter().map(|operator| operator.name.clone()).collect();
            let value = json!({
                "name": node.name,
                "role": "node",
                "op": node.spec.op.name(),
                // In a canonical task graph.
                "class": node.spec.class().to_string(),
                "flops": node.spec.work().flops,
                "inputs": self.ports(&node.inputs, &node.spec.inputs),
                "outputs": self.ports(&node.outputs, &node.spec.outputs),
                // Operators of the model in it, if there are several or the name differs.
                "operators": if operators == [&*node.name] { Vec::new() } else { operators },
                // Names and values of the kernel's parameters.
                "attributes": attributes(&node.spec),
                "block": block(&node.spec.op),
                "costs": self.costs(id),
            });
            self.placed(id.index(), value)
        };
        self.program.node_ids().map(node).collect()
    }

    /// Returns the program's inputs.
    pub(super) fn inputs(&self) -> Vec<Value> {
        let input = |(at, id): (usize, &ValueId)| {
            let value = self.program.value(*id);
            let made = self.ports(&[*id], std::slice::from_ref(&value.spec));
            self.placed(self.program.nodes.len() + at, end(&value.name, "input", Vec::new(), made))
        };
        self.program.inputs.iter().enumerate().map(input).collect()
    }

    /// Returns the program's outputs.
    pub(super) fn outputs(&self) -> Vec<Value> {
        let first = self.program.nodes.len() + self.program.inputs.len();
        let output = |(at, output): (usize, &anabranch::program::Output)| {
            let read = self.ports(&[output.value], std::slice::from_ref(&output.spec));
            self.placed(first + at, end(&output.name, "output", read, Vec::new()))
        };
        self.program.outputs.iter().enumerate().map(output).collect()
    }

    /// Returns the tensors that a node reads or makes, with the type and shape that it uses for them.
    fn ports(&self, values: &[ValueId], specs: &[TensorSpec]) -> Vec<Value> {
        let port = |(value, spec): (&ValueId, &TensorSpec)| {
            json!({
                "name": self.program.value(*value).name,
                "spec": spec.to_string(),
                "bytes": spec.bytes(),
                "constant": self.program.constant(*value).is_some(),
            })
        };
        values.iter().zip(specs).map(port).collect()
    }

    /// Adds to a task its device, its times, and the reason for the device.
    fn placed(&self, task: usize, mut node: Value) -> Value {
        let (placed, measured) = (&self.planned.placed, self.measured.as_ref());
        let name = |task: TaskId| placed.tasks.graph().task(task).name.as_str();
        let device = |device: DeviceId| self.plan.device(device).name.as_str();
        let why = |reason: &Reason| match (reason, task < self.program.nodes.len()) {
            // A plan that was kept has its reasons as texts.
            (Reason::Given, true) => why::Why::said(self.plan.reason(NodeId(task as u32))),
            _ => why::why(reason, &name, &device),
        };
        node["device"] = placed.placement.device_of[task].index().into();
        node["predicted"] = json!(self.predicted.spans.tasks[task]);
        node["measured"] = json!(measured.map(|timing| timing.spans.tasks[task]));
        node["critical_predicted"] = self.predicted.chain.tasks[task].into();
        node["critical_measured"] = measured.is_some_and(|timing| timing.chain.tasks[task]).into();
        node["why"] = json!(placed.placement.reasons.get(task).map(why).unwrap_or_default());
        node
    }

    /// Returns the predicted time of a node per device, with its basis; null if the device cannot run it.
    fn costs(&self, node: NodeId) -> Vec<Value> {
        let key = self.program.node(node).spec.key();
        let devices = self.plan.devices().iter().zip(&self.planned.placed.costs[node.index()]);
        let cost = |(device, cost): (&anabranch::plan::PlanDevice, &Option<anabranch::costs::NodeCost>)| {
            let Some(cost) = cost else { return Value::Null };
            let filed = self.about.inventory.device(&device.name).map(|device| device.key().to_string());
            let history = filed.and_then(|filed| self.about.costs.here().node(&filed, &key));
            let deviation = history.filter(|history| history.count > 1).map(|history| history.deviation());
            json!({ "ns": cost.seconds * 1e9, "source": cost.source.to_string(), "deviation_ns": deviation })
        };
        devices.map(cost).collect()
    }

    /// Returns the edges of the plan's tasks, by their positions in the page.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let (tasks, plan) = (&self.planned.placed.tasks, self.plan);
        let graph = tasks.graph();
        let sent: BTreeMap<_, _> = (plan.transfers().iter().enumerate())
            .map(|(index, sent)| ((sent.value, sent.to), self.places.transfers + index))
            .collect();
        let mut ports: BTreeMap<TaskId, usize> = BTreeMap::new();
        let mut edges = Vec::new();
        for datum in graph.datum_ids() {
            let from = graph.producer(datum);
            // A task's data are in the order of its outputs.
            let port = ports.entry(from).and_modify(|port| *port += 1).or_default();
            edges.extend(graph.consumers(datum).iter().map(|to| Edge {
                from: self.place(from.index()),
                to: self.place(to.index()),
                port: *port,
                transfer: sent.get(&(tasks.value(datum), self.planned.placed.placement.device_of[to.index()])).copied(),
            }));
        }
        edges
    }

    pub(super) fn transfers(&self) -> Vec<Value> {
        let (tasks, measured) = (&self.planned.placed.tasks, self.measured.as_ref());
        let node = |datum: DatumId| self.place(tasks.graph().producer(datum).index());
        let transfer = |(index, transfer): (usize, &anabranch::plan::Transfer)| {
            let (route, chunks, into) = match &transfer.route {
                Route::Shared => ("shared", 1, None),
                Route::Copied => ("copied", 1, None),
                Route::Streamed(stream) => ("streamed", stream.chunks(), Some(self.place(stream.node.index()))),
            };
            json!({
                "name": self.program.value(transfer.value).name,
                "node": tasks.datum(transfer.value).map(node).unwrap_or_default(),
                "from": transfer.from.index(),
                "to": transfer.to.index(),
                "bytes": transfer.bytes,
                "route": route,
                "chunks": chunks,
                // The node that reads it chunk by chunk.
                "into": into,
                "predicted": self.predicted.spans.transfers[index],
                "measured": measured.and_then(|timing| timing.spans.transfers[index]),
                "critical_predicted": self.predicted.chain.transfers[index],
                "critical_measured": measured.is_some_and(|timing| timing.chain.transfers[index]),
            })
        };
        self.plan.transfers().iter().enumerate().map(transfer).collect()
    }
}

/// Returns an input or output of a program.
fn end(name: &str, role: &str, inputs: Vec<Value>, outputs: Vec<Value>) -> Value {
    json!({
        "name": name, "role": role, "op": role, "class": "", "flops": 0.0, "inputs": inputs, "outputs": outputs,
        "operators": [], "attributes": [], "block": null, "costs": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_executable_while_a_device_is_idle() {
        let mut steps = Steps::new();
        for ([start, end], executable) in [([0, 10], 3), ([11, 20], 2), ([40, 50], 4), ([50, 50], 1)] {
            decide(&mut steps, Times { ready: start, start, end, busy: end - start }, executable, 2);
        }
        assert_eq!(steps, [[0, 3], [11, 2], [20, 0], [40, 4], [50, 0]]);
    }
}
