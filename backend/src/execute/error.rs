//! How a run, or the preparation of one, can fail.

use crate::constant::ConstantError;
use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_kernels::{KernelError, TensorSpec};
use std::any::Any;
use std::fmt;
use std::time::Duration;

/// Why an executor could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The devices are not those of the plan.
    #[error("the plan was made for {planned}, but these devices are given: {given}; make it again")]
    Devices {
        /// The plan's devices.
        planned: String,
        /// The devices given.
        given: String,
    },
    /// A kernel could not be built.
    #[error("node {node:?} on {device:?}: {source}")]
    Kernel {
        /// The node.
        node: String,
        /// The device.
        device: String,
        /// What went wrong.
        source: Box<KernelError>,
    },
    /// A constant could not be read.
    #[error(transparent)]
    Constant(#[from] ConstantError),
    /// A device could not be opened, or its buffers not be made.
    #[error("{device:?} cannot be used: {source}")]
    Device {
        /// The device.
        device: String,
        /// What went wrong.
        source: Box<KernelError>,
    },
    /// The system gives no more threads.
    #[error("no thread for {worker:?}: {reason}")]
    Thread {
        /// The device or link that it was for.
        worker: String,
        /// What the system said.
        reason: String,
    },
    /// The system has not as much memory left as the plan takes.
    #[error(
        "the system has no memory left for what the plan keeps on {device:?}; give the device a lower limit, or close other programs"
    )]
    Memory {
        /// The device.
        device: String,
    },
    /// The plan contradicts itself.
    #[error("{0}; please report this as a fault of the runtime")]
    Internal(&'static str),
}

/// A run that failed: why, and where. All workers are idle again, and the executor can be used on.
#[derive(Debug, Clone, PartialEq)]
pub struct RunError {
    /// Why.
    pub kind: RunErrorKind,
    /// The node that was at work, if one was.
    pub node: Option<String>,
    /// The device, or the link as `from -> to`, if one is to blame.
    pub device: Option<String>,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// Another number of tensors than the program has inputs.
    #[error("{given} tensors were given for {expected} inputs")]
    InputCount {
        /// The program's inputs.
        expected: usize,
        /// The tensors given.
        given: usize,
    },
    /// Another number of tensors on GPUs than the plan has inputs there.
    #[error("{given} tensors on GPUs were given for {expected} inputs that stay there")]
    ResidentCount {
        /// The plan's inputs on GPUs.
        expected: usize,
        /// The tensors given.
        given: usize,
    },
    /// A tensor that is not where the plan reads it: on another device, on one of another pool, or on one that was lost.
    #[error(transparent)]
    Misplaced(Box<MisplacedInput>),
    /// A tensor of another type or shape.
    #[error(transparent)]
    Input(Box<InputMismatch>),
    /// A kernel refused its data, or a GPU failed.
    #[error(transparent)]
    Kernel(Box<KernelError>),
    /// A kernel panicked.
    #[error("the kernel panicked: {0}")]
    Panic(String),
    /// A GPU is gone. The next run opens it again.
    #[error("the device was lost: {0}")]
    DeviceLost(String),
    /// The GPU side could not be made again after a loss.
    #[error(transparent)]
    Rebuild(Box<ExecError>),
    /// The caller's [`CancelToken`](super::CancelToken) was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The run took longer than allowed.
    #[error("the run did not end within {0:?}")]
    Timeout(Duration),
    /// Nobody does anything and everybody waits: a fault of this program.
    #[error("the run stalled: {}; please report this as a fault of the runtime", list(.0))]
    Stalled(Vec<Waiting>),
    /// A run that is scheduled while it runs needs more memory than its device may use.
    #[error(
        "{needed} more bytes are needed on {device:?}, of whose {limit} bytes {left} are left; let it hold more, or \
         make a plan, which knows its memory before it runs"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes of the buffer that does not fit.
        needed: u64,
        /// Bytes that are left.
        left: u64,
        /// Bytes that may be used.
        limit: u64,
    },
    /// The system has no memory left for an output's buffer.
    #[error("the system has no {0} bytes left for an output")]
    Memory(u64),
    /// A promise that this program makes to itself does not hold.
    #[error("{0}; please report this as a fault of the runtime")]
    Internal(&'static str),
}

/// A tensor that an input cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("input {name:?} is {expected}, but {given} was given")]
pub struct InputMismatch {
    /// The input.
    pub name: String,
    /// What it is.
    pub expected: TensorSpec,
    /// What was given.
    pub given: TensorSpec,
}

/// A tensor that is not where an input is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "input {name:?} must be a tensor on {device:?} as it is open now; the one given, on {given:?}, is elsewhere or was lost with \
     its device: read it and upload it again"
)]
pub struct MisplacedInput {
    /// The input.
    pub name: String,
    /// The device that it is to be on.
    pub device: String,
    /// The device that the tensor was made on.
    pub given: String,
}

/// An edge of the wait-for graph: a worker, what it is at, and on whom it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The device or link.
    pub worker: String,
    /// The step at which it waits.
    pub at: String,
    /// Who could let it go on.
    pub on: Vec<String>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits at {} for {}", self.worker, self.at, self.on.join(", "))
    }
}

fn list(waiting: &[Waiting]) -> String {
    waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.device) {
            (Some(node), Some(device)) => write!(f, "node {node:?} on {device:?}: {}", self.kind),
            (None, Some(device)) => write!(f, "{device:?}: {}", self.kind),
            _ => write!(f, "{}", self.kind),
        }
    }
}

impl std::error::Error for RunError {}

/// What a worker was at when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Node(NodeId),
    Transfer(TransferId),
    /// Between them.
    Nowhere,
}

/// A worker's failure, before names are put to it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: RunErrorKind,
    pub(super) place: Place,
}

impl Failure {
    pub(super) fn at(place: Place, kind: impl Into<RunErrorKind>) -> Self {
        Self { kind: kind.into(), place }
    }

    /// A panic's payload as a failure.
    pub(super) fn panic(place: Place, payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self { kind: RunErrorKind::Panic(text.unwrap_or_else(|| "without a message".into())), place }
    }

    pub(super) fn internal(what: &'static str) -> Self {
        Self { kind: RunErrorKind::Internal(what), place: Place::Nowhere }
    }
}

impl From<KernelError> for RunErrorKind {
    fn from(error: KernelError) -> Self {
        Self::Kernel(Box::new(error))
    }
}
