//! Errors of sessions: one opaque error with a kind, and the file, node, device or input that it concerns.

use crate::compiled::CompiledError;
use anabranch_base::bytes::exact_bytes;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Line;
use anabranch_device::DetectError;
use anabranch_execute::ExecError;
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{OutOfMemory, TensorSpec};
use anabranch_learning::CalibrationError;
use anabranch_onnx::import::ImportError;
use anabranch_onnx::lower::{LowerError, Obstacle};
use anabranch_planning::PlanningError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

/// Reason that a model cannot be opened, prepared or run.
///
/// The text names the object of the error and the next step, in the library's terms. [`Self::kind`] distinguishes the
/// reasons.
#[derive(Clone)]
pub struct SessionError {
    cause: Arc<Cause>,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Compiled(#[from] CompiledError),
    #[error(transparent)]
    Lower(#[from] LowerError),
    #[error("{0}")]
    Memory(OutOfMemory),
    #[error(transparent)]
    Detect(#[from] DetectError),
    #[error(transparent)]
    Planning(#[from] PlanningError),
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Shared(#[from] SharedShortage),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{failed}; state `{input}` was lost with this run: the next run starts from the first state")]
    Lost { failed: Arc<Cause>, input: String },
}

/// A plan that fits a device alone, but not together with plans that are in use.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{device}` has {} of memory, and plans in use hold {}, but this plan needs {} more; release plans, or raise \
     the memory limit",
    exact_bytes(*limit), exact_bytes(*held), exact_bytes(*needed)
)]
pub(super) struct SharedShortage {
    pub(super) device: String,
    pub(super) needed: u64,
    pub(super) held: u64,
    pub(super) limit: u64,
}

/// Fault of the given inputs.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("input `{name}` ({expected}) is missing, and has no default value; give the input")]
    Missing { name: String, expected: String },
    #[error("input `{name}` is {given}, but the model expects {expected}")]
    Spec { name: String, given: TensorSpec, expected: String },
    #[error(
        "input `{name}` is read on the host, but the tensor is on {device}; copy it to the host, or let the \
         input stay there"
    )]
    Away { name: String, device: String },
    #[error("input `{name}` has other elements than the plan was made for; prepare a plan for these inputs")]
    Fixed { name: String },
    #[error(
        "input `{name}` is {given}, but {file} was compiled for {expected}; compile it again, or run the model itself"
    )]
    Compiled { name: String, given: TensorSpec, expected: String, file: String },
    #[error(
        "input `{name}` determines shapes, but {file} was compiled for other elements; compile it again, or run \
         the model itself"
    )]
    CompiledFixed { name: String, file: String },
    #[error("more inputs that determine shapes were found meanwhile; try again")]
    Undecided,
    #[error("shapes depend on computed values, so the model runs in phases; only a planned run supports phases")]
    Phases,
    #[error(
        "shapes depend on computed values, so the model runs in phases, and values are on the host between \
         phases; let no input or output stay on another device"
    )]
    Resident,
    #[error("output `{name}` is {made}, but the model declares {declared}; export the model with the actual type")]
    Made { name: String, made: String, declared: String },
    #[error("input `{name}` is given {given}, but the model expects {expected}; {advice}")]
    Parts { name: String, given: String, expected: String, advice: String },
    #[error("cannot bind the state: the model has no {role} `{name}`{fed}; its {role}s are {known}{meant}")]
    NoState { role: &'static str, name: String, fed: String, known: String, meant: String },
    #[error("output `{output}` cannot be input `{input}` of the next run: types, ranks and known sizes must agree")]
    Unlike { output: String, input: String },
    #[error("outputs `{}` and `{}` are both bound to input `{input}`; bind one of them", outputs[0], outputs[1])]
    FedTwice { input: String, outputs: [String; 2] },
    #[error(
        "no output has a name that exporters use for state; bind some outputs to inputs, as in `present.*` to \
         `past_key_values.*`"
    )]
    Stateless,
    #[error("state `{name}` has {old} elements along its growing axis, but a size of {size} cannot hold them")]
    Shorter { name: String, old: usize, size: usize },
    #[error("no node produces value `{name}`")]
    Unmade { name: String },
    #[error("there is no device `{device}`; the devices are {known}")]
    NoDevice { device: String, known: String },
    #[error("the model has no input `{name}`; its inputs are {known}")]
    Unknown { name: String, known: String },
    #[error("input `{name}` has the shape {dims}; give the input, or sizes for {}", open.join(", "))]
    Shape { name: String, dims: String, open: Vec<String> },
    #[error("input `{name}`: {problem}; give the input, or smaller sizes")]
    TooLarge { name: String, problem: ShapeError },
    #[error(
        "`{device}` may hold {}, but the inputs up to `{name}` take {}; raise the memory limit, or give smaller sizes",
        exact_bytes(*limit), exact_bytes(*needed)
    )]
    AboveLimit { name: String, device: String, needed: u64, limit: u64 },
    #[error("input `{name}` takes {}, more memory than the system has left", exact_bytes(*bytes as u64))]
    NoMemory { name: String, bytes: usize },
}

