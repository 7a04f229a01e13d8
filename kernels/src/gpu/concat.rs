//! Concatenation along an axis: one strided copy an input.

use super::copy::StridedCopy;
use super::kernel::Recorder;
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{Concat, NodeSpec};

pub(crate) struct ConcatRecipe(Vec<StridedCopy>);

impl ConcatRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Concat) -> Result<Self, KernelError> {
        let [output] = &node.outputs[..] else { return Err(invalid(node, "one output is expected")) };
        let dims = output.shape.dims();
        let along = |dims: &[usize]| dims.get(op.axis).copied();
        let others = |dims: &[usize]| [&dims[..op.axis], &dims[op.axis + 1..]].concat();
        let (mut copies, mut position) = (Vec::with_capacity(node.inputs.len()), 0usize);
        let strides = output.shape.strides();
        for input in &node.inputs {
            let own = input.shape.dims();
            let (Some(size), Some(_), true) = (along(own), along(dims), own.len() == dims.len()) else {
                return Err(invalid(node, "inputs of the output's rank that have the axis are expected"));
            };
            if others(own) != others(dims) || position.saturating_add(size) > dims[op.axis] {
                return Err(invalid(node, "the inputs differ from the output in another axis, or are too long"));
            }
            let signed = |strides: &[usize]| strides.iter().map(|s| *s as isize).collect();
            let source = (0, signed(&input.shape.strides()));
            copies.push(StridedCopy::new(own, source, (position * strides[op.axis], signed(&strides))));
            position += size;
        }
        if along(dims) != Some(position) {
            return Err(invalid(node, "the inputs' sizes do not add up to the output's"));
        }
        Ok(Self(copies))
    }
}

impl Recipe for ConcatRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn binds(&self, input: usize) -> bool {
        self.0.get(input).is_none_or(|copy| !copy.is_empty())
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        for (index, copy) in self.0.iter().enumerate().filter(|(_, copy)| !copy.is_empty()) {
            let (x, y) = (recorder.input(index)?, recorder.output(0)?);
            copy.record("concat", recorder, x, y)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use crate::op::Op;

    #[test]
    fn inputs_follow_each_other_along_the_axis() {
        let cases: [(&[&[usize]], usize); 4] = [
            (&[&[3], &[1], &[4]], 0),
            (&[&[2, 4, 3], &[2, 8, 3]], 1),
            (&[&[2, 3, 5, 7], &[2, 0, 5, 7], &[2, 6, 5, 7]], 1),
            (&[&[5, 2], &[5, 9]], 1),
        ];
        for (dims, axis) in cases {
            let mut out = dims[0].to_vec();
            out[axis] = dims.iter().map(|d| d[axis]).sum();
            let node = node(Op::Concat(Concat { axis }), dims, &[&out]);
            let x = inputs(&node, 41);
            let outer: usize = out[..axis].iter().product();
            let mut want = Vec::new();
            for block in 0..outer {
                for tensor in &x {
                    let values = tensor.elements::<f32>().expect("f32");
                    let run = values.len() / outer;
                    want.extend_from_slice(&values[block * run..][..run]);
                }
            }
            check(&node, &x, &[want]);
        }
    }
}
