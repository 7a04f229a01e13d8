//! Slicing with any starts and steps: one strided copy.

use super::Recipe;
use super::copy::{StridedCopy, signed};
use anabranch_op::op::{NodeSpec, Slice};

pub(super) fn recipe<'n>(node: &NodeSpec, op: &Slice) -> Recipe<'n> {
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let copy = StridedCopy::new(output.dims(), op.source(input, output), (0, signed(&output.strides())));
    Recipe::new(node, move |recorder| copy.record("slice", recorder, 0))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use anabranch_op::op::Op;

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
            check(&node, &inputs(&node, 31));
        }
    }
}
