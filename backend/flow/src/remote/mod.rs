//! Runs whose machines are processes: each runs the same engine on its own part of the same flow, and sends operands to
//! the others.
//!
//! Under a local scheduler each process matches the operands of the nodes of its machine. The process of machine 0
//! leads: it alone admits iterations. It announces them to the processes that have nodes which begin an iteration. Each
//! process with sinks reports when all of its own sinks are done.
//!
//! A process learns of an iteration only from messages about it. All of these arrive before the iteration's slot is
//! used again: each message is for a node that leads to a sink, and the leader waits for all sinks.

mod central;
mod listen;
mod peers;
mod post;
mod socket;

pub use peers::Peers;

use super::engine::{Engine, Reader};
use super::error::FlowError;
use super::graph::{self, Flow};
use super::log::Log;
use super::options::{FlowOptions, WorkerConfig};
use super::placing;
use super::queues::Home;
use super::report::{FlowReport, Sent};
use anabranch_base::lock::lock;
use central::Desk;
use post::{Head, Kind, MOST_BYTES, Post, content_of};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// State of the other processes.
pub(super) struct RemoteProcesses {
    own: u32,
    is_central: bool,
    post: Post,
    /// By machine: whether it has nodes that begin an iteration.
    begins: Vec<bool>,
    /// By machine: whether it has sinks.
    ends: Vec<bool>,
    /// Nanoseconds from the start of the run to the start of this process's clock.
    start: u64,
    /// By worker, under a central scheduler.
    desks: Vec<Desk>,
    shares: Mutex<Vec<Share>>,
}

/// Control messages between processes before and after a run.
#[derive(Debug, Serialize, Deserialize)]
enum Control {
    /// To the leader: the run that this process is ready for.
    Ready { run: String },
    /// From the leader: the run has started at this time of the system's monotonic clock, in nanoseconds.
    Start { at: u64 },
    /// From the leader: all iterations are done.
    Done { iterations: u64 },
    /// To the leader: the reason why this process cannot go on.
    Failed { reason: String },
    /// To the leader, at the end: the share of the report.
    Share(Share),
}

/// A process's share of the report.
#[derive(Debug, Serialize, Deserialize)]
struct Share {
    logs: Vec<Log>,
    /// Sources, and the number of items that they delivered.
    items: Vec<(u32, u64)>,
    sent: Sent,
}

/// Runs a flow that was verified among its peers.
pub(super) fn run(flow: Flow<'_>, options: &FlowOptions, peers: Peers) -> Result<FlowReport, FlowError> {
    let machines = placing::machines(&flow, options)?;
    let homes = homes(&flow, options, machines.as_deref());
    verify(&flow, options, &homes, &peers)?;
    let remote = RemoteProcesses::new(&flow, options, &homes, peers)?;
    remote.meet(&fingerprint(&flow, options, &homes), options)?;
    let (mut engine, hands) = Engine::new(flow, options, homes, Some(remote));
    engine.start()?;
    let (engine, Some(remote)) = (&engine, &engine.remote) else { return Err(out_of_place(0)) };
    if remote.is_central && !remote.leads() {
        engine.serve(remote);
        return engine.report(Vec::new(), engine.since.elapsed());
    }
    let (mut logs, time) = thread::scope(|scope| {
        for peer in remote.post.peers() {
            let listener = thread::Builder::new().name(format!("flow machine {peer}"));
            if let Err(error) = listener.spawn_scoped(scope, move || engine.listen(remote, peer)) {
                engine
                    .fail(FlowError::Machine { machine: peer, reason: format!("no thread can listen to it: {error}") });
            }
        }
        let logs = engine.run(hands);
        let time = engine.since.elapsed();
        match remote.leads() {
            true => remote.tell_all(engine, &Control::Done { iterations: engine.matching.total() }),
            false => return (engine.leave(remote, logs), time),
        }
        (logs, time)
    });
    let mut sent = remote.post.sent();
    remote.post.hang_up();
    for share in lock(&remote.shares).drain(..) {
        let items = share.items.into_iter();
        let of_all = items.filter_map(|(node, items)| Some((engine.nodes[node as usize].items.as_ref()?, items)));
        of_all.for_each(|(all, items)| all.store(items, Ordering::Relaxed));
        logs.extend(share.logs);
        sent.join(share.sent);
    }
    Ok(FlowReport { sent: Some(sent), ..engine.report(logs, time)? })
}

