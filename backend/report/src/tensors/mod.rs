//! Tensors in files: NumPy's, safetensors, and ONNX's tensor messages with the folders of its tests.
//!
//! Type, shape and size are read first. Elements are read only if the tensor is wanted.

mod message;
pub mod picture;
mod safe;

use crate::npy::{Array, read_npy_if, read_npz_if, write_npy, write_npz};
use anabranch::{Kind, Part};
use anabranch_kernels::{Tensor, TensorSpec};
use std::path::{Path, PathBuf};

/// Error of a tensor file that cannot be read or written: file and reason.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct TensorFileError {
    file: PathBuf,
    reason: String,
}

/// Label of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// The tensor of this name.
    Named(&'a str),
    /// The tensor at this position of the model's inputs or outputs.
    Numbered(usize),
    /// The only tensor of its file.
    Only,
    /// A part of a sequence or an optional in a file.
    Part(&'a Label<'a>, Part),
}

/// Tensors of a folder to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `input_0.pb` and so on.
    Input,
    /// `output_0.pb` and so on.
    Output,
}

/// Returns the name to keep a tensor under, `None` to skip it, or the reason why it cannot be used.
pub type Wanted<'w> = dyn FnMut(Label<'_>, &TensorSpec) -> Result<Option<String>, String> + 'w;

/// Returns the kind of the input or output that a file is for, which determines how a message is read.
pub type Kinds<'k> = dyn Fn(Label<'_>) -> Kind + 'k;

/// Tensors with the names under which they are wanted.
pub type Named = Vec<(String, Tensor)>;

/// A file format of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One array in a `.npy` file.
    Npy,
    /// Named arrays in a `.npz` file.
    Npz,
    /// Named arrays in a `.safetensors` file.
    Safetensors,
    /// One ONNX message in a `.pb` file.
    Message,
    /// A folder of messages.
    Folder,
}

/// File extensions that are read and written, as help and errors list them.
pub const ENDINGS: &str = ".npy, .npz, .safetensors or .pb";

impl Form {
    /// Returns the format of a path; `None` if its extension is not known.
    pub fn of(path: &Path) -> Option<Self> {
        match ending(path).as_deref() {
            Some("npy") => Some(Self::Npy),
            Some("npz") => Some(Self::Npz),
            Some("safetensors") => Some(Self::Safetensors),
            Some("pb") => Some(Self::Message),
            _ if path.is_dir() => Some(Self::Folder),
            _ => None,
        }
    }

    /// Whether files of this format name their tensors.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::Npz | Self::Safetensors | Self::Folder)
    }
}

/// Returns a file's extension in lower case.
pub fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// Reads the tensors of a file or folder that `wanted` selects.
///
/// # Errors
/// If it cannot be read, or does not match its extension. Also the error of `wanted`.
pub fn read(path: &Path, role: Role, kinds: &Kinds<'_>, wanted: &mut Wanted<'_>) -> Result<Named, TensorFileError> {
    let error = |reason: String| TensorFileError { file: path.to_owned(), reason };
    let from_numpy = |error: crate::npy::NpyError| TensorFileError { file: error.file, reason: error.reason };
    match Form::of(path) {
        Some(Form::Npy) => {
            let (mut name, mut passed_over) = (None, false);
            let look = |spec: &TensorSpec| {
                name = wanted(Label::Only, spec)?;
                passed_over = name.is_none();
                // This error only stops the read before the elements; its text is never shown.
                if passed_over { Err("is not wanted".to_owned()) } else { Ok(()) }
            };
            let read = read_npy_if(path, look);
            match (name, read) {
                _ if passed_over => Ok(Named::new()),
                (Some(name), Ok(tensor)) => Ok(vec![(name, tensor)]),
                (_, read) => read.map(|_| Named::new()).map_err(from_numpy),
            }
        }
        Some(Form::Npz) => {
            let mut names = Vec::new();
            let look = |member: &str, spec: &TensorSpec| {
                let name = wanted(Label::Named(member), spec)?;
                names.extend(name.clone().map(|name| (member.to_owned(), name)));
                Ok(name.is_some())
            };
            let mut tensors = read_npz_if(path, look).map_err(from_numpy)?;
            let tensor = |(member, name): (String, String)| Some((name, tensors.remove(&member)?));
            Ok(names.into_iter().filter_map(tensor).collect())
        }
        Some(Form::Safetensors) => safe::read(path, wanted).map_err(error),
        Some(Form::Message) => message::read(path, Label::Only, kinds(Label::Only), wanted).map_err(error),
        Some(Form::Folder) => message::read_folder(path, role, kinds, wanted),
        None => {
            anabranch::files::open(path).map_err(|problem| error(problem.to_string()))?;
            Err(error(format!("its extension is not supported; use {ENDINGS} files, or a folder of them")))
        }
    }
}

