//! Conversions between element types, and operators that change nothing.

use super::{Builder, Entry, Fault, Operator, View};
use crate::import::proto::data_type;
use anabranch_kernels::{DType, Tensor, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("Cast", cast),
    ("CastLike", cast_like),
    ("Identity", identity),
    ("Optional", optional),
    ("OptionalGetElement", element),
    ("OptionalHasElement", has_element),
    ("Dropout", dropout),
];

fn cast(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let to = match operator.opset {
        ..6 => named_type(operator.string("to", "")?)?,
        _ => operator.node.int("to")?.ok_or_else(|| Fault::attribute("to", (), "there"))?,
    };
    Ok(vec![builder.converted(operator.input(0)?, element_type(to)?, operator.flag("saturate", true)?)?])
}

fn cast_like(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let to = operator.input(1)?.dtype();
    Ok(vec![builder.converted(operator.input(0)?, to, operator.flag("saturate", true)?)?])
}

fn identity(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![operator.input(0)?.clone()])
}

/// Passes on the value in an optional. An empty optional is not a tensor, so that a host operator makes it.
fn optional(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    let absent = || Fault::unsupported("it returns an empty optional");
    Ok(vec![operator.optional(0).ok_or_else(absent)?.clone()])
}

fn element(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    let absent = || Fault::invalid("its input is an empty optional");
    Ok(vec![operator.optional(0).ok_or_else(absent)?.clone()])
}

/// Whether an optional holds a value: only an input that is left out has none.
fn has_element(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let there = operator.optional(0).is_some();
    Ok(vec![builder.scalar(DType::Bool, f64::from(u8::from(there)))?])
}

/// Passes on everything, because this is inference; the mask is all true.
fn dropout(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    if operator.opset < 7 && !operator.flag("is_test", false)? {
        return Err(Fault::unsupported("it is in training mode"));
    }
    if let Some(training) = operator.optional_known_ints(builder, 2, "training_mode")?
        && training != [0]
    {
        return Err(Fault::unsupported("it is in training mode"));
    }
    let mut outputs = vec![x.clone()];
    if operator.wants(1) {
        // Before version 10 the mask is of the type of the data.
        let dtype = if operator.opset < 10 { x.dtype() } else { DType::Bool };
        let spec = TensorSpec::new(dtype, x.shape().clone());
        outputs.push(builder.filled(spec, 1.0)?);
    }
    Ok(outputs)
}

/// Returns the number of an element type that a version before 6 names.
fn named_type(name: &str) -> Result<i64, Fault> {
    const NAMES: [(&str, i64); 12] = [
        ("FLOAT", data_type::FLOAT),
        ("DOUBLE", data_type::DOUBLE),
        ("FLOAT16", data_type::FLOAT16),
        ("INT8", data_type::INT8),
        ("INT16", data_type::INT16),
        ("INT32", data_type::INT32),
        ("INT64", data_type::INT64),
        ("UINT8", data_type::UINT8),
        ("UINT16", data_type::UINT16),
        ("UINT32", data_type::UINT32),
        ("UINT64", data_type::UINT64),
        ("BOOL", data_type::BOOL),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| *number).ok_or_else(|| Fault::attribute("to", name, "the name of an element type"))
}

/// Returns the element type of an ONNX type number.
pub(in crate::lower) fn element_type(number: i64) -> Result<DType, Fault> {
    crate::import::element_type(number).ok_or_else(|| Fault::unsupported(format!("tensors of type {number}")))
}

pub(super) fn floats(values: &[f32]) -> Tensor {
    let shape = anabranch_kernels::Shape::new(vec![values.len()]).expect("a slice that exists fits the address space");
    Tensor::from_elements(shape, values).expect("the shape was made from the slice's length")
}
