//! Concatenation along an axis: one strided copy per input.

use super::Recipe;
use super::copy::{StridedCopy, signed};
use anabranch_op::op::{Concat, NodeSpec};

pub(super) fn recipe<'n>(node: &NodeSpec, op: &Concat) -> Recipe<'n> {
    let strides = node.outputs[0].shape.strides();
    let mut position = 0;
    let copy = |input: &anabranch_op::TensorSpec| {
        let (dims, target) = (input.shape.dims(), position * strides[op.axis]);
        position += dims[op.axis];
        StridedCopy::new(dims, (0, signed(&input.shape.strides())), (target, signed(&strides)))
    };
    let copies: Vec<_> = node.inputs.iter().map(copy).collect();
    let unbound = (0..copies.len()).filter(|index| copies[*index].is_empty()).collect();
    let recipe = Recipe::new(node, move |recorder| {
        let mut filled = copies.iter().enumerate().filter(|(_, copy)| !copy.is_empty());
        filled.try_for_each(|(index, copy)| copy.record("concat", recorder, index))
    });
    Recipe { bindings: 2, unbound, ..recipe }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use anabranch_op::op::Op;

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
            check(&node, &inputs(&node, 41));
        }
    }
}
