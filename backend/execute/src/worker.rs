//! A worker: a device or a link with the state that it keeps between runs, and its view of the present run.

use super::cpu::CpuWorker;
use super::error::{Failure, FailureSite};
use super::event::Event;
use super::faults::Operation;
use super::resident::DeviceTensor;
use super::run_channels::{Delivery, Doing, Halt, Port, RunChannels, Stop, Wait};
use super::supervise::Supervisor;
use super::worker_program::{Feed, NO_GATE};
use anabranch_base::wait::spin_for;
use anabranch_kernels::cpu::Interrupt;
use anabranch_kernels::gpu::{Gpu, GpuBuffer};
use anabranch_kernels::{Buffer, KernelError, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Does the steps of a device or a link. This is a trait object because of the deep types of a GPU: users who need an
/// executor to be `Send` would otherwise have to raise the compiler's recursion limit.
pub(super) trait Worker: Send {
    /// Does all its steps of one run.
    fn follow(&mut self, run: &Run<'_>) -> Result<(), Halt>;

    /// Returns its log.
    fn log(&mut self) -> &mut Log;

    /// Forgets a failed run: lets go of all that it held of this run, also of other workers' buffers.
    fn let_go(&mut self);

    /// Creates buffers again that the failed run has lost, after all workers have let go. Returns whether memory
    /// sufficed.
    fn restore(&mut self) -> bool {
        true
    }

    /// Returns the worker of a CPU device, if it is one.
    fn cpu(&mut self) -> Option<&mut CpuWorker> {
        None
    }

    /// Returns the caller's tensors on GPUs, if it is a GPU's worker.
    fn tensors(&mut self) -> Option<&mut GpuTensors> {
        None
    }

    /// Returns a GPU's slot that holds this output in place, if no run had it yet; once.
    fn unused_slot(&mut self, _output: u32) -> Option<(Arc<Gpu>, GpuBuffer)> {
        None
    }

    /// Returns the GPU of its buffers, if it is a GPU's worker.
    fn gpu(&self) -> Option<&Arc<Gpu>> {
        None
    }
}

/// The caller's tensors on GPUs in one run.
#[derive(Clone, Default)]
pub(super) struct GpuTensors {
    pub(super) inputs: Vec<DeviceTensor>,
    /// Tensors to which the outputs are written.
    pub(super) outputs: Vec<DeviceTensor>,
}

/// Log of a worker in a run.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Present activity, for the report of a panic.
    pub(super) at: FailureSite,
    pub(super) events: Vec<Event>,
    /// Bytes of the caller's tensors that a GPU has copied.
    pub(super) copied: u64,
}

/// Terms of a run, for all its workers.
#[derive(Clone)]
pub(super) struct Terms {
    /// Start of the run.
    pub(super) origin: Instant,
    /// Whether to measure times.
    pub(super) profile: bool,
    /// Longest spin of a wait.
    pub(super) spin: Duration,
    /// Longest time that threads of CPU devices poll for more work after their last part.
    pub(super) linger: Duration,
    /// Returns whether the run must be left; kernels call it between their parts. Set only if the run has a token or a
    /// timeout.
    pub(super) interrupt: Option<Interrupt>,
}

/// A run as one worker sees it.
pub(super) struct Run<'a> {
    pub(super) channels: &'a RunChannels,
    pub(super) worker: u32,
    pub(super) terms: Terms,
    /// The caller's tensors, for the host.
    pub(super) inputs: &'a [&'a Tensor],
    /// Supervisor of the run, on the caller's thread only.
    pub(super) supervisor: Option<&'a Supervisor<'a>>,
}

/// Flag that interrupts a wait for a GPU, and the place that a failure names.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) stop: &'a Stop,
    pub(super) place: FailureSite,
}

impl Run<'_> {
    /// Returns the nanoseconds since the start; 0 without a profile.
    pub(super) fn now(&self) -> u64 {
        if self.terms.profile { self.at(Instant::now()) } else { 0 }
    }

    /// Returns the nanoseconds from the start until `time`.
    pub(super) fn at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.terms.origin).as_nanos() as u64
    }

    pub(super) fn port(&self) -> &Port {
        self.channels.port(self.worker)
    }

    pub(super) fn site(&self, place: FailureSite) -> Site<'_> {
        Site { stop: &self.channels.stop, place }
    }

    /// Checks whether the run must be left. The caller's thread also checks its token and its clock, if it has them.
    pub(super) fn check(&self) -> Result<(), Halt> {
        if let Some(supervisor) = self.supervisor {
            supervisor.check();
        }
        self.channels.stop.check()
    }

    /// Whether kernels may have left out parts of their work, so that their results must not be used.
    pub(super) fn is_interrupted(&self) -> bool {
        self.terms.interrupt.as_ref().is_some_and(|interrupt| interrupt())
    }

    /// Checked after each kernel, which is at `place`, before other threads get its output.
    pub(super) fn uninterrupted(&self, place: FailureSite) -> Result<(), Halt> {
        if self.is_interrupted() { Err(Halt::Left(place)) } else { Ok(()) }
    }

    /// Lets a test fail the following operation.
    pub(super) fn strike(&self, operation: Operation) -> Result<(), KernelError> {
        self.channels.faults.strike(operation, || self.is_interrupted() || self.channels.stop.is_set())
    }

    /// Waits until all inputs of a step are present, and takes the buffers that came with them.
    pub(super) fn pass(&self, gate: u32, take: impl FnMut(Delivery)) -> Result<(), Halt> {
        if gate != NO_GATE {
            self.wait(Wait::Gate(gate))?;
            self.port().collect(gate, take);
        }
        Ok(())
    }

    /// Waits for and returns the next chunk of a queue: its buffer, or `None` for a chunk on a GPU.
    pub(super) fn next_chunk(&self, feed: &Feed) -> Result<Option<Arc<Buffer>>, Halt> {
        self.wait(Wait::Channel(feed.wait))?;
        let chunk = self.port().next_chunk(feed.queue);
        chunk.ok_or_else(|| Failure::internal("somebody else took a chunk").into())
    }

    /// Waits for and returns a free buffer of a ring.
    pub(super) fn free_buffer(&self, ring: u32, channel: u32) -> Result<Arc<Buffer>, Halt> {
        self.wait(Wait::Channel(channel))?;
        let buffer = self.port().free_buffer(ring);
        buffer.ok_or_else(|| Failure::internal("somebody else took a free buffer").into())
    }

    /// Waits: spins for about as long as the plan expects, then sleeps.
    pub(super) fn wait(&self, wait: Wait) -> Result<(), Halt> {
        let (port, stop) = (self.port(), &self.channels.stop);
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

/// Lets a worker do its part. A panic becomes a failure.
pub(super) fn attempt(worker: &mut dyn Worker, run: &Run<'_>) -> Result<(), Halt> {
    let log = worker.log();
    log.at = FailureSite::Nowhere;
    // A failed run has left its events.
    log.events.clear();
    log.copied = 0;
    let followed = catch_unwind(AssertUnwindSafe(|| worker.follow(run)));
    followed.unwrap_or_else(|payload| {
        // A kernel may panic because parts were left out, but that is not the reason for the run's end.
        let halt = match run.is_interrupted() {
            true => Halt::Left(worker.log().at),
            false => Failure::panic(worker.log().at, &*payload).into(),
        };
        // Dropping a payload could panic again, where nothing would catch it.
        std::mem::forget(payload);
        Err(halt)
    })
}
