//! Epilogues of matrix products: in registers if the expression and its operands allow it, else over rows.

use super::affine::{Affine, Term};
use super::epilogue::Epilogue;
use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::gemm::{self, Finish, Summand};
use anabranch_cpu_base::team::Tile;
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;

/// Epilogue of a node whose output is a stack of equally large products.
pub struct ProductEpilogue {
    epilogue: Epilogue,
    size: [usize; 2],
    registers: Option<InRegisters>,
}

/// Affine form whose operands are matrices, one for each product.
struct InRegisters {
    before: Option<Value>,
    scale: Value,
    after: Option<Value>,
    least: f32,
    greatest: f32,
}

enum Value {
    Constant(f32),
    /// Operand of the expression after the first.
    Extra(usize, OperandLayout),
}

/// Positions of an operand's elements.
#[derive(Debug, PartialEq)]
struct OperandLayout {
    /// Sizes of the dimensions over the products, outermost first, and the operand's strides along them.
    batch: Vec<(usize, usize)>,
    row: usize,
    /// Whether all columns share an element; else elements are consecutive.
    shared: bool,
}

impl ProductEpilogue {
    /// Returns the epilogue of a checked node, if it changes the result.
    ///
    /// # Errors
    /// The errors of [`Epilogue::of`].
    pub fn of(node: &NodeSpec, size: [usize; 2]) -> Result<Option<Self>, KernelError> {
        let Some(epilogue) = Epilogue::of(node)? else { return Ok(None) };
        let registers = epilogue.affine().and_then(|affine| InRegisters::new(affine, node, size));
        Ok(Some(Self { epilogue, size, registers }))
    }

    /// Returns a key of the order of each sum's end: whether it is computed in registers, the summand that is there
    /// before the products, and the summand that is added after them.
    pub fn summation(epilogue: Option<&Self>) -> Vec<usize> {
        let number = |value: &Value| match value {
            Value::Constant(_) => 1,
            Value::Extra(extra, _) => 2 + extra,
        };
        let summand = |value: &Option<Value>| value.as_ref().map_or(0, number);
        match epilogue.map(|epilogue| &epilogue.registers) {
            None => vec![0],
            Some(None) => vec![1],
            Some(Some(registers)) => vec![2, summand(&registers.before), summand(&registers.after)],
        }
    }

    /// Calls `body` with the finish of product `matrix`; `extras` are the bytes of the operands after the first.
    pub fn with<R>(epilogue: Option<&Self>, matrix: usize, extras: &[&[u8]], body: impl FnOnce(Finish<'_>) -> R) -> R {
        let Some(epilogue) = epilogue else { return body(Finish::Nothing) };
        let activate = |tile: &mut Tile<'_, f32>| epilogue.epilogue.activate(tile);
        match &epilogue.registers {
            Some(registers) => {
                let then = epilogue.epilogue.has_activation().then_some(&activate as gemm::Then<'_>);
                body(Finish::Affine(registers.of_product(matrix, extras), then))
            }
            None => body(Finish::Runs(&|row, column, run| epilogue.apply([matrix, row, column], run, extras))),
        }
    }

    /// Whether transposed products, pixels by output channels, can end in registers: their epilogue is the same for all
    /// pixels.
    #[inline]
    pub fn suits_transposed(&self) -> bool {
        self.transposed().is_some()
    }

    #[inline]
    fn transposed(&self) -> Option<&InRegisters> {
        self.registers.as_ref().filter(|registers| registers.suits_transposed())
    }

    /// Calls `body` like [`with`](Self::with), for the transposed product. If that does not
    /// [suit](Self::suits_transposed), the sums stay unchanged.
    pub fn with_transposed<R>(
        epilogue: Option<&Self>,
        matrix: usize,
        extras: &[&[u8]],
        body: impl FnOnce(Finish<'_>) -> R,
    ) -> R {
        let Some((epilogue, registers)) = epilogue.and_then(|epilogue| Some((epilogue, epilogue.transposed()?))) else {
            return body(Finish::Nothing);
        };
        let activate = |tile: &mut Tile<'_, f32>| epilogue.epilogue.activate(tile);
        let affine = registers.of_product(matrix, extras);
        // A summand that columns share is now a row.
        let before = affine.before.map(|before| Summand { row: 0, shared: before.row == 0, ..before });
        let affine = gemm::Affine { before, ..affine };
        let then = epilogue.epilogue.has_activation().then_some(&activate as gemm::Then<'_>);
        body(Finish::Affine(affine, then))
    }

    /// Applies the epilogue to consecutive elements; the first is at this product, row and column.
    #[inline]
    pub fn apply(&self, [matrix, row, column]: [usize; 3], run: &mut [f32], extras: &[&[u8]]) {
        let [rows, columns] = self.size;
        self.epilogue.apply(0, (matrix * rows + row) * columns + column, run, extras);
    }
}

impl InRegisters {
    fn new(affine: &Affine, node: &NodeSpec, size: [usize; 2]) -> Option<Self> {
        let output = &node.outputs[0].shape;
        let value = |term| match term {
            Term::Constant(value) => Some(Value::Constant(value)),
            Term::Extra(extra) => {
                let strides =
                    node.inputs[node.op.epilogue_inputs_start() + extra].shape.broadcast_strides(output).ok()?;
                Some(Value::Extra(extra, OperandLayout::new(output.dims(), &strides, size)?))
            }
        };
        let summand = |term: Term| if term.is_neutral() { Some(None) } else { value(term).map(Some) };
        let (scale, bias, residual) = (value(affine.scale)?, summand(affine.bias)?, summand(affine.residual)?);
        // A summand that columns share must be there before the products are added; of two summands, the more repeated
        // one is. A scale does not apply to it.
        let (before, after) = match (bias, residual) {
            (None, after) | (after, None) if affine.is_scaled() => (None, after),
            _ if affine.is_scaled() => return None,
            (None, alone) | (alone, None) if !alone.as_ref().is_some_and(Value::is_shared) => (None, alone),
            (bias, residual) if residual.as_ref().is_some_and(Value::is_repeated) => (residual, bias),
            (bias, residual) => (bias, residual),
        };
        let in_registers = scale.is_one() && after.as_ref().is_none_or(|after| !after.is_shared());
        in_registers.then_some(Self { before, scale, after, least: affine.least, greatest: affine.greatest })
    }

    /// Whether all columns share all operands, whose elements for neighbouring rows are equal or consecutive.
    #[inline]
    fn suits_transposed(&self) -> bool {
        let shared = |value: &Value| match value {
            Value::Constant(_) => true,
            Value::Extra(_, place) => place.shared && place.row <= 1,
        };
        self.after.is_none() && self.before.as_ref().is_none_or(shared)
    }

    #[inline]
    fn of_product<'a>(&'a self, matrix: usize, extras: &[&'a [u8]]) -> gemm::Affine<'a> {
        let summand = |value: &'a Value| match value {
            Value::Constant(value) => Summand { data: std::slice::from_ref(value), row: 0, shared: true },
            Value::Extra(extra, place) => {
                let data = &elements(extras[*extra])[place.offset(matrix)..];
                Summand { data, row: place.row, shared: place.shared }
            }
        };
        gemm::Affine {
            before: self.before.as_ref().map(summand),
            scale: summand(&self.scale).data[0],
            after: self.after.as_ref().map(summand),
            least: self.least,
            greatest: self.greatest,
        }
    }
}

impl Value {
    /// Whether the value is the same for all elements of all products.
    fn is_one(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Extra(_, place) => {
                place.shared && place.row == 0 && place.batch.iter().all(|(_, stride)| *stride == 0)
            }
        }
    }

    /// Whether rows or columns share the value.
    fn is_repeated(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Extra(_, place) => place.shared || place.row == 0,
        }
    }

    /// Whether all columns share the value.
    fn is_shared(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Extra(_, place) => place.shared,
        }
    }
}

impl OperandLayout {
    /// Returns the place of an operand with these strides along the output's dimensions. It must be one matrix per
    /// product, whose columns are consecutive or shared.
    fn new(dims: &[usize], strides: &[usize], [rows, columns]: [usize; 2]) -> Option<Self> {
        let mut axes: Vec<_> = dims.iter().copied().zip(strides.iter().copied()).collect();
        let [column, row] = [columns, rows].map(|size| innermost(&mut axes, size));
        let (column, row) = column.zip(row)?;
        (column <= 1).then_some(Self { batch: axes, row, shared: column == 0 })
    }

