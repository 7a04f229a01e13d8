//! Long runs of callers that find the devices taken, executed by one thread in the order in which they came.
//!
//! Otherwise each such run would start by waking its caller on any processing unit, often on a unit that a helper uses.
//! Here the next run starts at once, on the former run's unit, and callers are woken while it runs.

use super::inside;
use super::supervise::Deadline;
use super::threads::spawn;
use super::{DeviceTensor, Executor, RunOptions, RunOutput};
use anabranch_base::sync::{Condvar, JoinHandle, Mutex, Receiver, Sender, channel, lock};
use anabranch_device::affinity;
use anabranch_kernels::Tensor;
use anabranch_plan::ExecError;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Instant;

/// Predicted seconds below which callers execute their runs themselves: waking a caller costs more than it saves
/// (`README.md`).
pub(super) const LONG: f64 = 5e-4;

/// The runner thread; it ends when this is dropped.
pub(super) struct RunnerThread {
    queue: Sender<Arc<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Everything that a run needs, held as long as its caller waits.
pub(super) struct Work {
    pub(super) executor: Executor,
    pub(super) inputs: Vec<Tensor>,
    pub(super) resident: Vec<DeviceTensor>,
    pub(super) options: RunOptions,
    pub(super) origin: Instant,
    /// A former result, whose memory is reused.
    pub(super) output: RunOutput,
}

/// A run's end, and its result: after an error the former one, or what the run has left of it.
type Ended = (Result<(), ExecError>, RunOutput);

/// A run on its way from its caller to the thread and back.
pub(super) struct Job {
    stage: Mutex<Stage>,
    done: Condvar,
}

enum Stage {
    Queued(Box<Work>),
    /// The run has started, or its caller has withdrawn it.
    Taken,
    Done(thread::Result<Ended>),
}

impl RunnerThread {
    /// Starts the thread on these processing units, or on those of the calling thread if there are none or the system
    /// refuses.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub(super) fn start(units: Vec<u32>) -> Result<Self, ExecError> {
        let (queue, runs) = channel();
        let main = move || {
            inside::enter();
            let _pinned = affinity::pin_current_thread(&units);
            serve(&runs);
        };
        Ok(Self { queue, thread: Some(spawn("runner", main)?) })
    }

    /// Returns the sender that gives runs to the thread.
    pub(super) fn queue(&self) -> Sender<Arc<Job>> {
        self.queue.clone()
    }
}

impl Drop for RunnerThread {
    fn drop(&mut self) {
        // The thread serves until the last sender is dropped. No run is in progress, because its caller would hold the
        // pool.
        self.queue = channel().0;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Executes runs until all senders are dropped.
fn serve(runs: &Receiver<Arc<Job>>) {
    for job in runs {
        let stage = mem::replace(&mut *lock(&job.stage), Stage::Taken);
        if let Stage::Queued(work) = stage {
            // No data of a run is left here when its caller is informed of its end.
            let result = catch_unwind(AssertUnwindSafe(|| work.run()));
            *lock(&job.stage) = Stage::Done(result);
            job.done.notify_one();
        }
    }
}

impl Work {
    fn run(mut self) -> Ended {
        let inputs: Vec<_> = self.inputs.iter().collect();
        let result = self.executor.run_in_turn(&inputs, &self.resident, &self.options, self.origin, &mut self.output);
        (result, self.output)
    }

    /// Has the thread behind `queue` execute the run, unless it has to end before it starts.
    pub(super) fn run_by(self, queue: &Sender<Arc<Job>>) -> Ended {
        let options = self.options.clone();
        let deadline = Deadline::new(&options, self.origin);
        let job = Arc::new(Job { stage: Mutex::new(Stage::Queued(Box::new(self))), done: Condvar::new() });
        match queue.send(Arc::clone(&job)) {
            Ok(()) => job.wait(&deadline),
            Err(_) => {
                let error = ExecError::internal("the thread that makes queued runs has ended");
                match mem::replace(&mut *lock(&job.stage), Stage::Taken) {
                    Stage::Queued(work) => (Err(error), work.output),
                    _ => (Err(error), RunOutput::default()),
                }
            }
        }
    }
}

impl Job {
    fn wait(&self, deadline: &Deadline<'_>) -> Ended {
        let mut stage = lock(&self.stage);
        loop {
            match mem::replace(&mut *stage, Stage::Taken) {
                Stage::Done(result) => return result.unwrap_or_else(|panic| resume_unwind(panic)),
                Stage::Queued(work) => match deadline.verdict() {
                    Some(error) => return (Err(error), work.output),
                    None => *stage = Stage::Queued(work),
                },
                // A run in progress checks its deadline itself.
                Stage::Taken => {}
            }
            stage = match deadline.sleep() {
                Some(most) => self.done.wait_timeout(stage, most).unwrap_or_else(PoisonError::into_inner).0,
                None => self.done.wait(stage).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
