//! One run: decides for each node as it becomes ready, moves values, and handles replies.

use super::Setup;
use super::decide::{Candidate, Queue, best};
use super::memory::{Copies, Copy};
use super::messages::{Move, Reply, Span, Task};
use super::workers::Workers;
use crate::RunOptions;
use crate::event::{Activity, Event, Lane, start_copies};
use crate::supervise::Deadline;
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::{Buffer, Tensor};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{ExecError, HOST, TransferId};
use crossbeam_channel::RecvTimeoutError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a reply if there is no other condition to check.
const IDLE: Duration = Duration::from_secs(1);

/// Results of a run: events, and outputs with their numbers.
type Finished = (Vec<Event>, Vec<(u32, Arc<Buffer>)>);

/// A waiter for a value's arrival in a memory.
enum Waiter {
    Node(NodeId),
    /// Waits for an output of the caller.
    Caller,
    /// Waits to transfer the value on to this memory.
    Onward(DeviceId),
}

/// Decision about a node.
#[derive(Clone, Copy)]
struct Decision {
    device: DeviceId,
    length: f64,
    end: f64,
    /// Number of transfers for which the node waits.
    coming: u32,
}

/// State of one run.
pub(super) struct Schedule<'a> {
    workers: &'a mut Workers,
    setup: &'a Setup,
    program: &'a Program,
    options: &'a RunOptions,
    origin: Instant,
    deadline: Deadline<'a>,
    inputs: &'a [&'a Tensor],
    copies: Copies,
    queues: Vec<Queue>,
    /// Time at which each value is, or is expected to be, made.
    made: Vec<f64>,
    /// Number of each node's inputs that are not made yet.
    missing: Vec<usize>,
    decisions: Vec<Option<Decision>>,
    ready: BTreeSet<NodeId>,
    waiting: BTreeMap<(ValueId, DeviceId), Vec<Waiter>>,
    /// Number of nodes that have not ended, and of tasks that threads have.
    unfinished: usize,
    under_way: usize,
    /// Value that each transfer moved.
    sent: Vec<ValueId>,
    events: Vec<Event>,
    outputs: Vec<(u32, Arc<Buffer>)>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(
        workers: &'a mut Workers,
        setup: &'a Setup,
        inputs: &'a [&'a Tensor],
        options: &'a RunOptions,
        origin: Instant,
    ) -> Self {
        let program = setup.kernels.program();
        Self {
            copies: Copies::new(&setup.wiring, setup.devices.len()),
            queues: vec![Queue::default(); setup.devices.len()],
            made: vec![0.0; program.values.len()],
            missing: setup.wiring.reads.iter().map(Vec::len).collect(),
            decisions: vec![None; program.nodes.len()],
            ready: program.node_ids().filter(|node| setup.wiring.reads[node.index()].is_empty()).collect(),
            waiting: BTreeMap::new(),
            unfinished: program.nodes.len(),
            under_way: 0,
            sent: Vec::new(),
            events: Vec::new(),
            outputs: Vec::new(),
            workers,
            setup,
            program,
            options,
            origin,
            deadline: Deadline::new(options, origin),
            inputs,
        }
    }

    /// Runs to the end, or to the first failure. After a failure, threads may still be working, and the workers must be
    /// dropped.
    pub(super) fn run(mut self) -> Result<Finished, ExecError> {
        let given: usize = self.inputs.iter().map(|tensor| tensor.bytes().len()).sum();
        self.workers.accounting.take(HOST, given);
        self.take_inputs()?;
        self.start_ready()?;
        while self.unfinished > 0 || self.outputs.len() < self.program.outputs.len() {
            if self.under_way == 0 {
                return Err(ExecError::internal("nothing is under way, and the run is not at its end"));
            }
            match self.workers.replies.recv_timeout(self.deadline.sleep().unwrap_or(IDLE)) {
                Ok(reply) => self.take(reply)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ExecError::internal("all threads are gone")),
            }
            while let Ok(reply) = self.workers.replies.try_recv() {
                self.take(reply)?;
            }
            if let Some(error) = self.deadline.verdict() {
                return Err(error);
            }
            self.start_ready()?;
        }
        self.workers.accounting.give(HOST, given);
        let Self { setup, program, decisions, sent, mut events, outputs, .. } = self;
        let on_gpu = |on: &Decision| setup.devices[on.device.index()].kind == DeviceKind::Gpu;
        start_copies(&mut events, |id| match program.value(sent[id.index()]).origin {
            Origin::Node(node) => decisions[node.index()].filter(on_gpu).map(|_| (node, false)),
            Origin::Input | Origin::Constant(_) => None,
        });
        Ok((events, outputs))
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    fn take_inputs(&mut self) -> Result<(), ExecError> {
        for (id, tensor) in self.program.inputs.iter().zip(self.inputs) {
            self.copies.hold(*id, Arc::clone(tensor.buffer()));
            self.value_made(*id)?;
        }
        for (index, output) in self.program.outputs.iter().enumerate() {
            if let Some(buffer) = self.workers.constants.get(&output.value) {
                self.outputs.push((index as u32, Arc::clone(buffer)));
            }
        }
        Ok(())
    }

    fn start_ready(&mut self) -> Result<(), ExecError> {
        while let Some(node) = self.ready.pop_first() {
            let mut decision = self.decide(node)?;
            let memory = self.memory_of(decision.device);
            for value in &self.setup.wiring.reads[node.index()] {
                decision.coming += u32::from(!self.want(*value, memory, Waiter::Node(node))?);
            }
            self.decisions[node.index()] = Some(decision);
            if decision.coming == 0 {
                self.dispatch(node, decision.device)?;
            }
        }
        Ok(())
    }

    /// Selects the device that is expected to end the node first.
    fn decide(&mut self, node: NodeId) -> Result<Decision, ExecError> {
        let now = self.now();
        let candidates = (0..self.setup.devices.len()).filter_map(|device| self.candidate(node, device));
        let best = best(candidates, &self.queues, now);
        let (candidate, end) = best.ok_or_else(|| ExecError::internal("a node can run nowhere"))?;
        self.queues[candidate.device.index()].push(candidate.length, now);
        Ok(Decision { device: candidate.device, length: candidate.length, end, coming: 0 })
    }

    fn candidate(&self, node: NodeId, device: usize) -> Option<Candidate> {
        let length = self.workers.lengths[node.index()][device]?;
        let id = DeviceId(device as u32);
        let reads = &self.setup.wiring.reads[node.index()];
        let transfer = |value: &ValueId| {
            if self.copies.state(*value, self.memory_of(id)) != Copy::Invalid {
                return 0.0;
            }
            let from = self.copies.holder(*value).unwrap_or(HOST);
            self.setup.forecast.links[from.index()][device].time(self.bytes(*value) as u64)
        };
        let made = reads.iter().map(|value| self.made[value.index()]).fold(0.0, f64::max);
        let transfers = reads.iter().map(transfer).sum();
        Some(Candidate { device: id, length, made, transfers })
    }

    /// Memory in which a device computes.
    fn memory_of(&self, device: DeviceId) -> DeviceId {
        if self.setup.devices[device.index()].kind == DeviceKind::Cpu { HOST } else { device }
    }

    fn bytes(&self, value: ValueId) -> usize {
        self.program.value(value).spec.bytes()
    }

    /// Whether a value is in a memory; if not, starts or joins its transfer, and registers the waiter.
    fn want(&mut self, value: ValueId, memory: DeviceId, waiter: Waiter) -> Result<bool, ExecError> {
        match self.copies.state(value, memory) {
            Copy::Valid => return Ok(true),
            Copy::Coming => {}
            Copy::Invalid => {
                self.copies.set(value, memory, Copy::Coming);
                self.transfer(value, memory)?;
            }
        }
        self.waiting.entry((value, memory)).or_default().push(waiter);
        Ok(false)
    }

    /// Starts to copy a value into a memory; between GPUs through the host.
    fn transfer(&mut self, value: ValueId, memory: DeviceId) -> Result<(), ExecError> {
        let bytes = self.bytes(value);
        let (gpu, direction, buffer) = if memory == HOST {
            let from = self.copies.holder(value).ok_or_else(|| ExecError::internal("a value is nowhere"))?;
            (from, 1, Arc::new(self.host_buffer(bytes)?))
        } else {
            let Some(buffer) = self.copies.held(value).cloned() else {
                return self.want(value, HOST, Waiter::Onward(memory)).map(|_| ());
            };
            (memory, 0, buffer)
        };
        self.under_way += 1;
        let link = self.workers.links[gpu.index()].as_ref().map(|links| &links[direction]);
        let profile = self.options.profile;
        let sent = link.is_some_and(|link| link.send(Move { value, bytes, buffer, profile }).is_ok());
        if sent { Ok(()) } else { Err(ExecError::internal("a link is gone")) }
    }

    fn host_buffer(&mut self, bytes: usize) -> Result<Buffer, ExecError> {
        self.workers.buffers.take(bytes, &self.setup.devices[HOST.index()].name)
    }

    /// Gives a node to its device; all its inputs are present.
    fn dispatch(&mut self, node: NodeId, device: DeviceId) -> Result<(), ExecError> {
        self.under_way += 1;
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        if self.memory_of(device) == HOST {
            let node = self.program.node(node);
            let here = |value: &ValueId| match self.program.constant(*value) {
                Some(_) => Some(self.workers.constants.get(value).cloned().unwrap_or_default()),
                None => self.copies.held(*value).cloned(),
            };
            let held: Option<_> = node.inputs.iter().map(here).collect();
            inputs = held.ok_or_else(|| ExecError::internal("an input is not there"))?;
            let sizes = node.outputs.iter().map(|value| self.program.value(*value).spec.bytes());
            outputs = sizes.map(|bytes| self.host_buffer(bytes)).collect::<Result<_, _>>()?;
        }
        let sent = self.workers.nodes[device.index()].send(Task { node, inputs, outputs });
        sent.map_err(|_| ExecError::internal("a worker is gone"))
    }

    fn take(&mut self, reply: Reply) -> Result<(), ExecError> {
        match reply {
            Reply::Computed { device, node, outputs, span } => {
                self.node_ended(node, device, span);
                for (value, buffer) in self.program.node(node).outputs.iter().zip(outputs) {
                    self.copies.hold(*value, Arc::new(buffer));
                    self.made[value.index()] = self.now();
                    self.value_made(*value)?;
                }
                self.reads_done(node);
            }
            Reply::Submitted { device, node } => {
                let end = self.decisions[node.index()].map_or(0.0, |decision| decision.end);
                for value in &self.program.node(node).outputs {
                    self.copies.set(*value, device, Copy::Valid);
                    self.made[value.index()] = end;
                    self.value_made(*value)?;
                }
                self.reads_done(node);
            }
            Reply::Finished { device, node, span } => {
                self.node_ended(node, device, span);
                let now = self.now();
                for value in &self.program.node(node).outputs {
                    self.made[value.index()] = now;
                }
            }
            Reply::Moved { value, from, to, buffer, span } => {
                self.transfer_ended(value, (from, to), span);
                if let Some(buffer) = buffer {
                    self.copies.hold(value, buffer);
                }
                self.arrived(value, to)?;
            }
            Reply::Failed { device, failure } => return Err(self.setup.named(device, failure)),
        }
        Ok(())
    }

    fn node_ended(&mut self, node: NodeId, device: DeviceId, span: Span) {
        let length = self.decisions[node.index()].map_or(0.0, |decision| decision.length);
        let now = self.now();
        self.queues[device.index()].pop(length, now);
        self.unfinished -= 1;
        self.under_way -= 1;
        let bytes = self.program.node(node).outputs.iter().map(|value| self.bytes(*value) as u64).sum();
        self.note(Activity::Node(node), Lane::Device(device), span, bytes);
    }

    fn transfer_ended(&mut self, value: ValueId, (from, to): (DeviceId, DeviceId), span: Span) {
        self.under_way -= 1;
        let id = TransferId(self.sent.len() as u32);
        self.sent.push(value);
        self.note(Activity::Transfer(id), Lane::Link { from, to }, span, self.bytes(value) as u64);
    }

    fn note(&mut self, what: Activity, lane: Lane, span: Span, bytes: u64) {
        if self.options.profile {
            let at = |time: Instant| time.saturating_duration_since(self.origin).as_nanos() as u64;
            let (start, end) = (at(span.0), at(span.1));
            self.events.push(Event { what, lane, ready: start, start, end, waited: 0, bytes });
        }
    }

    /// Handles a value that now exists somewhere: its readers may be ready.
    fn value_made(&mut self, value: ValueId) -> Result<(), ExecError> {
        for node in &self.setup.wiring.readers[value.index()] {
            let missing = &mut self.missing[node.index()];
            *missing -= 1;
            if *missing == 0 {
                self.ready.insert(*node);
            }
        }
        if !self.setup.wiring.outputs[value.index()].is_empty() && self.want(value, HOST, Waiter::Caller)? {
            self.deliver(value);
        }
        let unread = self.copies.drop_unread(value);
        self.recycle(value, unread);
        Ok(())
    }

    /// Handles the end of a transfer.
    fn arrived(&mut self, value: ValueId, memory: DeviceId) -> Result<(), ExecError> {
        self.copies.set(value, memory, Copy::Valid);
        for waiter in self.waiting.remove(&(value, memory)).unwrap_or_default() {
            match waiter {
                Waiter::Caller => self.deliver(value),
                Waiter::Onward(memory) => self.transfer(value, memory)?,
                Waiter::Node(node) => {
                    let Some(decision) = &mut self.decisions[node.index()] else { continue };
                    decision.coming -= 1;
                    if decision.coming == 0 {
                        let device = decision.device;
                        self.dispatch(node, device)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets a value in the host's memory aside for the caller.
    fn deliver(&mut self, value: ValueId) {
        for output in &self.setup.wiring.outputs[value.index()] {
            if let Some(buffer) = self.copies.held(value) {
                self.outputs.push((*output, Arc::clone(buffer)));
            }
            let unread = self.copies.read(value);
            self.recycle(value, unread);
        }
    }

    /// Handles a node that has read all its inputs.
    fn reads_done(&mut self, node: NodeId) {
        for value in &self.setup.wiring.reads[node.index()] {
            let unread = self.copies.read(*value);
            self.recycle(*value, unread);
        }
    }

    /// Returns a buffer without remaining readers to the pool, unless it is the caller's.
    fn recycle(&mut self, value: ValueId, unread: Option<Arc<Buffer>>) {
        if let (Origin::Node(_), Some(buffer)) = (&self.program.value(value).origin, unread) {
            self.workers.buffers.give(buffer);
        }
    }
}