    /// Returns the offset of the first element for product `matrix`. O(rank).
    fn offset(&self, mut matrix: usize) -> usize {
        let mut offset = 0;
        for (size, stride) in self.batch.iter().rev() {
            offset += matrix % size * stride;
            matrix /= size;
        }
        offset
    }
}

/// Removes `size` elements of the innermost dimensions, cutting a dimension if needed. Returns their distance, if it is
/// the same between all.
fn innermost(axes: &mut Vec<(usize, usize)>, size: usize) -> Option<usize> {
    let (mut length, mut distance) = (1, 0);
    while length < size {
        let (dim, stride) = axes.pop()?;
        let missing = size / length;
        let taken = if missing.is_multiple_of(dim) { dim } else { missing };
        if !dim.is_multiple_of(taken) || (length > 1 && taken > 1 && stride != distance * length) {
            return None;
        }
        if length == 1 {
            distance = stride;
        }
        if taken < dim {
            axes.push((dim / taken, stride * taken));
        }
        length *= taken;
    }
    (length == size).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_matrices_beside_each_product_where_their_strides_allow() {
        let place = |batch: &[(usize, usize)], row, shared| Some(OperandLayout { batch: batch.to_vec(), row, shared });
        // Two images of 2 groups of 3 output channels of 4 × 5 pixels.
        let (dims, size) = ([2, 6, 4, 5], [3, 20]);
        assert_eq!(OperandLayout::new(&dims, &[0, 1, 0, 0], size), place(&[(2, 0), (2, 3)], 1, true));
        assert_eq!(OperandLayout::new(&dims, &[120, 20, 5, 1], size), place(&[(2, 120), (2, 60)], 20, false));
        assert_eq!(OperandLayout::new(&dims, &[0, 0, 0, 1], size), None, "an operand of an image's rows");
        assert_eq!(OperandLayout::new(&dims, &[0, 0, 1, 0], size), None, "an operand of an image's columns");
        // Rows of two matrices as those of one product.
        assert_eq!(OperandLayout::new(&[2, 3, 5], &[0, 0, 1], [6, 5]), place(&[], 0, false));
        assert_eq!(OperandLayout::new(&[2, 3, 5], &[0, 5, 1], [6, 5]), None, "an operand that repeats");
        let residual = OperandLayout::new(&dims, &[120, 20, 5, 1], size).expect("a matrix");
        assert_eq!([0, 1, 2, 3].map(|product| residual.offset(product)), [0, 60, 120, 180]);
    }
}