/// Returns the home of each node's tasks. A node with a state stays in one process.
fn homes(flow: &Flow<'_>, options: &FlowOptions, machines: Option<&[u32]>) -> Vec<Home> {
    let mut homes = placing::homes(flow, machines);
    if !options.scheduler.is_local() {
        let kept = homes
            .iter_mut()
            .zip(&flow.nodes)
            .filter(|(_, node)| matches!(node.kind, graph::Kind::Serial | graph::Kind::Source));
        kept.filter(|(home, _)| **home == Home::Anywhere).for_each(|(home, _)| *home = Home::Machine(0));
    }
    homes
}

/// Checks that a run among these peers is possible.
fn verify(flow: &Flow<'_>, options: &FlowOptions, homes: &[Home], peers: &Peers) -> Result<(), FlowError> {
    let (processes, machines) = (peers.streams.len(), options.worker_config().machine_count());
    if processes != machines as usize {
        let why = format!("{processes} processes do not match {machines} machines; configure one machine per process");
        return Err(FlowError::Options(why));
    }
    let machine = |node: usize| homes[node].machine(options.worker_config());
    // Under a central scheduler operands wait on machine 0, and a task may go to any machine.
    let leaves = |node: usize| homes[node] == Home::Anywhere || machine(node) != 0;
    for (reader, node) in flow.nodes.iter().enumerate() {
        for input in node.inputs.iter().filter(|input| !input.line.travels()) {
            let crosses = match options.scheduler.is_local() {
                true => machine(input.producer) != machine(reader),
                false => machines > 1 && (leaves(input.producer) || leaves(reader)),
            };
            if crosses {
                let producer = flow.nodes[input.producer].name.clone();
                return Err(FlowError::Homebound { node: producer, reader: node.name.clone() });
            }
        }
    }
    Ok(())
}

/// Returns a digest of everything that all processes of a run must have in common.
fn fingerprint(flow: &Flow<'_>, options: &FlowOptions, homes: &[Home]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: String| {
        hasher.update(text.as_bytes()).update(b"\n");
    };
    let machines = options.worker_config().machine_of_all();
    add(format!("{} {:?} {}", env!("CARGO_PKG_VERSION"), options.scheduler, flow.window(options)));
    add(format!("{machines:?} {}", options.profile));
    for (node, home) in flow.nodes.iter().zip(homes) {
        let inputs: Vec<usize> = node.inputs.iter().map(|input| input.producer).collect();
        add(format!("{:?} {:?} {home:?} {inputs:?}", node.name, node.kind));
    }
    hasher.finalize().to_hex().to_string()
}

fn out_of_place(machine: u32) -> FlowError {
    FlowError::Machine { machine, reason: "its message is unexpected".to_owned() }
}

/// Returns the error of a message that could not be sent though its receiver is there.
fn unsent(machine: u32, error: &io::Error) -> FlowError {
    FlowError::Machine { machine, reason: format!("nothing can be sent to it: {error}") }
}

/// Returns nanoseconds of the clock that all processes share.
#[cfg(target_os = "linux")]
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Without sockets there is only one process.
#[cfg(not(target_os = "linux"))]
fn monotonic() -> u64 {
    0
}

impl RemoteProcesses {
    fn new(flow: &Flow<'_>, options: &FlowOptions, homes: &[Home], peers: Peers) -> Result<Self, FlowError> {
        let (own, is_central) = (peers.machine, !options.scheduler.is_local());
        let post = Post::new(peers.streams).map_err(|error| FlowError::Options(format!("its sockets: {error}")))?;
        let worker_config = options.worker_config();
        let mut begins = vec![false; worker_config.machine_count() as usize];
        let mut ends = begins.clone();
        for (node, home) in flow.nodes.iter().zip(homes) {
            let machine = home.machine(worker_config) as usize;
            begins[machine] |= node.inputs.is_empty();
            ends[machine] |= node.readers.is_empty();
        }
        Ok(RemoteProcesses {
            own,
            is_central,
            post,
            begins,
            ends,
            start: 0,
            desks: (0..worker_config.worker_count()).map(|_| Desk::default()).collect(),
            shares: Mutex::default(),
        })
    }

