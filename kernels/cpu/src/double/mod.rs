//! Kernels of 64-bit floats for products, convolutions, pooling, softmax, normalisation, resizing and recurrent layers.
//! They are plain code for any processor and any size.
//!
//! Models that compute in double need its precision rather than speed. No kernel here has an epilogue: steps after a
//! product are a separate expression. The shapes determine all cuts, and sums have a fixed order.

mod convolution;
mod matmul;
mod normalize;
mod pool;
mod recurrent;
mod resize;
mod softmax;
#[cfg(test)]
mod tests;

use anabranch_cpu_base::CpuKernel;
use anabranch_cpu_base::lanes::{self, By};
use anabranch_cpu_base::team::with_workspace;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};

/// Prepares the kernel of a node whose tensors are all `f64`.
///
/// # Errors
/// If there is no kernel for the op, if the op has an epilogue, or if its sizes do not fit together.
pub(super) fn prepare(node: &NodeSpec) -> Result<Box<dyn CpuKernel>, KernelError> {
    if node.op.epilogue().is_some() {
        return Err(node.unsupported("a node of f64 has no epilogue"));
    }
    match &node.op {
        Op::MatMul(op) => matmul::prepare(node, op),
        Op::Conv(op) => convolution::prepare(node, op),
        Op::ConvTranspose(op) => convolution::prepare_transposed(node, op),
        Op::Pool(op) => pool::prepare(node, op),
        Op::Softmax(op) => Ok(softmax::prepare(node, op)),
        Op::Normalize(op) => Ok(normalize::prepare(node, op)),
        Op::Resize(op) => resize::prepare(node, op),
        Op::Recurrent(op) => Ok(recurrent::prepare(node, op)),
        _ => Err(node.unsupported("there is no kernel of f64")),
    }
}

/// Runs `body` on `count` numbers of undefined content, private to the thread.
fn with_numbers<R>(count: usize, body: impl FnOnce(&mut [f64]) -> R) -> R {
    with_workspace(2 * count, |floats| body(bytemuck::cast_slice_mut(floats)))
}

/// Returns `Σ a · b`, summed in a fixed tree.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const SIDE_BY_SIDE: usize = 8;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SIDE_BY_SIDE>(), b.as_chunks::<SIDE_BY_SIDE>());
    let mut sums = [0.0; SIDE_BY_SIDE];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sum(&sums, |x| x) + rest
}

/// Returns `Σ value(x)`, summed in a fixed tree.
fn sum(elements: &[f64], value: impl Fn(f64) -> f64 + Copy) -> f64 {
    let add = move |sum: f64, x: f64| sum + value(x);
    lanes::fold(By { empty: 0.0, add, join: |a: f64, b: f64| a + b }, elements)
}
