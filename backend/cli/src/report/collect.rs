//! From a planned model, and a run of it, to what the report's page is given. Times in nanoseconds from the run's start, sizes in
//! bytes; what refers to devices, nodes and transfers is their index.

use super::critical::{self, Chain};
use super::scopes::scopes;
use super::spans::{Spans, Steps, Times};
use super::{memory, why};
use anabranch::compare::{Latencies, Series};
use anabranch::device::{DeviceRef, Inventory};
use anabranch::plan::{Plan, Route, Traffic};
use anabranch::planning::{Planned, PlanningError};
use anabranch::profile::CostStore;
use anabranch::program::{NodeId, Program, ValueId};
use anabranch::session::Run;
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::Op;
use anabranch_placement::graph::{DatumId, TaskId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a report says beside the plan and the run.
pub(crate) struct About<'a> {
    pub(crate) model: &'a str,
    /// The command, as it was typed.
    pub(crate) command: String,
    /// When, see [`utc`](super::utc).
    pub(crate) date: String,
    pub(crate) inventory: &'a Inventory,
    /// What was known of the costs when the plan was made.
    pub(crate) costs: &'a CostStore,
    /// What was measured, if the plan was run.
    pub(crate) series: Option<&'a Series>,
}

/// The data of a plan and, if it was run, of the last run of it.
///
/// # Errors
/// If the placement's problem cannot be built again, which is a fault of Anabranch.
pub(crate) fn data(planned: &Planned, about: &About<'_>) -> Result<Value, PlanningError> {
    let run = about.series.map(|series| &series.last);
    let collect = Collect {
        planned,
        program: &planned.program,
        plan: planned.plan(),
        about,
        predicted: Timing::new(planned, Spans::predicted(planned))?,
        measured: run.map(|run| Timing::new(planned, Spans::measured(run))).transpose()?,
    };
    let (mut nodes, edges) = (collect.nodes(), collect.edges());
    let ends: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let names: Vec<_> = planned.program.node_ids().map(|id| planned.program.node(id).name.as_str()).collect();
    let outside = [planned.program.inputs.len(), planned.program.outputs.len()];
    let scopes = scopes(&names, outside, &ends);
    nodes.iter_mut().zip(&scopes.of).for_each(|(node, scope)| node["scope"] = json!(scope));
    let total = |traffic: Traffic, timing: &Timing| {
        let (moved, in_place) = (traffic.moved(), traffic.in_place);
        json!({
            "makespan_ns": timing.spans.makespan,
            "traffic": moved.bytes,
            "moved": moved,
            "in_place": in_place,
            // From the run's start to its end.
            "chain": timing.chain.steps,
        })
    };
    let measured = run.zip(collect.measured.as_ref());
    Ok(json!({
        "facts": collect.facts(),
        "predicted": total(planned.plan().traffic(), &collect.predicted),
        // Of the last run; null where nothing ran, as everything that is measured.
        "measured": measured.map(|(run, timing)| total(run.measured.traffic(Some(planned.plan())), timing)),
        // The first is the host.
        "devices": collect.devices(run),
        // In topological order, then the model's inputs and outputs.
        "nodes": nodes,
        "edges": edges,
        "transfers": collect.transfers(),
        // Groups of nodes, each after the one that it is in.
        "scopes": scopes.groups,
    }))
}

/// One value on its way from the node that makes it to one that reads it.
#[derive(serde::Serialize)]
struct Edge {
    from: usize,
    to: usize,
    /// Which of the maker's outputs it is.
    port: usize,
    /// The transfer over which it comes, if the two are on different devices.
    transfer: Option<usize>,
}

/// What is in a streaming block: the op of each member, and the type and shape of its output. Null of other ops.
fn block(op: &Op) -> Value {
    let Op::Block(block) = op else { return Value::Null };
    let member = |member: &anabranch_kernels::op::Member| {
        let made = member.spec.outputs.first().map(ToString::to_string);
        (member.spec.op.name().to_owned(), made.unwrap_or_default())
    };
    let members: Vec<_> = block.members.iter().map(member).collect();
    json!({ "rows": block.rows, "chunk_rows": block.chunk_rows, "members": members })
}

/// Times, and what follows from them.
struct Timing {
    spans: Spans,
    chain: Chain,
    /// Bytes that hold something, by device.
    memory: Vec<Steps>,
    /// Tasks that a device can choose from when it starts one (Laich 2017, figure 7.10), by device; 0 while it is idle.
    executable: Vec<Steps>,
}

