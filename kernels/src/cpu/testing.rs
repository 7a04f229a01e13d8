//! Running kernels in tests, in every way that must give the same bits.

use super::{Call, Team, prepare_with};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::NodeSpec;
use crate::shape::Shape;
use crate::tensor::{Buffer, Tensor, TensorSpec};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// A shape that is known to be sound.
pub(crate) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a test's shape is small")
}

/// A tensor whose element `i` is `value(i)`, converted to `dtype`.
pub(crate) fn tensor(dtype: DType, dims: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let spec = TensorSpec::new(dtype, shape(dims));
    let values: Vec<f64> = (0..spec.shape.elements()).map(value).collect();
    let mut buffer = Buffer::zeroed(spec.bytes());
    super::map::from_f64(&values, dtype, buffer.bytes_mut());
    Tensor::new(spec, Arc::new(buffer)).expect("made by the spec")
}

/// Runs a node on one thread.
pub(crate) fn run(node: &NodeSpec, inputs: &[Tensor]) -> Result<Vec<Tensor>, KernelError> {
    run_with(node, inputs, &vec![None; inputs.len()], &Team::solo(), usize::MAX)
}

/// Runs a node on 1, 2 and 4 threads, whole and by windows of 1 and of 7 rows, and with all inputs constant, and
/// requires the same bits.
pub(crate) fn run_all_ways(node: &NodeSpec, inputs: &[Tensor]) -> Vec<Tensor> {
    static TEAMS: LazyLock<[Team; 3]> = LazyLock::new(|| [1, 2, 4].map(|threads| Team::new(threads, |_| {})));
    let [solo, ..] = &*TEAMS;
    let variable = vec![None; inputs.len()];
    let whole = run_with(node, inputs, &variable, solo, usize::MAX).expect("a sound node");
    let same = |other: Result<Vec<Tensor>, KernelError>, how: &str| {
        let other = other.expect("a sound node");
        assert!(whole.iter().zip(&other).all(|(a, b)| a.same_bits(b)), "{how}, {node:?} has other bits");
    };
    for team in &TEAMS[1..] {
        same(run_with(node, inputs, &variable, team, usize::MAX), &format!("with {} threads", team.threads()));
    }
    for chunk in [1, 7] {
        if node.row_plan().is_some_and(|plan| plan.rows / chunk < 3000) {
            same(run_with(node, inputs, &variable, solo, chunk), &format!("in windows of {chunk} rows"));
        }
    }
    let constant: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
    same(run_with(node, inputs, &constant, solo, usize::MAX), "with constant inputs");
    whole
}

/// Runs a sound node on one thread by windows of `chunk` rows.
pub(crate) fn run_windows(
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    chunk: usize,
) -> Vec<Tensor> {
    run_with(node, inputs, constants, &Team::solo(), chunk).expect("a sound node")
}

fn run_with(
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    team: &Team,
    chunk: usize,
) -> Result<Vec<Tensor>, KernelError> {
    let kernel = prepare_with(node, constants)?;
    let mut scratch = garbage(kernel.scratch_bytes());
    let mut outputs: Vec<Buffer> = node.outputs.iter().map(|output| garbage(output.bytes())).collect();
    let plan = node.row_plan();
    let rows = plan.as_ref().map_or(1, |plan| plan.rows);
    for start in (0..rows).step_by(chunk.min(rows)) {
        let window = start..(start + chunk.min(rows)).min(rows);
        let part = |bytes: usize| -> Range<usize> { bytes / rows * window.start..bytes / rows * window.end };
        let is_windowed = |input: usize| plan.as_ref().is_some_and(|plan| plan.windowed[input]);
        let inputs: Vec<&[u8]> = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| if is_windowed(i) { &input.bytes()[part(input.bytes().len())] } else { input.bytes() })
            .collect();
        let mut outputs: Vec<&mut [u8]> = outputs
            .iter_mut()
            .map(|output| {
                let part = part(output.len());
                &mut output.bytes_mut()[part]
            })
            .collect();
        let scratch = scratch.bytes_mut();
        kernel.run(Call { inputs: &inputs, outputs: &mut outputs, rows: window.clone(), scratch, team })?;
    }
    let specs = node.outputs.iter().cloned();
    Ok(specs.zip(outputs).map(|(s, b)| Tensor::new(s, Arc::new(b)).expect("made by the spec")).collect())
}

/// Memory as a call may find it.
fn garbage(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.bytes_mut().fill(0xab);
    buffer
}
