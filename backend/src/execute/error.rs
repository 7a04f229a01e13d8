//! How a run, or the preparation of one, can fail.

use crate::constant::ConstantError;
use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_kernels::{KernelError, TensorSpec};
use std::any::Any;
use std::fmt;

/// Why an executor could not be made, or a run of it failed, and where. After a failed run all workers are idle again, and the executor
/// can be used on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecError {
    /// What it comes from.
    pub kind: ExecErrorKind,
    /// The node that was at work, if one was.
    pub node: Option<String>,
    /// The device, or the link as `from -> to`, if one is to blame.
    pub device: Option<String>,
    text: String,
}

/// What an [`ExecError`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecErrorKind {
    /// The tensors given are not those that the plan reads, or not where it reads them.
    Input,
    /// A constant could not be read.
    Constant,
    /// There is no kernel for a node, or it refused its data or panicked.
    Kernel,
    /// A device cannot be used, or is none of the plan's.
    Device,
    /// A GPU is gone. The next run opens it again.
    DeviceLost,
    /// There is not enough memory.
    Memory,
    /// The caller's [`CancelToken`](super::CancelToken) was cancelled.
    Cancelled,
    /// The run took longer than allowed.
    Timeout,
    /// Nobody does anything and everybody waits: a fault of this program.
    Stalled,
    /// A promise that this program makes to itself does not hold.
    Internal,
}

impl ExecError {
    pub(super) fn new(kind: ExecErrorKind, text: impl Into<String>) -> Self {
        Self { kind, node: None, device: None, text: text.into() }
    }

    pub(super) fn at(self, node: Option<String>, device: Option<String>) -> Self {
        Self { node, device, ..self }
    }

    pub(super) fn on(self, device: impl Into<String>) -> Self {
        Self { device: Some(device.into()), ..self }
    }

    /// A node without a kernel.
    pub(super) fn kernel(node: &str, device: &str, error: KernelError) -> Self {
        Self { node: Some(node.to_owned()), ..Self::from(error).on(device) }
    }

    /// A device that could not be opened, or whose buffers could not be made.
    pub(super) fn unusable(device: &str, error: &KernelError) -> Self {
        Self::new(ExecErrorKind::Device, format!("it cannot be used: {error}")).on(device)
    }

    /// A device whose memory the system does not give.
    pub(super) fn memory(device: &str) -> Self {
        let text = "the system has no memory left for what the plan keeps there; give the device a lower limit, or close other programs";
        Self::new(ExecErrorKind::Memory, text).on(device)
    }

    /// A tensor of another type or shape than its input.
    pub(super) fn mismatch(input: &str, expected: &TensorSpec, given: &TensorSpec) -> Self {
        Self::new(ExecErrorKind::Input, format!("input {input:?} is {expected}, but {given} was given"))
    }

    pub(super) fn internal(what: &str) -> Self {
        Self::new(ExecErrorKind::Internal, format!("{what}; please report this as a fault of the runtime"))
    }
}

impl From<KernelError> for ExecError {
    fn from(error: KernelError) -> Self {
        Self::new(ExecErrorKind::Kernel, error.to_string())
    }
}

impl From<ConstantError> for ExecError {
    fn from(error: ConstantError) -> Self {
        let kind = match error {
            ConstantError::OutOfMemory { .. } => ExecErrorKind::Memory,
            _ => ExecErrorKind::Constant,
        };
        Self::new(kind, error.to_string())
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.device) {
            (Some(node), Some(device)) => write!(f, "node {node:?} on {device:?}: {}", self.text),
            (None, Some(device)) => write!(f, "{device:?}: {}", self.text),
            (_, None) => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for ExecError {}

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
    pub(super) error: ExecError,
    pub(super) place: Place,
}

impl Failure {
    pub(super) fn at(place: Place, error: impl Into<ExecError>) -> Self {
        Self { error: error.into(), place }
    }

    /// A panic's payload as a failure.
    pub(super) fn panic(place: Place, payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message");
        Self::at(place, ExecError::new(ExecErrorKind::Kernel, format!("the kernel panicked: {text}")))
    }

    pub(super) fn internal(what: &str) -> Self {
        ExecError::internal(what).into()
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::at(Place::Nowhere, error)
    }
}
