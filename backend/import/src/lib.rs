//! Imports ONNX files as [`Model`]s.
//!
//! A file is foreign material. Its size and its structure ([`Limits`]) are checked before anything is decoded. Data in
//! other files is read only from regular files in the model's own directory. Every rule of a graph is checked before a
//! [`Model`] is returned. For any bytes, the result is a model or an [`ImportError`].
//!
//! This crate is a part of `anabranch`, not a public interface.
//!
//! ```
//! # mod anabranch { pub mod import { pub use anabranch_import::*; } }
//! use anabranch::import::{self, proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto}};
//!
//! let graph = GraphProto {
//!     node: vec![NodeProto::of("Relu", &["x"], &["y"])],
//!     input: vec![ValueInfoProto::f32s("x", &[1, 3])],
//!     output: vec![ValueInfoProto::f32s("y", &[1, 3])],
//!     ..GraphProto::default()
//! };
//! let model = import::from_bytes(&ModelProto::of(graph, 17).to_bytes(), None)?;
//! assert_eq!(model.nodes[0].name, "Relu_0");
//! # Ok::<(), import::ImportError>(())
//! ```
#![forbid(unsafe_code)]

pub mod attribute;
mod beneath;
mod beside;
mod declared;
pub mod error;
mod external;
mod functions;
mod graph;
pub mod item;
mod item_file;
mod labels;
mod limits;
pub mod model;
mod packed;
mod parameters;
pub mod part;
mod placeholder;
pub mod proto;
mod sort;
mod subgraph;
mod tensor;

pub use attribute::{Attribute, AttributeError};
pub use beside::data_files;
pub use error::{ImportError, ImportErrorKind};
pub use functions::DEEPEST as DEEPEST_GRAPHS;
pub use graph::OPSETS;
pub use item::Item;
pub use item_file::item_in_file;
pub use labels::Labels;
pub use limits::{LimitError, Limits};
pub use model::{Dim, Input, Kind, Model, Node, Output, Subgraph, ValueIndex};
pub use part::Part;
pub use placeholder::is_loose;
pub use tensor::dtype as element_type;

use anabranch_base::files;
use anabranch_ir::constant::ConstantFile;
use anabranch_kernels::Tensor;
use beneath::Directory;
use error::Result;
use graph::Problems;
use proto::{Reader, TensorProto};
use std::path::Path;
use std::sync::Arc;
use tensor::TensorReader;

/// Loads the model in the file `path` under the default [`Limits`].
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses unsupported features.
pub fn load(path: &Path) -> Result<Model> {
    load_within(path, &Limits::default())
}

/// Loads the model in the file `path`.
///
/// The data of its large tensors stays in the file, which is kept open. Data is read on demand, and rejected if the
/// file was changed since.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses unsupported features.
pub fn load_within(path: &Path, limits: &Limits) -> Result<Model> {
    read_file(path, limits, &mut Problems::fatal())
}

/// Reads as much of the model in the file `path` as possible, and returns it with at most 1000 problems.
///
/// Faulty inputs, constants and outputs are left out; faulty nodes stay as their operator alone.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model at all, or exceeds a limit.
pub fn survey(path: &Path, limits: &Limits) -> Result<(Model, Vec<ImportError>)> {
    let mut problems = Problems::gathered(1000);
    let model = read_file(path, limits, &mut problems)?;
    Ok((model, problems.found))
}

fn read_file(path: &Path, limits: &Limits, problems: &mut Problems) -> Result<Model> {
    // Links are followed once, before the model is read.
    let directory = Directory::of_model(path);
    let model = open(path, limits).and_then(|file| {
        directory.verify(&file.metadata().map_err(ImportError::io)?)?;
        let proto = proto::read(Reader::of_file(&file), limits)?;
        graph::build(&proto, &mut TensorReader::new(Some(Arc::new(file)), Some(directory), limits), problems)
    });
    model.map_err(|error| error.in_file(path))
}

/// Reads the model in `bytes`, under the default [`Limits`]. Data in other files is read from `directory`, and rejected
/// without one.
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use unsupported features.
pub fn from_bytes(bytes: &[u8], directory: Option<&Path>) -> Result<Model> {
    from_bytes_within(bytes, directory, &Limits::default())
}

/// Reads a model as [`from_bytes`] does, under given [`Limits`].
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use unsupported features.
pub fn from_bytes_within(bytes: &[u8], directory: Option<&Path>, limits: &Limits) -> Result<Model> {
    check_size(bytes.len() as u64, limits)?;
    let proto = proto::read(Reader::new(bytes), limits)?;
    graph::build(&proto, &mut TensorReader::new(None, directory.map(Directory::new), limits), &mut Problems::fatal())
}

/// Converts a message to a model, under the default [`Limits`]; its tensors must not refer to other files.
///
/// # Errors
/// If the message is not a valid model, exceeds a limit, or uses unsupported features.
pub fn from_message(message: &proto::ModelProto) -> Result<Model> {
    graph::build(message, &mut TensorReader::new(None, None, &Limits::default()), &mut Problems::fatal())
}

/// Returns the bytes of a `TensorProto` message that holds the tensor.
///
/// # Errors
/// If its elements are narrower than a byte: the message packs these.
pub fn tensor_to_bytes(name: &str, tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let code = (0..=proto::data_type::INT2).find(|code| element_type(*code) == Some(dtype));
    let Some(code) = code.filter(|_| dtype.bits() >= 8) else {
        return Err(ImportError::unsupported(format!("elements of type {dtype} cannot be written to tensor messages")));
    };
    let dims: Vec<i64> = tensor.shape().dims().iter().map(|dim| *dim as i64).collect();
    Ok(TensorProto::raw(name, code, &dims, tensor.bytes().to_vec()).to_bytes())
}

