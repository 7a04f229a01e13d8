//! A worker: a device or a link with the state that it keeps between runs, and what it knows of the run that it is in.

use super::cpu::CpuWorker;
use super::error::{Failure, Place};
use super::event::Event;
use super::exchange::{Delivery, Doing, Exchange, Halt, Port, Stop, Wait};
use super::faults::Operation;
use super::resident::DeviceTensor;
use super::script::{Feed, NO_GATE};
use super::supervise::Supervisor;
use anabranch_base::wait::spin_for;
use anabranch_kernels::cpu::Interrupt;
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::{Buffer, KernelError, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What does the steps of a device or a link. A trait object, because the types of a GPU are so deep that whoever wants an executor to
/// be `Send` would otherwise have to raise the compiler's recursion limit.
pub(super) trait Worker: Send {
    /// Does all of its steps of one run.
    fn follow(&mut self, run: &Run<'_>) -> Result<(), Halt>;

    /// What it has noted.
    fn log(&mut self) -> &mut Log;

    /// Prepares the next run after one that failed: makes anew what was under way. Whether there was memory for it.
    fn reset(&mut self) -> bool;

    /// The worker of a CPU device, if it is one.
    fn cpu(&mut self) -> Option<&mut CpuWorker> {
        None
    }

    /// The caller's tensors on GPUs, if it is a GPU's worker.
    fn tensors(&mut self) -> Option<&mut GpuTensors> {
        None
    }

    /// The GPU that its buffers are on, if it is a GPU's worker.
    fn gpu(&self) -> Option<&Arc<Gpu>> {
        None
    }
}

/// The caller's tensors on GPUs in one run.
#[derive(Clone, Default)]
pub(super) struct GpuTensors {
    pub(super) inputs: Vec<DeviceTensor>,
    /// What the outputs are written to.
    pub(super) outputs: Vec<DeviceTensor>,
}

/// What a worker notes while it runs.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// What it is at, for the report of a panic.
    pub(super) at: Place,
    pub(super) events: Vec<Event>,
}

/// How a run is made, for all of its workers.
#[derive(Clone)]
pub(super) struct Terms {
    /// Its beginning.
    pub(super) origin: Instant,
    /// Whether to take times.
    pub(super) profile: bool,
    /// How long a wait is spun at most.
    pub(super) spin: Duration,
    /// How long those of CPU devices look for more work after their last.
    pub(super) linger: Duration,
    /// Whether the run is to be left, for kernels to ask between their parts; only where it has a token or a clock.
    pub(super) interrupt: Option<Interrupt>,
}

/// A run as one worker sees it.
pub(super) struct Run<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) worker: u32,
    pub(super) terms: Terms,
    /// The caller's tensors, for the host.
    pub(super) inputs: &'a [&'a Tensor],
    /// On the caller's thread: looks after the run.
    pub(super) supervisor: Option<&'a Supervisor<'a>>,
}

/// What interrupts a wait for a GPU, and what a failure is blamed on.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) stop: &'a Stop,
    pub(super) place: Place,
}

impl Run<'_> {
    /// Nanoseconds since the beginning; 0 without profile.
    pub(super) fn now(&self) -> u64 {
        if self.terms.profile { self.at(Instant::now()) } else { 0 }
    }

    /// Nanoseconds from the beginning until `time`.
    pub(super) fn at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.terms.origin).as_nanos() as u64
    }

    pub(super) fn port(&self) -> &Port {
        self.exchange.port(self.worker)
    }

    pub(super) fn site(&self, place: Place) -> Site<'_> {
        Site { stop: &self.exchange.stop, place }
    }

    /// Whether the run is to be left. The caller's thread also looks at its token and its clock, if it has them.
    pub(super) fn check(&self) -> Result<(), Halt> {
        if let Some(supervisor) = self.supervisor {
            supervisor.check();
        }
        self.exchange.stop.check()
    }

    /// Whether kernels may have left out parts of their work: then nothing that they made is to be used.
    pub(super) fn is_interrupted(&self) -> bool {
        self.terms.interrupt.as_ref().is_some_and(|interrupt| interrupt())
    }

    /// To be asked after each kernel, which is at `place`, before anybody hears of what it has made.
    pub(super) fn uninterrupted(&self, place: Place) -> Result<(), Halt> {
        if self.is_interrupted() { Err(Halt::Left(place)) } else { Ok(()) }
    }

    /// Lets a test fail the operation that follows.
    pub(super) fn strike(&self, operation: Operation) -> Result<(), KernelError> {
        self.exchange.faults.strike(operation, || self.is_interrupted() || self.exchange.stop.is_set())
    }

    /// Waits until all is there that a step needs, and takes what came with it.
    pub(super) fn pass(&self, gate: u32, take: impl FnMut(Delivery)) -> Result<(), Halt> {
        if gate != NO_GATE {
            self.wait(Wait::Gate(gate))?;
            self.port().collect(gate, take);
        }
        Ok(())
    }

    /// The next chunk of a queue, once it is there: its buffer, or `None` for one that is on a GPU.
    pub(super) fn next_chunk(&self, feed: &Feed) -> Result<Option<Arc<Buffer>>, Halt> {
        self.wait(Wait::Channel(feed.wait))?;
        let chunk = self.port().next_chunk(feed.queue);
        chunk.ok_or_else(|| Failure::internal("somebody else took a chunk").into())
    }

    /// A free buffer of a ring, once there is one.
    pub(super) fn free_buffer(&self, ring: u32, channel: u32) -> Result<Arc<Buffer>, Halt> {
        self.wait(Wait::Channel(channel))?;
        let buffer = self.port().free_buffer(ring);
        buffer.ok_or_else(|| Failure::internal("somebody else took a free buffer").into())
    }

    /// Waits: spins for about as long as the plan expects, then sleeps.
    pub(super) fn wait(&self, wait: Wait) -> Result<(), Halt> {
        let (port, stop) = (self.port(), &self.exchange.stop);
        if port.is_ready(wait) {
            return Ok(());
        }
        port.show(Doing::Waiting(wait));
        let spin = spin_for(port.expected(wait), self.terms.spin);
        let before = || self.supervisor.and_then(Supervisor::look);
        port.waiter.wait(spin, || port.is_ready(wait) || stop.is_set(), before);
        port.show(Doing::Working);
        stop.check()
    }
}

/// Lets a worker do its part. What panics is a failure like others.
pub(super) fn attempt(worker: &mut dyn Worker, run: &Run<'_>) -> Result<(), Halt> {
    let log = worker.log();
    log.at = Place::Nowhere;
    // A run that failed has left its own.
    log.events.clear();
    let followed = catch_unwind(AssertUnwindSafe(|| worker.follow(run)));
    followed.unwrap_or_else(|payload| {
        // A kernel may well panic over parts that were left out: that is not what the run ended for.
        let halt = match run.is_interrupted() {
            true => Halt::Left(worker.log().at),
            false => Failure::panic(worker.log().at, &*payload).into(),
        };
        // Dropping a payload could panic again, here where nothing catches it.
        std::mem::forget(payload);
        Err(halt)
    })
}
