//! Kernels for CPUs: one file per kernel. A [`Team`] of threads that share a cache runs each of them.
//!
//! A kernel's result has the same bits for any number of threads. The shapes alone decide how work is cut, and every
//! reduction has a fixed tree.
//!
//! This crate is a part of `anabranch-kernels`, which lists what is public. Families of kernels are crates of their own
//! that do not know each other. [`prepare`] joins them, and blocks and 64-bit floats stand on all of them.

#![forbid(unsafe_code)]

#[cfg(all(test, feature = "fourier"))]
mod agreement;
mod block;
mod double;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod testing;

pub use anabranch_cpu_base::{
    Call, CpuKernel, FilterSizes, Interrupt, Layout, Packing, Team, Watched, order, overlap, sorted,
};

use anabranch_cpu_base::pack;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};
use anabranch_op::tensor::Tensor;

/// Builds the kernel for a node and passes its constants to it. `constants` holds the value of each constant input.
///
/// # Errors
/// The errors of [`prepare`].
pub fn prepare_with(node: &NodeSpec, constants: &[Option<Tensor>]) -> Result<Box<dyn CpuKernel>, KernelError> {
    let constant: Vec<bool> = constants.iter().map(Option::is_some).collect();
    let mut kernel = prepare(node, &constant)?;
    pack(&mut *kernel, |input| constants[input].as_ref().map(Tensor::bytes));
    Ok(kernel)
}

/// Builds the kernel for a node from types and shapes alone. `constants` says for each input whether it is constant;
/// the kernel may need constant inputs [packed](CpuKernel::packings).
///
/// # Errors
/// If the node does not fit its op's definition, or there is no CPU kernel for its types.
pub fn prepare(node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    node.check()?;
    let moves = matches!(
        node.op,
        Op::Transpose(_) | Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::Gather(_) | Op::Scatter(_)
    );
    let any_type =
        moves || matches!(node.op, Op::Map(_) | Op::Reduce(_) | Op::ArgReduce(_) | Op::TopK(_) | Op::Block(_));
    let any_type = any_type
        || matches!(
            node.op,
            Op::Running(_)
                | Op::Fourier(_)
                | Op::NarrowMatMul(_)
                | Op::IntegerMatMul(_)
                | Op::IntegerConv(_)
                | Op::Trees(_)
                | Op::Attention(_)
                | Op::Append(_)
                | Op::Rotary(_)
                | Op::Length(_)
        );
    if !any_type && node.is_f64() {
        return double::prepare(node);
    }
    // Preparing products checks their integer types.
    let sound = any_type || node.is_f32() || matches!(node.op, Op::MatMul(_));
    node.require(sound, "its tensors are all f32 or all f64")?;
    match &node.op {
        Op::Map(_) | Op::Normalize(_) => anabranch_cpu_map::prepare(node),
        Op::Conv(_) | Op::ConvTranspose(_) => anabranch_cpu_conv::prepare(node, constants),
        Op::MatMul(_) | Op::NarrowMatMul(_) | Op::IntegerMatMul(_) | Op::IntegerConv(_) | Op::Recurrent(_) => {
            anabranch_cpu_product::prepare(node, constants)
        }
        Op::Pool(_)
        | Op::Reduce(_)
        | Op::Softmax(_)
        | Op::ArgReduce(_)
        | Op::TopK(_)
        | Op::Running(_)
        | Op::Scatter(_)
        | Op::Resize(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::Attention(_)
        | Op::Append(_)
        | Op::Rotary(_)
        | Op::Length(_)
        | Op::Trees(_) => anabranch_cpu_data::prepare(node),
        #[cfg(feature = "fourier")]
        Op::Fourier(op) => anabranch_cpu_fourier::prepare(node, op),
        #[cfg(not(feature = "fourier"))]
        Op::Fourier(_) => {
            Err(node.unsupported("this build has no Fourier transforms; build with the feature `fourier`"))
        }
        Op::Block(block) => block::prepare(node, block, constants),
    }
}

/// Returns a key of the order in which the node's sums are computed.
///
/// Nodes that differ only in their numbers of rows of a batch give the same bits for a row if they have the same key.
/// `None` if no numbers of rows are known to do so.
#[doc(hidden)]
pub fn summation(node: &NodeSpec, constants: &[bool]) -> Option<Vec<usize>> {
    match &node.op {
        Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::Softmax(_) | Op::Recurrent(_) if node.is_f64() => None,
        Op::MatMul(_) | Op::NarrowMatMul(_) | Op::IntegerMatMul(_) | Op::IntegerConv(_) | Op::Recurrent(_) => {
            anabranch_cpu_product::summation(node, constants)
        }
        Op::Conv(_) | Op::ConvTranspose(_) => anabranch_cpu_conv::summation(node, constants),
        // Elements are computed one by one, and rows and lines each by itself.
        Op::Map(_) | Op::Normalize(_) | Op::Fourier(_) => Some(Vec::new()),
        Op::Block(_) | Op::Scatter(_) => None,
        _ => anabranch_cpu_data::summation(node),
    }
}