fn check_size(bytes: u64, limits: &Limits) -> Result<()> {
    let limit = limits.file_bytes;
    match bytes <= limit {
        true => Ok(()),
        false => Err(ImportError::over("file_bytes", format_args!("takes {bytes} B, above the limit of {limit} B"))),
    }
}

fn open(path: &Path, limits: &Limits) -> Result<ConstantFile> {
    let file = files::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            ImportError::new(ImportErrorKind::Io, format!("{error}; name an ONNX file"))
        }
        _ => ImportError::io(error),
    })?;
    let metadata = file.metadata().map_err(ImportError::io)?;
    check_size(metadata.len(), limits)?;
    ConstantFile::new(file, path.display().to_string()).map_err(ImportError::io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Item;
    use anabranch_ir::constant::LARGE;
    use proto::{GraphProto, ModelProto, NodeProto};
    use std::io::Write;

    #[test]
    fn a_file_over_the_budget_is_refused_before_it_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.as_file().set_len(3 << 30).expect("a sparse file");
        let error = load(file.path()).expect_err("3 GiB").to_string();
        assert!(error.contains("takes 3221225472 B, above the limit of 2147483648 B; raise"), "{error}");
        assert!(error.starts_with(&file.path().display().to_string()));
    }

    #[test]
    fn only_regular_files_are_read() {
        for path in ["/", "/dev/zero", "/dev/null"] {
            let error = load(Path::new(path)).expect_err(path);
            assert!(error.to_string().contains("is not a regular file"), "{error}");
        }
        assert_eq!(load(Path::new("/none")).expect_err("no such file").kind(), ImportErrorKind::Io);
    }

    #[test]
    fn only_the_data_of_large_tensors_stays_in_the_file() {
        let tensor =
            |name: &str, fill: f32, elements: usize| TensorProto::f32s(name, &[elements as i64], &vec![fill; elements]);
        let initializer = vec![tensor("small", 1.0, 10), tensor("large", 2.0, LARGE), tensor("end", 3.0, LARGE / 4)];
        let bytes = ModelProto::of(GraphProto { initializer, ..GraphProto::default() }, 17).to_bytes();
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&bytes).expect("a small file");
        let model = load(file.path()).expect("sound");
        let held: Vec<bool> = model.initializers.values().map(|constant| constant.held().is_some()).collect();
        assert_eq!(held, [true, false, false]);
        for (constant, first) in model.initializers.values().zip([1.0f32, 2.0, 3.0]) {
            let tensor = constant.load().expect("unchanged");
            assert!(tensor.elements::<f32>().is_some_and(|elements| elements.iter().all(|element| *element == first)));
        }
        assert!(from_bytes(&bytes, None).expect("sound").initializers.values().all(|c| c.held().is_some()));
    }

    #[test]
    fn a_tensor_comes_back_as_written() {
        let elements: Vec<f32> = (0..LARGE).map(|at| at as f32).collect();
        let shape = anabranch_kernels::Shape::new([LARGE / 2, 2]).expect("small");
        for tensor in [Tensor::from_i64s(&[3, -4]), Tensor::from_elements(shape, &elements).expect("as many")] {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(&tensor_to_bytes("x", &tensor).expect("whole bytes")).expect("a small file");
            let Item::Tensor(constant) = item_in_file(file.path(), Kind::default()).expect("sound") else {
                panic!("a tensor is asked for")
            };
            assert_eq!(constant.spec(), tensor.spec());
            assert!(constant.load().expect("unchanged").same_bits(&tensor));
            file.as_file().set_len(9).expect("cut");
            let error = item_in_file(file.path(), Kind::default()).map(drop).expect_err("cut off").to_string();
            assert!(error.starts_with(&file.path().display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_survey_tells_all_problems_and_keeps_what_is_sound() {
        let node = |operator: &str, input: &str, output: &str| NodeProto::of(operator, &[input], &[output]);
        let wrong = node("Neg", "a", "b").with(proto::AttributeProto::default());
        let graph = GraphProto {
            node: vec![node("Relu", "x", "a"), wrong, node("Abs", "b", "y")],
            input: vec![
                proto::ValueInfoProto::f32s("x", &[1]),
                proto::ValueInfoProto::tensor("s", proto::data_type::STRING, vec![]),
            ],
            output: vec![proto::ValueInfoProto::f32s("y", &[1])],
            ..GraphProto::default()
        };
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&ModelProto::of(graph, 99).to_bytes()).expect("a small file");
        let (model, problems) = survey(file.path(), &Limits::default()).expect("a model");
        let reasons: Vec<_> = problems.iter().map(ImportError::reason).collect();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        for (reason, part) in reasons.iter().zip(["opset 99", "type string", "an attribute has no name"]) {
            assert!(reason.contains(part), "{reason}: {part}");
        }
        let operators: Vec<_> = model.nodes.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!((operators, model.inputs.len()), (vec!["Relu", "Neg", "Abs"], 1));
        assert!(load(file.path()).expect_err("the first of them").to_string().contains("opset 99"));
    }

    #[test]
    fn a_file_is_refused_as_its_bytes_are() {
        let node = NodeProto::of("Relu", &["x"], &["y"]).named(&"n".repeat(70_000));
        let graph = GraphProto { node: vec![NodeProto::of("Relu", &["x"], &["y"]), node], ..GraphProto::default() };
        let bytes = ModelProto::of(graph, 17).to_bytes();
        for cut in [1, 7, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(&bytes[..cut]).expect("a small file");
            let error = load(file.path()).expect_err("no model").to_string();
            let same = from_bytes(&bytes[..cut], None).expect_err("no model").to_string();
            assert!(error.ends_with(same.trim_start_matches("model: ")), "{error} and {same}");
        }
    }
}
