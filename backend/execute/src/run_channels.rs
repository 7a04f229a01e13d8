//! Channels between the workers of a run: gates, chunks and empty buffers, and the flag that ends the run.
//!
//! A gate is a countdown that other workers open directly, with the buffers that come with it; no thread relays
//! messages. Each gate has one worker that waits at it, and each queue has one worker that takes from it. Senders never
//! block.

use super::error::{Failure, FailureSite};
use super::faults::{Faults, Operation};
use super::worker_program::{Awaited, Channel, Gate, PortSpec, QueueAt, RingAt};
use anabranch_base::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, lock};
use anabranch_base::wait::Waiter;
use anabranch_kernels::Buffer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Reason that a worker leaves a run early.
#[derive(Debug)]
pub(super) enum Halt {
    /// The worker was told to leave.
    Stopped,
    /// It has seen itself, at work there, that the run is over.
    Left(FailureSite),
    /// It cannot go on.
    Failed(Failure),
}

impl Halt {
    /// Returns the failure behind the halt.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Stopped | Self::Left(_) => Failure::internal("a thread was stopped"),
        }
    }
}

impl<T: Into<Failure>> From<T> for Halt {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// Flag that tells all workers of a run to leave it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self, stop: bool) {
        self.0.store(stop, Ordering::SeqCst);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether the run must be left.
    pub(super) fn check(&self) -> Result<(), Halt> {
        if self.0.load(Ordering::Relaxed) { Err(Halt::Stopped) } else { Ok(()) }
    }
}

/// An object that a worker waits for: a gate, or a channel inside one of its steps. Both are named by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Gate(u32),
    Channel(u32),
}

/// Activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The worker has no part in the run, or has finished it.
    Idle,
    Working,
    Waiting(Wait),
}

/// State that a worker publishes: in the upper half a count of its waits, in the lower half its activity.
#[derive(Debug, Default)]
struct Status(AtomicU64);

const CHANNEL: u32 = 1 << 30;
const WAITING: u32 = 1 << 31;
const WORKING: u32 = 1;

impl Status {
    fn set(&self, doing: Doing) {
        let low = match doing {
            Doing::Idle => 0,
            Doing::Working => WORKING,
            Doing::Waiting(Wait::Gate(gate)) => WAITING | gate,
            Doing::Waiting(Wait::Channel(channel)) => WAITING | CHANNEL | channel,
        };
        let count = (self.0.load(Ordering::Relaxed) >> 32).wrapping_add(u64::from(low & WAITING != 0));
        self.0.store(count << 32 | u64::from(low), Ordering::Relaxed);
    }

    /// Returns a number that changes whenever the worker proceeds, and its activity.
    fn look(&self) -> (u64, Doing) {
        let word = self.0.load(Ordering::Relaxed);
        let low = word as u32;
        let number = low & !(WAITING | CHANNEL);
        let doing = match (low & WAITING != 0, low & CHANNEL != 0) {
            (true, false) => Doing::Waiting(Wait::Gate(number)),
            (true, true) => Doing::Waiting(Wait::Channel(number)),
            (false, _) if low == WORKING => Doing::Working,
            (false, _) => Doing::Idle,
        };
        (word, doing)
    }
}

/// A buffer that came with the opening of a gate, and its target cell.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) cell: u32,
    pub(super) buffer: Arc<Buffer>,
}

/// A countdown, alone on its cache line (two lines, because processors fetch lines in pairs): the waiting worker reads
/// no other line.
#[derive(Debug)]
#[repr(align(128))]
struct GateState {
    count: AtomicU32,
    openings: u32,
    expected: Duration,
    deliveries: Mutex<Vec<Delivery>>,
}

impl GateState {
    fn reset(&self) {
        self.count.store(self.openings, Ordering::SeqCst);
    }
}

/// Chunks on their way to a reader, or free buffers of a ring. `None` stands for a chunk that is in its place on a GPU.
#[derive(Debug)]
struct Queue {
    length: AtomicUsize,
    items: Mutex<VecDeque<Option<Arc<Buffer>>>>,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        Self { length: AtomicUsize::new(0), items: Mutex::new(VecDeque::with_capacity(capacity)) }
    }

    /// Changes the items under the lock, and then publishes their number.
    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Option<Arc<Buffer>>>) -> T) -> T {
        let mut items = lock(&self.items);
        let result = change(&mut items);
        self.length.store(items.len(), Ordering::SeqCst);
        result
    }

    fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }
}

