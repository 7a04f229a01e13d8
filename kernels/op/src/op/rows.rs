//! Nodes that can be computed piece by piece: rows of the output from the same rows of the inputs.

use super::{NodeSpec, Op, ReduceKind};
use crate::dtype::DType;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Maximum outputs of a reduction that takes its input row by row.
const MOST_ACCUMULATED: usize = 256;
/// Maximum elements of a row of its input.
const LONGEST_ROW: usize = 16_384;

/// A node seen as independent rows.
///
/// Row `r` of every output depends on row `r` of the windowed inputs and on the whole of the other inputs. A kernel can
/// then run on any range of rows, given only that range of each windowed input.
///
/// A tensor that is windowed in `rows` rows is its elements in order, cut into `rows` equal pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPlan {
    /// Number of rows, ≥ 1.
    pub rows: usize,
    /// Whether each input is given as the rows at hand only, instead of the whole tensor.
    pub windowed: Vec<bool>,
}

impl NodeSpec {
    /// Returns the division of the node into rows, if there is more than one.
    ///
    /// Element-wise nodes divide at every leading axis along which no other operand is broadcast in part. Reductions,
    /// softmax and normalisation divide at the axes before those that they work on, as far as an epilogue's operands
    /// allow. Matrix products divide at leading batch dimensions along which B varies.
    pub fn row_plan(&self) -> Option<RowPlan> {
        if let Op::Block(block) = &self.op {
            return Some(block.row_plan(self.inputs.len()));
        }
        let output = &self.outputs.first().filter(|_| self.outputs.len() == 1)?.shape;
        let input = self.inputs.first().map_or(&[][..], |input| input.shape.dims());
        let leading = |axis: usize| -> usize { input[..axis].iter().product() };
        let alone = |rows: usize| (rows > 1).then(|| RowPlan { rows, windowed: vec![true] });
        match &self.op {
            Op::Map(_) => divided(output.dims(), output.rank(), &self.strides(0, output)?, |_| true),
            Op::MatMul(_) => self.batch_rows(output),
            Op::Reduce(op) => {
                let first = op.axes.first().filter(|first| is_tail(**first, &op.axes, input.len()))?;
                alone(leading(*first))
            }
            Op::Softmax(op) if op.axis + 1 == input.len() => alone(leading(op.axis)),
            Op::Normalize(op) if self.inputs.len() == 1 && op.axis < input.len() => alone(leading(op.axis)),
            Op::Normalize(op) if op.axis < input.len() => {
                let (rows, strides) = (leading(op.axis), self.strides(1, output)?);
                let possible = |whole| whole > 0 && rows % whole == 0;
                let mut plan = divided(output.dims(), output.rank(), &strides, possible)?;
                plan.windowed.insert(0, true);
                Some(plan)
            }
            _ => None,
        }
    }

    /// Cuts products at leading batch dimensions, unless B is the same for all. In that case they are one product of
    /// all their rows, and the bits of its result depend on the number of rows.
    fn batch_rows(&self, output: &Shape) -> Option<RowPlan> {
        let batch = |shape: &Shape| Shape::new(&shape.dims()[..shape.rank().checked_sub(2)?]).ok();
        let ([a, b, ..], whole) = (&self.inputs[..], batch(output)?) else { return None };
        let of = |operand: &Shape| batch(operand)?.broadcast_strides(&whole).ok();
        let (a, b) = (of(&a.shape)?, of(&b.shape)?);
        if b.iter().zip(whole.dims()).all(|(stride, dim)| *stride == 0 || *dim == 1) {
            return None;
        }
        let strides = [vec![a, b], self.strides(2, output)?].concat();
        divided(output.dims(), whole.rank(), &strides, |_| true)
    }

    /// Returns the strides of the inputs from `first` on, which are broadcast to the output.
    fn strides(&self, first: usize, output: &Shape) -> Option<Vec<Vec<usize>>> {
        self.inputs[first..].iter().map(|input| input.shape.broadcast_strides(output).ok()).collect()
    }

    /// Returns the number of rows in which a reduction over leading axes can take its input in order, if there is more
    /// than one. Its few outputs are complete after the last row. Rows may be joined, or cut between elements.
    ///
    /// Returns `None` if parts of the input cannot be joined (integers' [`ReduceKind::LogSumExp`] and
    /// [`ReduceKind::Mean`]), or if what is kept of each part would be large compared with the part.
    pub fn accumulated_rows(&self) -> Option<usize> {
        let (Op::Reduce(op), [input], [output]) = (&self.op, &self.inputs[..], &self.outputs[..]) else { return None };
        let dims = input.shape.dims();
        let leading = (0..dims.len()).take_while(|axis| dims[*axis] == 1 || op.axes.contains(axis));
        let rows: usize = leading.map(|axis| dims[axis]).product();
        let whole = matches!(op.kind, ReduceKind::LogSumExp | ReduceKind::Mean);
        let joins = !whole || matches!(input.dtype, DType::F32 | DType::F64);
        let small = output.shape.elements() <= MOST_ACCUMULATED
            && input.shape.elements().checked_div(rows).is_some_and(|row| (1..=LONGEST_ROW).contains(&row));
        (rows > 1 && joins && small).then_some(rows)
    }
}

