//! How a run is made, and what it gives.

use super::{CancelToken, DeviceTensor, Event};
use anabranch_kernels::Tensor;
use std::time::{Duration, Instant};

/// How one run is made.
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
    /// Whether to note when everything happened; costs a look at the clock a node.
    pub profile: bool,
    /// How long a thread that waits for another looks again and again before it sleeps, at most, and who queues for the devices: waking takes
    /// tens of microseconds. Less where the plan expects a shorter wait, and nothing on a machine with one processing unit. The threads of
    /// plans with several CPU devices look for the longer of this and `linger`; both zero to sleep at once.
    pub spin: Duration,
    /// How long the threads of CPU devices look for more work before they sleep, at most: after a kernel, and where a plan has several CPU devices
    /// after a run and while another device makes what they need, so that what follows within this time need not wake them. After the first
    /// 50 µs they give their core to any other thread that wants it. A caller with a run in each such time keeps all cores of its plans
    /// busy. Nothing on a machine with one processing unit.
    pub linger: Duration,
    /// How long all workers may wait for each other before the run is called stalled.
    pub stall_after: Duration,
    /// When the caller asked, if that was before the run was: its time counts from then.
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
    /// The same, stopped when `cancel` is cancelled.
    pub fn with_cancel(self, cancel: CancelToken) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// The same with at most so much time for planning, waiting in the queue and running.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The same with or without times.
    pub fn with_profile(self, profile: bool) -> Self {
        Self { profile, ..self }
    }

    /// The same with waits that spin for at most so long.
    pub fn with_spin(self, spin: Duration) -> Self {
        Self { spin, ..self }
    }

    /// The same with threads that look for more work for at most so long.
    pub fn with_linger(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    /// The same with another patience for a run in which nothing moves.
    pub fn with_stall_after(self, stall_after: Duration) -> Self {
        Self { stall_after, ..self }
    }
}

/// What a run has given. To be used again for further runs ([`Executor::run_into`](super::Executor::run_into)).
#[derive(Clone, Debug, Default)]
pub struct RunOutput {
    /// The program's outputs that the host receives, in order.
    pub outputs: Vec<Tensor>,
    /// The program's outputs that stay on GPUs, in order.
    pub resident: Vec<DeviceTensor>,
    /// What happened when, by start; empty without profile.
    pub events: Vec<Event>,
    /// Bytes that were taken on each device, at most, since the executor was made.
    pub peaks: Vec<u64>,
    /// From the call until the last worker was done.
    pub makespan: Duration,
}
