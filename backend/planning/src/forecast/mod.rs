//! Forecast of a plan: simulates its own order with the known costs.
//!
//! A strategy's schedule leaves out everything that only the executor does. The forecast includes the start of the
//! workers, encoding and submission on GPUs, links that move one value at a time, and streams. It also includes
//! wake-ups of threads, slowdowns of devices by each other, and the end of the run. Calibration measures all of these,
//! and so does every run that is learned from.

mod batches;
mod interval;
mod play;

pub use batches::batches;

use super::error::PlanningError;
use super::machine::{Machine, least_seconds};
use super::node_times::NodeTimes;
use anabranch_costs::{Estimate, History, NodeCost, RunCosts};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::cost::TransferCurve;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, Plan, Predicted, Route, Step, Transfer, TransferId};
use play::{Operation, play};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of a plan under construction.
struct Script<'a> {
    program: &'a Program,
    plan: &'a Plan,
    machine: &'a Machine,
    operations: Vec<Operation>,
    /// First and last operation of each node. A node that reads or feeds a stream has three: its first chunk, its last,
    /// and the chunks between.
    nodes: Vec<Option<(usize, usize)>>,
    /// First and last operation of each transfer; `None` if nothing moves.
    transfers: Vec<Option<(usize, usize)>>,
    /// For each transfer in which nothing moves: the operation that it follows, and the seconds from there to its start
    /// and to its end.
    hops: Vec<Option<(usize, [f64; 2])>>,
    /// Operation that brings a value to a device, and the seconds after it until a node there can start.
    there: BTreeMap<(ValueId, DeviceId), (usize, f64)>,
    /// Batch with which each GPU node is submitted.
    submitted_with: BTreeMap<NodeId, Batch>,
    /// Number of chunks of each node that reads or feeds a stream.
    chunks: BTreeMap<NodeId, usize>,
    /// Operation that encodes a batch, by the batch's last node.
    encoded: BTreeMap<NodeId, usize>,
    /// Additions of the nodes' places to the times of their kernels.
    times: NodeTimes,
    curves: BTreeMap<(DeviceId, DeviceId), TransferCurve>,
    /// Position of the last use of the former content of a device's slot, before a value moves there; absent if the
    /// slot was unused.
    emptied: BTreeMap<(DeviceId, ValueId), u32>,
    /// Overhead of the run.
    run: RunCosts,
    /// Lanes with work: their first operations wait for their threads.
    begun: BTreeSet<usize>,
}

/// Operation of the call, after which all lanes start.
const CALL: usize = 0;

/// Nodes of a GPU that are submitted together.
#[derive(Clone, Copy)]
struct Batch {
    last: NodeId,
    nodes: usize,
}

/// Returns the plan with its forecast, if its nodes take `costs` on each device.
///
/// # Errors
/// If a cost is not a valid time, which is a bug of Anabranch.
pub fn forecast(
    program: &Program,
    plan: Plan,
    costs: &[Vec<Option<NodeCost>>],
    machine: &Machine,
) -> Result<Plan, PlanningError> {
    let mut script = Script::new(program, &plan, machine);
    for step in plan.steps() {
        script.add(step, costs);
    }
    let spans = play(&script.operations, script.lanes(), machine.slowdowns(script.lanes()))?;
    let span = |ends: &Option<(usize, usize)>| ends.map_or((0.0, 0.0), |(first, last)| (spans[first].0, spans[last].1));
    let end = spans.iter().map(|(_, end)| *end).fold(script.starting(&script.run.start), f64::max);
    let transfers = script.transfers.iter().zip(&script.hops).map(|(ends, hop)| match *hop {
        Some((made, [start, end])) => (spans[made].1 + start, spans[made].1 + end),
        None => span(ends),
    });
    let worked = |ends: &Option<(usize, usize)>| {
        let parts = ends.map_or(&[][..], |(first, last)| &spans[first..=last]);
        parts.iter().fold(0.0, |sum, (start, end)| sum + end - start)
    };
    let makespan = end + least_seconds(&script.run.finish);
    let predicted = Predicted {
        busy: script.nodes.iter().map(worked).collect(),
        nodes: script.nodes.iter().map(span).collect(),
        transfers: transfers.collect(),
        makespan,
        interval: interval::interval_of(makespan, &script, costs),
    };
    Ok(plan.with_prediction(predicted))
}

/// Lane of the call.
fn clock(plan: &Plan) -> usize {
    2 * plan.devices().len() + plan.links().len()
}

/// Number of chunks of each node that reads or feeds a stream.
fn chunks(plan: &Plan) -> BTreeMap<NodeId, usize> {
    let streams = plan.transfers().iter().filter_map(Transfer::stream);
    streams.flat_map(|s| [Some(s.node), s.producer].into_iter().flatten().map(|node| (node, s.chunks()))).collect()
}