/// Divides a tensor of `dims` into rows at the deepest possible of its first `most` axes. Each operand must either have
/// its own element for each row, or not vary over rows at all. The number of rows must be `possible`.
fn divided(dims: &[usize], most: usize, strides: &[Vec<usize>], possible: impl Fn(usize) -> bool) -> Option<RowPlan> {
    let full = |s: &[usize], depth: usize| (0..depth).all(|axis| dims[axis] == 1 || s[axis] != 0);
    let fixed = |s: &[usize], depth: usize| (0..depth).all(|axis| dims[axis] == 1 || s[axis] == 0);
    let rows = |depth: usize| dims[..depth].iter().product::<usize>();
    let divides = |depth: usize| strides.iter().all(|s| full(s, depth) || fixed(s, depth));
    let depth = (0..=most).rev().find(|depth| possible(rows(*depth)) && divides(*depth))?;
    let windowed = strides.iter().map(|s| !fixed(s, depth)).collect();
    (rows(depth) > 1).then(|| RowPlan { rows: rows(depth), windowed })
}

/// Whether `axes` are exactly `first..rank`.
fn is_tail(first: usize, axes: &[usize], rank: usize) -> bool {
    axes.iter().copied().eq(first..rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::spec;
    use crate::op::{Binary, Domain, Expression, Map, MatMul, Normalize, Reduce, ReduceKind};

    fn add(a: &[usize], b: &[usize], out: &[usize]) -> Option<RowPlan> {
        let op = Op::Map(Map { domain: Domain::F32, expression: Expression::binary(Binary::Add) });
        NodeSpec { op, inputs: vec![spec(a), spec(b)], outputs: vec![spec(out)] }.row_plan()
    }

    #[test]
    fn maps_divide_as_deep_as_every_operand_allows() {
        let plan = |rows, windowed: [bool; 2]| Some(RowPlan { rows, windowed: windowed.to_vec() });
        assert_eq!(add(&[4, 5], &[4, 5], &[4, 5]), plan(20, [true, true]));
        assert_eq!(add(&[4, 5], &[5], &[4, 5]), plan(4, [true, false]));
        assert_eq!(add(&[2, 3, 4], &[3, 1], &[2, 3, 4]), plan(2, [true, false]));
        assert_eq!(add(&[1, 3, 4], &[3, 1], &[1, 3, 4]), plan(3, [true, true]));
        assert_eq!(add(&[1, 1, 4], &[4], &[1, 1, 4]), plan(4, [true, true]));
        assert_eq!(add(&[], &[6], &[6]), plan(6, [false, true]));
    }

    #[test]
    fn normalisations_divide_as_their_epilogue_allows() {
        let normalized = |x: &[usize], axis: usize, scale: &[usize], out: &[usize]| {
            let epilogue = Some(Expression::binary(Binary::Multiply));
            let op = Op::Normalize(Normalize { axis, epsilon: 0.0, center: true, epilogue });
            NodeSpec { op, inputs: vec![spec(x), spec(scale)], outputs: vec![spec(out)] }.row_plan()
        };
        let plan = |rows, scale| Some(RowPlan { rows, windowed: vec![true, scale] });
        assert_eq!(normalized(&[6, 4], 1, &[4], &[6, 4]), plan(6, false));
        assert_eq!(normalized(&[6, 4], 1, &[6, 1], &[6, 4]), plan(6, true));
        assert_eq!(normalized(&[2, 3, 4], 2, &[3, 1], &[2, 3, 4]), plan(2, false));
        // Read under another shape: an output's row is a multiple of the normalised rows.
        assert_eq!(normalized(&[6, 4], 1, &[12], &[2, 12]), plan(2, false));
        assert_eq!(normalized(&[6, 4], 1, &[8], &[3, 8]), plan(3, false));
        assert_eq!(normalized(&[3, 8], 1, &[4], &[6, 4]), None);
        assert_eq!(normalized(&[1, 4], 1, &[4], &[1, 4]), None);
    }

    #[test]
    fn products_divide_at_their_batches() {
        let product = |a: &[usize], b: &[usize], bias: &[usize], out: &[usize]| {
            let op = MatMul { epilogue: Some(Expression::binary(Binary::Add)), ..MatMul::default() };
            NodeSpec { op: Op::MatMul(op), inputs: vec![spec(a), spec(b), spec(bias)], outputs: vec![spec(out)] }
                .row_plan()
        };
        let plan = |rows, windowed: [bool; 3]| Some(RowPlan { rows, windowed: windowed.to_vec() });
        let (a, b, out) = (&[2, 3, 4, 5], &[2, 3, 5, 6], &[2, 3, 4, 6]);
        assert_eq!(product(a, b, &[6], out), plan(6, [true, true, false]));
        assert_eq!(product(a, b, &[3, 1, 1], out), plan(2, [true, true, false]));
        assert_eq!(product(a, b, out, out), plan(6, [true, true, true]));
        assert_eq!(product(a, &[3, 5, 6], &[6], out), plan(2, [true, false, false]));
        assert_eq!(product(&[3, 4, 5], b, &[6], out), plan(2, [false, true, false]));
        assert_eq!(product(a, &[5, 6], &[6], out), None);
        assert_eq!(product(&[4, 5], &[5, 6], &[6], &[4, 6]), None);
    }

    #[test]
    fn reductions_divide_before_their_axes() {
        let reduce = |axes: &[usize]| NodeSpec {
            op: Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: axes.to_vec() }),
            inputs: vec![spec(&[2, 3, 4])],
            outputs: vec![spec(&[1])],
        };
        assert_eq!(reduce(&[2]).row_plan().map(|p| p.rows), Some(6));
        assert_eq!(reduce(&[1, 2]).row_plan().map(|p| p.rows), Some(2));
        assert_eq!(reduce(&[1]).row_plan(), None);
        assert_eq!(reduce(&[0, 1, 2]).row_plan(), None);
        assert_eq!(reduce(&[0, 1, 2]).accumulated_rows(), Some(24));
        assert_eq!(reduce(&[0, 2]).accumulated_rows(), Some(2));
        assert_eq!(reduce(&[1]).accumulated_rows(), None);
    }
}
