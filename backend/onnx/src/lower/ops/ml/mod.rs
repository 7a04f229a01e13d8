//! Operators of the domain `ai.onnx.ml`, to which scikit-learn, LightGBM and XGBoost models are exported.
//!
//! If the standard leaves a value open, ONNX Runtime's value is used. If that is undefined, too, the use is rejected.

mod ensemble;
mod features;
mod forest;
mod labels;
mod linear;
mod post;
mod support;
#[cfg(test)]
mod tests;

use super::{Builder, Entry, Fault, Operator, View, numbers};
use anabranch_kernels::dtype::Element;
use anabranch_kernels::{DType, Shape, Tensor};

/// Tables of the domain's operators.
pub(super) const TABLES: &[&[Entry]] =
    &[ensemble::TABLE, linear::TABLE, support::TABLE, features::TABLE, labels::TABLE];

/// Returns input 0 as rows of features; a vector is one row.
fn rows(operator: &Operator<'_>) -> Result<View, Fault> {
    let x = operator.number(0)?;
    match *x.dims() {
        [0] | [_, 0] => Err(Fault::invalid(format!("input 0 has shape {}; rows need at least one feature", x.shape()))),
        [features] => x.reshaped(vec![1, features]),
        [_, _] => Ok(x.clone()),
        _ => Err(Fault::invalid(format!("input 0 has shape {}; rows of features are needed", x.shape()))),
    }
}

/// Returns the type in which elements of a type are computed with numbers of an attribute, so that no element is
/// rounded before.
fn work_type(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        _ => DType::F64,
    }
}

/// Adds an attribute's numbers as a constant of these dimensions.
fn constant<T: Element>(builder: &mut Builder, dims: &[usize], elements: &[T]) -> Result<View, Fault> {
    let tensor = Tensor::from_elements(Shape::new(dims)?, elements);
    builder.made(tensor.map_err(|error| Fault::invalid(error.to_string()))?)
}

/// Returns a list of numbers, which may be missing.
fn floats<'a>(operator: &'a Operator<'_>, name: &str) -> Result<&'a [f32], Fault> {
    Ok(operator.node.floats(name)?.unwrap_or_default())
}

/// Returns a list of integers, which may be missing.
fn ints<'a>(operator: &'a Operator<'_>, name: &str) -> Result<&'a [i64], Fault> {
    Ok(operator.node.ints(name)?.unwrap_or_default())
}

/// Returns a list of numbers from the attribute `name` or the tensor `name_as_tensor`, and whether it consists of
/// 64-bit floats.
fn floats_or_tensor(operator: &Operator<'_>, name: &str) -> Result<(Vec<f64>, bool), Fault> {
    let listed = floats(operator, name)?;
    let name = format!("{name}_as_tensor");
    match operator.node.tensor(&name)? {
        Some(tensor) if tensor.shape().elements() > 0 => {
            if !listed.is_empty() {
                return Err(Fault::invalid(format!(
                    "attribute `{name}` and its list are both given; give one of them"
                )));
            }
            let elements = numbers(tensor).ok_or_else(|| Fault::attribute(&name, tensor.dtype(), "of floats"))?;
            Ok((elements, tensor.dtype() == DType::F64))
        }
        _ => Ok((listed.iter().map(|number| f64::from(*number)).collect(), false)),
    }
}

/// Rejects an attribute of another length than expected.
fn require_length(name: &str, found: usize, expected: usize) -> Result<(), Fault> {
    match found == expected {
        true => Ok(()),
        false => Err(Fault::invalid(format!("attribute `{name}` has {found} entries, but {expected} are needed"))),
    }
}