    /// Whether this process admits iterations.
    pub(super) fn leads(&self) -> bool {
        self.own == 0
    }

    /// Whether operands and tasks of a machine are kept in this process.
    pub(super) fn is_own(&self, machine: u32) -> bool {
        machine == self.own || self.is_central && self.leads()
    }

    /// Whether the workers of a machine are threads of this process.
    pub(super) fn is_own_worker(&self, machine: u32) -> bool {
        machine == self.own
    }

    /// Number of other processes whose sinks this process waits for.
    pub(super) fn awaited(&self) -> u32 {
        let others = (0..).zip(&self.ends).filter(|(machine, ends)| **ends && !self.is_own(*machine));
        if self.leads() { others.count() as u32 } else { 0 }
    }

    /// Nanoseconds from the start of the run to the start of this process's clock.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Gives up after a failure. The leader ends the run in all processes. Any other process stops listening, and
    /// reports the failure when it leaves.
    pub(super) fn give_up(&self) {
        if self.leads() { self.post.hang_up() } else { self.post.deafen() }
    }

    /// Sends an operand of a node to the process of its reader, or reports that there will be none.
    pub(super) fn pass(&self, engine: &Engine<'_, '_>, reader: &Reader, slot: u32, is_dropped: bool) {
        let Reader { node, port, .. } = *reader;
        let iteration = engine.matching.iteration(slot);
        let to = &engine.nodes[node as usize];
        let kind = if is_dropped { Kind::Dropped } else { Kind::Operand };
        let mut frame = Head { kind, node, port, slot, iteration }.frame();
        let input = &to.inputs[port as usize];
        let bytes = (!is_dropped && input.line.depart(slot as usize, &mut frame)).then(|| content_of(&frame) as u64);
        if content_of(&frame) > MOST_BYTES {
            engine.fail(too_long(&engine.nodes[input.producer].name));
        } else {
            self.send(engine, to.machine, frame, bytes);
        }
    }

    /// Announces an iteration to all processes that begin it, too.
    pub(super) fn begin(&self, engine: &Engine<'_, '_>, slot: u32) {
        let others = (0..).zip(&self.begins).filter(|(machine, begins)| **begins && !self.is_own(*machine));
        for (machine, _) in others {
            let head = Head::of(Kind::Begin, slot, engine.matching.iteration(slot));
            self.send(engine, machine, head.frame(), None);
        }
    }

    /// Reports that all sinks of this process are done.
    pub(super) fn finished(&self, engine: &Engine<'_, '_>, slot: u32) {
        let head = Head::of(Kind::Finished, slot, engine.matching.iteration(slot));
        self.send(engine, 0, head.frame(), None);
    }

    /// Reports that a source has ended.
    pub(super) fn ended(&self, engine: &Engine<'_, '_>, iteration: u64) {
        if !self.leads() {
            self.send(engine, 0, Head::of(Kind::Ended, 0, iteration).frame(), None);
        }
    }

    fn send(&self, engine: &Engine<'_, '_>, to: u32, frame: Vec<u8>, operands: Option<u64>) {
        // Messages to the leader are sent even after the end: they may hold the cause.
        let stop = || engine.is_cancelled() || engine.is_over() && to != 0;
        if let Err(error) = self.post.send(to, frame, operands, stop) {
            engine.fail(unsent(to, &error));
        }
    }

    fn tell(&self, to: u32, control: &Control, stop: impl Fn() -> bool) -> Result<(), FlowError> {
        let mut frame = Head::of(Kind::Control, 0, 0).frame();
        // Cannot fail: no map has keys that are not strings, and no value refuses to be serialized.
        let _ = serde_json::to_writer(&mut frame, control);
        if content_of(&frame) > MOST_BYTES {
            return self.tell(to, &Control::Failed { reason: "its report is too long".to_owned() }, stop);
        }
        self.post.send(to, frame, None, stop).map_err(|error| unsent(to, &error))
    }

