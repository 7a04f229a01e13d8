//! A node with its tensors, ready to run on the CPU.

use crate::nodes::values;
use anabranch_kernels::cpu::{Call, CpuKernel, Team, prepare_with};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Buffer, Tensor};
use std::hint::black_box;

/// A prepared kernel, its inputs, its output and its scratch memory, all touched before.
pub struct CpuRun {
    kernel: Box<dyn CpuKernel>,
    inputs: Vec<Tensor>,
    output: Buffer,
    scratch: Buffer,
    rows: usize,
}

impl CpuRun {
    /// Prepares `node` with `constant[i]` saying whether input `i` never changes.
    pub fn new(node: &NodeSpec, constant: &[bool]) -> Self {
        let inputs: Vec<Tensor> = node.inputs.iter().map(values).collect();
        let is_constant = |index: usize| constant.get(index) == Some(&true);
        let constants: Vec<_> =
            inputs.iter().enumerate().map(|(index, input)| is_constant(index).then(|| input.clone())).collect();
        let kernel = prepare_with(node, &constants).expect("a sound node");
        let mut output = Buffer::zeroed(node.outputs[0].bytes());
        output.bytes_mut().fill(1);
        let scratch = Buffer::zeroed(kernel.scratch_bytes());
        let rows = node.row_plan().map_or(1, |plan| plan.rows);
        Self { kernel, inputs, output, scratch, rows }
    }

    /// Bytes read and written once.
    pub fn bytes(&self) -> u64 {
        (self.inputs.iter().map(|input| input.bytes().len()).sum::<usize>() + self.output.len()) as u64
    }

    /// Runs the whole node once.
    pub fn call(&mut self, team: &Team) {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Tensor::bytes).collect();
        let mut outputs = [self.output.bytes_mut()];
        let scratch = self.scratch.bytes_mut();
        let call = Call { inputs: &inputs, outputs: &mut outputs, rows: 0..self.rows, scratch, team };
        black_box(self.kernel.run(call)).expect("no value makes it undefined");
    }
}
