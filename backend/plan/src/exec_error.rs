//! Errors of runs and of their preparation.

use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::constant::ConstantError;
use anabranch_kernels::{KernelError, OutOfMemory, panic_text};
use std::any::Any;
use std::fmt;

/// Reason that an executor could not be made, or that a run failed, with the place of the failure.
///
/// After a failed run all workers are idle again, and the executor stays usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Node that was running, or whose value was being transferred, if there is one.
    pub node: Option<String>,
    /// Device, or link as `from -> to`, that caused the error, if any.
    pub device: Option<String>,
    text: String,
}

impl ExecError {
    /// Creates an error without a place.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, node: None, device: None, text: text.into() }
    }

    /// Sets the node and the device or link of the error (default: none).
    pub fn at(self, node: Option<String>, device: Option<String>) -> Self {
        Self { node, device, ..self }
    }

    /// Sets the device of the error (default: none).
    pub fn on(self, device: impl Into<String>) -> Self {
        Self { device: Some(device.into()), ..self }
    }

    /// Creates the error of a node without a kernel.
    pub fn kernel(node: &str, device: &str, error: KernelError) -> Self {
        Self { node: Some(node.to_owned()), ..Self::from(error).on(device) }
    }

    /// Creates the error of a device that could not be opened, or whose buffers could not be made.
    pub fn unusable(device: &str, error: &KernelError) -> Self {
        if let KernelError::DeviceMemory { .. } = error {
            return Self::new(ErrorKind::Memory, error.to_string()).on(device);
        }
        Self::new(ErrorKind::DeviceFailure, format!("it cannot be used: {error}")).on(device)
    }

    /// Creates the error of a device that has no buffer for a value, or another thing, of this name.
    pub fn without_buffer(device: &str, name: &str, error: &KernelError) -> Self {
        let refused = Self::unusable(device, error);
        Self { text: format!("{name}: {}", refused.text), ..refused }
    }

    /// Creates the error of a device for which the system has no memory.
    pub fn memory(device: &str) -> Self {
        let text = "out of memory for the data that the plan keeps there; lower the device's memory limit, or \
             close other programs";
        Self::new(ErrorKind::Memory, text).on(device)
    }

    /// Creates the error of a thread that the system does not start.
    pub fn no_thread(name: &str, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::DeviceFailure, format!("the system cannot start a thread for it: {error}")).on(name)
    }

    /// Creates the error of a panic from its payload.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        if let Some(shortage) = payload.downcast_ref::<OutOfMemory>() {
            return Self::new(ErrorKind::Memory, shortage.to_string());
        }
        let text = panic_text(payload).unwrap_or("without a message");
        Self::new(ErrorKind::Kernel, format!("the kernel panicked: {text}"))
    }

    /// Notes that the node is the last of this many kernels that a GPU was given together, each of which may be the
    /// cause.
    pub fn among(mut self, kernels: usize) -> Self {
        if kernels > 1 {
            self.text += &format!(" (this node, or one of the {} kernels submitted with it)", kernels - 1);
        }
        self
    }

    /// Creates the error of a bug in the runtime itself.
    pub fn internal(what: &str) -> Self {
        Self::new(ErrorKind::Internal, format!("{what}; this is a bug in Anabranch, please report it"))
    }
}

impl From<KernelError> for ExecError {
    fn from(error: KernelError) -> Self {
        let kind = match error {
            KernelError::Memory { .. } | KernelError::DeviceMemory { .. } => ErrorKind::Memory,
            _ => ErrorKind::Kernel,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<ConstantError> for ExecError {
    fn from(error: ConstantError) -> Self {
        let kind = match error {
            ConstantError::OutOfMemory { .. } => ErrorKind::Memory,
            _ => ErrorKind::Model,
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
