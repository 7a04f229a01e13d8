//! The reference interpreter: runs a program's nodes one after the other with the CPU kernels, on one thread.
//!
//! It is what the runtime's results are compared with, and what folds constants; it plans nothing and reuses nothing.

use crate::constant::ConstantError;
use crate::program::{Node, Origin, Program};
use anabranch_kernels::cpu::{Call, Team, prepare_with};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Buffer, KernelError, Tensor, TensorSpec};
use std::sync::Arc;

/// Why a program could not be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// More or fewer tensors than the program has inputs.
    #[error("the program has {expected} inputs, but {given} tensors were given")]
    Count {
        /// Inputs of the program.
        expected: usize,
        /// Tensors given.
        given: usize,
    },
    /// A tensor of another type or shape than its input.
    #[error("input `{input}` is {expected}, but the tensor given is {given}")]
    Input {
        /// The input's name.
        input: String,
        /// What the program was lowered for.
        expected: TensorSpec,
        /// What was given.
        given: TensorSpec,
    },
    /// A constant that cannot be read.
    #[error(transparent)]
    Constant(#[from] ConstantError),
    /// A node's kernel refused or failed.
    #[error("node `{node}`: {source}")]
    Node {
        /// The node's name.
        node: String,
        /// The kernel's reason.
        source: KernelError,
    },
}

/// Runs `program` on `inputs` (in the order of [`Program::inputs`]) and gives its outputs in the order of
/// [`Program::outputs`]. A value is dropped after its last reader.
///
/// # Errors
/// If the tensors are not those that the program was lowered for, or a kernel refuses a node.
pub fn evaluate(program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, EvaluateError> {
    let mut values = given(program, inputs)?;
    let last_reads = last_reads(program);
    for (index, node) in program.nodes.iter().enumerate() {
        let results = run_node(program, node, &values)
            .map_err(|source| EvaluateError::Node { node: node.name.clone(), source })?;
        for (output, tensor) in node.outputs.iter().zip(results) {
            values[output.index()] = Some(tensor);
        }
        for read in node.inputs.iter().filter(|read| last_reads[read.index()] == Some(index)) {
            values[read.index()] = None;
        }
    }
    let output = |output: &crate::program::Output| {
        let value = values[output.value.index()].as_ref().expect("every value is made before the program ends");
        value.reshaped(output.spec.shape.clone()).expect("an output has as many elements as its value")
    };
    Ok(program.outputs.iter().map(output).collect())
}

/// Computes one node's outputs from whole inputs on the calling thread.
///
/// # Errors
/// If there is no kernel for the node, or an element makes it undefined.
pub(crate) fn compute(
    spec: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
) -> Result<Vec<Tensor>, KernelError> {
    let kernel = prepare_with(spec, constants)?;
    let mut buffers: Vec<_> = spec.outputs.iter().map(|output| Buffer::zeroed(output.bytes())).collect();
    let mut outputs: Vec<_> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
    let inputs: Vec<_> = inputs.iter().map(Tensor::bytes).collect();
    kernel.run(Call {
        inputs: &inputs,
        outputs: &mut outputs,
        rows: 0..spec.row_plan().map_or(1, |plan| plan.rows),
        scratch: Buffer::zeroed(kernel.scratch_bytes()).bytes_mut(),
        team: &Team::solo(),
    })?;
    let tensor = |(spec, buffer): (&TensorSpec, Buffer)| {
        Tensor::new(spec.clone(), Arc::new(buffer)).expect("the buffer was made with the spec's size")
    };
    Ok(spec.outputs.iter().zip(buffers).map(tensor).collect())
}

/// The values that are there before the first node.
fn given(program: &Program, inputs: &[Tensor]) -> Result<Vec<Option<Tensor>>, EvaluateError> {
    if inputs.len() != program.inputs.len() {
        return Err(EvaluateError::Count { expected: program.inputs.len(), given: inputs.len() });
    }
    let mut values: Vec<_> = program
        .values
        .iter()
        .map(|value| match &value.origin {
            Origin::Constant(constant) => Ok(Some(constant.load()?)),
            Origin::Input | Origin::Node(_) => Ok(None),
        })
        .collect::<Result<_, ConstantError>>()?;
    for (id, tensor) in program.inputs.iter().zip(inputs) {
        let value = program.value(*id);
        if *tensor.spec() != value.spec {
            let (expected, given) = (value.spec.clone(), tensor.spec().clone());
            return Err(EvaluateError::Input { input: value.name.clone(), expected, given });
        }
        values[id.index()] = Some(tensor.clone());
    }
    Ok(values)
}

/// For each value, the last node that reads it, unless the caller receives it.
fn last_reads(program: &Program) -> Vec<Option<usize>> {
    let mut last = vec![None; program.values.len()];
    for (index, node) in program.nodes.iter().enumerate() {
        for input in &node.inputs {
            last[input.index()] = Some(index);
        }
    }
    for output in &program.outputs {
        last[output.value.index()] = None;
    }
    last
}

fn run_node(program: &Program, node: &Node, values: &[Option<Tensor>]) -> Result<Vec<Tensor>, KernelError> {
    let read = |(id, spec): (&crate::program::ValueId, &TensorSpec)| {
        let tensor = values[id.index()].as_ref().expect("nodes are in topological order");
        tensor.reshaped(spec.shape.clone()).expect("a value is read under a shape of as many elements")
    };
    let inputs: Vec<_> = node.inputs.iter().zip(&node.spec.inputs).map(read).collect();
    let constants: Vec<_> =
        (node.inputs.iter().zip(&inputs)).map(|(id, tensor)| program.constant(*id).map(|_| tensor.clone())).collect();
    compute(&node.spec, &inputs, &constants)
}
