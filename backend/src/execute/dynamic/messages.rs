//! What a dynamic executor's threads are told and report, and how they live.

use crate::execute::error::{ExecError, Failure, Place};
use crate::execute::exchange::{Halt, Stop};
use crate::execute::inside;
use crate::program::{NodeId, ValueId};
use anabranch_kernels::Buffer;
use anabranch_placement::platform::DeviceId;
use crossbeam_channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// From when to when something took place.
pub(super) type Span = (Instant, Instant);

/// A node for a CPU device, with its tensors.
pub(super) struct CpuTask {
    pub(super) node: NodeId,
    pub(super) inputs: Vec<Arc<Buffer>>,
    pub(super) outputs: Vec<Buffer>,
}

/// What threads say to the scheduler.
pub(super) enum Reply {
    /// A CPU device has run a node.
    Computed { device: DeviceId, node: NodeId, outputs: Vec<Buffer>, span: Span },
    /// A GPU has taken a node: what it gets later sees the result.
    Submitted { device: DeviceId, node: NodeId },
    /// A GPU has run a node.
    Finished { device: DeviceId, node: NodeId, span: Span },
    /// A value is on its way to a GPU: what that gets later sees it.
    Lifted { device: DeviceId, value: ValueId, span: Span },
    /// A value of a GPU is here.
    Fetched { device: DeviceId, value: ValueId, buffer: Buffer, span: Span },
    /// It did not work.
    Failed { device: DeviceId, halt: Halt },
}

/// How a device is given work.
pub(super) enum DeviceInbox {
    Cpu(Sender<CpuTask>),
    Gpu(GpuInbox),
}

/// How a GPU is given work.
pub(super) struct GpuInbox {
    pub(super) nodes: Sender<NodeId>,
    pub(super) lifts: Sender<Lift>,
    pub(super) fetches: Sender<Fetch>,
    /// Which nodes it can run.
    pub(super) runs: Vec<bool>,
}

/// A value to copy to the GPU.
pub(super) struct Lift {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    pub(super) buffer: Arc<Buffer>,
}

/// A value to copy from the GPU.
pub(super) struct Fetch {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    pub(super) buffer: Buffer,
}

/// A thread's way to speak, and to be stopped.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) device: DeviceId,
    pub(super) replies: Sender<Reply>,
    pub(super) stop: Arc<Stop>,
}

impl Reporter {
    /// Tells the scheduler. It listens as long as the workers lives.
    pub(super) fn report(&self, reply: Reply) {
        let _ = self.replies.send(reply);
    }

    /// Does each task that comes; `place` is what a panic is blamed on.
    pub(super) fn serve<T>(
        &self,
        inbox: &Receiver<T>,
        place: impl Fn(&T) -> Place,
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
                self.report(Reply::Failed { device: self.device, halt });
            }
        }
    }
}

/// Threads that end when this is dropped. Whoever gives them work lets go of their inboxes before.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) stop: Arc<Stop>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread.
    pub(super) fn start(&mut self, name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), ExecError> {
        let body = move || {
            inside::enter();
            main();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        let refused = |error: std::io::Error| ExecError::Thread { worker: name.into(), reason: error.to_string() };
        self.handles.push(thread.map_err(refused)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.set(true);
        for thread in self.handles.drain(..) {
            // What a thread had to report of its end it has reported.
            let _ = thread.join();
        }
    }
}
