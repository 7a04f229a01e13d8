//! Slices or elements chosen by constant indices.

use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::{Recipe, invalid, unsupported};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{Gather, NodeSpec};
use crate::shape::Shape;
use crate::tensor::Tensor;

pub(crate) struct GatherRecipe {
    axis: usize,
    elementwise: bool,
    input: Shape,
    indices: Shape,
}

impl GatherRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Gather, constants: &[bool]) -> Result<Self, KernelError> {
        let ([x, indices], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "two inputs and one output are expected"));
        };
        if x.dtype != DType::F32 || output.dtype != DType::F32 {
            return Err(unsupported(node, "GPU kernels compute f32 only"));
        }
        if !matches!(indices.dtype, DType::I32 | DType::I64) {
            return Err(invalid(node, "indices are i32 or i64"));
        }
        if constants.get(1) != Some(&true) {
            return Err(unsupported(node, "indices that are not constant are integers, which GPU kernels do not read"));
        }
        let (dims, chosen) = (x.shape.dims(), indices.shape.dims());
        let Some(&size) = dims.get(op.axis) else { return Err(invalid(node, "the input does not have the axis")) };
        let others = || x.shape.elements().checked_div(size).unwrap_or(0);
        let fits = match op.elementwise {
            true => {
                let within = |(axis, (own, all)): (usize, (&usize, &usize))| axis == op.axis || own <= all;
                chosen.len() == dims.len()
                    && chosen.iter().zip(dims).enumerate().all(within)
                    && output.shape.elements() == indices.shape.elements()
            }
            false => others().checked_mul(indices.shape.elements()) == Some(output.shape.elements()),
        };
        if !fits {
            return Err(invalid(node, "the output does not have the elements that are chosen"));
        }
        let (input, indices) = (x.shape.clone(), indices.shape.clone());
        Ok(Self { axis: op.axis, elementwise: op.elementwise, input, indices })
    }

    /// Each index as a position along the axis.
    fn positions(&self, recorder: &Recorder<'_>) -> Result<Vec<usize>, KernelError> {
        let constant = recorder.constant(1)?;
        let size = self.input.dims()[self.axis];
        let position = |index: i64| {
            let found = if index < 0 { index.checked_add_unsigned(size as u64) } else { Some(index) };
            let found = found.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < size);
            found.ok_or_else(|| KernelError::Value {
                op: "gather",
                reason: format!("index {index} into an axis of {size}"),
            })
        };
        integers(constant).into_iter().map(position).collect()
    }

    /// The input's offset for each element of the output, when each has an index of its own.
    fn offsets(&self, positions: &[usize]) -> Vec<u32> {
        let (chosen, strides) = (self.indices.strides(), self.input.strides());
        let offset = |(index, position): (usize, &usize)| {
            let along = |axis: usize| match axis == self.axis {
                true => position * strides[axis],
                false => index / chosen[axis] % self.indices.dims()[axis] * strides[axis],
            };
            (0..strides.len()).map(along).sum::<usize>() as u32
        };
        positions.iter().enumerate().map(offset).collect()
    }
}

/// The elements of a tensor of integers.
fn integers(tensor: &Tensor) -> Vec<i64> {
    match tensor.elements::<i32>() {
        Some(narrow) => narrow.iter().map(|i| i64::from(*i)).collect(),
        None => tensor.elements::<i64>().unwrap_or(&[]).to_vec(),
    }
}

impl Recipe for GatherRecipe {
    fn bindings(&self) -> usize {
        3
    }

    fn resident_bytes(&self) -> u64 {
        self.indices.elements() as u64 * 4
    }

    fn binds(&self, input: usize) -> bool {
        input == 0
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let positions = self.positions(recorder)?;
        let words = match self.elementwise {
            true => self.offsets(&positions),
            false => positions.iter().map(|position| *position as u32).collect(),
        };
        let inner: usize = self.input.dims()[self.axis + 1..].iter().product();
        let outer: usize = self.input.dims()[..self.axis].iter().product();
        let count = if self.elementwise { words.len() } else { outer * words.len() * inner };
        let table = recorder.resident(&words);
        let mut shader = Shader::new("gather", include_str!("gather.wgsl"));
        shader.constant("OFFSETS", usize::from(self.elementwise));
        shader.parameter("count", count).parameter("inner", inner);
        shader.parameter("chosen", words.len()).parameter("size", self.input.dims()[self.axis]);
        shader.read("x", "f32", recorder.input(0)?).read("indices", "u32", &table);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, noise, shape, spec, tensor};
    use super::*;
    use crate::TensorSpec;
    use crate::op::Op;

    fn gather(op: &Gather, x: &[usize], indices: &Tensor, out: &[usize]) -> NodeSpec {
        let inputs = vec![spec(x), indices.spec().clone()];
        NodeSpec { op: Op::Gather(op.clone()), inputs, outputs: vec![spec(out)] }
    }

    fn run(node: &NodeSpec, x: &Tensor, indices: &Tensor) -> Result<Vec<f32>, KernelError> {
        let run = Run { constants: vec![false, true], ..Run::new(node) };
        Ok(run.outputs(&[x.clone(), indices.clone()])?.remove(0))
    }

    #[test]
    fn slices_are_chosen_in_any_order() {
        for (dims, axis) in [(vec![7], 0), (vec![5, 3], 0), (vec![3, 6, 4], 1), (vec![2, 3, 9], 2)] {
            let op = Gather { axis, elementwise: false };
            let size = dims[axis] as i64;
            let chosen = [size - 1, 0, -1, -size, 1];
            let indices = Tensor::from_i64s(&chosen);
            let mut out = dims.clone();
            out[axis] = chosen.len();
            let x = tensor(&dims, &noise(71, dims.iter().product()));
            let values = x.elements::<f32>().expect("f32");
            let inner: usize = dims[axis + 1..].iter().product();
            let mut want = Vec::new();
            for block in values.chunks(dims[axis] * inner) {
                for index in chosen {
                    want.extend_from_slice(&block[index.rem_euclid(size) as usize * inner..][..inner]);
                }
            }
            let got = run(&gather(&op, &dims, &indices, &out), &x, &indices).expect("runs");
            assert_close(&got, &want, &format!("{dims:?} along {axis}"));
        }
    }

    #[test]
    fn single_elements_are_chosen() {
        let op = Gather { axis: 1, elementwise: true };
        let indices = Tensor::from_elements(shape(&[2, 3]), &[3i32, -1, 0, 1, 1, -4]).expect("six");
        let x = tensor(&[3, 4], &noise(72, 12));
        let v = x.elements::<f32>().expect("f32");
        let got = run(&gather(&op, &[3, 4], &indices, &[2, 3]), &x, &indices).expect("runs");
        assert_eq!(got, [v[3], v[3], v[0], v[5], v[5], v[4]]);
    }

    #[test]
    fn what_cannot_be_gathered_is_refused() {
        let op = Gather { axis: 0, elementwise: false };
        let x = tensor(&[3], &[1.0, 2.0, 3.0]);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            let indices = Tensor::from_i64s(&[bad]);
            let result = run(&gather(&op, &[3], &indices, &[1]), &x, &indices);
            assert!(matches!(result, Err(KernelError::Value { .. })), "{bad}: {result:?}");
        }
        let indices = TensorSpec::new(DType::I64, shape(&[1]));
        let node =
            NodeSpec { op: Op::Gather(op.clone()), inputs: vec![spec(&[3]), indices], outputs: vec![spec(&[1])] };
        assert!(matches!(GatherRecipe::new(&node, &op, &[false, false]), Err(KernelError::Unsupported { .. })));
    }
}
