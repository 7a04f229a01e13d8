//! One run: decides for each node as it becomes ready, moves values, and collects what is said.

use super::Setup;
use super::decide::{Candidate, Queue, best};
use super::memory::{Copies, Copy, HOST_MEMORY};
use super::messages::{CpuTask, DeviceInbox, Fetch, GpuInbox, Lift, Reply, Span};
use super::workers::Workers;
use crate::execute::RunOptions;
use crate::execute::error::{Failure, Place};
use crate::execute::event::{Activity, Event, Lane};
use crate::execute::exchange::Halt;
use crate::execute::supervise::Deadline;
use crate::plan::HOST;
use crate::plan::TransferId;
use crate::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::{Buffer, Tensor};
use anabranch_placement::platform::DeviceId;
use crossbeam_channel::RecvTimeoutError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A failure, and the device that is to blame.
pub(super) type Blamed = (Option<DeviceId>, Failure);

/// How long to wait for a reply at a time where there is nothing else to look at.
const IDLE: Duration = Duration::from_secs(1);

/// What a run has brought: events, and outputs with their numbers.
#[derive(Default)]
pub(super) struct Finished {
    pub(super) events: Vec<Event>,
    pub(super) outputs: Vec<(u32, Arc<Buffer>)>,
}

/// Who waits for a value to arrive in a memory.
enum Waiter {
    Node(NodeId),
    /// The caller.
    Caller,
    /// A transfer on to this memory.
    Onward(usize),
}

/// What was decided about a node.
#[derive(Clone, Copy)]
struct Decision {
    device: DeviceId,
    length: f64,
    end: f64,
    /// Transfers that it waits for.
    coming: u32,
}

