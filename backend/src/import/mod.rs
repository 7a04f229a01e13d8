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

use prost::Message;
use prost::bytes::Bytes;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Loads the model in the file `path` under the default [`Limits`].
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load(path: &Path) -> Result<Model, ImportError> {
    load_within(path, &Limits::default())
}

/// Loads the model in the file `path`. Takes the memory of the file and the model together while it loads.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, exceeds a limit, or uses what is not supported.
pub fn load_within(path: &Path, limits: &Limits) -> Result<Model, ImportError> {
    let directory = path.parent();
    let model = read_file(path, limits).and_then(|bytes| parse(bytes.into(), directory, limits));
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
    let model = checked.and_then(|()| parse(Bytes::copy_from_slice(bytes), directory, limits));
    model.map_err(|kind| ImportError::new(None, kind))
}

fn parse(bytes: Bytes, directory: Option<&Path>, limits: &Limits) -> Result<Model, ImportErrorKind> {
    scan::check(&bytes, limits)?;
    let proto = proto::ModelProto::decode(bytes)?;
    graph::build(&proto, &mut tensor::TensorReader::new(directory, limits))
}

fn check_size(bytes: u64, limits: &Limits) -> Result<(), ImportErrorKind> {
    match bytes <= limits.file_bytes {
        true => Ok(()),
        false => Err(ImportErrorKind::FileTooLarge { bytes, limit: limits.file_bytes }),
    }
}

fn read_file(path: &Path, limits: &Limits) -> Result<Vec<u8>, ImportErrorKind> {
    let file: File = beneath::open_without_waiting(path).map_err(ImportErrorKind::Io)?;
    let metadata = file.metadata().map_err(ImportErrorKind::Io)?;
    if !metadata.is_file() {
        return Err(ImportErrorKind::NotAFile);
    }
    check_size(metadata.len(), limits)?;
    read_all(file, metadata.len())
}

/// The first `size` bytes of `source`, which must be there.
fn read_all(source: impl Read, size: u64) -> Result<Vec<u8>, ImportErrorKind> {
    let mut bytes = Vec::new();
    let capacity = usize::try_from(size).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(capacity).map_err(|_| ImportErrorKind::OutOfMemory { bytes: size })?;
    let read = source.take(size).read_to_end(&mut bytes).map_err(ImportErrorKind::Io)?;
    match read == capacity {
        true => Ok(bytes),
        false => Err(ImportErrorKind::Io(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Fails at the `n`-th read, each of which gives two bytes.
    struct Faulty<'a>(&'a [u8], usize);

    impl Read for Faulty<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1.checked_sub(1).ok_or_else(|| io::Error::other("injected"))?;
            let most = bytes.len().min(2);
            self.0.read(&mut bytes[..most])
        }
    }

    #[test]
    fn a_failing_read_is_an_error_wherever_it_fails() {
        for reads in 0..3 {
            let error = read_all(Faulty(b"abcdef", reads), 6).expect_err("too few reads");
            assert_eq!(error.to_string(), "cannot be read: injected");
        }
        assert_eq!(read_all(Faulty(b"abcdef", 9), 6).expect("enough reads"), b"abcdef");
        assert!(read_all(Faulty(b"abc", 9), 6).is_err(), "the file shrank");
        assert_eq!(read_all(Faulty(b"abcdef", 9), 4).expect("the file grew"), b"abcd");
        assert!(matches!(read_all(Faulty(b"", 9), u64::MAX), Err(ImportErrorKind::OutOfMemory { .. })));
    }

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
