//! Kernel of one node on CPUs, and the data of a call.

use crate::layout::Packing;
use crate::team::Team;
use anabranch_op::error::KernelError;
use anabranch_op::tensor::Buffer;
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
    /// Bytes of each input; of a windowed input (see [`RowPlan`](anabranch_op::op::RowPlan)) only the rows at hand.
    /// Constants that the kernel does not [read](CpuKernel::reads) may be empty, and so is an input whose content lies
    /// in the output's memory ([`NodeSpec::in_place`](anabranch_op::op::NodeSpec::in_place)).
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

/// Passes a kernel the constants that it needs packed.
pub fn pack<'a>(kernel: &mut dyn CpuKernel, constant: impl Fn(usize) -> Option<&'a [u8]>) {
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
