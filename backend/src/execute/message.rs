//! What workers say to each other.
//!
//! Each worker has one inbox. Its capacity is the number of messages that the plan can put into it in one run, so a send
//! never blocks, and a worker that waits only ever waits for its own inbox.

use anabranch_kernels::Buffer;
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Something that a worker waits to open: a countdown of the messages that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gate {
    /// Whose.
    pub(super) worker: u32,
    /// Which of its gates.
    pub(super) index: u32,
}

/// What all workers know of the current run.
#[derive(Debug)]
pub(super) struct Run {
    /// Its beginning.
    pub(super) origin: Instant,
    /// Whether to take times.
    pub(super) profile: bool,
    /// The caller's tensors.
    pub(super) inputs: Vec<Arc<Buffer>>,
}

impl Run {
    /// Nanoseconds since the beginning; 0 without profile.
    pub(super) fn now(&self) -> u64 {
        if self.profile { self.at(Instant::now()) } else { 0 }
    }

    /// Nanoseconds from the beginning until `time`.
    pub(super) fn at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.origin).as_nanos() as u64
    }
}

/// One message.
#[derive(Debug)]
pub(super) enum Message {
    /// One of the things that a gate waits for has happened.
    Open(u32),
    /// A value is there, to be put into a cell, and one of the things that a gate waits for has happened.
    Value {
        /// The gate.
        gate: u32,
        /// The cell.
        cell: u32,
        /// The value.
        buffer: Arc<Buffer>,
    },
    /// A buffer to land a transfer in, and one of the things that the transfer's gate waits for has happened.
    Landing {
        /// The gate.
        gate: u32,
        /// The buffer.
        buffer: Arc<Buffer>,
    },
    /// The next chunk of a stream: its bytes, or the news that it is in its place on a GPU.
    Chunk {
        /// Which of the receiver's queues it belongs to: of a link, the step.
        queue: u32,
        /// The chunk's bytes, for or from a CPU.
        buffer: Option<Arc<Buffer>>,
    },
    /// A buffer of one of the receiver's rings, back from a reader.
    Credit {
        /// Which ring.
        ring: u32,
        /// The buffer.
        buffer: Arc<Buffer>,
    },
    /// From the supervisor: begin.
    Start(Arc<Run>),
    /// From the supervisor: look at the stop flag.
    Wake,
    /// From the supervisor, after a run that failed, when all workers are idle: forget the run, and report.
    Clear,
    /// From the supervisor: end.
    Quit,
}

/// Why a worker leaves a run early.
#[derive(Debug)]
pub(super) enum Halt {
    /// It was told to.
    Stopped,
    /// It cannot go on.
    Failed(super::error::Failure),
}

impl<T: Into<super::error::Failure>> From<T> for Halt {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// What a worker shows of itself to the supervisor: in the upper half a count of its waits, in the lower half the gate it
/// waits at plus one, or 0 while it does not wait.
#[derive(Debug, Default)]
pub(super) struct Status(AtomicU64);

impl Status {
    fn waits(&self, gate: u32) {
        let waits = (self.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.0.store(waits << 32 | (u64::from(gate) + 1), Ordering::Relaxed);
    }

    fn goes_on(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) >> 32 << 32, Ordering::Relaxed);
    }

    /// A number that changes whenever the worker does something, and the gate that it waits at.
    pub(super) fn look(&self) -> (u64, Option<u32>) {
        let word = self.0.load(Ordering::Relaxed);
        (word, (word as u32).checked_sub(1))
    }
}

/// A worker's way to hear and to speak.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) inbox: Receiver<Message>,
    pub(super) peers: Arc<[Sender<Message>]>,
    pub(super) status: Arc<Status>,
    pub(super) stop: Arc<AtomicBool>,
    /// Loses the message to this gate, so that a stall can be tested.
    #[cfg(test)]
    pub(super) lost: Option<Gate>,
}

impl Mail {
    /// Sends a message. It can only fail when the session ends; see the capacity of inboxes above.
    pub(super) fn post(&self, to: u32, message: Message) {
        #[cfg(test)]
        if let Message::Open(gate) | Message::Value { gate, .. } | Message::Landing { gate, .. } = &message
            && self.lost == Some(Gate { worker: to, index: *gate })
        {
            return;
        }
        let sent = self.peers[to as usize].try_send(message);
        debug_assert!(!matches!(sent, Err(crossbeam_channel::TrySendError::Full(_))), "more messages than planned");
    }

    /// Counts one thing down at a gate.
    pub(super) fn open(&self, gate: Gate) {
        self.post(gate.worker, Message::Open(gate.index));
    }

    /// Whether the run is to be left.
    pub(super) fn stopped(&self) -> Result<(), Halt> {
        if self.stop.load(Ordering::Relaxed) { Err(Halt::Stopped) } else { Ok(()) }
    }

    /// The next message of a run, for which the worker waits at `gate`.
    pub(super) fn wait(&self, gate: u32) -> Result<Message, Halt> {
        let message = match self.inbox.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty) => {
                self.status.waits(gate);
                let message = self.inbox.recv();
                self.status.goes_on();
                message.map_err(|_| Halt::Stopped)?
            }
            Err(TryRecvError::Disconnected) => return Err(Halt::Stopped),
        };
        self.stopped()?;
        Ok(message)
    }
}