/// Number of threads in a run besides the caller's: of other devices that have steps, and of links.
///
/// The overhead of a run depends on it; devices without steps take no time.
pub fn threads(plan: &Plan) -> usize {
    let device = |step: &Step| match step {
        Step::Input(index) => Some(plan.input_device(*index)),
        Step::Output(index) => Some(plan.output_device(*index)),
        Step::Node(node) => Some(plan.device_of(*node)),
        Step::Transfer(_) => None,
    };
    let others: BTreeSet<DeviceId> = plan.steps().iter().filter_map(device).filter(|device| *device != HOST).collect();
    others.len() + plan.links().len()
}

impl<'a> Script<'a> {
    fn new(program: &'a Program, plan: &'a Plan, machine: &'a Machine) -> Self {
        let devices = (0..plan.devices().len() as u32).map(DeviceId);
        let batches = devices.flat_map(|device| batches(program, plan, device));
        let submitted_with = batches.flat_map(|batch| {
            let (last, nodes) = (batch.last().copied(), batch.len());
            batch.into_iter().filter_map(move |node| Some((node, Batch { last: last?, nodes })))
        });
        Self {
            program,
            plan,
            machine,
            // The call has a lane of its own, after all others.
            operations: vec![Operation { lane: clock(plan), ..Operation::default() }],
            nodes: vec![None; program.nodes.len()],
            transfers: vec![None; plan.transfers().len()],
            hops: vec![None; plan.transfers().len()],
            there: BTreeMap::new(),
            submitted_with: submitted_with.collect(),
            chunks: chunks(plan),
            encoded: BTreeMap::new(),
            times: NodeTimes::of(program, plan, &machine.devices, &machine.costs),
            curves: BTreeMap::new(),
            emptied: plan.memory().emptied(),
            run: machine.costs.run(threads(plan)).cloned().unwrap_or_default(),
            begun: BTreeSet::new(),
        }
    }

    /// Number of lanes: devices, then the threads that encode for them, then links, then the call.
    fn lanes(&self) -> usize {
        clock(self.plan) + 1
    }

    /// Adds an operation and returns its number. The first operation of a lane waits until the lane's thread has
    /// started.
    fn push(&mut self, lane: usize, seconds: f64, mut after: Vec<(usize, f64)>) -> usize {
        if self.begun.insert(lane) {
            let start = if lane == HOST.index() { &self.run.start } else { &self.run.join };
            after.push((CALL, self.starting(start)));
        }
        self.operations.push(Operation { lane, seconds, after });
        self.operations.len() - 1
    }

    /// Seconds until a thread starts; 0 if it is unknown.
    fn starting(&self, history: &History) -> f64 {
        self.start(history).map_or(0.0, |estimate| estimate.seconds())
    }

    /// Estimate of a thread's start: the least sample if only the caller's thread takes part.
    ///
    /// Waking another thread takes from a microsecond to tens of them, so that its least sample says little about the
    /// usual start.
    fn start(&self, history: &History) -> Option<Estimate> {
        if threads(self.plan) == 0 { history.least() } else { history.undisturbed() }
    }

    fn add(&mut self, step: &Step, costs: &[Vec<Option<NodeCost>>]) {
        match step {
            Step::Input(index) => {
                let (given, device) = (self.program.inputs[*index], self.plan.input_device(*index));
                let there = self.push(device.index(), 0.0, Vec::new());
                self.there.insert((given, device), (there, 0.0));
            }
            Step::Output(index) => {
                let device = self.plan.output_device(*index);
                let made = self.there.get(&(self.program.outputs[*index].value, device));
                let after = made.copied().into_iter().collect();
                self.push(device.index(), 0.0, after);
            }
            Step::Node(node) => self.add_node(*node, costs),
            Step::Transfer(id) => self.add_transfer(*id),
        }
    }

    /// Seconds of a node on its device, and of its reads from other devices' caches. The cost assumes that all nodes
    /// are on that device.
    fn parts(&self, node: NodeId, device: DeviceId, cost: &NodeCost) -> [f64; 2] {
        let kernel = self.times.alone(node, device).remove(cost.seconds);
        self.times.at(node, device).parts(kernel)
    }

