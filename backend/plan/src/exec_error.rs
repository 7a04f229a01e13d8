//! How a run, or the preparation of one, can fail.

use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::constant::ConstantError;
use anabranch_kernels::{KernelError, OutOfMemory, panic_text};
use std::any::Any;
use std::fmt;

/// Why an executor could not be made, or a run of it failed, and where. After a failed run all workers are idle again, and the executor
/// can be used on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecError {
    /// What it comes from.
    pub kind: ErrorKind,
    /// The node that was at work, or whose value was on its way, if there is one.
    pub node: Option<String>,
    /// The device, or the link as `from -> to`, if one is to blame.
    pub device: Option<String>,
    text: String,
}

impl ExecError {
    /// An error without a place.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, node: None, device: None, text: text.into() }
    }

    /// The same at this node, on this device or link.
    pub fn at(self, node: Option<String>, device: Option<String>) -> Self {
        Self { node, device, ..self }
    }

    /// The same on this device.
    pub fn on(self, device: impl Into<String>) -> Self {
        Self { device: Some(device.into()), ..self }
    }

    /// A node without a kernel.
    pub fn kernel(node: &str, device: &str, error: KernelError) -> Self {
        Self { node: Some(node.to_owned()), ..Self::from(error).on(device) }
    }

    /// A device that could not be opened, or whose buffers could not be made.
    pub fn unusable(device: &str, error: &KernelError) -> Self {
        Self::new(ErrorKind::DeviceFailure, format!("it cannot be used: {error}")).on(device)
    }

    /// A device whose memory the system does not give.
    pub fn memory(device: &str) -> Self {
        let text = "the system has no memory left for what the plan keeps there; give the device a lower limit, or close other programs";
        Self::new(ErrorKind::Memory, text).on(device)
    }

    /// A thread that the system does not give.
    pub fn no_thread(name: &str, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::DeviceFailure, format!("the system gives it no thread: {error}")).on(name)
    }

    /// What a panic's payload says.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        if let Some(shortage) = payload.downcast_ref::<OutOfMemory>() {
            return Self::new(ErrorKind::Memory, shortage.to_string());
        }
        let text = panic_text(payload).unwrap_or("without a message");
        Self::new(ErrorKind::Kernel, format!("the kernel panicked: {text}"))
    }

    /// The same of the last of so many kernels that a GPU was given at once, any of which may be to blame.
    pub fn among(mut self, kernels: usize) -> Self {
        if kernels > 1 {
            self.text += &format!(" (this node, or one of the {} kernels submitted with it)", kernels - 1);
        }
        self
    }

    /// A fault of the runtime itself.
    pub fn internal(what: &str) -> Self {
        Self::new(ErrorKind::Internal, format!("{what}; please report this as a fault of the runtime"))
    }
}

impl From<KernelError> for ExecError {
    fn from(error: KernelError) -> Self {
        let kind = match error {
            KernelError::Memory { .. } => ErrorKind::Memory,
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
