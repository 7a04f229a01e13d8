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
mod scan;
mod sort;
mod tensor;
mod text;
mod wire;

pub use attribute::{Attribute, AttributeError, AttributeProblem};
pub use error::{ImportError, ImportErrorKind};
pub use external::ExternalError;
pub use graph::OPSETS;
pub use limits::Limits;
pub use model::{Dim, Input, Model, Node, Output, ValueIndex};
pub use scan::{ScanError, ScanReason};
pub(crate) use tensor::dtype as element_type;
pub use wire::WireError;

use crate::constant::ConstantFile;
use prost::Message;
use prost::bytes::Bytes;
use std::path::Path;
use text::Text;

/// Loads the model in the file `path` under the default [`Limits`].
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load(path: &Path) -> Result<Model, ImportError> {
    load_within(path, &Limits::default())
}

/// Loads the model in the file `path`. The data of its large tensors stays in the file, which is kept open: it is read when it is
/// wanted, and refused then if the file was changed.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load_within(path: &Path, limits: &Limits) -> Result<Model, ImportError> {
    let model = open(path, limits).and_then(|file| {
        let text = Text::read(file, limits)?;
        parse(text.bytes.clone(), Some(&text), path.parent(), limits)
    });
    model.map_err(|kind| ImportError::new(Some(path), kind))
}

/// Reads the model that `bytes` are, under the default [`Limits`]. Data in other files is looked for in
/// `directory`, and refused without one.
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use what is not supported.
pub fn from_bytes(bytes: &[u8], directory: Option<&Path>) -> Result<Model, ImportError> {
    from_bytes_within(bytes, directory, &Limits::default())
}

/// [`from_bytes`] under given [`Limits`].
///
/// # Errors
/// If the bytes are not an ONNX model, exceed a limit, or use what is not supported.
pub fn from_bytes_within(bytes: &[u8], directory: Option<&Path>, limits: &Limits) -> Result<Model, ImportError> {
    let checked = check_size(bytes.len() as u64, limits);
    let model = checked.and_then(|()| parse(Bytes::copy_from_slice(bytes), None, directory, limits));
    model.map_err(|kind| ImportError::new(None, kind))
}

fn parse(
    bytes: Bytes,
    text: Option<&Text>,
    directory: Option<&Path>,
    limits: &Limits,
) -> Result<Model, ImportErrorKind> {
    scan::check(&bytes, limits)?;
    let proto = proto::ModelProto::decode(bytes)?;
    graph::build(&proto, &mut tensor::TensorReader::new(text, directory, limits))
}

fn check_size(bytes: u64, limits: &Limits) -> Result<(), ImportErrorKind> {
    match bytes <= limits.file_bytes {
        true => Ok(()),
        false => Err(ImportErrorKind::FileTooLarge { bytes, limit: limits.file_bytes }),
    }
}

fn open(path: &Path, limits: &Limits) -> Result<ConstantFile, ImportErrorKind> {
    let file = beneath::open_without_waiting(path).map_err(ImportErrorKind::Io)?;
    let metadata = file.metadata().map_err(ImportErrorKind::Io)?;
    if !metadata.is_file() {
        return Err(ImportErrorKind::NotAFile);
    }
    check_size(metadata.len(), limits)?;
    ConstantFile::new(file, path.display().to_string()).map_err(ImportErrorKind::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(matches!(error.kind(), ImportErrorKind::NotAFile), "{error}");
        }
        assert!(matches!(load(Path::new("/none")).expect_err("no such file").kind(), ImportErrorKind::Io(_)));
    }
}
