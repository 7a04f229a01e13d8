//! Runs kernels in tests, in all configurations that must give the same bits.

use anabranch_cpu_base::{Call, CpuKernel, Team, convert, pack};
use anabranch_op::dtype::{DType, Element};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Member, NodeSpec, Op, Operand};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::{Buffer, Tensor, TensorSpec};
use std::sync::{Arc, LazyLock};

/// Function that checks a node and builds its kernel.
pub type Prepare = fn(&NodeSpec, &[bool]) -> Result<Box<dyn CpuKernel>, KernelError>;

/// Creates a shape that is known to be sound.
pub fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a test's shape is small")
}

/// Creates the spec of an `f32` tensor.
pub fn spec(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(DType::F32, shape(dims))
}

/// Creates a member of a block of `f32` tensors, with the source of each input and the shape under which it is read.
pub fn member(op: Op, inputs: &[(Operand, &[usize])], output: &[usize]) -> Member {
    let read = inputs.iter().map(|(_, dims)| spec(dims)).collect();
    let inputs = inputs.iter().map(|(operand, _)| *operand).collect();
    Member { spec: NodeSpec { op, inputs: read, outputs: vec![spec(output)] }, inputs }
}

/// Returns the outputs of a block whose members run one after the other on whole tensors; `run` computes a node's only
/// output.
pub fn one_by_one(node: &NodeSpec, inputs: &[Tensor], run: impl Fn(&NodeSpec, &[Tensor]) -> Tensor) -> Vec<Tensor> {
    let Op::Block(block) = &node.op else { panic!("a block") };
    let mut made: Vec<Tensor> = Vec::new();
    for Member { spec, inputs: operands } in &block.members {
        let given = |(operand, spec): (&Operand, &TensorSpec)| {
            let tensor = match operand {
                Operand::Input(input) => &inputs[*input],
                Operand::Member(of) => &made[*of],
            };
            tensor.reshaped(spec.shape.clone()).expect("the same elements")
        };
        let read: Vec<_> = operands.iter().zip(&spec.inputs).map(given).collect();
        made.push(run(spec, &read));
    }
    block.outputs.iter().map(|at| made[*at].clone()).collect()
}

/// Creates a tensor whose element `i` is `value(i)`, converted to `dtype`.
pub fn tensor(dtype: DType, dims: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let spec = TensorSpec::new(dtype, shape(dims));
    let values: Vec<f64> = (0..spec.shape.elements()).map(value).collect();
    let mut buffer = Buffer::zeroed(spec.bytes());
    convert::from_f64(&values, dtype, buffer.bytes_mut());
    Tensor::new(spec, Arc::new(buffer)).expect("made by the spec")
}

/// Returns a tensor's elements, converted.
pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    let mut numbers = vec![0.0; tensor.shape().elements()];
    convert::to_f64(tensor.dtype(), tensor.bytes(), &mut numbers);
    numbers
}

/// Creates a node of these inputs and one output.
pub fn node(op: Op, inputs: &[Tensor], dtype: DType, output: &[usize]) -> NodeSpec {
    let outputs = vec![TensorSpec::new(dtype, shape(output))];
    NodeSpec { op, inputs: inputs.iter().map(|input| input.spec().clone()).collect(), outputs }
}

/// Returns the elements of an op's only output, by [`run_all_ways`].
pub fn computed<T: Element>(prepare: Prepare, op: Op, inputs: &[Tensor], output: &[usize]) -> Vec<T> {
    let made = run_all_ways(prepare, &node(op, inputs, T::DTYPE, output), inputs).remove(0);
    made.elements().expect("as asked for").to_vec()
}

/// Runs a node on one thread.
pub fn run(prepare: Prepare, node: &NodeSpec, inputs: &[Tensor]) -> Result<Vec<Tensor>, KernelError> {
    run_with(prepare, node, inputs, &vec![None; inputs.len()], &Team::solo(), usize::MAX)
}

