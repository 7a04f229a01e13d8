//! Kernels for CPUs: one file per kernel. A [`Team`] of threads that share a cache runs each of them.
//!
//! A kernel's result has the same bits for any number of threads. The shapes alone decide how work is cut, and every
//! reduction has a fixed tree.

mod append;
mod arg_reduce;
mod attention;
mod block;
mod concat;
mod conv;
mod conv_transpose;
mod copy;
mod double;
mod elements;
#[cfg(target_arch = "x86_64")]
mod features;
#[cfg(feature = "fourier")]
mod fourier;
mod gather;
mod gemm;
mod integer;
mod lanes;
mod layout;
mod length;
mod map;
mod math;
mod matmul;
mod narrow;
mod normalize;
mod number;
pub mod order;
pub mod overlap;
mod pad;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod rotary;
mod running;
mod scatter;
mod slice;
mod softmax;
pub mod sorted;
mod strided;
mod team;
#[cfg(test)]
pub(crate) mod testing;
mod top;
mod transpose;
mod trees;
mod vector;

pub use layout::{Layout, Packing};
pub use team::{Interrupt, Team, Watched};

use crate::error::KernelError;
use crate::op::{NodeSpec, Op};
use crate::tensor::{Buffer, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// Kernel of one node, ready to run any number of times.
pub trait CpuKernel: Send + Sync {
    /// Returns the bytes of scratch memory that a call needs, aligned as a [`Buffer`].
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Returns the bytes of tables that the kernel keeps between calls, without its packed constants.
    fn resident_bytes(&self) -> usize {
        0
    }

    /// Returns the constants that the kernel needs in its own layouts. [`keep`](Self::keep) passes them to it.
    fn packings(&self) -> Vec<Packing> {
        Vec::new()
    }

    /// Takes the constants that [`packings`](Self::packings) lists, in its order and of its layouts' sizes, before the
    /// first run.
    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        debug_assert!(packed.is_empty(), "only kernels that ask for packed constants are given some");
    }

    /// Whether calls must pass `input` unpacked. False for a constant of which the kernel reads only packed forms.
    fn reads(&self, input: usize) -> bool {
        self.packings().iter().all(|packing| packing.input != input)
    }

    /// Computes the rows `call.rows` of the outputs.
    ///
    /// # Errors
    /// If an element's value makes the op undefined ([`KernelError::Value`]), or a packed constant is missing.
    fn run(&self, call: Call<'_>) -> Result<(), KernelError>;
}

/// Data of one execution of a kernel.
pub struct Call<'a> {
    /// Bytes of each input; of a windowed input (see [`RowPlan`](crate::op::RowPlan)) only the rows at hand. Constants
    /// that the kernel does not [read](CpuKernel::reads) may be empty, and so is an input whose content lies in the
    /// output's memory ([`NodeSpec::in_place`]).
    pub inputs: &'a [&'a [u8]],
    /// Bytes of each output; only the rows at hand. Their content before the call is undefined, and the call writes all
    /// of it, unless the output holds an input's content. The output of a reduction at the end of a block is passed
    /// whole, and the call for the last row writes it.
    pub outputs: &'a mut [&'a mut [u8]],
    /// Rows at hand; `0..1` for a node that does not divide into rows.
    pub rows: Range<usize>,
    /// At least [`CpuKernel::scratch_bytes`] bytes, undefined before the first row. Calls for consecutive ranges of one
    /// node's rows are made in order and with the same scratch memory, which keeps its content between them. A block
    /// that ends in a reduction keeps its partial result there.
    pub scratch: &'a mut [u8],
    /// Threads to use.
    pub team: &'a Team,
}

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

/// Passes a kernel the constants that it needs packed.
fn pack<'a>(kernel: &mut dyn CpuKernel, constant: impl Fn(usize) -> Option<&'a [u8]>) {
    let packed = |packing: &Packing| {
        let mut packed = Buffer::zeroed(packing.layout.bytes());
        if let Some(raw) = constant(packing.input) {
            packing.layout.pack(raw, packed.bytes_mut());
        }
        Arc::new(packed)
    };
    let packed: Vec<_> = kernel.packings().iter().map(packed).collect();
    kernel.keep(&packed);
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
    node.require(sound, "its tensors are to be all f32 or all f64")?;
    Ok(match &node.op {
        Op::Map(op) => map::prepare(node, op)?,
        Op::Pool(op) => pool::prepare(node, op)?,
        Op::MatMul(op) => matmul::prepare(op, node, constants)?,
        Op::NarrowMatMul(op) => narrow::prepare(op, node, constants)?,
        Op::IntegerMatMul(op) => integer::prepare(op, node, constants)?,
        Op::IntegerConv(op) => integer::prepare_conv(op, node, constants)?,
        Op::Conv(op) => conv::prepare(op, node, constants)?,
        Op::ConvTranspose(op) => conv_transpose::prepare(node, op, constants)?,
        Op::Reduce(op) => reduce::prepare(node, op)?,
        Op::Softmax(op) => softmax::prepare(node, op),
        Op::Normalize(op) => normalize::prepare(node, op)?,
        Op::ArgReduce(op) => arg_reduce::prepare(node, op),
        Op::TopK(op) => top::prepare(node, op),
        Op::Running(op) => running::prepare(node, op),
        #[cfg(feature = "fourier")]
        Op::Fourier(op) => fourier::prepare(node, op)?,
        #[cfg(not(feature = "fourier"))]
        Op::Fourier(_) => {
            return Err(node.unsupported("this build has no Fourier transforms; build with the feature `fourier`"));
        }
        Op::Scatter(op) => scatter::prepare(node, op),
        Op::Resize(op) => resize::prepare(node, op)?,
        Op::Recurrent(op) => recurrent::prepare(node, op, constants),
        Op::Transpose(op) => transpose::prepare(node, op),
        Op::Concat(op) => concat::prepare(node, op),
        Op::Slice(op) => slice::prepare(node, op),
        Op::Pad(op) => pad::prepare(node, op)?,
        Op::Gather(op) => gather::prepare(node, op),
        Op::Attention(op) => attention::prepare(node, op)?,
        Op::Append(op) => append::prepare(node, op),
        Op::Rotary(op) => rotary::prepare(node, op),
        Op::Length(op) => length::prepare(op),
        Op::Trees(op) => trees::prepare(node, op),
        Op::Block(block) => block::prepare(node, block, constants)?,
    })
}