/// Facts of an error besides its text.
struct About<'a> {
    kind: ErrorKind,
    file: Option<&'a Path>,
    node: Option<&'a str>,
    device: Option<&'a str>,
    input: Option<&'a str>,
    symbol: Option<&'a str>,
}

/// Runs work in which a small tensor may find no memory. [`anabranch_kernels::Buffer::zeroed`] then panics, and the
/// panic becomes an error.
pub(super) fn within_memory<T>(work: impl FnOnce() -> Result<T, SessionError>) -> Result<T, SessionError> {
    // Unfinished values are dropped, and locks outlive a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| match payload.downcast_ref() {
        Some(shortage) => Err(SessionError { cause: Arc::new(Cause::Memory(*shortage)) }),
        None => resume_unwind(payload),
    })
}

impl SessionError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.about().kind
    }

    /// Returns the file: of the model, the plan or the platform.
    pub fn file(&self) -> Option<&Path> {
        self.about().file
    }

    /// Returns the node's name.
    pub fn node(&self) -> Option<&str> {
        self.about().node
    }

    /// Returns the device's name, or a link's as `from -> to`.
    pub fn device(&self) -> Option<&str> {
        self.about().device
    }

    /// Returns the input's name.
    pub fn input(&self) -> Option<&str> {
        self.about().input
    }

    /// Returns the dimension, by its symbol or by input and axis (`x[1]`).
    pub fn symbol(&self) -> Option<&str> {
        self.about().symbol
    }

    /// Returns the field of [`Limits`](anabranch_onnx::import::Limits) that the model exceeds, if a greater limit would
    /// admit the model.
    pub fn limit(&self) -> Option<&'static str> {
        if let Cause::Import(error) = &*self.cause { error.limit_name() } else { None }
    }

    /// Returns the dimension without a size, by symbol or by input and axis, if a size is missing.
    pub fn missing_size(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Input(InputError::Shape { .. }) => self.symbol(),
            Cause::Lower(error) if error.is_open => self.symbol(),
            _ => None,
        }
    }

    /// Returns the nodes that cannot be lowered, in the model's order, if that is the error.
    pub fn obstacles(&self) -> &[Obstacle] {
        if let Cause::Lower(error) = &*self.cause { error.obstacles() } else { &[] }
    }

    /// Adds that a run which failed has lost a state, by its input.
    pub(super) fn with_lost_state(self, input: &str) -> Self {
        Self { cause: Arc::new(Cause::Lost { failed: self.cause, input: input.to_owned() }) }
    }

    /// Whether the run ended because its [`CancelToken`](anabranch_execute::CancelToken) was used.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether the error is the end of a caller's time, or its cancellation.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(self.kind(), ErrorKind::Cancelled | ErrorKind::Timeout)
    }

    /// Whether there is no plan within the devices' memory and the constraints: another strategy may find a plan.
    pub fn is_infeasible(&self) -> bool {
        matches!(self.kind(), ErrorKind::Memory | ErrorKind::Infeasible)
    }

    /// Whether more inputs were found to decide shapes than the caller knew.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(*self.cause, Cause::Input(InputError::Undecided))
    }

    fn about(&self) -> About<'_> {
        self.cause.about()
    }
}