/// Runs a node on 1, 2 and 4 threads, whole and by windows of 1 and of 7 rows, and with all inputs constant. Checks
/// that the bits are the same.
pub fn run_all_ways(prepare: Prepare, node: &NodeSpec, inputs: &[Tensor]) -> Vec<Tensor> {
    static TEAMS: LazyLock<[Team; 3]> = LazyLock::new(|| [1, 2, 4].map(|threads| Team::new(threads, |_| {})));
    let [solo, ..] = &*TEAMS;
    let variable = vec![None; inputs.len()];
    let whole = run_with(prepare, node, inputs, &variable, solo, usize::MAX).expect("a sound node");
    let same = |other: Result<Vec<Tensor>, KernelError>, how: &str| {
        let other = other.expect("a sound node");
        assert!(whole.iter().zip(&other).all(|(a, b)| a.same_bits(b)), "{how}, {node:?} has other bits");
    };
    for team in &TEAMS[1..] {
        same(run_with(prepare, node, inputs, &variable, team, usize::MAX), &format!("with {} threads", team.threads()));
    }
    for chunk in [1, 7] {
        if node.row_plan().is_some_and(|plan| plan.rows / chunk < 3000) {
            same(run_with(prepare, node, inputs, &variable, solo, chunk), &format!("in windows of {chunk} rows"));
        }
    }
    let constant: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
    same(run_with(prepare, node, inputs, &constant, solo, usize::MAX), "with constant inputs");
    whole
}

/// Runs a sound node on one thread by windows of `chunk` rows.
pub fn run_windows(
    prepare: Prepare,
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    chunk: usize,
) -> Vec<Tensor> {
    run_with(prepare, node, inputs, constants, &Team::solo(), chunk).expect("a sound node")
}

fn run_with(
    prepare: Prepare,
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    team: &Team,
    chunk: usize,
) -> Result<Vec<Tensor>, KernelError> {
    let rows = node.row_plan().map_or(1, |plan| plan.rows);
    let bounds: Vec<usize> = (0..rows).step_by(chunk.min(rows)).chain([rows]).collect();
    run_calls(prepare, node, inputs, constants, team, &bounds)
}

/// Builds the kernel for a node and passes its constants to it.
///
/// # Errors
/// The errors of `prepare`.
pub fn prepare_with(
    prepare: Prepare,
    node: &NodeSpec,
    constants: &[Option<Tensor>],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    let constant: Vec<bool> = constants.iter().map(Option::is_some).collect();
    let mut kernel = prepare(node, &constant)?;
    pack(&mut *kernel, |input| constants[input].as_ref().map(Tensor::bytes));
    Ok(kernel)
}

/// Runs a node in consecutive calls for the rows between `bounds`.
pub fn run_calls(
    prepare: Prepare,
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    team: &Team,
    bounds: &[usize],
) -> Result<Vec<Tensor>, KernelError> {
    run_kernel(&*prepare_with(prepare, node, constants)?, node, inputs, team, bounds)
}

/// Runs a prepared kernel like [`run_calls`]. Constants that it keeps are not passed again.
pub fn run_kernel<'t>(
    kernel: &dyn CpuKernel,
    node: &NodeSpec,
    inputs: &'t [Tensor],
    team: &Team,
    bounds: &[usize],
) -> Result<Vec<Tensor>, KernelError> {
    let mut scratch = garbage(kernel.scratch_bytes());
    let mut outputs: Vec<Buffer> = node.outputs.iter().map(|output| garbage(output.bytes())).collect();
    let plan = node.row_plan();
    let all = plan.as_ref().map_or(1, |plan| plan.rows);
    let is_windowed = |input: usize| plan.as_ref().is_some_and(|plan| plan.windowed[input]);
    // The output of a reduction at the end of a block is passed whole.
    let reduced = matches!(&node.op, Op::Block(block) if block.ends_in_reduction()).then(|| outputs.len() - 1);
    for rows in bounds.windows(2).map(|pair| pair[0]..pair[1]) {
        let part = |bytes: usize| bytes / all * rows.start..bytes / all * rows.end;
        let given = |(i, input): (usize, &'t Tensor)| match input.bytes() {
            _ if !kernel.reads(i) => &[],
            bytes if is_windowed(i) => &bytes[part(bytes.len())],
            bytes => bytes,
        };
        let inputs: Vec<&[u8]> = inputs.iter().enumerate().map(given).collect();
        let outputs = outputs.iter_mut().enumerate().map(|(index, output)| {
            let part = if reduced == Some(index) { 0..output.len() } else { part(output.len()) };
            &mut output.bytes_mut()[part]
        });
        let mut outputs: Vec<&mut [u8]> = outputs.collect();
        kernel.run(Call { inputs: &inputs, outputs: &mut outputs, rows, scratch: scratch.bytes_mut(), team })?;
    }
    let specs = node.outputs.iter().cloned();
    Ok(specs.zip(outputs).map(|(s, b)| Tensor::new(s, Arc::new(b)).expect("made by the spec")).collect())
}

/// Returns memory with the arbitrary content that a call may find.
fn garbage(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.bytes_mut().fill(0xab);
    buffer
}
