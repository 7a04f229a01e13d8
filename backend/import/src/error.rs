//! Errors of loading models, which name the file, the node or tensor, and the next step.

use anabranch_base::quoted::Line;
pub use anabranch_base::quoted::Name;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reason that a model could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Boxed, because decoding recurses: each frame holds several results.
    problem: Box<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    kind: ImportErrorKind,
    file: Option<PathBuf>,
    node: Option<String>,
    limit: Option<&'static str>,
    text: String,
    /// Position in the text at which the fault of the node starts, after the node's name, which may hold anything.
    detail: usize,
}

/// Kind of the reason for rejecting a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// The file, or a file with its data, does not exist, is not a regular file, or cannot be read.
    Io,
    /// The model exceeds one of the [`Limits`](super::Limits), or memory is short.
    Limit,
    /// The file is not a valid ONNX model.
    Malformed,
    /// The model uses unsupported features.
    Unsupported,
}

pub(crate) type Result<T> = std::result::Result<T, ImportError>;

impl ImportError {
    pub(super) fn new(kind: ImportErrorKind, text: impl Into<String>) -> Self {
        Self { problem: Box::new(Problem { kind, file: None, node: None, limit: None, text: text.into(), detail: 0 }) }
    }

    pub(super) fn limit(text: impl Into<String>) -> Self {
        Self::new(ImportErrorKind::Limit, text)
    }

    /// Creates the error of a file that exceeds a limit that its reader can raise.
    pub(super) fn over(limit: &'static str, text: impl fmt::Display) -> Self {
        let mut error = Self::limit(format!("{text}; raise the limit `{limit}` if you trust the file"));
        error.problem.limit = Some(limit);
        error
    }

    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Self::new(ImportErrorKind::Malformed, text)
    }

    pub(super) fn unsupported(text: impl Into<String>) -> Self {
        Self::new(ImportErrorKind::Unsupported, text)
    }

    pub(super) fn io(error: io::Error) -> Self {
        Self::new(ImportErrorKind::Io, format!("cannot be read: {error}"))
    }

    /// Replaces the text of the error.
    pub(super) fn map(mut self, words: impl FnOnce(&str) -> String) -> Self {
        self.problem.text = words(&self.problem.text);
        self.problem.detail = 0;
        self
    }

    /// Adds the graph's value or tensor `name` to the error.
    pub(super) fn of(self, role: &str, name: &str) -> Self {
        self.map(|text| format!("{role} {}: {text}", Name(name)))
    }

    /// Adds a node to the error.
    pub(super) fn of_node(self, name: &str, op_type: &str) -> Self {
        let node = format!("node {} ({}): ", Name(name), Name(op_type));
        let mut error = self.map(|text| format!("{node}{text}"));
        error.problem.detail = node.len();
        error.problem.node = Some(name.to_owned());
        error
    }

    pub(super) fn in_file(mut self, path: &Path) -> Self {
        self.problem.file = Some(path.to_owned());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ImportErrorKind {
        self.problem.kind
    }

    /// Returns the model's file, if it was loaded from a file.
    pub fn file(&self) -> Option<&Path> {
        self.problem.file.as_deref()
    }

    /// Returns the fault, without the file.
    pub fn reason(&self) -> &str {
        &self.problem.text
    }

    /// Returns the fault, without the file and the [node](Self::node).
    pub fn detail(&self) -> &str {
        &self.problem.text[self.problem.detail..]
    }

    /// Returns the field of [`Limits`](super::Limits) that is exceeded, if a greater limit would admit the file.
    pub fn limit_name(&self) -> Option<&'static str> {
        self.problem.limit
    }

    /// Returns the faulty node, if a node is the cause.
    pub fn node(&self) -> Option<&str> {
        self.problem.node.as_deref()
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { file, text, .. } = &*self.problem;
        match file {
            Some(file) => write!(f, "{}: {}", file.display(), Line(text)),
            None => write!(f, "model: {}", Line(text)),
        }
    }
}

impl std::error::Error for ImportError {}

/// Name of an element type, or its number if it is not one of ONNX's.
pub(super) fn element_type_name(code: i64) -> String {
    const NAMES: &str = "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64 \
        complex64 complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4 float4e2m1 \
        float8e8m0 uint2 int2 float6e2m3 float6e3m2";
    let name = usize::try_from(code).ok().and_then(|code| NAMES.split(' ').nth(code));
    name.map_or_else(|| format!("number {code}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_cut() {
        assert_eq!(Name("a/b.c").to_string(), "`a/b.c`");
        assert_eq!(Name("a\u{1b}[2Jb\0").to_string(), "`a\\u{1b}[2Jb\\0`");
        let long = Name(&"é".repeat(1000)).to_string();
        assert_eq!(long.chars().count(), 123);
    }

    #[test]
    fn an_error_names_file_and_what() {
        let error = ImportError::malformed("is wrong").of_node("conv_1", "Conv").in_file(Path::new("m.onnx"));
        assert_eq!(error.to_string(), "m.onnx: node `conv_1` (`Conv`): is wrong");
        assert_eq!((error.node(), error.file()), (Some("conv_1"), Some(Path::new("m.onnx"))));
        for name in ["conv_1", "a: b", "`: "] {
            let error = ImportError::malformed("one: is wrong").of_node(name, "Op: er").in_file(Path::new("m.onnx"));
            assert_eq!((error.node(), error.detail()), (Some(name), "one: is wrong"));
        }
        assert_eq!(ImportError::malformed("one: is wrong").detail(), "one: is wrong");
        assert_eq!([23, -1, 99].map(element_type_name), ["float4e2m1", "number -1", "number 99"]);
    }
}
