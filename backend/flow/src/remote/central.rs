//! Remote workers of a central scheduler. In the leader, a thread stands for each: it takes tasks as any worker does,
//! and sends them there.
//!
//! The ready queue and the operands are in the leader's process. A task goes to its worker with its operands, and its
//! results come back port by port. The thread that stands for the worker waits until the message that the task has run,
//! and then takes the next task.

use super::super::body::Outcome;
use super::super::engine::{Engine, TICK};
use super::super::error::FlowError;
use super::super::hand::Hand;
use super::super::queues::Task;
use super::listen::MOST;
use super::post::{Head, Kind, MOST_BYTES, content_of};
use super::{Control, RemoteProcesses, Share, too_long, workers_of};
use anabranch_base::lock::lock;
use anabranch_kernels::panic_text;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

/// Outcome of a task and, in a profiled run, its times.
type Done = (Outcome, Option<(u64, u64)>);

/// The leader's state of a worker in another process.
pub(super) struct Desk {
    at: Mutex<Option<At>>,
    results: (Sender<Done>, Receiver<Done>),
}

/// State of a worker's current task.
struct At {
    task: Task,
    /// Number of operands that have come back.
    landed: usize,
}

impl Default for Desk {
    fn default() -> Self {
        Desk { at: Mutex::new(None), results: bounded(1) }
    }
}

impl Desk {
    /// Returns the worker's current task.
    pub(super) fn task(&self) -> Option<Task> {
        lock(&self.at).as_ref().map(|at| at.task)
    }
}

/// Message with a task for a worker of this process.
type Order = (Head, Vec<u8>);

impl RemoteProcesses {
    /// Runs a task on the remote worker of this thread; `None` if the run is over first.
    pub(crate) fn call(&self, engine: &Engine<'_, '_>, task: Task, hand: &Hand) -> Option<Done> {
        let Task { node, slot } = task;
        let (desk, iteration) = (&self.desks[hand.worker], engine.matching.iteration(slot));
        let mut frame = Head { kind: Kind::Task, node, port: hand.worker as u32, slot, iteration }.frame();
        let inputs = &engine.nodes[node as usize].inputs;
        for input in inputs {
            let before = frame.len();
            frame.extend([0; 4]);
            input.line.depart(slot as usize, &mut frame);
            let length = (frame.len() - before - 4) as u32;
            frame[before..before + 4].copy_from_slice(&length.to_le_bytes());
        }
        if content_of(&frame) > MOST_BYTES {
            engine.fail(too_long(&engine.nodes[node as usize].name));
            return None;
        }
        *lock(&desk.at) = Some(At { task, landed: 0 });
        let operands = content_of(&frame) - 4 * inputs.len();
        self.send(engine, hand.machine, frame, Some(operands as u64));
        loop {
            match desk.results.1.recv_timeout(TICK) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if !engine.is_over() && !engine.is_cancelled() => {}
                Err(_) => return None,
            }
        }
    }
}

impl Engine<'_, '_> {
    /// Handles a message of a remote worker about its task; `None` if the message is not valid.
    pub(super) fn take_result(&self, remote: &RemoteProcesses, peer: u32, head: Head, content: &[u8]) -> Option<()> {
        let Head { kind, node, port, slot, .. } = head;
        match kind {
            Kind::Operand => {
                let input = self.nodes.get(node as usize)?.inputs.get(port as usize)?;
                let made = Task { node: input.producer as u32, slot };
                let mut workers = workers_of(self.options.worker_config(), peer);
                workers.find_map(|worker| {
                    let mut at = lock(&remote.desks[worker as usize].at);
                    let at = at.as_mut().filter(|at| at.task == made)?;
                    at.landed += 1;
                    Some(())
                })?;
                input.line.land(slot as usize, content).then_some(())
            }
            Kind::Ran => {
                let mut workers = workers_of(self.options.worker_config(), peer);
                let desk = &remote.desks[workers.find(|worker| *worker == port)? as usize];
                let at = lock(&desk.at).take().filter(|at| at.task == Task { node, slot })?;
                let (outcome, times) = content.split_first()?;
                let outcome = *OUTCOMES.get(usize::from(*outcome))?;
                let times = match times {
                    [] => None,
                    times => {
                        let (start, end) = times.split_at_checked(8)?;
                        let (start, end) = (start.try_into().ok()?, end.try_into().ok()?);
                        let times = (u64::from_le_bytes(start), u64::from_le_bytes(end));
                        Some(times).filter(|(start, end)| start <= end && *end < MOST)
                    }
                };
                let node = &self.nodes[node as usize];
                let is_whole = outcome != Outcome::Delivered || at.landed == node.readers.len();
                let may_end = outcome != Outcome::Ended || node.items.is_some();
                (is_whole && may_end && times.is_some() == self.options.profile).then_some(())?;
                desk.results.0.try_send((outcome, times)).ok()
            }
            _ => None,
        }
    }