/// The state of one run.
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
    /// By value: when it is, or is expected to be, made.
    made: Vec<f64>,
    /// By node: values that are not made yet.
    missing: Vec<usize>,
    decisions: Vec<Option<Decision>>,
    ready: BTreeSet<NodeId>,
    waiting: BTreeMap<(ValueId, usize), Vec<Waiter>>,
    /// Nodes that have not ended, and tasks that threads have.
    unfinished: usize,
    under_way: usize,
    transfers: u32,
    finished: Finished,
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
            copies: Copies::new(program, workers.memories()),
            queues: vec![Queue::default(); setup.devices.len()],
            made: vec![0.0; program.values.len()],
            missing: workers.wiring.reads.iter().map(Vec::len).collect(),
            decisions: vec![None; program.nodes.len()],
            ready: program.node_ids().filter(|node| workers.wiring.reads[node.index()].is_empty()).collect(),
            waiting: BTreeMap::new(),
            unfinished: program.nodes.len(),
            under_way: 0,
            transfers: 0,
            finished: Finished::default(),
            workers,
            setup,
            program,
            options,
            origin,
            deadline: Deadline::new(options, origin),
            inputs,
        }
    }

    /// Runs to the end, or to the first failure: then threads may still be at work, and the workers is of no more use.
    pub(super) fn run(mut self) -> Result<Finished, Blamed> {
        let given: usize = self.inputs.iter().map(|tensor| tensor.bytes().len()).sum();
        self.workers.ledger.take(HOST, given);
        self.take_inputs()?;
        self.start_ready()?;
        while self.unfinished > 0 || self.finished.outputs.len() < self.program.outputs.len() {
            if self.under_way == 0 {
                return Err((None, Failure::internal("nothing is under way, and the run is not at its end")));
            }
            match self.workers.replies.recv_timeout(self.deadline.sleep().unwrap_or(IDLE)) {
                Ok(reply) => self.take(reply)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err((None, Failure::internal("all threads are gone"))),
            }
            while let Ok(reply) = self.workers.replies.try_recv() {
                self.take(reply)?;
            }
            if let Some(kind) = self.deadline.verdict() {
                return Err((None, Failure::at(Place::Nowhere, kind)));
            }
            self.start_ready()?;
        }
        self.workers.ledger.give(HOST, given);
        Ok(self.finished)
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    fn take_inputs(&mut self) -> Result<(), Blamed> {
        for (id, tensor) in self.program.inputs.iter().zip(self.inputs) {
            self.copies.hold(*id, Arc::clone(tensor.buffer()));
            self.value_made(*id)?;
        }
        for (index, output) in self.program.outputs.iter().enumerate() {
            if let Some(buffer) = self.workers.constants.get(&output.value) {
                self.finished.outputs.push((index as u32, Arc::clone(buffer)));
            }
        }
        Ok(())
    }

    fn start_ready(&mut self) -> Result<(), Blamed> {
        while let Some(node) = self.ready.pop_first() {
            let mut decision = self.decide(node)?;
            let memory = self.workers.memory_of[decision.device.index()];
            for at in 0..self.workers.wiring.reads[node.index()].len() {
                let value = self.workers.wiring.reads[node.index()][at];
                decision.coming += u32::from(!self.want(value, memory, Waiter::Node(node))?);
            }
            self.decisions[node.index()] = Some(decision);
            if decision.coming == 0 {
                self.dispatch(node, decision.device)?;
            }
        }
        Ok(())
    }

    /// The device that is expected to end the node first.
    fn decide(&mut self, node: NodeId) -> Result<Decision, Blamed> {
        let now = self.now();
        let candidates = (0..self.setup.devices.len()).filter_map(|device| self.candidate(node, device));
        let (candidate, end) =
            best(candidates, &self.queues, now).ok_or_else(|| (None, Failure::internal("a node can run nowhere")))?;
        self.queues[candidate.device.index()].push(candidate.length, now);
        Ok(Decision { device: candidate.device, length: candidate.length, end, coming: 0 })
    }

    fn candidate(&self, node: NodeId, device: usize) -> Option<Candidate> {
        let length = self.setup.forecast.nodes[node.index()][device]?;
        match &self.workers.inboxes[device] {
            DeviceInbox::Gpu(inboxes) if !inboxes.runs[node.index()] => return None,
            DeviceInbox::Cpu(_) | DeviceInbox::Gpu(_) => {}
        }
        let memory = self.workers.memory_of[device];
        let reads = &self.workers.wiring.reads[node.index()];
        let transfer = |value: &ValueId| {
            if self.copies.state(*value, memory) != Copy::Invalid {
                return 0.0;
            }
            let from = self.copies.holder(*value).and_then(|holder| self.device_in(holder)).unwrap_or(HOST);
            self.setup.forecast.links[from.index()][device].time(self.bytes(*value) as u64)
        };
        let made = reads.iter().map(|value| self.made[value.index()]).fold(0.0, f64::max);
        let transfers = reads.iter().map(transfer).sum();
        Some(Candidate { device: DeviceId(device as u32), length, made, transfers })
    }

    /// The first device that computes in a memory.
    fn device_in(&self, memory: usize) -> Option<DeviceId> {
        self.workers.memory_of.iter().position(|of| *of == memory).map(|device| DeviceId(device as u32))
    }

    fn bytes(&self, value: ValueId) -> usize {
        self.program.value(value).spec.bytes()
    }

    /// Whether a value is in a memory; if not, it will be, and the waiter then hears of it.
    fn want(&mut self, value: ValueId, memory: usize, waiter: Waiter) -> Result<bool, Blamed> {
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

    /// Begins to copy a value into a memory; between GPUs over the host.
    fn transfer(&mut self, value: ValueId, memory: usize) -> Result<(), Blamed> {
        let bytes = self.bytes(value);
        if memory != HOST_MEMORY {
            let Some(buffer) = self.copies.held(value).cloned() else {
                return self.want(value, HOST_MEMORY, Waiter::Onward(memory)).map(|_| ());
            };
            self.under_way += 1;
            return self.hand(memory, |inboxes| inboxes.lifts.send(Lift { value, bytes, buffer }).is_ok());
        }
        let from = self.copies.holder(value).ok_or_else(|| (None, Failure::internal("a value is nowhere")))?;
        let buffer = self.host_buffer(bytes)?;
        self.under_way += 1;
        self.hand(from, |inboxes| inboxes.fetches.send(Fetch { value, bytes, buffer }).is_ok())
    }

    fn host_buffer(&mut self, bytes: usize) -> Result<Buffer, Blamed> {
        let host = &self.setup.devices[HOST.index()].name;
        self.workers.buffers.take(bytes, host).map_err(|failure| (None, failure))
    }

    fn hand(&self, memory: usize, send: impl FnOnce(&GpuInbox) -> bool) -> Result<(), Blamed> {
        let device = self.device_in(memory);
        let sent = match device.map(|device| &self.workers.inboxes[device.index()]) {
            Some(DeviceInbox::Gpu(inboxes)) => send(inboxes),
            Some(DeviceInbox::Cpu(_)) | None => false,
        };
        if sent { Ok(()) } else { Err((device, Failure::internal("a link is gone"))) }
    }

    /// Gives a node to its device: all that it reads is there.
    fn dispatch(&mut self, node: NodeId, device: DeviceId) -> Result<(), Blamed> {
        let gone = || (Some(device), Failure::internal("a worker is gone"));
        self.under_way += 1;
        let task = match &self.workers.inboxes[device.index()] {
            DeviceInbox::Gpu(inboxes) => return inboxes.nodes.send(node).map_err(|_| gone()),
            DeviceInbox::Cpu(_) => self.cpu_task(node)?,
        };
        match &self.workers.inboxes[device.index()] {
            DeviceInbox::Cpu(tasks) => tasks.send(task).map_err(|_| gone()),
            DeviceInbox::Gpu(_) => Err(gone()),
        }
    }

    fn cpu_task(&mut self, node: NodeId) -> Result<CpuTask, Blamed> {
        let here = |value: &ValueId| match self.program.constant(*value) {
            Some(_) => Some(self.workers.constants.get(value).cloned().unwrap_or_default()),
            None => self.copies.held(*value).cloned(),
        };
        let inputs: Option<Vec<_>> = self.program.node(node).inputs.iter().map(here).collect();
        let inputs = inputs.ok_or_else(|| (None, Failure::internal("an input is not there")))?;
        let sizes: Vec<usize> = self.program.node(node).outputs.iter().map(|value| self.bytes(*value)).collect();
        let outputs = sizes.into_iter().map(|bytes| self.host_buffer(bytes)).collect::<Result<_, _>>()?;
        Ok(CpuTask { node, inputs, outputs })
    }

    fn take(&mut self, reply: Reply) -> Result<(), Blamed> {
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
                    self.copies.set(*value, self.workers.memory_of[device.index()], Copy::Valid);
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
            Reply::Lifted { device, value, span } => {
                self.transfer_ended(value, (HOST, device), span);
                self.arrived(value, self.workers.memory_of[device.index()])?;
            }
            Reply::Fetched { device, value, buffer, span } => {
                self.transfer_ended(value, (device, HOST), span);
                self.copies.hold(value, Arc::new(buffer));
                self.arrived(value, HOST_MEMORY)?;
            }
            Reply::Failed { device, halt: Halt::Failed(failure) } => return Err((Some(device), failure)),
            Reply::Failed { device, halt: Halt::Stopped } => {
                return Err((Some(device), Failure::internal("a thread was stopped")));
            }
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
        let id = TransferId(self.transfers);
        self.transfers += 1;
        self.note(Activity::Transfer(id), Lane::Link { from, to }, span, self.bytes(value) as u64);
    }

    fn note(&mut self, what: Activity, lane: Lane, span: Span, bytes: u64) {
        if self.options.profile {
            let at = |time: Instant| time.saturating_duration_since(self.origin).as_nanos() as u64;
            let (start, end) = (at(span.0), at(span.1));
            self.finished.events.push(Event { what, lane, ready: start, start, end, waited: 0, bytes });
        }
    }

    /// A value exists somewhere: its readers may be ready now.
    fn value_made(&mut self, value: ValueId) -> Result<(), Blamed> {
        for node in &self.workers.wiring.readers[value.index()] {
            let missing = &mut self.missing[node.index()];
            *missing -= 1;
            if *missing == 0 {
                self.ready.insert(*node);
            }
        }
        if !self.workers.wiring.outputs[value.index()].is_empty() && self.want(value, HOST_MEMORY, Waiter::Caller)? {
            self.deliver(value);
        }
        if let Some(buffer) = self.copies.drop_unread(value) {
            self.recycle(value, buffer);
        }
        Ok(())
    }

    /// A transfer is done.
    fn arrived(&mut self, value: ValueId, memory: usize) -> Result<(), Blamed> {
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

    /// Sets a value of the host's memory aside for the caller.
    fn deliver(&mut self, value: ValueId) {
        for at in 0..self.workers.wiring.outputs[value.index()].len() {
            let output = self.workers.wiring.outputs[value.index()][at];
            if let Some(buffer) = self.copies.held(value) {
                self.finished.outputs.push((output, Arc::clone(buffer)));
            }
            if let Some(buffer) = self.copies.read(value) {
                self.recycle(value, buffer);
            }
        }
    }

    /// A node has read all that it reads.
    fn reads_done(&mut self, node: NodeId) {
        for at in 0..self.workers.wiring.reads[node.index()].len() {
            let value = self.workers.wiring.reads[node.index()][at];
            if let Some(buffer) = self.copies.read(value) {
                self.recycle(value, buffer);
            }
        }
    }

    /// Gives a buffer back to the pool, if it is not the caller's.
    fn recycle(&mut self, value: ValueId, buffer: Arc<Buffer>) {
        match self.program.value(value).origin {
            Origin::Node(_) => self.workers.buffers.give(buffer),
            Origin::Input | Origin::Constant(_) => {}
        }
    }
}
