//! Messages and life cycle of a dynamic executor's threads.

use crate::error::{Failure, FailureSite};
use crate::run_channels::{Halt, Stop};
use crate::threads::spawn;
use crate::worker::Site;
use anabranch_base::sync::JoinHandle;
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_kernels::Buffer;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::ExecError;
use crossbeam_channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// Start and end of an activity.
pub(super) type Span = (Instant, Instant);

/// A node to run; on a CPU device with its tensors.
pub(super) struct Task {
    pub(super) node: NodeId,
    pub(super) inputs: Vec<Arc<Buffer>>,
    pub(super) outputs: Vec<Buffer>,
}

/// A value to copy between a buffer of the host and a GPU.
pub(super) struct Move {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    pub(super) buffer: Arc<Buffer>,
    /// Whether to measure times.
    pub(super) profile: bool,
}

/// Messages of threads to the scheduler.
pub(super) enum Reply {
    /// A CPU device has run a node.
    Computed { device: DeviceId, node: NodeId, outputs: Vec<Buffer>, span: Span },
    /// A GPU has accepted a node: later work on the GPU sees the result.
    Submitted { device: DeviceId, node: NodeId },
    /// A GPU has run a node.
    Finished { device: DeviceId, node: NodeId, span: Span },
    /// A value has arrived in this buffer, or is on its way to a GPU, whose later work sees it.
    Moved { value: ValueId, from: DeviceId, to: DeviceId, buffer: Option<Arc<Buffer>>, span: Span },
    /// The work failed.
    Failed { device: DeviceId, failure: Failure },
}

/// A thread's means to report, and to be stopped.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) device: DeviceId,
    pub(super) replies: Sender<Reply>,
    pub(super) stop: Arc<Stop>,
}

impl Reporter {
    pub(super) fn site(&self, place: FailureSite) -> Site<'_> {
        Site { stop: &self.stop, place }
    }

    /// Reports to the scheduler, which listens as long as the workers live.
    pub(super) fn report(&self, reply: Reply) {
        let _ = self.replies.send(reply);
    }

    /// Handles each task that arrives; a panic is blamed on `place`.
    pub(super) fn serve<T>(
        &self,
        inbox: &Receiver<T>,
        place: impl Fn(&T) -> FailureSite,
        mut perform: impl FnMut(T) -> Result<(), Halt>,
    ) {
        while let Ok(task) = inbox.recv() {
            if self.stop.is_set() {
                return;
            }
            let at = place(&task);
            let result = catch_unwind(AssertUnwindSafe(|| perform(task)));
            let result = result.unwrap_or_else(|payload| Err(Halt::Failed(Failure::panic(at, &*payload))));
            if let Err(halt) = result {
                self.report(Reply::Failed { device: self.device, failure: halt.failure() });
            }
        }
    }
}

/// Threads that end when this is dropped. The owner of their inboxes must drop these first.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) stop: Arc<Stop>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread.
    pub(super) fn start(&mut self, name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), ExecError> {
        self.handles.push(spawn(name, main)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.set(true);
        for thread in self.handles.drain(..) {
            // The thread has already reported its error.
            let _ = thread.join();
        }
    }
}
