//! Options and results of a run.

use super::{CancelToken, DeviceTensor, Event};
use anabranch_kernels::Tensor;
use std::time::{Duration, Instant};

/// Options of one run.
///
/// ```
/// # use anabranch_execute::RunOptions;
/// # use std::time::Duration;
/// let options = RunOptions::default().with_timeout(Duration::from_secs(1)).with_profile(true);
/// assert!(options.profile && options.cancel.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stops the run when cancelled.
    pub cancel: Option<CancelToken>,
    /// The longest that the run may take, with the time that it is queued, and in `Session::run_with` that
    /// for a plan. Time in which another caller makes the same plan counts, but it ends no sooner for that: the run
    /// fails once that plan is there.
    pub timeout: Option<Duration>,
    /// Whether to record the times of all events; costs a reading of the clock per node.
    pub profile: bool,
    /// Longest time that a waiting thread polls before it sleeps; waking takes tens of microseconds.
    ///
    /// Callers in the queue for the devices poll for this time, too. Threads poll for less if the plan expects a
    /// shorter wait, and not at all on a machine with one processing unit. Threads of plans with several CPU devices
    /// poll for the longer of this and `linger`. If both are zero, threads sleep at once.
    pub spin: Duration,
    /// Longest time that the threads of CPU devices poll for more work before they sleep.
    ///
    /// They poll after a kernel and, if a plan has several CPU devices, after a run and while another device makes
    /// their inputs. Work that follows within this time thus needs no wake-up. After the first 50 µs the threads yield
    /// their core to any other thread. A caller that starts a run within each such time keeps all cores of its plans
    /// busy. Threads do not poll on a machine with one processing unit.
    pub linger: Duration,
    /// Time after which a run counts as stalled if all workers wait for each other.
    pub stall_after: Duration,
    /// Time of the caller's request, if that was before the run: the run's time counts from then.
    pub asked: Option<Instant>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            cancel: None,
            timeout: None,
            profile: false,
            spin: Duration::from_micros(50),
            linger: Duration::from_millis(1),
            stall_after: Duration::from_secs(2),
            asked: None,
        }
    }
}

impl RunOptions {
    /// Sets a token that stops the run (default: none).
    pub fn with_cancel(self, cancel: CancelToken) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// Sets the most time for planning, waiting in the queue and running (default: no limit).
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets whether to record the times of all events (default: false).
    pub fn with_profile(self, profile: bool) -> Self {
        Self { profile, ..self }
    }

    /// Sets the longest time that a waiting thread polls (default: 50 µs).
    pub fn with_spin(self, spin: Duration) -> Self {
        Self { spin, ..self }
    }

    /// Sets the longest time that threads poll for more work (default: 1 ms).
    pub fn with_linger(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    /// Sets the time after which a run without progress counts as stalled (default: 2 s).
    pub fn with_stall_after(self, stall_after: Duration) -> Self {
        Self { stall_after, ..self }
    }
}

/// Results of a run. Can be reused for further runs ([`Executor::run_into`](super::Executor::run_into)).
#[derive(Clone, Debug, Default)]
pub struct RunOutput {
    /// The program's outputs that the host receives, in order.
    pub outputs: Vec<Tensor>,
    /// The program's outputs that stay on GPUs, in order.
    pub resident: Vec<DeviceTensor>,
    /// Events of the run, by start; empty without a profile.
    pub events: Vec<Event>,
    /// Peak bytes allocated on each device since the executor was made.
    pub peaks: Vec<u64>,
    /// Bytes of tensors of the caller that GPUs have copied to slots of the plan or from them.
    pub copied_on_gpus: u64,
    /// Time from the call until the last worker was done.
    pub makespan: Duration,
}
