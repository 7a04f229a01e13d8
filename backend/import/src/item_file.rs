//! Values in files of their own: messages of the types `TensorProto`, `SequenceProto` and `OptionalProto`.

use super::error::{ImportError, ImportErrorKind, Result};
use super::model::Kind;
use super::proto::{self, OptionalProto, Reader, SequenceProto, TensorProto};
use super::tensor::TensorReader;
use super::{Limits, open};
use crate::item::Item;
use anabranch_ir::constant::Constant;
use std::path::Path;
use std::sync::Arc;

/// Type of an optional's or a sequence's elements in these messages; 0 stands for no type.
const TENSOR: i64 = 1;
const SEQUENCE: i64 = 3;

/// Reads the value of this kind in the file `path`, under the default [`Limits`].
///
/// The file is a message of the type `TensorProto`, `SequenceProto` or `OptionalProto`. Types and shapes are known at
/// once; large elements stay in the file until they are loaded.
///
/// # Errors
/// If the file cannot be read, is not a message of the kind's type, exceeds a limit, or holds unsupported elements.
pub fn item_in_file(path: &Path, kind: Kind) -> Result<Item<Constant>> {
    let limits = Limits::default();
    let item = open(path, &limits).and_then(|file| {
        let file = Arc::new(file);
        read(Reader::of_file(&file), TensorReader::new(Some(Arc::clone(&file)), None, &limits), kind, &limits)
    });
    item.map_err(|error| advised(error, kind).in_file(path))
}

/// A fault of the message, with what to give instead.
fn advised(error: ImportError, kind: Kind) -> ImportError {
    let (message, maker) = match (kind.optional, kind.sequence) {
        (true, _) => ("an OptionalProto", "from_optional"),
        (false, true) => ("a SequenceProto", "from_list"),
        (false, false) => ("a TensorProto", "from_array"),
    };
    if error.kind() != ImportErrorKind::Malformed || error.reason().contains("; ") {
        return error;
    }
    error.map(|text| format!("{text}; give a file of {message}, as `onnx.numpy_helper.{maker}` returns"))
}

fn read(reader: Reader<'_>, mut tensors: TensorReader<'_>, kind: Kind, limits: &Limits) -> Result<Item<Constant>> {
    match (kind.optional, kind.sequence) {
        (true, _) => held(&proto::read_optional(reader, limits)?, kind, &mut tensors),
        (false, true) => sequence(&proto::read_sequence(reader, limits)?, &mut tensors),
        (false, false) => tensor(&proto::read_tensor(reader, limits)?, &mut tensors),
    }
}

fn tensor(proto: &TensorProto, tensors: &mut TensorReader<'_>) -> Result<Item<Constant>> {
    if proto.data_type == 0 {
        return Err(ImportError::malformed("is empty, or a message of another type: its element type is missing"));
    }
    Ok(Item::Tensor(tensors.read_constant(proto)?))
}

fn sequence(proto: &SequenceProto, tensors: &mut TensorReader<'_>) -> Result<Item<Constant>> {
    if !matches!(proto.elem_type, 0 | TENSOR) {
        return Err(ImportError::unsupported("is a sequence of values other than tensors; give a sequence of tensors"));
    }
    let read = |(at, tensor)| tensors.read_constant(tensor).map_err(|error| error.of("element", &format!("{at}")));
    Ok(Item::Sequence(Arc::new(proto.tensor_values.iter().enumerate().map(read).collect::<Result<_>>()?)))
}

/// Reads the value in an optional. The type of an empty optional is not checked.
fn held(proto: &OptionalProto, kind: Kind, tensors: &mut TensorReader<'_>) -> Result<Item<Constant>> {
    let (wanted, what) = if kind.sequence { (SEQUENCE, "a sequence") } else { (TENSOR, "a tensor") };
    match (&proto.tensor_value, &proto.sequence_value) {
        (None, None) if matches!(proto.elem_type, 0 | TENSOR | SEQUENCE) => Ok(Item::Absent),
        (Some(value), None) if proto.elem_type == wanted && !kind.sequence => tensor(value, tensors),
        (None, Some(value)) if proto.elem_type == wanted && kind.sequence => sequence(value, tensors),
        _ => Err(ImportError::unsupported(format!(
            "is an optional of a value other than {what}; give {what}, or an empty optional"
        ))),
    }
}
