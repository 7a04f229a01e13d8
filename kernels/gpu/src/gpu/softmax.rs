//! Softmax and log-softmax along one axis.

use super::lanes::{Lanes, tree};
use super::{Recipe, Shader};
use anabranch_op::op::{NodeSpec, Softmax};

pub(super) fn recipe<'n>(node: &NodeSpec, op: &'n Softmax) -> Recipe<'n> {
    let dims = node.inputs[0].shape.dims();
    let (length, inner) = (dims[op.axis], dims[op.axis + 1..].iter().product());
    let all = dims[..op.axis].iter().product::<usize>() * inner;
    let lanes = lanes(node, op);
    let recipe = Recipe::new(node, move |recorder| {
        let rows = recorder.rows(all);
        let mut shader = Shader::new("softmax", include_str!("softmax.wgsl"));
        shader.constant("LOG", usize::from(op.log));
        shader.parameter("first", rows.start).parameter("count", rows.len());
        shader.parameter("length", length).parameter("inner", inner);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        lanes.declare(&mut shader);
        shader.code(&tree("greatest", "f32", "maximum")).code(&tree("total", "f32", "sum_of"));
        recorder.dispatch(&shader, lanes.groups(rows.len()))
    });
    Recipe { passes: 3 * lanes.passes(length), ..recipe }
}

/// Returns a key of the order of all sums, see [`super::summation`].
pub(super) fn summation(node: &NodeSpec, op: &Softmax) -> Vec<usize> {
    vec![lanes(node, op).width()]
}

/// Returns how threads share one line.
fn lanes(node: &NodeSpec, op: &Softmax) -> Lanes {
    let dims = node.inputs[0].shape.dims();
    Lanes::new(dims[op.axis], dims[op.axis + 1..].iter().product::<usize>() > 1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, check_run, inputs, narrow, node};
    use super::*;
    use anabranch_op::op::Op;

    fn softmax(dims: &[usize], axis: usize, log: bool) -> NodeSpec {
        node(Op::Softmax(Softmax { axis, log }), &[dims], &[dims])
    }

    #[test]
    fn rows_sum_to_one_along_any_axis() {
        let cases: [(&[usize], usize); 8] = [
            (&[1], 0),
            (&[3, 1], 1),
            (&[5, 7], 1),
            (&[2, 3, 11], 1),
            (&[4, 1000], 1),
            (&[2, 1031], 1),
            (&[3, 37, 5], 1),
            (&[130, 3], 0),
        ];
        for (dims, axis) in cases {
            for log in [false, true] {
                let node = softmax(dims, axis, log);
                check(&node, &inputs(&node, 7));
            }
        }
    }

    #[test]
    fn rows_are_computed_in_place_and_on_a_two_dimensional_grid() {
        let node = softmax(&[700, 1030], 1, false);
        check_run(Run { gpu: narrow(), rows: Some(3..600), ..Run::new(&node) }, &inputs(&node, 8));
    }
}
