//! Why a model could not be loaded, in words that name the file, the node or tensor, and what to do next.

use super::attribute::AttributeError;
use super::external::ExternalError;
use super::scan::ScanError;
use crate::constant::ConstantError;
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{DType, TensorSpec};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A model that could not be loaded.
#[derive(Debug)]
pub struct ImportError {
    file: Option<PathBuf>,
    kind: Box<ImportErrorKind>,
}

impl ImportError {
    pub(super) fn new(file: Option<&Path>, kind: ImportErrorKind) -> Self {
        Self { file: file.map(Path::to_path_buf), kind: Box::new(kind) }
    }

    /// The model's file, if it was loaded from one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What is wrong.
    pub fn kind(&self) -> &ImportErrorKind {
        &self.kind
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: {}", file.display(), self.kind),
            None => write!(f, "model: {}", self.kind),
        }
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.kind)
    }
}

/// What is wrong with a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
    /// A directory, a pipe, a device.
    #[error("is not a regular file; name an ONNX file")]
    NotAFile,
    /// The file is larger than allowed.
    #[error("takes {bytes} bytes, above the limit of {limit}; raise `Limits::file_bytes` if you trust the file")]
    FileTooLarge {
        /// The file's size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There is not enough memory for the file.
    #[error("takes {bytes} bytes, more memory than there is")]
    OutOfMemory {
        /// The file's size.
        bytes: u64,
    },
    /// The bytes are not an ONNX model, or exceed a limit.
    #[error("is refused as an ONNX model: {0}")]
    Scan(#[from] ScanError),
    /// The bytes are protobuf but not an ONNX model.
    #[error("is not an ONNX model: {0}; check that the file is complete, or export it again")]
    Decode(#[from] prost::DecodeError),
    /// There is no graph, as in an empty file.
    #[error("holds no graph; check that the file is complete, or export it again")]
    NoGraph,
    /// No version of the standard operators, or one that is not known.
    #[error(transparent)]
    Opset(#[from] OpsetError),
    /// A constant that cannot be read.
    #[error("{role} {}: {problem}", Name(name))]
    Tensor {
        /// What the tensor is for: `initializer`, or `attribute … of node …`.
        role: String,
        /// The tensor's name.
        name: String,
        /// What is wrong.
        problem: Box<TensorProblem>,
    },
    /// An input, output or initialiser of the graph that is declared wrongly.
    #[error("{role} {}: {problem}", Name(name))]
    Value {
        /// `input`, `output` or `initializer`.
        role: &'static str,
        /// The value's name.
        name: String,
        /// What is wrong.
        problem: ValueProblem,
    },
    /// A node that cannot be read.
    #[error("node {} ({}): {problem}", Name(node), Name(op_type))]
    Node {
        /// The node's name, or the one made for it.
        node: String,
        /// Its operator.
        op_type: String,
        /// What is wrong.
        problem: NodeProblem,
    },
    /// An attribute that cannot be read.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
}

/// Why a model's operator sets are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpsetError {
    /// The model does not say which standard operators it uses.
    #[error("does not say which version of the standard operators it uses; export it with an `opset_import`")]
    Missing,
    /// The model gives two versions for a domain.
    #[error("gives two versions for the operator domain {}; export it again", Name(.0))]
    Twice(String),
    /// A version that this program does not know.
    #[error("uses opset {found}; versions {oldest} to {newest} are known: convert it with `onnx.version_converter`")]
    Unknown {
        /// The model's version.
        found: i64,
        /// The oldest version known.
        oldest: i64,
        /// The newest version known.
        newest: i64,
    },
}

/// Why a constant cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// The element type has no counterpart here.
    #[error("elements of type {0} are not supported; cast it to a type of at least 8 bits before exporting")]
    ElementType(ElementTypeName),
    /// A negative dimension.
    #[error("dimension {0} is negative or exceeds the address space")]
    Dimension(i64),
    /// The shape is too large.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The data has the wrong size.
    #[error("{spec} takes {expected} {unit}, but {found} are there")]
    Size {
        /// Type and shape.
        spec: TensorSpec,
        /// `bytes` or `elements`.
        unit: &'static str,
        /// What type and shape ask for.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The data is in a field for another element type, or in two fields.
    #[error("{0} data must be in `raw_data` or in the one field that ONNX gives for its type, and nowhere else")]
    Field(DType),
    /// An element does not fit its type.
    #[error("element {index} is {value}, which is no {dtype}")]
    Element {
        /// Position of the element.
        index: usize,
        /// Its value.
        value: i128,
        /// The type.
        dtype: DType,
    },
    /// Packed data ends within an element.
    #[error("the data ends within an element")]
    Cut,
    /// All constants together are too large.
    #[error("its {bytes} bytes bring the tensors above the limit of {limit}; raise `Limits` if you trust the file")]
    Budget {
        /// The tensor's size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There is not enough memory.
    #[error("takes {bytes} bytes, more memory than there is")]
    OutOfMemory {
        /// The tensor's size.
        bytes: u64,
    },
    /// A sparse tensor whose indices do not fit it.
    #[error("is sparse, and {0}")]
    Sparse(&'static str),
    /// Data that cannot be read.
    #[error(transparent)]
    Constant(#[from] ConstantError),
    /// Data in another file that cannot be used.
    #[error(transparent)]
    External(#[from] ExternalError),
}

/// The name of an element type, or its number if it is not one of ONNX's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTypeName(pub i32);

impl fmt::Display for ElementTypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 29] = [
            "undefined",
            "float",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "int32",
            "int64",
            "string",
            "bool",
            "float16",
            "double",
            "uint32",
            "uint64",
            "complex64",
            "complex128",
            "bfloat16",
            "float8e4m3fn",
            "float8e4m3fnuz",
            "float8e5m2",
            "float8e5m2fnuz",
            "uint4",
            "int4",
            "float4e2m1",
            "float8e8m0",
            "uint2",
            "int2",
            "float6e2m3",
            "float6e3m2",
        ];
        match usize::try_from(self.0).ok().and_then(|index| NAMES.get(index)) {
            Some(name) => f.write_str(name),
            None => write!(f, "number {}", self.0),
        }
    }
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// There is none where one is needed.
    #[error("has no name")]
    Empty,
    /// It contains a control character.
    #[error("has a control character in its name")]
    Control,
}

/// What is wrong with an input, output or initialiser of the graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// Its name.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// There are two.
    #[error("is given twice; each name may stand for one value only")]
    Twice,
    /// A sequence, map or optional, or no type at all.
    #[error("is not declared as a tensor; only tensors can be inputs and outputs")]
    NotATensor,
    /// The element type has no counterpart here.
    #[error("elements of type {0} are not supported")]
    ElementType(ElementTypeName),
    /// A dimension beyond the address space.
    #[error("dimension {0} exceeds the address space")]
    Dimension(i64),
    /// No node makes this output.
    #[error("nothing makes it: no node, input or initializer has that name")]
    NotMade,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeProblem {
    /// The node's, an operator's or a value's name.
    #[error("{0} {1}")]
    Name(&'static str, NameProblem),
    /// It reads a value that nothing makes.
    #[error("reads {}, which no node, input or initializer makes", Name(.0))]
    MissingInput(String),
    /// It makes a value that something else makes.
    #[error("makes {}, which is made by {by} already; each value has one maker", Name(value))]
    SecondMaker {
        /// The value.
        value: String,
        /// Its first maker, in words.
        by: String,
    },
    /// It reads, by way of other nodes, what it makes.
    #[error("waits for its own output: {0}")]
    Cycle(String),
    /// It calls a function that the model defines.
    #[error("calls a function of the model's own; inline it with `onnx.inliner.inline_local_functions`")]
    LocalFunction,
    /// Two attributes of one name.
    #[error("has two attributes {}", Name(.0))]
    AttributeTwice(String),
}

/// A name from a file, quoted, with what a terminal might act on escaped, cut to a readable length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "`{}`", self.0.escape_debug()),
            Some((end, _)) => write!(f, "`{}…`", self.0[..end].escape_debug()),
        }
    }
}

/// [`Name`] as text.
pub(super) fn shortened(name: &str) -> String {
    Name(name).to_string()
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
        let problem = NodeProblem::MissingInput("x".into());
        let kind = ImportErrorKind::Node { node: "conv_1".into(), op_type: "Conv".into(), problem };
        let error = ImportError::new(Some(Path::new("m.onnx")), kind);
        assert_eq!(
            error.to_string(),
            "m.onnx: node `conv_1` (`Conv`): reads `x`, which no node, input or initializer makes"
        );
        assert_eq!(ElementTypeName(23).to_string(), "float4e2m1");
        assert_eq!(ElementTypeName(-1).to_string(), "number -1");
    }
}
