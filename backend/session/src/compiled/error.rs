//! Errors of compiled models, which name the file and say how to make it again.

use anabranch_base::quoted::Line;
use std::path::{Path, PathBuf};

/// Error of a compiled model that cannot be used, or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", file.display(), Line(text))]
pub struct CompiledError {
    file: PathBuf,
    text: String,
    is_damage: bool,
}

impl CompiledError {
    /// Creates the error of a damaged file, or of a file that this version never writes.
    pub(super) fn damaged(file: &Path, problem: impl std::fmt::Display) -> Self {
        let text = format!("is a compiled model, but {problem}; make it again with `anabranch compile`");
        Self { file: file.to_owned(), text, is_damage: true }
    }

    /// Creates the error of a sound file that is not usable on this machine.
    pub(crate) fn elsewhere(file: &Path, problem: impl std::fmt::Display) -> Self {
        let text = format!("{problem}; make it again for this machine with `anabranch compile`");
        Self { file: file.to_owned(), text, is_damage: false }
    }

    /// Creates the error of a file that cannot be read or written.
    pub(crate) fn io(file: &Path, error: impl std::fmt::Display) -> Self {
        Self { file: file.to_owned(), text: error.to_string(), is_damage: false }
    }

    /// Whether the file is unusable everywhere.
    pub(super) fn is_damage(&self) -> bool {
        self.is_damage
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}
