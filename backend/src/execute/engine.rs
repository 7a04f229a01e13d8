//! The threads and buffers of an executor, and the supervision of runs.
//!
//! Protocol: the supervisor (the thread that calls [`Engine::run`]) starts a run when all workers are idle, and each worker
//! reports once a run. After a failure it raises the stop flag and wakes everybody; when all have reported it lets them
//! forget the run (`Clear`), which each confirms by another report. So no message of one run is ever taken for one of the
//! next.

use super::RunOptions;
use super::error::{Failure, Place, RunError, RunErrorKind, Waiting};
use super::event::Event;
use super::ledger::Ledger;
use super::message::{Halt, Message, Run, Status};
use super::script::{Awaited, Channel};
use crate::plan::Plan;
use crate::program::{Origin, Program};
use anabranch_kernels::Buffer;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the supervisor looks at the clock, the caller's token and the workers.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// What all workers of an engine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Arc<Plan>,
    pub(super) ledger: Ledger,
    pub(super) reports: Sender<Report>,
}

impl Shared {
    /// Tells the supervisor. It listens as long as workers live.
    pub(super) fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }
}

/// What a worker says at the end of a run.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) worker: u32,
    pub(super) result: Result<(), Halt>,
    pub(super) events: Vec<Event>,
    pub(super) outputs: Vec<(u32, Arc<Buffer>)>,
}

impl Report {
    /// Nothing to say but that the worker is ready.
    pub(super) fn idle(worker: u32) -> Self {
        Self { worker, result: Ok(()), events: Vec::new(), outputs: Vec::new() }
    }
}

/// One worker as the supervisor sees it.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) inbox: Sender<Message>,
    pub(super) status: Arc<Status>,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// Threads with all buffers of a plan.
pub(super) struct Engine {
    pub(super) plan: Arc<Plan>,
    pub(super) program: Arc<Program>,
    pub(super) workers: Vec<Worker>,
    pub(super) reports: Receiver<Report>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) ledger: Ledger,
    /// By worker and gate: who opens it.
    pub(super) openers: Vec<Vec<Vec<u32>>>,
    /// By worker, numbered behind the gates: what it waits for inside its steps.
    pub(super) channels: Vec<Vec<Channel>>,
}

/// What a run has brought.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) events: Vec<Event>,
    pub(super) outputs: Vec<(u32, Arc<Buffer>)>,
}

impl Finished {
    /// Adds the events of one worker. The first worker's, often the only one's, are not copied.
    fn take_events(&mut self, events: Vec<Event>) {
        if self.events.is_empty() {
            self.events = events;
        } else {
            self.events.extend(events);
        }
    }
}

/// A failure and whether the engine can be used on.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: RunError,
    pub(super) beyond_repair: bool,
}

impl Engine {
    /// Runs once. All workers are idle before and after.
    pub(super) fn run(&mut self, run: Run, options: &RunOptions) -> Result<Finished, Broken> {
        let run = Arc::new(run);
        for worker in &self.workers {
            // The inbox of an idle worker has room, and its thread lives until the engine is dropped.
            let _ = worker.inbox.try_send(Message::Start(Arc::clone(&run)));
        }
        let mut finished = Finished::default();
        let verdict = self.supervise(&run, options, &mut finished);
        match verdict {
            None => Ok(finished),
            Some((worker, failure)) => {
                let beyond_repair = !failure.is_repairable() || !self.clear();
                Err(Broken { error: self.named(worker, failure), beyond_repair })
            }
        }
    }

