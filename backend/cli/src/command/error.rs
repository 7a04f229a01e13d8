//! The error that ends a command.

use super::exit::Exit;
use super::hints::hint;
use anabranch::files::without_os_errors;
use anabranch::interruption;
use anabranch::session::SessionError;
use anabranch_report::trial::TrialError;
use std::path::Path;

/// Error that ends a command: one line for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    message: String,
    exit: Exit,
}

impl CliError {
    fn new(message: &str, exit: Exit) -> Self {
        Self { message: without_os_errors(message), exit }
    }

    /// Returns the error of bad input or an infeasible request.
    pub(crate) fn input(error: impl std::fmt::Display) -> Self {
        Self::new(&error.to_string(), Exit::Input)
    }

    /// Returns the error of a file that cannot be read, written or used.
    pub(crate) fn in_file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::input(format!("{}: {error}", path.display()))
    }

    /// Returns an error that should not happen.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(&error.to_string(), Exit::Fault)
    }

    /// Returns the error of a failed check: outputs, times or a model that are not as expected.
    pub(crate) fn unexpected(message: String) -> Self {
        Self::new(&message, Exit::Unexpected)
    }

    /// Returns the exit code.
    pub(super) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether the user interrupted the command.
    pub(crate) fn is_interruption(&self) -> bool {
        self.exit == Exit::Interrupted
    }

    /// Whether it is a bug in Anabranch.
    pub(crate) fn is_fault(&self) -> bool {
        self.exit == Exit::Fault
    }

    /// Returns the error of an interruption by the user.
    pub(crate) fn interrupted() -> Self {
        Self { message: "interrupted".into(), exit: Exit::Interrupted }
    }
}

/// Writes the message to the user.
impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        let error: &dyn std::error::Error = &error;
        let is_cancelled = error.downcast_ref::<SessionError>().is_some_and(SessionError::is_cancelled);
        // An interruption may end placing a flow, calibrating or an exploration with an error of its own.
        if is_cancelled || interruption::is_due() {
            return Self::interrupted();
        }
        if let Some(hint) = error.downcast_ref().and_then(hint) {
            message = format!("{message} ({hint})");
        }
        match error.downcast_ref() {
            Some(TrialError::Fault(_)) => Self::internal(message),
            _ => Self::input(message),
        }
    }
}