    /// Serves a process that does not lead: runs tasks sent to its workers until the leader reports the end or hangs
    /// up.
    pub(super) fn serve(&self, remote: &RemoteProcesses) {
        thread::scope(|scope| {
            let mut workers: Vec<(u32, Sender<Order>)> = Vec::new();
            for worker in workers_of(self.options.worker_config(), remote.own) {
                let (orders, inbox) = bounded(1);
                let thread = thread::Builder::new().name(format!("flow worker {worker}"));
                match thread.spawn_scoped(scope, move || self.attend(remote, &inbox)) {
                    Ok(_) => workers.push((worker, orders)),
                    Err(error) => self.refuse(remote, FlowError::NoThread { worker, reason: error.to_string() }),
                }
            }
            if let Err(reason) = self.hand_out(remote, &workers) {
                self.refuse(remote, FlowError::Machine { machine: 0, reason });
            }
        });
        if lock(&self.failure).is_none() {
            let share = Share { logs: Vec::new(), items: Vec::new(), sent: remote.post.sent() };
            // If this cannot be sent, the leader sees that this process hangs up.
            let _ = remote.tell(0, &Control::Share(share), || false);
        }
        remote.post.hang_up();
    }

    /// Passes each task to its worker.
    fn hand_out(&self, remote: &RemoteProcesses, workers: &[(u32, Sender<Order>)]) -> Result<(), String> {
        let stop = || self.is_cancelled();
        let Some(mut ear) = remote.post.listen(0, &stop) else { return Ok(()) };
        let mut content = Vec::new();
        while let Some(head) = self.hear(0, &mut ear, &mut content)? {
            match head.kind {
                Kind::Control => {
                    let control = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
                    return self.obey(remote, 0, control);
                }
                Kind::Task if (head.slot as usize) < self.matching.window() => {
                    let worker = workers.iter().find(|(worker, _)| *worker == head.port);
                    let order = (head, std::mem::take(&mut content));
                    // A worker has one task at a time.
                    let is_free = worker.is_some_and(|(_, orders)| orders.try_send(order).is_ok());
                    is_free.then_some(()).ok_or_else(|| self.senseless(head))?;
                }
                _ => return Err(self.senseless(head)),
            }
        }
        Err(self.hung_up(remote, 0))
    }

    /// Runs a worker.
    fn attend(&self, remote: &RemoteProcesses, inbox: &Receiver<Order>) {
        for (head, content) in inbox {
            match catch_unwind(AssertUnwindSafe(|| self.run_order(remote, head, &content))) {
                Ok(Some(())) => {}
                Ok(None) => self.refuse(remote, FlowError::Machine { machine: 0, reason: self.senseless(head) }),
                Err(payload) => self.refuse(
                    remote,
                    FlowError::Panicked {
                        node: self.nodes.get(head.node as usize).map_or_else(String::new, |node| node.name.clone()),
                        iteration: head.iteration,
                        message: panic_text(&*payload).unwrap_or("without a message").to_owned(),
                    },
                ),
            }
        }
    }

    /// Runs a task and sends back its operands; `None` if the message is not valid.
    fn run_order(&self, remote: &RemoteProcesses, head: Head, mut content: &[u8]) -> Option<()> {
        let Head { slot, iteration, .. } = head;
        let node = self.nodes.get(head.node as usize)?;
        for input in &node.inputs {
            let (length, rest) = content.split_first_chunk()?;
            let (operand, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            input.line.land(slot as usize, operand).then_some(())?;
            content = rest;
        }
        let (outcome, times) = self.perform(node, slot);
        if outcome == Outcome::Delivered {
            for reader in &node.readers {
                let (node, port) = (reader.node, reader.port);
                let mut frame = Head { kind: Kind::Operand, node, port, slot, iteration }.frame();
                self.nodes[node as usize].inputs[port as usize].line.depart(slot as usize, &mut frame);
                if content_of(&frame) > MOST_BYTES {
                    self.refuse(remote, too_long(&self.nodes[head.node as usize].name));
                    return Some(());
                }
                let bytes = content_of(&frame) as u64;
                self.send_home(remote, frame, Some(bytes));
            }
        }
        let mut frame = Head { kind: Kind::Ran, ..head }.frame();
        frame.extend(OUTCOMES.iter().position(|known| *known == outcome).map(|known| known as u8));
        times.iter().for_each(|(start, end)| frame.extend([start.to_le_bytes(), end.to_le_bytes()].concat()));
        self.send_home(remote, frame, None);
        Some(())
    }

    fn send_home(&self, remote: &RemoteProcesses, frame: Vec<u8>, operands: Option<u64>) {
        remote.send(self, 0, frame, operands);
    }

    /// Reports to the leader that this process cannot go on.
    fn refuse(&self, remote: &RemoteProcesses, failure: FlowError) {
        self.fail(failure);
        // The first failure counts.
        let first = lock(&self.failure).as_ref().map(ToString::to_string);
        // If this cannot be sent, the leader sees that this process hangs up.
        first.into_iter().for_each(|reason| drop(remote.tell(0, &Control::Failed { reason }, || false)));
    }
}

/// Outcomes of tasks, indexed by their number in messages.
const OUTCOMES: [Outcome; 3] = [Outcome::Delivered, Outcome::Dropped, Outcome::Ended];
