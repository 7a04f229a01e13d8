//! Strided sub-tensors.

use super::copy::StridedCopy;
use super::kernel::Recorder;
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{NodeSpec, Slice};

pub(crate) struct SliceRecipe(StridedCopy);

impl SliceRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Slice) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let (dims, rank) = (output.shape.dims(), input.shape.rank());
        if op.starts.len() != rank || op.steps.len() != rank || dims.len() != rank {
            return Err(invalid(node, "a start, a step and a size for each axis are expected"));
        }
        let (mut start, mut strides) = (0, Vec::with_capacity(rank));
        for (axis, stride) in input.shape.strides().into_iter().enumerate() {
            let size = input.shape.dims()[axis];
            let last = isize::try_from(dims[axis].saturating_sub(1)).ok();
            let last = last.and_then(|n| n.checked_mul(op.steps[axis]));
            let last = last.and_then(|n| n.checked_add_unsigned(op.starts[axis]));
            let inside = last.is_some_and(|n| n >= 0 && (n as usize) < size) && op.starts[axis] < size;
            if !inside && !dims.contains(&0) {
                return Err(invalid(node, format!("the slice leaves the input along axis {axis}")));
            }
            start += if inside { op.starts[axis] * stride } else { 0 };
            strides.push(if dims[axis] > 1 { op.steps[axis].saturating_mul(stride as isize) } else { 0 });
        }
        let target = output.shape.strides().into_iter().map(|s| s as isize).collect();
        Ok(Self(StridedCopy::new(dims, (start, strides), (0, target))))
    }
}

impl Recipe for SliceRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let (x, y) = (recorder.input(0)?, recorder.output(0)?);
        self.0.record("slice", recorder, x, y)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use crate::op::Op;

    #[test]
    fn any_start_and_step() {
        type Case<'a> = (&'a [usize], &'a [usize], &'a [isize], &'a [usize]);
        let cases: [Case<'_>; 6] = [
            (&[10], &[2], &[3], &[3]),
            (&[10], &[9], &[-1], &[10]),
            (&[4, 8], &[1, 4], &[1, 1], &[2, 4]),
            (&[4, 9], &[3, 8], &[-2, -3], &[2, 3]),
            (&[3, 5, 6], &[0, 2, 0], &[1, 1, 1], &[3, 2, 6]),
            (&[2, 3], &[1, 2], &[1, 1], &[1, 1]),
        ];
        for (dims, starts, steps, out) in cases {
            let op = Slice { starts: starts.to_vec(), steps: steps.to_vec() };
            let node = node(Op::Slice(op), &[dims], &[out]);
            let x = inputs(&node, 31);
            let strides = node.inputs[0].shape.strides();
            let out_shape = &node.outputs[0].shape;
            let at = |index: usize| {
                let axis = |a: usize| {
                    let i = index / out_shape.strides()[a] % out[a];
                    (starts[a] as isize + i as isize * steps[a]) as usize * strides[a]
                };
                (0..dims.len()).map(axis).sum::<usize>()
            };
            let values = x[0].elements::<f32>().expect("f32");
            check(&node, &x, &[(0..out_shape.elements()).map(|i| values[at(i)]).collect()]);
        }
    }

    #[test]
    fn slices_that_leave_the_input_are_refused() {
        for (start, step, size) in [(0, 1, 6), (5, 1, 1), (3, -2, 3), (0, isize::MAX, 2)] {
            let op = Slice { starts: vec![start], steps: vec![step] };
            assert!(SliceRecipe::new(&node(Op::Slice(op.clone()), &[&[5]], &[&[size]]), &op).is_err());
        }
    }
}
