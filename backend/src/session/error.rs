//! Why a session cannot do what it was asked: one opaque error with a kind, and the file, node, device or input it is about.

use crate::constant::ConstantError;
use crate::device::DetectError;
use crate::execute::{ExecError, RunError, RunErrorKind};
use crate::import::ImportError;
use crate::learning::CalibrationError;
use crate::lower::LowerError;
use crate::planning::{PlanningError, PlanningErrorKind};
use anabranch_kernels::TensorSpec;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why a model cannot be opened, prepared or run.
///
/// The text names what it is about and what to do next, in the library's terms. [`Self::kind`] tells the reasons apart.
#[derive(Clone)]
pub struct SessionError {
    cause: Arc<Cause>,
}

/// What a [`SessionError`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be read, or is no sound ONNX model.
    Model,
    /// The model uses operators that there is no kernel for.
    Unsupported,
    /// A dimension of an input has no size, or two.
    Dimension,
    /// An input that the model needs is not given.
    MissingInput,
    /// A given input is not of the model, or of another type or shape than the model declares.
    Input,
    /// The options name a device that is not there, or nothing that it can do.
    Device,
    /// Everything was to run on a GPU, and there is none.
    NoGpu,
    /// There is no such strategy or device to place on.
    Strategy,
    /// A constraint names a node or device that is not there.
    Constraint,
    /// A plan file cannot be read, or does not fit model or devices.
    PlanFile,
    /// A platform file cannot be read, or does not fit the machine.
    PlatformFile,
    /// What the model needs does not fit the devices' memory limits.
    Memory,
    /// There is no placement within the constraints, for another reason than memory.
    Infeasible,
    /// A device cannot be used, or was lost.
    DeviceFailure,
    /// A kernel failed.
    Kernel,
    /// The run's [`CancelToken`](crate::execute::CancelToken) was used.
    Cancelled,
    /// The run took longer than its options allow.
    Timeout,
    /// A fault of Anabranch.
    Internal,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Lower(#[from] LowerError),
    #[error(transparent)]
    Detect(#[from] DetectError),
    #[error(transparent)]
    Planning(#[from] PlanningError),
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    #[error(transparent)]
    Ready(#[from] ExecError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Shared(#[from] SharedShortage),
    #[error(transparent)]
    Input(#[from] InputError),
}

/// A plan that fits a device alone, and not beside what else the session keeps there and is in use.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{device}` has {limit} bytes, of which plans in use hold {held}; this one needs {needed} more: let go of plans, or let the \
     device hold more"
)]
pub(super) struct SharedShortage {
    pub(super) device: String,
    pub(super) needed: u64,
    pub(super) held: u64,
    pub(super) limit: u64,
}

/// What is wrong with the inputs that were given.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("input `{name}` ({expected}) is not given; every input without a default must be")]
    Missing { name: String, expected: String },
    #[error("input `{name}` is {given}, but the model wants {expected}")]
    Spec { name: String, given: TensorSpec, expected: String },
    #[error("input `{name}` is read on the host, but the tensor is on {device}; read it, or let the input stay there")]
    Away { name: String, device: String },
    #[error("there is no device `{device}`; the devices are {known}")]
    NoDevice { device: String, known: String },
    #[error("the model has no input `{name}`; its inputs are {known}")]
    Unknown { name: String, known: String },
    #[error("input `{name}` has the shape {dims}; give the input, or the sizes of its symbols")]
    Shape { name: String, dims: String },
}

impl SessionError {
    /// What it comes from.
    pub fn kind(&self) -> ErrorKind {
        match &*self.cause {
            Cause::Import(_) => ErrorKind::Model,
            Cause::Lower(error) => lower_kind(error),
            Cause::Detect(_) => ErrorKind::Device,
            Cause::Planning(error) => planning_kind(error),
            Cause::Calibration(error) => match error {
                CalibrationError::Planning(error) => planning_kind(error),
                CalibrationError::Ready(error) => ready_kind(error),
                CalibrationError::Run(error) => run_kind(&error.kind),
            },
            Cause::Ready(error) => ready_kind(error),
            Cause::Run(error) => run_kind(&error.kind),
            Cause::Shared(_) => ErrorKind::Memory,
            Cause::Input(InputError::Missing { .. }) => ErrorKind::MissingInput,
            Cause::Input(InputError::Shape { .. }) => ErrorKind::Dimension,
            Cause::Input(InputError::NoDevice { .. }) => ErrorKind::Device,
            Cause::Input(InputError::Spec { .. } | InputError::Unknown { .. } | InputError::Away { .. }) => {
                ErrorKind::Input
            }
        }
    }

    /// The file: of the model, the plan or the platform.
    pub fn file(&self) -> Option<&Path> {
        match &*self.cause {
            Cause::Import(error) => error.file(),
            Cause::Planning(error) => error.file(),
            _ => None,
        }
    }

    /// The node's name.
    pub fn node(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Import(error) => error.node(),
            Cause::Lower(LowerError::Unsupported(unsupported)) => Some(&unsupported.node),
            Cause::Lower(LowerError::Node { node, .. }) => Some(node),
            Cause::Planning(error) | Cause::Calibration(CalibrationError::Planning(error)) => error.node(),
            Cause::Ready(ExecError::Kernel { node, .. }) => Some(node),
            Cause::Run(error) => error.node.as_deref(),
            _ => None,
        }
    }

    /// The device's name, or a link's as `from -> to`.
    pub fn device(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Detect(DetectError::UnknownDevice { device, .. } | DetectError::Slowdown { device, .. }) => {
                Some(device)
            }
            Cause::Planning(error) | Cause::Calibration(CalibrationError::Planning(error)) => error.device(),
            Cause::Shared(SharedShortage { device, .. }) => Some(device),
            Cause::Ready(ExecError::Kernel { device, .. } | ExecError::Device { device, .. }) => Some(device),
            Cause::Run(error) => error.device.as_deref(),
            _ => None,
        }
    }

    /// The input's name.
    pub fn input(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Lower(
                LowerError::Unbound { input, .. }
                | LowerError::Unknown { input, .. }
                | LowerError::Conflict { input, .. }
                | LowerError::InputShape { input, .. }
                | LowerError::NoSuchInput { input, .. },
            ) => Some(input),
            Cause::Input(
                InputError::Missing { name, .. }
                | InputError::Spec { name, .. }
                | InputError::Unknown { name, .. }
                | InputError::Away { name, .. }
                | InputError::Shape { name, .. },
            ) => Some(name),
            _ => None,
        }
    }

    /// The symbolic dimension.
    pub fn symbol(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Lower(
                LowerError::Unbound { symbol, .. }
                | LowerError::Conflict { symbol, .. }
                | LowerError::NoSuchSymbol { symbol, .. },
            ) => Some(symbol),
            _ => None,
        }
    }

    /// Whether the run ended because its [`CancelToken`](crate::execute::CancelToken) was used.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether there is no plan within the devices' memory and the constraints: another strategy may find one.
    pub fn is_infeasible(&self) -> bool {
        matches!(self.kind(), ErrorKind::Memory | ErrorKind::Infeasible)
    }
}