/// Writes named tensors to one file, atomically. Formats of one tensor must be given one.
///
/// # Errors
/// If the file cannot be written, or its format does not support the element type.
pub fn write(path: &Path, form: Form, arrays: &[(&str, Array<'_>)]) -> Result<(), TensorFileError> {
    let error = |reason: String| TensorFileError { file: path.to_owned(), reason };
    let from_numpy = |error: crate::npy::NpyError| TensorFileError { file: error.file, reason: error.reason };
    let tensors = || -> Result<Vec<(&str, &Tensor)>, TensorFileError> {
        let mut tensors = Vec::with_capacity(arrays.len());
        for (name, array) in arrays {
            let Array::Tensor(tensor) = array else {
                return Err(error(format!("holds numbers, but {name} holds strings; name an .npz file")));
            };
            tensors.push((*name, *tensor));
        }
        Ok(tensors)
    };
    match (form, arrays) {
        (Form::Npz, _) => write_npz(path, arrays.iter().cloned()).map_err(from_numpy),
        (Form::Safetensors, _) => safe::write(path, &tensors()?).map_err(error),
        (Form::Npy, [(_, array)]) => write_npy(path, array.clone()).map_err(from_numpy),
        (Form::Message, [(name, _)]) => message::write(path, name, tensors()?[0].1).map_err(error),
        _ => Err(error(format!("holds one tensor, but there are {} to write; name an .npz file", arrays.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;

    fn tensors() -> [(&'static str, Tensor); 3] {
        let floats =
            Tensor::from_elements(Shape::new([2, 3]).expect("small"), &[1.0f32, -2.0, f32::NAN, 4.0, 5.0, 6.0]);
        let bytes = Tensor::from_elements(Shape::new([3]).expect("small"), &[1u8, 2, 3]);
        [("b", Tensor::from_i64s(&[7, -8])), ("a", floats.expect("six")), ("layer/c", bytes.expect("three"))]
    }

    #[test]
    fn tensors_come_back_from_every_form() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let own = tensors();
        for (name, form) in [("x.npz", Form::Npz), ("x.safetensors", Form::Safetensors)] {
            let path = folder.path().join(name);
            let named: Vec<_> = own.iter().map(|(name, tensor)| (*name, Array::from(tensor))).collect();
            write(&path, form, &named).expect("writable");
            let mut all = |label: Label<'_>, _: &TensorSpec| match label {
                Label::Named(name) => Ok(Some(name.to_owned()).filter(|name| name != "b")),
                _ => Err("has no name".into()),
            };
            let read = read(&path, Role::Input, &|_| Kind::default(), &mut all).expect("readable");
            assert_eq!(read.len(), 2, "{name}");
            for (name, tensor) in read {
                assert!(own.iter().any(|(known, other)| *known == name && other.same_bits(&tensor)), "{name}");
            }
        }
        for (name, form) in [("x.npy", Form::Npy), ("x.pb", Form::Message)] {
            let path = folder.path().join(name);
            write(&path, form, &[("a", crate::npy::Array::Tensor(&own[1].1))]).expect("writable");
            let mut only = |label: Label<'_>, _: &TensorSpec| Ok(Some(format!("{label:?}")));
            let read = read(&path, Role::Output, &|_| Kind::default(), &mut only).expect("readable");
            assert!(read[0].0 == "Only" && read[0].1.same_bits(&own[1].1), "{name}");
            let mut none = |_: Label<'_>, _: &TensorSpec| Ok(None);
            assert!(
                super::read(&path, Role::Output, &|_| Kind::default(), &mut none).expect("readable").is_empty(),
                "{name}"
            );
            let mut no = |_: Label<'_>, spec: &TensorSpec| Err(format!("{spec} is too much"));
            let refused =
                super::read(&path, Role::Output, &|_| Kind::default(), &mut no).expect_err("refused").to_string();
            assert!(refused.ends_with("f32[2×3] is too much") && refused.contains(name), "{refused}");
            assert!(write(&path, form, &[]).is_err());
        }
    }
}
