//! Declared types of a graph's inputs and outputs.

use super::error::{ImportError, Result, element_type_name};
use super::graph::without_controls;
use super::model::{Dim, Kind};
use super::placeholder::is_placeholder;
use super::proto::data_type;
use super::proto::{DimensionProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use super::tensor::dtype;
use anabranch_kernels::DType;

/// Declared type and dimensions of the tensors of an input or output.
#[derive(Default)]
pub(super) struct Declared<T> {
    pub(super) kind: Kind,
    pub(super) dtype: T,
    pub(super) dims: Option<Vec<Dim>>,
}

/// Returns an input's kind, element type and dimensions, which must be declared.
pub(super) fn declared_input(proto: &ValueInfoProto) -> Result<Declared<DType>> {
    let (kind, tensor) = proto.r#type.as_ref().and_then(tensor_type).ok_or_else(not_listed)?;
    Ok(Declared { kind, dtype: element_type(tensor.elem_type)?, dims: dims(tensor.shape.as_ref())? })
}

/// Returns an output's kind, element type and dimensions, as far as they are declared.
pub(super) fn declared_output(proto: &ValueInfoProto) -> Result<Declared<Option<DType>>> {
    let Some(declared) = &proto.r#type else { return Ok(Declared::default()) };
    let (kind, tensor) = tensor_type(declared).ok_or_else(not_listed)?;
    let dtype = match tensor.elem_type {
        0 => None,
        code => Some(element_type(code)?),
    };
    Ok(Declared { kind, dtype, dims: dims(tensor.shape.as_ref())? })
}

/// Whether an output is declared as strings or maps, which only labels can be.
pub(super) fn has_labels(proto: &ValueInfoProto) -> bool {
    let is_label = |(_, tensor): (Kind, &TensorTypeProto)| tensor.elem_type == data_type::STRING;
    proto.r#type.as_ref().is_some_and(|declared| tensor_type(declared).is_none_or(is_label))
}

/// Returns the type of the tensors in a tensor, a sequence of tensors, or an optional of these.
fn tensor_type(declared: &TypeProto) -> Option<(Kind, &TensorTypeProto)> {
    let (optional, declared) = match &declared.optional_type {
        Some(held) => (true, held.elem_type.as_ref()?),
        None => (false, declared),
    };
    let (sequence, declared) = match &declared.sequence_type {
        Some(elements) => (true, elements.elem_type.as_ref()?),
        None => (false, declared),
    };
    Some((Kind { sequence, optional }, declared.tensor_type.as_ref()?))
}

fn element_type(code: i64) -> Result<DType> {
    let unknown = || format!("elements of type {} are not supported", element_type_name(code));
    dtype(code).ok_or_else(|| ImportError::unsupported(unknown()))
}

/// Creates the error of a sequence of sequences, a map, an optional of an optional, or a missing type.
fn not_listed() -> ImportError {
    ImportError::unsupported(
        "has an unsupported type; an input or output is a tensor, a sequence of tensors, or an optional of one \
         of these",
    )
}

fn dims(shape: Option<&TensorShapeProto>) -> Result<Option<Vec<Dim>>> {
    shape.map(|shape| shape.dim.iter().map(dim).collect()).transpose()
}

/// Converts a dimension. Some exporters write −1, or a [placeholder](is_placeholder), for an unknown dimension.
fn dim(proto: &DimensionProto) -> Result<Dim> {
    Ok(match (proto.dim_value, proto.dim_param.as_str()) {
        (Some(value), _) if value >= 0 => {
            let large = |_| ImportError::malformed(format!("dimension {value} exceeds the address space"));
            Dim::Known(usize::try_from(value).map_err(large)?)
        }
        (_, name) => {
            without_controls(name)?;
            if is_placeholder(name) { Dim::Unknown } else { Dim::Symbol(name.to_owned()) }
        }
    })
}