    /// Collects the reports of all workers; on the first failure, or when the run must end, stops everybody.
    fn supervise(&self, run: &Run, options: &RunOptions, finished: &mut Finished) -> Option<(Option<u32>, Failure)> {
        let mut verdict = None;
        let mut busy = vec![true; self.workers.len()];
        let mut watch = Watch::new(&self.workers);
        while busy.contains(&true) {
            match self.reports.recv_timeout(options.patience(run.origin, TICK)) {
                Ok(report) => {
                    busy[report.worker as usize] = false;
                    finished.take_events(report.events);
                    finished.outputs.extend(report.outputs);
                    match report.result {
                        Err(Halt::Failed(failure)) if verdict.is_none() => {
                            verdict = Some((Some(report.worker), failure));
                            self.stop_all();
                        }
                        _ => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) if verdict.is_none() => {
                    let kind = options.verdict(run.origin).or_else(|| {
                        let stalled = watch.is_stalled(&self.workers, &busy, options.stall_after);
                        stalled.then(|| RunErrorKind::Stalled(self.wait_for_graph(&busy)))
                    });
                    if let Some(kind) = kind {
                        verdict = Some((None, Failure::at(Place::Nowhere, kind)));
                        self.stop_all();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some((None, Failure::internal("all workers are gone")));
                }
            }
        }
        verdict
    }

    fn stop_all(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in &self.workers {
            // An inbox that is full wakes its worker just as well.
            let _ = worker.inbox.try_send(Message::Wake);
        }
    }

    /// Lets all workers forget a failed run; whether all did.
    fn clear(&self) -> bool {
        self.stop.store(false, Ordering::Relaxed);
        for worker in &self.workers {
            if worker.inbox.send_timeout(Message::Clear, Duration::from_secs(1)).is_err() {
                return false;
            }
        }
        (0..self.workers.len())
            .all(|_| matches!(self.reports.recv_timeout(Duration::from_secs(60)), Ok(report) if report.result.is_ok()))
    }

    /// For each busy worker, where it waits and on whom.
    fn wait_for_graph(&self, busy: &[bool]) -> Vec<Waiting> {
        let waiting = |worker: usize| {
            let gate = self.workers[worker].status.look().1?;
            let channel = (gate as usize).checked_sub(self.openers[worker].len());
            let channel = channel.and_then(|at| self.channels[worker].get(at));
            let openers = match channel {
                Some(channel) => &channel.on,
                None => self.openers[worker].get(gate as usize).map_or(&[][..], Vec::as_slice),
            };
            let mut on: Vec<String> = openers.iter().map(|from| self.workers[*from as usize].name.clone()).collect();
            on.sort();
            on.dedup();
            let mut at = self.place_name(worker, channel.map_or(gate, |channel| channel.step));
            if let Some(channel) = channel {
                let value = &self.program.value(channel.value).name;
                at += &match channel.what {
                    Awaited::Chunk => format!(" with a chunk of {value:?} to come"),
                    Awaited::Room => format!(" with no room for a chunk of {value:?}"),
                };
            }
            Some(Waiting { worker: self.workers[worker].name.clone(), at, on })
        };
        (0..self.workers.len()).filter(|worker| busy[*worker]).filter_map(waiting).collect()
    }

    /// What a worker does at a gate.
    fn place_name(&self, worker: usize, gate: u32) -> String {
        use crate::plan::Step;
        let devices = self.plan.devices().len();
        if worker >= devices {
            let link = &self.plan.links()[worker - devices];
            let transfer = link.transfers.get(gate as usize).map(|id| self.plan.transfer(*id).value);
            return transfer.map_or_else(String::new, |value| format!("value {:?}", self.program.value(value).name));
        }
        let own = |step: &&Step| match step {
            Step::Node(node) => self.plan.device_of(*node).index() == worker,
            Step::Input(_) | Step::Output(_) => worker == crate::plan::HOST.index(),
            Step::Transfer(_) => false,
        };
        match self.plan.steps().iter().filter(own).nth(gate as usize) {
            Some(Step::Node(node)) => format!("node {:?}", self.program.node(*node).name),
            Some(Step::Output(index)) => format!("output {:?}", self.program.outputs[*index].name),
            Some(Step::Input(_) | Step::Transfer(_)) | None => "its end".into(),
        }
    }

    /// Puts names to a failure.
    fn named(&self, worker: Option<u32>, failure: Failure) -> RunError {
        let node = match failure.place {
            Place::Node(node) => Some(self.program.node(node).name.clone()),
            Place::Transfer(id) => match self.program.value(self.plan.transfer(id).value).origin {
                Origin::Node(node) => Some(self.program.node(node).name.clone()),
                Origin::Input | Origin::Constant(_) => None,
            },
            Place::Nowhere => None,
        };
        let devices = self.plan.devices();
        let device = worker.map(|worker| match devices.get(worker as usize) {
            Some(device) => device.name.clone(),
            // It is the GPU that can fail on a link.
            None => {
                let link = &self.plan.links()[worker as usize - devices.len()];
                let gpu = |end: &&DeviceId| self.plan.device(**end).kind != DeviceKind::Cpu;
                let end = [link.from, link.to].iter().find(gpu).copied().unwrap_or(link.to);
                self.plan.device(end).name.clone()
            }
        });
        RunError { kind: failure.kind, node, device }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in &self.workers {
            let _ = worker.inbox.send_timeout(Message::Quit, Duration::from_secs(1));
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // Workers catch the panics of kernels; one that panicked itself has said so already.
                let _ = thread.join();
            }
        }
    }
}

impl Failure {
    /// Whether the same devices can be used on.
    fn is_repairable(&self) -> bool {
        !matches!(self.kind, RunErrorKind::DeviceLost(_) | RunErrorKind::Internal(_) | RunErrorKind::Stalled(_))
    }
}

/// Looks whether anything moves.
struct Watch {
    words: Vec<u64>,
    since: Instant,
}

impl Watch {
    fn new(workers: &[Worker]) -> Self {
        Self { words: vec![u64::MAX; workers.len()], since: Instant::now() }
    }

    /// Whether every busy worker has waited at the same gate, with an empty inbox, for `patience`.
    fn is_stalled(&mut self, workers: &[Worker], busy: &[bool], patience: Duration) -> bool {
        let looks: Vec<_> = workers.iter().map(|worker| worker.status.look()).collect();
        let words: Vec<u64> = looks.iter().map(|(word, _)| *word).collect();
        let waits = |worker: usize| looks[worker].1.is_some() && workers[worker].inbox.is_empty();
        let all_wait = (0..workers.len()).filter(|worker| busy[*worker]).all(waits);
        if !all_wait || words != self.words {
            self.words = words;
            self.since = Instant::now();
        }
        self.since.elapsed() >= patience
    }
}
