//! Reads elements as another type of equally many bits.

use super::{Call, Item};
use crate::Fault;
use anabranch_import::element_type;
use anabranch_kernels::{DType, Tensor, TensorSpec};
use std::sync::Arc;

/// Reads the same memory under another type. O(1), except for bools, which are checked to be 0 or 1.
pub(super) fn cast(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let x = call.tensor(0)?;
    let code = call.node.int("to")?.ok_or_else(|| call.node.missing("to"))?;
    let dtype = element_type(code).ok_or_else(|| Fault::unsupported(format!("the element type {code}")))?;
    if dtype.bits() != x.dtype().bits() {
        let (from, to) = (x.dtype(), dtype);
        return Err(Fault::invalid(format!("{from} has {} bits, {to} has {}", from.bits(), to.bits())));
    }
    if dtype.bits() < 8 && dtype != x.dtype() {
        return Err(Fault::unsupported("types of less than a byte"));
    }
    if dtype == DType::Bool && x.bytes().iter().any(|byte| *byte > 1) {
        return Err(Fault::unsupported("bools other than 0 and 1"));
    }
    let spec = TensorSpec::new(dtype, x.shape().clone());
    let tensor = Tensor::new(spec, Arc::clone(x.buffer())).expect("elements of as many bits take as many bytes");
    Ok(vec![Item::Tensor(tensor)])
}