impl Cause {
    fn about(&self) -> About<'_> {
        match self {
            Self::Lost { failed, .. } => failed.about(),
            Self::Import(error) => About { file: error.file(), node: error.node(), ..About::of(ErrorKind::Model) },
            Self::Compiled(error) => About { file: Some(error.file()), ..About::of(ErrorKind::Model) },
            Self::Lower(error) => lower(error),
            Self::Memory(_) => About::of(ErrorKind::Memory),
            Self::Detect(error) => About::of(ErrorKind::Device).device(&error.device),
            Self::Planning(error) | Self::Calibration(CalibrationError::Planning(error)) => planning(error),
            Self::Calibration(CalibrationError::Exec(error)) | Self::Exec(error) => exec(error),
            Self::Shared(shortage) => About::of(ErrorKind::Memory).device(&shortage.device),
            Self::Input(InputError::Missing { name, .. }) => About::of(ErrorKind::MissingInput).input(name),
            Self::Input(InputError::Shape { name, open, .. }) => {
                About { symbol: open.first().map(String::as_str), ..About::of(ErrorKind::Dimension).input(name) }
            }
            Self::Input(InputError::TooLarge { name, .. }) => About::of(ErrorKind::Dimension).input(name),
            Self::Input(InputError::AboveLimit { name, device, .. }) => {
                About::of(ErrorKind::Memory).device(device).input(name)
            }
            Self::Input(InputError::NoMemory { name, .. }) => About::of(ErrorKind::Memory).input(name),
            Self::Input(InputError::NoDevice { .. }) => About::of(ErrorKind::Device),
            Self::Input(InputError::FedTwice { input: name, .. } | InputError::Shorter { name, .. }) => {
                About::of(ErrorKind::Input).input(name)
            }
            Self::Input(InputError::NoState { .. } | InputError::Unlike { .. } | InputError::Stateless) => {
                About::of(ErrorKind::Input)
            }
            Self::Input(
                InputError::Spec { name, .. }
                | InputError::Parts { name, .. }
                | InputError::Unknown { name, .. }
                | InputError::Away { name, .. }
                | InputError::Compiled { name, .. }
                | InputError::CompiledFixed { name, .. }
                | InputError::Fixed { name },
            ) => About::of(ErrorKind::Input).input(name),
            Self::Input(InputError::Phases) => About::of(ErrorKind::Infeasible),
            Self::Input(InputError::Resident | InputError::Made { .. }) => About::of(ErrorKind::Unsupported),
            Self::Input(InputError::Unmade { .. }) => About::of(ErrorKind::Model),
            Self::Input(InputError::Undecided) => About::of(ErrorKind::Internal),
        }
    }
}

impl<'a> About<'a> {
    fn of(kind: ErrorKind) -> Self {
        Self { kind, file: None, node: None, device: None, input: None, symbol: None }
    }

    fn device(self, device: &'a str) -> Self {
        Self { device: Some(device), ..self }
    }

    fn input(self, input: &'a str) -> Self {
        Self { input: Some(input), ..self }
    }
}

fn lower(error: &LowerError) -> About<'_> {
    let (node, input, symbol) = (error.node.as_deref(), error.input.as_deref(), error.symbol.as_deref());
    About { node, input, symbol, ..About::of(error.kind) }
}

fn planning(error: &PlanningError) -> About<'_> {
    About { file: error.file(), node: error.node(), device: error.device(), ..About::of(error.kind()) }
}

fn exec(error: &ExecError) -> About<'_> {
    About { node: error.node.as_deref(), device: error.device.as_deref(), ..About::of(error.kind) }
}

/// Converts each lower-level error to a session error.
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
    CompiledError,
    LowerError,
    DetectError,
    PlanningError,
    CalibrationError,
    ExecError,
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
        Line(&self.cause).fmt(f)
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.cause)
    }
}