    fn tell_all(&self, engine: &Engine<'_, '_>, control: &Control) {
        let tell = |peer| self.tell(peer, control, || engine.is_cancelled());
        self.post.peers().filter_map(|peer| tell(peer).err()).for_each(|failure| engine.fail(failure));
    }

    /// Returns the next control message of a peer before the run.
    fn expect(&self, peer: u32, options: &FlowOptions) -> Result<Control, FlowError> {
        let stop = || options.cancel.as_ref().is_some_and(|token| token.is_cancelled());
        let mut content = Vec::new();
        match self.post.hear_one(peer, &stop, &mut content) {
            _ if stop() => Err(FlowError::Cancelled),
            Ok(Some(Head { kind: Kind::Control, .. })) => {
                serde_json::from_slice(&content).map_err(|_| out_of_place(peer))
            }
            Ok(Some(_)) => Err(out_of_place(peer)),
            Ok(None) => Err(FlowError::Machine { machine: peer, reason: "it disconnected before the run".to_owned() }),
            Err(error) => Err(FlowError::Machine { machine: peer, reason: error.to_string() }),
        }
    }

    /// Checks that all processes are ready for the same run.
    fn meet(&self, run: &str, options: &FlowOptions) -> Result<(), FlowError> {
        if !self.leads() {
            return self.tell(0, &Control::Ready { run: run.to_owned() }, || false);
        }
        for peer in self.post.peers() {
            match self.expect(peer, options)? {
                Control::Ready { run: others } if others == run => {}
                Control::Ready { .. } => {
                    let reason =
                        "its flow, options or version differ; start all processes with the same program and options";
                    return Err(FlowError::Machine { machine: peer, reason: reason.to_owned() });
                }
                _ => return Err(out_of_place(peer)),
            }
        }
        Ok(())
    }
}

fn too_long(node: &str) -> FlowError {
    FlowError::Options(format!(
        "node {node:?} delivers more than {MOST_BYTES} bytes, the limit of a message; deliver the value in parts"
    ))
}

impl Engine<'_, '_> {
    /// Starts the clocks of all processes.
    fn start(&mut self) -> Result<(), FlowError> {
        let Some(remote) = &mut self.remote else { return Ok(()) };
        self.since = Instant::now();
        if remote.leads() {
            let at = monotonic();
            return remote.post.peers().try_for_each(|peer| remote.tell(peer, &Control::Start { at }, || false));
        }
        match remote.expect(0, self.options)? {
            Control::Start { at } => (self.since, remote.start) = (Instant::now(), monotonic().saturating_sub(at)),
            _ => return Err(out_of_place(0)),
        }
        Ok(())
    }

    /// Ends a process that does not lead: sends its share of the report, or the reason why it could not go on.
    fn leave(&self, remote: &RemoteProcesses, mut logs: Vec<Log>) -> Vec<Log> {
        // One message holds all logs: an event takes less than 128 bytes, except with numbers that no run reaches.
        let most = MOST_BYTES / 2 / 128 / logs.len().max(1);
        for log in &mut logs {
            log.is_cut |= log.events.len() > most;
            log.events.truncate(most);
        }
        let failure = lock(&self.failure).as_ref().map(ToString::to_string);
        let items =
            (0..).zip(&self.nodes).filter_map(|(node, own)| Some((node, own.items.as_ref()?.load(Ordering::Relaxed))));
        let share = Share { logs, items: items.collect(), sent: remote.post.sent() };
        let control = failure.map_or(Control::Share(share), |reason| Control::Failed { reason });
        // If this cannot be sent, the leader sees that this process hangs up.
        let _ = remote.tell(0, &control, || false);
        remote.post.hang_up();
        match control {
            Control::Share(share) => share.logs,
            _ => Vec::new(),
        }
    }
}

/// Returns the workers of a machine.
fn workers_of(worker_config: &WorkerConfig, machine: u32) -> impl Iterator<Item = u32> + '_ {
    (0..worker_config.worker_count()).filter(move |worker| worker_config.machine_of(*worker) == machine)
}
