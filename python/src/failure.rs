//! Failures on their way to Python exceptions.

use anabranch::drops::DropsError;
use anabranch::files::without_os_errors;
use anabranch::flow::FlowError;
use anabranch::pipeline::PipelineError;
use anabranch::{ErrorKind, SessionError};
use anabranch_kernels::{OutOfMemory, panic_text};
use pyo3::prelude::*;
use std::any::Any;
use std::fmt::Display;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Text of an exception, and its subject.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    text: String,
    about: Box<About>,
}

/// Names of the subject.
#[derive(Debug, Default)]
struct About {
    file: Option<String>,
    node: Option<String>,
    device: Option<String>,
    input: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Display) -> Self {
        Self { kind, text: without_os_errors(&text.to_string()), about: Box::default() }
    }

    /// Returns the failure of an argument that cannot be used.
    pub(crate) fn argument(text: impl Display) -> Self {
        Self::new(ErrorKind::Input, text)
    }

    /// Returns a failure that should not happen.
    pub(crate) fn internal(text: impl Display) -> Self {
        Self::new(ErrorKind::Internal, format_args!("an internal error: {text}; please report it"))
    }

    /// Returns the failure of a panic.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        if let Some(short) = panic.downcast_ref::<OutOfMemory>() {
            return Self::new(ErrorKind::Memory, short);
        }
        Self::internal(panic_text(panic).unwrap_or("a panic without a message"))
    }

    /// Whether a run exceeded its time limit.
    pub(crate) fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// Returns the exception. `anabranch/errors.py` maps kinds to classes.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let Self { kind, text, about } = self;
        let About { file, node, device, input } = *about;
        let told = (format!("{kind:?}"), text, file, node, device, input);
        match py.import("anabranch.errors").and_then(|errors| errors.call_method1("of", told)) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let about = About {
            file: error.file().map(|file| file.display().to_string()),
            node: owned(error.node()),
            device: owned(error.device()),
            input: owned(error.input()),
        };
        let raised = error.limit().map(|limit| format!(" (limits={{\"{limit}\": N}})")).unwrap_or_default();
        Self { about: Box::new(about), ..Self::new(error.kind(), format_args!("{error}{raised}")) }
    }
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let input = owned(error.cause().input());
        let about = About { node: owned(error.node()), device: owned(error.device()), input, ..About::default() };
        Self { about: Box::new(about), ..Self::new(error.kind(), &error) }
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        let kind = match &error {
            FlowError::Cancelled => ErrorKind::Cancelled,
            FlowError::Place(_) | FlowError::Problem(_) => ErrorKind::Infeasible,
            FlowError::NoThread { .. } => ErrorKind::Memory,
            _ => ErrorKind::Input,
        };
        Self::new(kind, error)
    }
}

impl From<DropsError> for Failure {
    fn from(error: DropsError) -> Self {
        match error {
            DropsError::Flow(error) => error.into(),
            DropsError::Cancelled => Self::new(ErrorKind::Cancelled, error),
            error => Self::argument(error),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}
