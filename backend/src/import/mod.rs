//! ONNX files to [`Model`]s.
//!
//! A file is material from elsewhere. Its size, then its structure ([`Limits`]) are checked before anything is
//! decoded; data in other files is read only from regular files in the model's own directory; and every rule of a
//! graph is checked before a [`Model`] is given out. Whatever the bytes are, the answer is a model or an
//! [`ImportError`].
//!
//! ```
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
mod declared;
pub mod error;
mod external;
mod graph;
mod limits;
pub mod model;
mod packed;
mod parameters;
pub mod proto;
mod sort;
mod subgraph;
mod tensor;

pub use attribute::{Attribute, AttributeError};
pub use error::{ImportError, ImportErrorKind};
pub use graph::OPSETS;
pub use limits::Limits;
pub use model::{Dim, Input, Model, Node, Output, Subgraph, ValueIndex};
pub(crate) use tensor::dtype as element_type;

use crate::constant::ConstantFile;
use crate::files::open_without_waiting;
use anabranch_kernels::Tensor;
use error::Result;
use proto::Reader;
use std::path::Path;
use std::sync::Arc;
use tensor::TensorReader;

/// Loads the model in the file `path` under the default [`Limits`].
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load(path: &Path) -> Result<Model> {
    load_within(path, &Limits::default())
}

/// Loads the model in the file `path`. The data of its large tensors stays in the file, which is kept open: it is read when it is
/// wanted, and refused then if the file was changed.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load_within(path: &Path, limits: &Limits) -> Result<Model> {
    let model = open(path, limits).and_then(|file| {
        let proto = proto::read(Reader::of_file(&file), limits)?;
        graph::build(&proto, &mut TensorReader::new(Some(Arc::new(file)), path.parent(), limits))
    });
    model.map_err(|error| error.in_file(path))
}

/// Reads the model that `bytes` are, under the default [`Limits`]. Data in other files is looked for in
/// `directory`, and refused without one.
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use what is not supported.
pub fn from_bytes(bytes: &[u8], directory: Option<&Path>) -> Result<Model> {
    from_bytes_within(bytes, directory, &Limits::default())
}

/// [`from_bytes`] under given [`Limits`].
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use what is not supported.
pub fn from_bytes_within(bytes: &[u8], directory: Option<&Path>, limits: &Limits) -> Result<Model> {
    check_size(bytes.len() as u64, limits)?;
    let proto = proto::read(Reader::new(bytes), limits)?;
    graph::build(&proto, &mut TensorReader::new(None, directory, limits))
}

/// Reads the tensor that `bytes` are, a message of the type `TensorProto`, under the default [`Limits`].
///
/// # Errors
/// If the bytes are no such message, exceed a limit, or hold elements that are not supported.
pub fn tensor_from_bytes(bytes: &[u8]) -> Result<Tensor> {
    let limits = Limits::default();
    check_size(bytes.len() as u64, &limits)?;
    TensorReader::new(None, None, &limits).read(&proto::read_tensor(Reader::new(bytes), &limits)?)
}

fn check_size(bytes: u64, limits: &Limits) -> Result<()> {
    let limit = limits.file_bytes;
    match bytes <= limit {
        true => Ok(()),
        false => Err(ImportError::limit(format!(
            "takes {bytes} bytes, above the limit of {limit}; raise `Limits::file_bytes` if you trust the file"
        ))),
    }
}

fn open(path: &Path, limits: &Limits) -> Result<ConstantFile> {
    let file = open_without_waiting(path).map_err(ImportError::io)?;
    let metadata = file.metadata().map_err(ImportError::io)?;
    if !metadata.is_file() {
        return Err(ImportError::new(ImportErrorKind::Io, "is not a regular file; name an ONNX file"));
    }
    check_size(metadata.len(), limits)?;
    ConstantFile::new(file, path.display().to_string()).map_err(ImportError::io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::LARGE;
    use proto::{GraphProto, ModelProto, NodeProto, TensorProto};
    use std::io::Write;

    #[test]
    fn a_file_over_the_budget_is_refused_before_it_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.as_file().set_len(3 << 30).expect("a sparse file");
        let error = load(file.path()).expect_err("3 GiB").to_string();
        assert!(error.contains("takes 3221225472 bytes, above the limit of 2147483648; raise"), "{error}");
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
