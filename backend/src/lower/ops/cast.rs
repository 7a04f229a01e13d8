//! Conversions between element types, and operators that change nothing.

use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::{DType, Tensor, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("Cast", cast),
    ("CastLike", cast_like),
    ("Identity", identity),
    ("Optional", present),
    ("OptionalGetElement", present),
    ("OptionalHasElement", has_element),
    ("Dropout", dropout),
];

fn cast(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let to = operator.node.int("to")?.ok_or_else(|| Fault::attribute("to", (), "there"))?;
    Ok(vec![builder.converted(operator.input(0)?, element_type(to)?, operator.flag("saturate", true)?)?])
}

fn cast_like(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let to = operator.input(1)?.dtype();
    Ok(vec![builder.converted(operator.input(0)?, to, operator.flag("saturate", true)?)?])
}

fn identity(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![operator.input(0)?.clone()])
}

/// An optional value that is there is the value.
fn present(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    let absent = || Fault::unsupported("an optional value that is not there");
    Ok(vec![operator.optional(0).ok_or_else(absent)?.clone()])
}

/// Only what is left out has no element.
fn has_element(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let there = operator.optional(0).is_some();
    Ok(vec![builder.scalar(DType::Bool, f64::from(u8::from(there)))?])
}

/// Inference keeps everything; the mask is all true.
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
        let spec = TensorSpec::new(DType::Bool, x.shape().clone());
        outputs.push(builder.filled(spec, 1.0)?);
    }
    Ok(outputs)
}

/// The element type of an ONNX type number.
pub(in crate::lower) fn element_type(number: i64) -> Result<DType, Fault> {
    crate::import::element_type(number)
        .ok_or_else(|| Fault::unsupported(format!("there are no tensors of type {number}")))
}

pub(super) fn floats(values: &[f32]) -> Tensor {
    let shape = anabranch_kernels::Shape::new(vec![values.len()]).expect("a slice that exists fits the address space");
    Tensor::from_elements(shape, values).expect("the shape was made from the slice's length")
}