/// Free buffers of a ring: the last used is taken first, because it is still in cache.
#[derive(Debug)]
struct RingState {
    free: Queue,
    bytes: usize,
    depth: usize,
}

/// Everything that other workers give one worker.
#[derive(Debug)]
pub(super) struct Port {
    gates: Box<[GateState]>,
    channels: Vec<Channel>,
    queues: Vec<Queue>,
    rings: Vec<RingState>,
    status: Status,
    pub(super) waiter: Waiter,
}

/// Ports of all workers of an executor.
#[derive(Debug)]
pub(super) struct RunChannels {
    pub(super) stop: Stop,
    ports: Vec<Port>,
    pub(super) faults: Faults,
}

impl RunChannels {
    /// Creates closed gates, empty queues and full rings. `None` if memory is short.
    pub(super) fn new(specs: &[PortSpec]) -> Option<Self> {
        let channels =
            Self { stop: Stop::default(), ports: specs.iter().map(Port::new).collect(), faults: Faults::default() };
        channels.renew_rings().then_some(channels)
    }

    pub(super) fn port(&self, worker: u32) -> &Port {
        &self.ports[worker as usize]
    }

    /// Counts down once at a gate.
    pub(super) fn open(&self, gate: Gate) -> Result<(), Failure> {
        if self.is_lost() {
            return Ok(());
        }
        let port = self.port(gate.worker);
        match port.gates[gate.index as usize].count.fetch_sub(1, Ordering::SeqCst) {
            0 => Err(Failure::internal("a gate was opened more often than the plan says")),
            1 => {
                port.waiter.wake();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Leaves a buffer at a gate, and counts it down.
    pub(super) fn deliver(&self, gate: Gate, delivery: Delivery) -> Result<(), Failure> {
        lock(&self.port(gate.worker).gates[gate.index as usize].deliveries).push(delivery);
        self.open(gate)
    }

    /// Whether a test makes this message fail.
    fn is_lost(&self) -> bool {
        self.faults.strike(Operation::Message, || self.stop.is_set()).is_err()
    }

    /// Sends a reader the next chunk: its buffer, or `None` for a chunk that is in its place on a GPU.
    pub(super) fn send(&self, to: QueueAt, chunk: Option<Arc<Buffer>>) {
        if self.is_lost() {
            return;
        }
        let port = self.port(to.worker);
        port.queues[to.queue as usize].change(|chunks| chunks.push_back(chunk));
        port.waiter.wake();
    }

    /// Returns a buffer to its ring. It is free when its last reader has returned it. The other readers' clones are
    /// dropped here, one after the other, so that exactly one reader finds its reference unique.
    pub(super) fn give_back(&self, to: RingAt, mut buffer: Arc<Buffer>) -> Result<(), Failure> {
        if self.is_lost() {
            return Ok(());
        }
        let port = self.port(to.worker);
        let ring = &port.rings[to.ring as usize];
        ring.free.change(|free| {
            if Arc::get_mut(&mut buffer).is_some() {
                if free.len() == ring.depth {
                    return Err(Failure::internal("a ring got a buffer that is not its own"));
                }
                free.push_back(Some(buffer));
            } else {
                drop(buffer);
            }
            Ok(())
        })?;
        port.waiter.wake();
        Ok(())
    }

    /// Wakes all workers, after the stop flag was set.
    pub(super) fn wake_all(&self) {
        for port in &self.ports {
            port.waiter.wake();
        }
    }

    /// Prepares the next run after a failed run: everything in flight is dropped. Returns whether memory sufficed for
    /// the rings.
    pub(super) fn reset(&self) -> bool {
        self.stop.set(false);
        for port in &self.ports {
            for gate in &port.gates {
                gate.reset();
                lock(&gate.deliveries).clear();
            }
            port.queues.iter().for_each(|queue| queue.change(VecDeque::clear));
        }
        self.renew_rings()
    }

    fn renew_rings(&self) -> bool {
        self.ports.iter().flat_map(|port| &port.rings).all(|ring| {
            ring.free.change(|free| {
                free.clear();
                (0..ring.depth).all(|_| {
                    let buffer = Buffer::try_zeroed(ring.bytes).map(Arc::new);
                    let made = buffer.is_some();
                    free.extend(made.then_some(buffer));
                    made
                })
            })
        })
    }

    /// Returns for each worker a number that changes whenever it proceeds, and its activity.
    pub(super) fn look(&self) -> impl Iterator<Item = (u64, Doing)> {
        self.ports.iter().map(|port| port.status.look())
    }
}

impl Port {
    fn new(spec: &PortSpec) -> Self {
        let gate = |gate: &super::worker_program::GateSpec| GateState {
            count: AtomicU32::new(gate.openers.len() as u32),
            openings: gate.openers.len() as u32,
            expected: gate.expected,
            deliveries: Mutex::new(Vec::with_capacity(gate.openers.len())),
        };
        let ring = |ring: &anabranch_plan::Ring| RingState {
            free: Queue::new(ring.depth as usize),
            bytes: ring.bytes as usize,
            depth: ring.depth as usize,
        };
        Self {
            gates: spec.gates.iter().map(gate).collect(),
            channels: spec.channels.clone(),
            queues: spec.queues.iter().map(|chunks| Queue::new(*chunks)).collect(),
            rings: spec.rings.iter().map(ring).collect(),
            status: Status::default(),
            waiter: Waiter::default(),
        }
    }

    pub(super) fn show(&self, doing: Doing) {
        self.status.set(doing);
    }

    /// Whether the awaited condition holds.
    pub(super) fn is_ready(&self, wait: Wait) -> bool {
        match wait {
            Wait::Gate(gate) => self.gates[gate as usize].count.load(Ordering::SeqCst) == 0,
            Wait::Channel(channel) => {
                let channel = &self.channels[channel as usize];
                match channel.what {
                    Awaited::Chunk => !self.queues[channel.index as usize].is_empty(),
                    Awaited::EmptyBuffer => !self.rings[channel.index as usize].free.is_empty(),
                }
            }
        }
    }

    /// Time that the plan expects a wait to take.
    pub(super) fn expected(&self, wait: Wait) -> Duration {
        match wait {
            Wait::Gate(gate) => self.gates[gate as usize].expected,
            Wait::Channel(_) => Duration::ZERO,
        }
    }

    /// Takes the deliveries of an open gate, and closes it for the next run.
    pub(super) fn collect(&self, gate: u32, mut take: impl FnMut(Delivery)) {
        let gate = &self.gates[gate as usize];
        lock(&gate.deliveries).drain(..).for_each(&mut take);
        gate.reset();
    }

    /// Returns the next chunk of a queue, if there is one.
    pub(super) fn next_chunk(&self, queue: u32) -> Option<Option<Arc<Buffer>>> {
        let queue = &self.queues[queue as usize];
        if queue.is_empty() { None } else { queue.change(VecDeque::pop_front) }
    }

    /// Returns a free buffer of a ring, if there is one.
    pub(super) fn free_buffer(&self, ring: u32) -> Option<Arc<Buffer>> {
        self.rings[ring as usize].free.change(VecDeque::pop_back).flatten()
    }

    /// Returns the bytes of all rings.
    pub(super) fn ring_bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.bytes * ring.depth).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_plan::Ring;

    fn ring(depth: u64) -> RunChannels {
        let spec = PortSpec { rings: vec![Ring { bytes: 8, depth }], ..PortSpec::default() };
        RunChannels::new(&[spec]).expect("some bytes")
    }

    const AT: RingAt = RingAt { worker: 0, ring: 0 };

    #[test]
    fn a_buffer_is_free_when_its_last_reader_has_given_it_back() {
        let channels = ring(2);
        let take = || channels.port(0).free_buffer(0);
        let (one, _) = (take().expect("two are free"), take().expect("two are free"));
        assert!(take().is_none());
        let other = Arc::clone(&one);
        channels.give_back(AT, one).expect("its own");
        assert!(take().is_none(), "another still reads it");
        channels.give_back(AT, other).expect("its own");
        assert!(take().is_some() && take().is_none());
    }

    #[test]
    fn a_ring_never_grows() {
        assert!(ring(1).give_back(AT, Arc::new(Buffer::zeroed(8))).is_err());
    }

    #[test]
    fn a_gate_opens_once_a_run() {
        let gate = super::super::worker_program::GateSpec { openers: vec![0, 0], ..Default::default() };
        let channels = RunChannels::new(&[PortSpec { gates: vec![gate], ..PortSpec::default() }]).expect("no bytes");
        let at = Gate { worker: 0, index: 0 };
        for _ in 0..2 {
            channels.deliver(at, Delivery { cell: 7, buffer: Arc::new(Buffer::zeroed(4)) }).expect("the first");
            assert!(!channels.port(0).is_ready(Wait::Gate(0)));
            channels.open(at).expect("the second");
            assert!(channels.port(0).is_ready(Wait::Gate(0)) && channels.open(at).is_err());
            channels.port(0).collect(0, |delivery| assert_eq!((delivery.cell, delivery.buffer.len()), (7, 4)));
        }
    }
}