fn lower_kind(error: &LowerError) -> ErrorKind {
    match error {
        LowerError::Unsupported(_) | LowerError::Opset { .. } => ErrorKind::Unsupported,
        LowerError::Unbound { .. }
        | LowerError::Unknown { .. }
        | LowerError::Conflict { .. }
        | LowerError::NoSuchSymbol { .. } => ErrorKind::Dimension,
        LowerError::InputShape { .. } | LowerError::NoSuchInput { .. } | LowerError::InputTooLarge { .. } => {
            ErrorKind::Input
        }
        LowerError::Constant(error) => constant_kind(error),
        LowerError::NoOutput(_) | LowerError::Node { .. } => ErrorKind::Model,
    }
}

fn planning_kind(error: &PlanningError) -> ErrorKind {
    match error.kind() {
        PlanningErrorKind::PlatformFile => ErrorKind::PlatformFile,
        PlanningErrorKind::Strategy => ErrorKind::Strategy,
        PlanningErrorKind::NoGpu => ErrorKind::NoGpu,
        PlanningErrorKind::PlanFile => ErrorKind::PlanFile,
        PlanningErrorKind::Constraint => ErrorKind::Constraint,
        PlanningErrorKind::Memory => ErrorKind::Memory,
        PlanningErrorKind::Infeasible => ErrorKind::Infeasible,
        PlanningErrorKind::Internal => ErrorKind::Internal,
    }
}

fn constant_kind(error: &ConstantError) -> ErrorKind {
    match error {
        ConstantError::OutOfMemory { .. } => ErrorKind::Memory,
        _ => ErrorKind::Model,
    }
}

fn ready_kind(error: &ExecError) -> ErrorKind {
    match error {
        ExecError::Kernel { .. } => ErrorKind::Kernel,
        ExecError::Constant(error) => constant_kind(error),
        ExecError::Memory { .. } => ErrorKind::Memory,
        ExecError::Internal(_) => ErrorKind::Internal,
        _ => ErrorKind::DeviceFailure,
    }
}

fn run_kind(kind: &RunErrorKind) -> ErrorKind {
    match kind {
        RunErrorKind::InputCount { .. }
        | RunErrorKind::Input(_)
        | RunErrorKind::ResidentCount { .. }
        | RunErrorKind::Misplaced(_) => ErrorKind::Input,
        RunErrorKind::Kernel(_) | RunErrorKind::Panic(_) => ErrorKind::Kernel,
        RunErrorKind::DeviceLost(_) => ErrorKind::DeviceFailure,
        RunErrorKind::Rebuild(error) => ready_kind(error),
        RunErrorKind::Cancelled => ErrorKind::Cancelled,
        RunErrorKind::Timeout(_) => ErrorKind::Timeout,
        RunErrorKind::OutOfMemory { .. } | RunErrorKind::Memory(_) => ErrorKind::Memory,
        RunErrorKind::Stalled(_) | RunErrorKind::Internal(_) => ErrorKind::Internal,
    }
}

/// Each error below a session's becomes one.
macro_rules! from_causes {
    ($($error:ty),+) => {
        $(impl From<$error> for SessionError {
            fn from(error: $error) -> Self {
                Self { cause: Arc::new(error.into()) }
            }
        })+
    };
}

from_causes!(
    ImportError,
    LowerError,
    DetectError,
    PlanningError,
    CalibrationError,
    ExecError,
    RunError,
    SharedShortage,
    InputError
);

impl fmt::Debug for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.cause)
    }
}
