//! Errors of text generation.

use anabranch_base::quoted::Line;
use anabranch_session::{ErrorKind, SessionError};
use std::fmt;
use std::path::{Path, PathBuf};

/// Reason that no text can be generated: one line that names the file, the setting or the token, and the next step.
#[derive(Clone)]
pub struct GenerateError {
    cause: Cause,
}

#[derive(Clone, Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("{}: {what}", file.display())]
    File { file: PathBuf, what: String },
    #[error("{0}")]
    Given(String),
}

impl GenerateError {
    /// An error in a file.
    pub(crate) fn file(file: &Path, what: impl fmt::Display) -> Self {
        Self { cause: Cause::File { file: file.to_owned(), what: what.to_string() } }
    }

    /// An error in what the caller gave, or in what the model made of it.
    pub(crate) fn given(what: impl fmt::Display) -> Self {
        Self { cause: Cause::Given(what.to_string()) }
    }

    /// An error in a run of a model that is one of several.
    pub(crate) fn run(file: &Path, error: SessionError) -> Self {
        match error.kind() {
            ErrorKind::Input
            | ErrorKind::MissingInput
            | ErrorKind::Dimension
            | ErrorKind::Model
            | ErrorKind::Unsupported => Self::file(file, error),
            _ => error.into(),
        }
    }

    /// Returns the kind of the cause.
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::Session(error) => error.kind(),
            Cause::File { .. } => ErrorKind::Model,
            Cause::Given(_) => ErrorKind::Input,
        }
    }

    /// The session's error, if it is one.
    pub fn session(&self) -> Option<&SessionError> {
        if let Cause::Session(error) = &self.cause { Some(error) } else { None }
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }
}

impl From<SessionError> for GenerateError {
    fn from(error: SessionError) -> Self {
        Self { cause: error.into() }
    }
}

impl fmt::Debug for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line(&self.cause).fmt(f)
    }
}

impl std::error::Error for GenerateError {}
