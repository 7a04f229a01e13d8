//! Slices or elements chosen by constant indices.

use super::kernel::Recorder;
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Gather, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Tensor;

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Gather, constants: &[bool]) -> Result<Recipe<'n>, KernelError> {
    if constants.get(1) != Some(&true) {
        return Err(node.unsupported("its indices are not constant, and GPU kernels do not read integers"));
    }
    let (input, indices) = (&node.inputs[0].shape, &node.inputs[1].shape);
    let recipe = Recipe::new(node, move |recorder| {
        let size = input.dims()[op.axis];
        let positions = positions(recorder, size)?;
        let words = match op.elementwise {
            true => offsets(&positions, op.axis, input, indices),
            false => positions.iter().map(|position| *position as u32).collect(),
        };
        let inner: usize = input.dims()[op.axis + 1..].iter().product();
        let outer: usize = input.dims()[..op.axis].iter().product();
        let count = if op.elementwise { words.len() } else { outer * words.len() * inner };
        let table = recorder.resident(&words);
        let mut shader = Shader::new("gather", include_str!("gather.wgsl"));
        shader.constant("OFFSETS", usize::from(op.elementwise));
        shader.parameter("count", count).parameter("inner", inner);
        shader.parameter("chosen", words.len()).parameter("size", size);
        shader.read("x", "f32", recorder.input(0)?).read("indices", "u32", &table);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch_each(&shader, count)
    });
    Ok(Recipe { resident_bytes: indices.elements() as u64 * 4, unbound: vec![1], ..recipe })
}

/// Returns each index as a position along an axis of `size` elements.
fn positions(recorder: &Recorder<'_>, size: usize) -> Result<Vec<usize>, KernelError> {
    let position = |index: i64| {
        let found = if index < 0 { index.checked_add_unsigned(size as u64) } else { Some(index) };
        let found = found.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < size);
        found.ok_or_else(|| KernelError::Value {
            op: "gather",
            reason: format!("index {index} is outside of an axis of {size}"),
        })
    };
    integers(recorder.constant(1)?).into_iter().map(position).collect()
}

/// Returns the input's offset for each element of the output, if each element has its own index.
fn offsets(positions: &[usize], chosen_axis: usize, input: &Shape, indices: &Shape) -> Vec<u32> {
    let (chosen, strides) = (indices.strides(), input.strides());
    let offset = |(index, position): (usize, &usize)| {
        let along = |axis: usize| match axis == chosen_axis {
            true => position * strides[axis],
            false => index / chosen[axis] % indices.dims()[axis] * strides[axis],
        };
        (0..strides.len()).map(along).sum::<usize>() as u32
    };
    positions.iter().enumerate().map(offset).collect()
}

/// Returns the elements of a tensor of integers.
fn integers(tensor: &Tensor) -> Vec<i64> {
    match tensor.elements::<i32>() {
        Some(narrow) => narrow.iter().map(|i| i64::from(*i)).collect(),
        None => tensor.elements::<i64>().unwrap_or(&[]).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check_run, gpu, noise, shape, spec, tensor};
    use super::*;
    use anabranch_op::op::Op;

    fn gather(op: &Gather, x: &[usize], indices: &Tensor, out: &[usize]) -> NodeSpec {
        let inputs = vec![spec(x), indices.spec().clone()];
        NodeSpec { op: Op::Gather(op.clone()), inputs, outputs: vec![spec(out)] }
    }

    fn run(node: &NodeSpec) -> Run<'_> {
        Run { constants: vec![false, true], ..Run::new(node) }
    }

    #[test]
    fn slices_are_chosen_in_any_order() {
        for (dims, axis) in [(vec![7], 0), (vec![5, 3], 0), (vec![3, 6, 4], 1), (vec![2, 3, 9], 2)] {
            let size = dims[axis] as i64;
            let indices = Tensor::from_i64s(&[size - 1, 0, -1, -size, 1]);
            let mut out = dims.clone();
            out[axis] = 5;
            let x = tensor(&dims, &noise(71, dims.iter().product()));
            check_run(run(&gather(&Gather { axis, elementwise: false }, &dims, &indices, &out)), &[x, indices]);
        }
    }

    #[test]
    fn single_elements_are_chosen() {
        let op = Gather { axis: 1, elementwise: true };
        let indices = Tensor::from_elements(shape(&[2, 3]), &[3i32, -1, 0, 1, 1, -4]).expect("six");
        let x = tensor(&[3, 4], &noise(72, 12));
        check_run(run(&gather(&op, &[3, 4], &indices, &[2, 3])), &[x, indices]);
    }

    #[test]
    fn what_cannot_be_gathered_is_refused() {
        let op = Gather { axis: 0, elementwise: false };
        let x = tensor(&[3], &[1.0, 2.0, 3.0]);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            let indices = Tensor::from_i64s(&[bad]);
            let result = run(&gather(&op, &[3], &indices, &[1])).outputs(&[x.clone(), indices]);
            assert!(matches!(result, Err(KernelError::Value { .. })), "{bad}: {result:?}");
        }
        let node = gather(&op, &[3], &Tensor::from_i64s(&[0]), &[1]);
        let result = crate::gpu::supports(&node, &[false, false], gpu().facts());
        assert!(matches!(result, Err(KernelError::Unsupported { .. })));
    }
}