impl Timing {
    fn new(planned: &Planned, spans: Spans) -> Result<Self, PlanningError> {
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
            spans,
        })
    }
}

/// Adds a task that a device chose from so many: once it is done there are none to choose from until the next is started. A `pause`
/// between two tasks is no idleness: the next was there.
fn decide(steps: &mut Steps, times: Times, executable: u64, pause: u64) {
    steps.pop_if(|idle| idle[1] == 0 && times.start <= idle[0] + pause);
    for step in [[times.start, executable], [times.end.max(times.start), 0]] {
        steps.pop_if(|last| last[0] == step[0]);
        steps.push(step);
    }
}

/// Makespans in the page at most: it need not draw more points than there are pixels, and should open soon.
const MOST_RUNS: usize = 10_000;

/// How often what was run, and the makespans: in nanoseconds, as everything here. Of very many, one of every so many is told; figures are
/// those of all runs.
fn runs(series: &Series) -> Value {
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    let (median, ranks) = (series.measured_ms, Latencies::of(&series.samples_ms));
    let every = series.samples_ms.len().div_ceil(MOST_RUNS).max(1);
    json!({
        "warmup": series.warmup,
        "cold": series.cold,
        "first_ns": ns(series.first_ms),
        "count": series.samples_ms.len(),
        "every": every,
        "latencies_ns": series.samples_ms.iter().copied().step_by(every).map(ns).collect::<Vec<_>>(),
        "min_ns": ns(ranks.min),
        "p90_ns": ns(ranks.p90),
        "p99_ns": ns(ranks.p99),
        "max_ns": ns(ranks.max),
        "median_ns": ns(median.median),
        "low_ns": ns(median.low),
        "high_ns": ns(median.high),
        "confidence": median.confidence,
        "node_error_percent": series.accuracy.node_error().map(|error| 100.0 * error),
        "link_error_percent": series.accuracy.link_error().map(|error| 100.0 * error),
    })
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
    fn facts(&self) -> Value {
        let About { model, command, date, inventory, series, .. } = self.about;
        let host = &inventory.host;
        json!({
            "model": model,
            "command": command,
            "date": date,
            "machine": format!("{} ({} cores, {}, {})", host.model, host.allowed_cores, host.os, host.arch),
            "version": env!("CARGO_PKG_VERSION"),
            "strategy": self.plan.strategy(),
            "candidates": self.planned.candidates,
            "place_ns": self.planned.place_time.as_nanos() as u64,
            "runs": series.map(runs),
        })
    }

    fn devices(&self, run: Option<&Run>) -> Vec<Value> {
        let description = |name: &str| match self.about.inventory.device(name) {
            Some(DeviceRef::Cpu(cpu)) => cpu.description.clone(),
            Some(DeviceRef::Gpu(gpu)) => gpu.description.clone(),
            None => String::new(),
        };
        let measured = |steps: fn(&Timing) -> &Vec<Steps>, index: usize| {
            self.measured.as_ref().map(|timing| steps(timing)[index].as_slice()).unwrap_or_default()
        };
        let device = |(index, device): (usize, &anabranch::plan::PlanDevice)| {
            let memory = &self.plan.memory().devices()[index];
            json!({
                "name": device.name,
                "kind": device.kind.to_string(),
                "description": description(&device.name),
                "limit": device.limit,
                // What stays there between runs: constants and what kernels keep.
                "resident": memory.resident(),
                "planned_peak": memory.peak(),
                "measured_peak": run.and_then(|run| run.measured.peaks.get(index)),
                "memory_predicted": self.predicted.memory[index],
                "memory_measured": measured(|timing| &timing.memory, index),
                "executable_predicted": self.predicted.executable[index],
                "executable_measured": measured(|timing| &timing.executable, index),
            })
        };
        self.plan.devices().iter().enumerate().map(device).collect()
    }

    /// The program's nodes, then its inputs and outputs: by task.
    fn nodes(&self) -> Vec<Value> {
        let program = self.program;
        let nodes = program.node_ids().map(|id| {
            let node = program.node(id);
            let operators: Vec<_> = node.operators.iter().map(|operator| operator.name.clone()).collect();
            json!({
                "name": node.name,
                "role": "node",
                "op": node.spec.op.name(),
                // In a canonical task graph.
                "class": node.spec.class().to_string(),
                "flops": node.spec.work().flops,
                "inputs": self.ports(&node.inputs, &node.spec.inputs),
                "outputs": self.ports(&node.outputs, &node.spec.outputs),
                // The model's operators in it, where they are more than one or named otherwise.
                "operators": if operators == [&*node.name] { Vec::new() } else { operators },
                "block": block(&node.spec.op),
                "costs": self.costs(id),
            })
        });
        let end = |name: &str, role: &str, inputs: Vec<Value>, outputs: Vec<Value>| {
            json!({
                "name": name, "role": role, "op": role, "class": "", "flops": 0.0, "inputs": inputs, "outputs": outputs,
                "operators": [], "block": null, "costs": [],
            })
        };
        let inputs = program.inputs.iter().map(|id| {
            let value = program.value(*id);
            end(&value.name, "input", Vec::new(), self.ports(&[*id], std::slice::from_ref(&value.spec)))
        });
        let outputs = program.outputs.iter().map(|output| {
            let read = self.ports(&[output.value], std::slice::from_ref(&output.spec));
            end(&output.name, "output", read, Vec::new())
        });
        let mut all: Vec<_> = nodes.chain(inputs).chain(outputs).collect();
        all.iter_mut().enumerate().for_each(|(task, node)| self.add_placement(task, node));
        // What a node takes by the median of the profiled runs; what is told of start and end is of the last.
        for accuracy in self.about.series.iter().flat_map(|series| &series.accuracy.nodes) {
            all[accuracy.node.index()]["typical_ns"] = json!((accuracy.time.measured * 1e9).round());
        }
        all
    }

    /// Tensors that a node reads or makes, with the type and shape under which it has them.
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

    /// Where, when and why.
    fn add_placement(&self, task: usize, node: &mut Value) {
        let (placed, measured) = (&self.planned.placed, self.measured.as_ref());
        let name = |task: TaskId| placed.tasks.graph().task(task).name.as_str();
        let why = |reason| why::why(reason, name, |device| &self.plan.device(device).name);
        node["device"] = placed.placement.device_of[task].index().into();
        node["predicted"] = json!(self.predicted.spans.tasks[task]);
        node["measured"] = json!(measured.map(|timing| timing.spans.tasks[task]));
        node["critical_predicted"] = self.predicted.chain.tasks[task].into();
        node["critical_measured"] = measured.is_some_and(|timing| timing.chain.tasks[task]).into();
        node["why"] = json!(placed.placement.reasons.get(task).map(why).unwrap_or_default());
    }

    /// What a node was thought to take on each device, and on what that rests; null where it cannot run.
    fn costs(&self, node: NodeId) -> Vec<Value> {
        let key = self.program.node(node).spec.key();
        let devices = self.plan.devices().iter().zip(&self.planned.placed.costs[node.index()]);
        let cost = |(device, cost): (&anabranch::plan::PlanDevice, &Option<anabranch::profile::NodeCost>)| {
            let Some(cost) = cost else { return Value::Null };
            let filed = self.about.inventory.device(&device.name).map(|device| device.key().to_string());
            let history = filed.and_then(|filed| self.about.costs.here().node(&filed, &key));
            let deviation = history.filter(|history| history.count > 1).map(|history| history.deviation());
            json!({ "ns": cost.seconds * 1e9, "source": cost.source.to_string(), "deviation_ns": deviation })
        };
        devices.map(cost).collect()
    }

    fn edges(&self) -> Vec<Edge> {
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
            edges.extend(graph.consumers(datum).iter().map(|to| Edge {
                from: from.index(),
                to: to.index(),
                port: *port,
                transfer: sent.get(&(tasks.value(datum), self.planned.placed.placement.device_of[to.index()])).copied(),
            }));
        }
        edges
    }

    fn transfers(&self) -> Vec<Value> {
        let (tasks, measured) = (&self.planned.placed.tasks, self.measured.as_ref());
        let node = |datum: DatumId| tasks.graph().producer(datum).index();
        let transfer = |(index, transfer): (usize, &anabranch::plan::Transfer)| {
            let (route, chunks, into) = match &transfer.route {
                Route::Shared => ("shared", 1, None),
                Route::Copied => ("copied", 1, None),
                Route::Streamed(stream) => ("streamed", stream.chunks(), Some(stream.node.index())),
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
