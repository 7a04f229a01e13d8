//! Declared types of a graph's inputs and outputs.

use super::error::{ImportError, Result, element_type_name};
use super::graph::without_controls;
use super::model::Dim;
use super::placeholder::is_placeholder;
use super::proto::data_type;
use super::proto::{DimensionProto, TensorShapeProto, TensorTypeProto, ValueInfoProto};
use super::tensor::dtype;
use anabranch_kernels::DType;

/// Element type and dimensions of an input, which must be declared as a tensor.
pub(super) fn declared_input(proto: &ValueInfoProto) -> Result<(DType, Option<Vec<Dim>>)> {
    let tensor = tensor_type(proto)?.ok_or_else(not_a_tensor)?;
    Ok((element_type(tensor.elem_type)?, dims(tensor.shape.as_ref())?))
}

/// Element type and dimensions of an output, as far as they are declared.
pub(super) fn declared_output(proto: &ValueInfoProto) -> Result<(Option<DType>, Option<Vec<Dim>>)> {
    let Some(tensor) = tensor_type(proto)? else { return Ok((None, None)) };
    let dtype = match tensor.elem_type {
        0 => None,
        code => Some(element_type(code)?),
    };
    Ok((dtype, dims(tensor.shape.as_ref())?))
}

/// Whether an output is declared as texts or as something else than a tensor, which only labels can be.
pub(super) fn has_labels(proto: &ValueInfoProto) -> bool {
    proto.r#type.as_ref().is_some_and(|declared| {
        declared.tensor_type.as_ref().is_none_or(|tensor| tensor.elem_type == data_type::STRING)
    })
}

fn tensor_type(proto: &ValueInfoProto) -> Result<Option<&TensorTypeProto>> {
    match &proto.r#type {
        None => Ok(None),
        Some(declared) => declared.tensor_type.as_ref().map(Some).ok_or_else(not_a_tensor),
    }
}

fn element_type(code: i64) -> Result<DType> {
    let unknown = || format!("elements of type {} are not supported", element_type_name(code));
    dtype(code).ok_or_else(|| ImportError::unsupported(unknown()))
}

/// A sequence, map or optional, or no type at all.
fn not_a_tensor() -> ImportError {
    ImportError::unsupported("is not declared as a tensor; only tensors can be inputs and outputs")
}

fn dims(shape: Option<&TensorShapeProto>) -> Result<Option<Vec<Dim>>> {
    shape.map(|shape| shape.dim.iter().map(dim).collect()).transpose()
}

/// Some exporters write −1, or a [placeholder](is_placeholder), for a dimension that they do not know.
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
