//! Element-wise kernels: an expression interpreted over blocks of elements. Other kernels apply it to their results.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface.

#![forbid(unsafe_code)]

mod affine;
mod chain;
mod chain_f32;
mod code;
#[cfg(test)]
mod conversions;
mod copied;
mod epilogue;
mod finish;
mod gather;
mod grid;
#[cfg(test)]
mod integers;
mod interpret;
mod kernel;
mod layout;
mod narrowest;
mod normalize;
mod number;
mod number_f32;
mod number_f64;
mod number_integer;
mod repeat;
mod rows;
mod source;
mod table;
#[cfg(test)]
mod testing;
mod truth;

pub use affine::Beside;
pub use epilogue::{Epilogue, Uniform};
pub use finish::ProductEpilogue;

use anabranch_cpu_base::CpuKernel;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};

/// Builds the kernel for a node that fits its op's definition.
///
/// # Errors
/// If no kernel of this crate computes the node.
pub fn prepare(node: &NodeSpec) -> Result<Box<dyn CpuKernel>, KernelError> {
    match &node.op {
        Op::Map(op) => kernel::prepare(node, op),
        Op::Normalize(op) => normalize::prepare(node, op),
        _ => Err(node.unsupported("it is neither element-wise nor a normalization")),
    }
}
