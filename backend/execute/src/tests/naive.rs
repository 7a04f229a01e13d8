//! Kernels for the ops of the test programs, plain and slow, and the evaluation of programs node after node.

use crate::Kernels;
use anabranch_ir::program::{NodeId, Origin, Program};
use anabranch_kernels::cpu::{Call, CpuKernel, Team};
use anabranch_kernels::op::{Expression, NodeSpec, Op, Unary};
use anabranch_kernels::{Buffer, KernelError, Tensor};
use std::sync::Arc;

/// One naive kernel.
pub(super) struct Naive {
    node: NodeSpec,
    rows: usize,
}

impl Naive {
    pub(super) fn new(node: &NodeSpec) -> Self {
        Self { node: node.clone(), rows: node.row_plan().map_or(1, |plan| plan.rows) }
    }
}

/// A naive kernel with an action before each call.
struct Hooked<F> {
    naive: Naive,
    before: F,
}

impl<F: Fn(&Team) -> Result<(), KernelError> + Send + Sync> CpuKernel for Hooked<F> {
    fn scratch_bytes(&self) -> usize {
        self.naive.scratch_bytes()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        (self.before)(call.team)?;
        self.naive.run(call)
    }
}

/// Adds an action before each call of a node's kernel.
pub(super) fn hook(kernels: &Kernels, node: u32, before: impl Fn() -> Result<(), KernelError> + Send + Sync + 'static) {
    hook_team(kernels, node, move |_| before());
}

/// Adds an action with the kernel's team before each call of a node's kernel.
pub(super) fn hook_team(
    kernels: &Kernels,
    node: u32,
    before: impl Fn(&Team) -> Result<(), KernelError> + Send + Sync + 'static,
) {
    let naive = Naive::new(&kernels.program().node(NodeId(node)).spec);
    kernels.replace(NodeId(node), Arc::new(Hooked { naive, before }));
}

impl CpuKernel for Naive {
    fn scratch_bytes(&self) -> usize {
        64
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let inputs: Vec<&[f32]> = call.inputs.iter().map(|bytes| bytemuck::cast_slice(bytes)).collect();
        let output: &mut [f32] = bytemuck::cast_slice_mut(call.outputs[0]);
        match &self.node.op {
            Op::Map(map) if map.expression == Expression::unary(Unary::Relu) => {
                output.iter_mut().zip(inputs[0]).for_each(|(out, x)| *out = x.max(0.0));
            }
            Op::Map(_) => {
                // A broadcast operand is read from its start at each row.
                let row = output.len() / call.rows.len();
                assert_eq!(row * self.rows, self.node.outputs[0].shape.elements());
                let at =
                    |input: &[f32], place: usize| input[if input.len() == output.len() { place } else { place % row }];
                let sums: Vec<f32> = (0..output.len()).map(|i| at(inputs[0], i) + at(inputs[1], i)).collect();
                output.copy_from_slice(&sums);
            }
            Op::Reduce(_) => {
                let row = inputs[0].len() / output.len();
                output.iter_mut().zip(inputs[0].chunks(row)).for_each(|(out, row)| *out = sum(row.iter().copied()));
            }
            Op::MatMul(_) => {
                let (k, n) = (self.node.inputs[1].shape.dims()[0], self.node.inputs[1].shape.dims()[1]);
                for (at, out) in output.iter_mut().enumerate() {
                    let (row, column) = (at / n, at % n);
                    *out = sum((0..k).map(|i| inputs[0][row * k + i] * inputs[1][i * n + column]));
                }
            }
            Op::Gather(_) => {
                let indices: &[i64] = bytemuck::cast_slice(call.inputs[1]);
                let row = output.len() / indices.len();
                let rows = output.chunks_mut(row).zip(indices);
                rows.for_each(|(out, index)| out.copy_from_slice(&inputs[0][*index as usize * row..][..row]));
            }
            other => panic!("no naive kernel for {}", other.name()),
        }
        Ok(())
    }
}

/// A sum that is never −0, because its maximum with 0 may be either zero.
fn sum(terms: impl Iterator<Item = f32>) -> f32 {
    terms.fold(0.0, |sum, term| sum + term)
}

/// Outputs of a program, one node after the other on one thread.
pub(super) fn evaluate(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values: Vec<Option<Tensor>> = vec![None; program.values.len()];
    for (index, value) in program.values.iter().enumerate() {
        if let Origin::Constant(constant) = &value.origin {
            values[index] = constant.held();
        }
    }
    for (id, tensor) in program.inputs.iter().zip(inputs) {
        values[id.index()] = Some(tensor.clone());
    }
    for node in &program.nodes {
        let read: Vec<Tensor> = node.inputs.iter().map(|id| values[id.index()].clone().expect("made before")).collect();
        let read: Vec<&[u8]> = read.iter().map(Tensor::bytes).collect();
        let spec = node.spec.outputs[0].clone();
        let mut buffer = Buffer::zeroed(spec.bytes());
        let kernel = Naive::new(&node.spec);
        let (rows, team) = (0..kernel.rows, Team::solo());
        let outputs = &mut [buffer.bytes_mut()];
        kernel.run(Call { inputs: &read, outputs, rows, scratch: &mut [0; 64], team: &team }).expect("naive");
        values[node.outputs[0].index()] = Some(Tensor::new(spec, Arc::new(buffer)).expect("the spec's size"));
    }
    program.outputs.iter().map(|output| values[output.value.index()].clone().expect("made")).collect()
}
