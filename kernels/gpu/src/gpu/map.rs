//! Element-wise expressions over broadcast operands; `block` makes kernels of them.

use super::space::{Space, broadcast_strides};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Domain, Expression, Map, NodeSpec};

/// Maximum operands: more do not fit a WGSL function's parameters.
const MOST_OPERANDS: usize = 200;

/// Element-wise node, or member of a block.
pub(crate) struct ElementWise {
    pub(crate) expression: Expression,
    pub(crate) space: Space,
    pub(crate) elements: usize,
    pub(crate) rows: usize,
}

impl ElementWise {
    pub(crate) fn new(node: &NodeSpec, map: &Map) -> Result<Self, KernelError> {
        let output = &node.outputs[0];
        if map.domain != Domain::F32 {
            return Err(node.unsupported("GPU kernels compute in f32 only"));
        }
        if node.inputs.len() > MOST_OPERANDS {
            return Err(node.unsupported(format!("more than {MOST_OPERANDS} operands")));
        }
        let strides = node.inputs.iter().map(|input| broadcast_strides(&input.shape, &output.shape));
        let strides = strides.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            expression: map.expression.clone(),
            space: Space::collapsed(output.shape.dims(), &strides),
            elements: output.shape.elements(),
            rows: node.row_plan().map_or(1, |plan| plan.rows),
        })
    }

    /// Whether vectors of four elements never straddle two runs of any operand, for elements `first..first + count`.
    pub(crate) fn vectors(&self, first: usize, count: usize) -> bool {
        let Some((inner, outer)) = self.space.dims.split_last() else { return false };
        let whole = |strides: &[isize]| {
            let (last, others) = strides.split_last().map_or((0, &[][..]), |(last, others)| (*last, others));
            last == 0 || (last == 1 && others.iter().all(|stride| stride % 4 == 0))
        };
        let aligned = outer.is_empty() || inner % 4 == 0;
        aligned
            && first.is_multiple_of(4)
            && count.is_multiple_of(4)
            && self.space.strides.iter().all(|strides| whole(strides))
    }

    /// Whether the operand changes from one element to the next.
    pub(crate) fn varies(&self, operand: usize) -> bool {
        self.space.strides[operand].last().is_some_and(|stride| *stride != 0)
    }

    /// Returns the operand's offset. The offset of an operand in the output's own order does not name the sizes, so
    /// that nodes of all sizes share a pipeline.
    pub(crate) fn offset(&self, operand: usize) -> String {
        if self.space.is_dense(operand) && !self.space.dims.is_empty() {
            "index".into()
        } else {
            self.space.offset(operand)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, check_rows, check_run, inputs, narrow, node, tensor};
    use super::*;
    use anabranch_op::op::{Binary, Literal, Op, Register, Step, Unary};

    fn map(expression: Expression, inputs: &[&[usize]], output: &[usize]) -> NodeSpec {
        node(Op::Map(Map { domain: Domain::F32, expression }), inputs, &[output])
    }

    #[test]
    fn operands_are_broadcast_and_read_in_vectors_where_possible() {
        let cases: [(&[usize], &[usize], &[usize]); 9] = [
            (&[], &[], &[]),
            (&[4, 8], &[4, 8], &[4, 8]),
            (&[7, 11], &[7, 11], &[7, 11]),
            (&[2, 3, 8], &[8], &[2, 3, 8]),
            (&[2, 3, 8], &[3, 1], &[2, 3, 8]),
            (&[2, 1, 5], &[3, 1], &[2, 3, 5]),
            (&[1, 1, 1], &[5, 1025], &[1, 5, 1025]),
            (&[6, 1, 4, 1], &[1, 3, 1, 4], &[6, 3, 4, 4]),
            (&[8], &[3, 2, 1], &[3, 2, 8]),
        ];
        for (a, b, out) in cases {
            let node = map(Expression::binary(Binary::Subtract), &[a, b], out);
            check(&node, &inputs(&node, 1));
        }
    }

    #[test]
    fn rows_are_computed_in_place() {
        for (dims, rows) in [([6, 8], 1..3), ([6, 7], 2..5), ([6, 7], 4..4)] {
            let node = map(Expression::binary(Binary::Add), &[&dims, &dims[1..]], &dims);
            check_rows(&node, &inputs(&node, 2), rows);
        }
    }

    #[test]
    fn more_workgroups_than_one_dimension_holds() {
        let node = map(Expression::unary(Unary::Negate), &[&[100_001]], &[100_001]);
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &inputs(&node, 3));
    }

    #[test]
    fn constants_select_and_infinite_literals() {
        let steps = vec![
            Step::Constant(Literal::Float(f64::NEG_INFINITY)),
            Step::Constant(Literal::Float(f64::NAN)),
            Step::Select(Register(0), Register(1), Register(2)),
        ];
        let node = map(Expression::new(1, steps).expect("valid"), &[&[4]], &[4]);
        let got = Run::new(&node).outputs(&[tensor(&[4], &[1.0, 0.0, f32::NAN, -0.0])]).expect("runs").remove(0);
        assert_close(&got, &[f32::NEG_INFINITY, f32::NAN, f32::NEG_INFINITY, f32::NAN], "selected literals");
    }

    #[test]
    fn nodes_of_all_sizes_share_a_pipeline() {
        let gpu = super::super::testing::open();
        for dims in [[4, 4], [8, 12], [5, 100]] {
            let node = map(Expression::unary(Unary::Relu), &[&dims], &dims);
            Run { gpu: &gpu, ..Run::new(&node) }.outputs(&inputs(&node, 4)).expect("runs");
        }
        assert_eq!(gpu.pipeline_count(), 1);
    }
}