    fn add_node(&mut self, id: NodeId, costs: &[Vec<Option<NodeCost>>]) {
        let device = self.plan.device_of(id);
        let [own, reads] = costs[id.index()][device.index()].map_or([0.0; 2], |cost| self.parts(id, device, &cost));
        let seconds = own + reads;
        let inputs = self.program.node(id).inputs.iter();
        let mut after: Vec<_> = inputs.filter_map(|value| self.there.get(&(*value, device)).copied()).collect();
        if let Some(batch) = self.submitted_with.get(&id).copied() {
            let encoded = self.encoded.get(&batch.last).copied().unwrap_or_else(|| self.encode(batch, device, &after));
            after.push((encoded, self.machine.dispatch(device)));
        }
        let lane = device.index();
        let first = self.operations.len();
        match self.chunks.get(&id).copied() {
            None => drop(self.push(lane, seconds, after)),
            Some(chunks) => {
                let streams = self.plan.transfers().iter().zip(&self.transfers);
                let read = streams.filter(|(transfer, _)| transfer.stream().is_some_and(|stream| stream.node == id));
                let (firsts, lasts): (Vec<_>, Vec<_>) =
                    read.filter_map(|(_, parts)| *parts).map(|(first, last)| ((first, 0.0), (last, 0.0))).unzip();
                after.extend(firsts);
                let chunk = seconds / chunks.max(2) as f64;
                self.push(lane, chunk, after);
                self.push(lane, seconds - 2.0 * chunk, Vec::new());
                self.push(lane, chunk, lasts);
            }
        }
        let last = self.operations.len() - 1;
        self.nodes[id.index()] = Some((first, last));
        for value in &self.program.node(id).outputs {
            self.there.insert((*value, device), (last, 0.0));
        }
    }

    /// Encodes all nodes of a batch when its first node's turn comes. Inputs of the other nodes came earlier: otherwise
    /// these nodes would start a batch.
    fn encode(&mut self, batch: Batch, device: DeviceId, after: &[(usize, f64)]) -> usize {
        let seconds = self.machine.encode(device) * batch.nodes as f64;
        // Nodes of one GPU need not be finished before the next nodes are encoded.
        let gates = after.iter().filter(|(operation, _)| self.operations[*operation].lane != device.index());
        let after = gates.copied().collect();
        let lane = self.plan.devices().len() + device.index();
        let encoded = self.push(lane, seconds, after);
        self.encoded.insert(batch.last, encoded);
        encoded
    }

    fn add_transfer(&mut self, id: TransferId) {
        let Transfer { value, from, to, bytes, route } = self.plan.transfer(id).clone();
        let made = self.there.get(&(value, from)).copied();
        // A producer that feeds a stream while it computes: when its first chunk is ready, and when its last.
        let feeder = match &route {
            Route::Streamed(stream) => stream.producer.and_then(|producer| self.nodes[producer.index()]),
            Route::Shared | Route::Copied => None,
        };
        let ready = feeder.map(|(first, _)| (first, 0.0)).or(made);
        let after: Vec<_> = ready.into_iter().chain(self.emptied(value, to)).collect();
        let curve = self.curve(from, to);
        let lane = self.plan.links().iter().position(|link| link.from == from && link.to == to);
        let (Some(lane), false) = (lane.map(|at| 2 * self.plan.devices().len() + at), route == Route::Shared) else {
            let hop = curve.time(bytes);
            self.transfers[id.index()] = feeder;
            if let Some((operation, delay)) = made {
                if feeder.is_none() {
                    self.hops[id.index()] = Some((operation, [delay, delay + hop]));
                }
                self.there.insert((value, to), (operation, delay + hop));
            }
            return;
        };
        let (chunk, whole) = match &route {
            Route::Streamed(stream) => {
                let whole = self.streamed_curve(from, to).time(bytes);
                (curve.time(stream.chunk_bytes()).min(whole), whole)
            }
            Route::Shared | Route::Copied => (curve.time(bytes), curve.time(bytes)),
        };
        let first = self.operations.len();
        self.push(lane, chunk, after);
        if chunk < whole {
            let after = feeder.map(|(_, last)| (last, 0.0)).into_iter().collect();
            self.push(lane, (whole - 2.0 * chunk).max(0.0), Vec::new());
            self.push(lane, chunk.min(whole - chunk), after);
        }
        let last = self.operations.len() - 1;
        self.transfers[id.index()] = Some((first, last));
        if !matches!(route, Route::Streamed(_)) {
            let woken = if self.plan.device(to).kind == DeviceKind::Cpu { self.machine.wake() } else { 0.0 };
            self.there.insert((value, to), (last, woken));
        }
    }

    /// Last use of the former content of a value's slot: the value is copied there after it.
    fn emptied(&self, value: ValueId, device: DeviceId) -> Option<(usize, f64)> {
        let operations = match self.plan.steps().get(*self.emptied.get(&(device, value))? as usize)? {
            Step::Node(node) => self.nodes[node.index()],
            Step::Transfer(id) => self.transfers[id.index()],
            Step::Input(_) | Step::Output(_) => None,
        };
        operations.map(|(_, last)| (last, 0.0))
    }

    fn curve(&mut self, from: DeviceId, to: DeviceId) -> TransferCurve {
        let machine = self.machine;
        self.curves.entry((from, to)).or_insert_with(|| machine.link(from, to).curve()).clone()
    }

    fn streamed_curve(&self, from: DeviceId, to: DeviceId) -> TransferCurve {
        self.machine.link(from, to).streamed_curve()
    }
}
