//! Kernel of an element-wise node.

use super::code::Code;
use super::copied::copied_halves;
use super::gather::{consecutive, gather, one};
use super::grid::Grid;
use super::interpret::{Inputs, Output};
use super::layout::Layout;
use super::narrowest::narrowest;
use super::number::{Number, Undefined};
use super::rows::RowsKernel;
use super::source::Source;
use super::table::Table;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Domain, Expression, Map, NodeSpec, Register, Step, Unary};
use std::sync::{Mutex, PoisonError};

/// Elements of a piece, the unit of work of a thread: large enough that the hand-over cost is negligible.
const PIECE: usize = 32 * 1024;
/// Row length of the broadcast operands below which rows are gathered into blocks; longer rows are computed one by one.
const LONG_ROW: usize = 512;

/// Prepares an element-wise kernel.
pub(crate) fn prepare(node: &NodeSpec, map: &Map) -> Result<Box<dyn CpuKernel>, KernelError> {
    if let Some((node, map)) = copied_halves(node, map) {
        return computed(&node, &map);
    }
    if let Some(table) = Table::new(node, map, computed) {
        return Ok(Box::new(table));
    }
    if let Some(rows) = RowsKernel::new(node, map)? {
        return Ok(Box::new(rows));
    }
    let not_zero = [Step::Unary(Unary::Not, Register(0)), Step::Unary(Unary::Not, Register(1))];
    if node.outputs[0].dtype == DType::Bool && map.expression.inputs() == 1 && *map.expression.steps() == not_zero {
        // A conversion to a truth value is the same.
        return computed(node, &Map { expression: Expression::identity(), ..map.clone() });
    }
    computed(node, map)
}

/// Prepares a kernel that computes every element.
pub(crate) fn computed(node: &NodeSpec, map: &Map) -> Result<Box<dyn CpuKernel>, KernelError> {
    let inputs: Vec<DType> = node.inputs.iter().map(|input| input.dtype).collect();
    Ok(match narrowest(map, &inputs, node.outputs[0].dtype) {
        Some(DType::I8) => Box::new(MapKernel::<i8>::new(node, map)?),
        Some(DType::U8) => Box::new(MapKernel::<u8>::new(node, map)?),
        Some(DType::I16) => Box::new(MapKernel::<i16>::new(node, map)?),
        Some(DType::U16) => Box::new(MapKernel::<u16>::new(node, map)?),
        Some(DType::I32) => Box::new(MapKernel::<i32>::new(node, map)?),
        Some(DType::U32) => Box::new(MapKernel::<u32>::new(node, map)?),
        _ => return in_domain(node, map),
    })
}

/// Prepares a kernel that computes every element in the type of the domain.
pub(crate) fn in_domain(node: &NodeSpec, map: &Map) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(match map.domain {
        Domain::F32 => Box::new(MapKernel::<f32>::new(node, map)?),
        Domain::F64 => Box::new(MapKernel::<f64>::new(node, map)?),
        Domain::I64 => Box::new(MapKernel::<i64>::new(node, map)?),
        Domain::U64 => Box::new(MapKernel::<u64>::new(node, map)?),
    })
}

/// Access to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// One value along each row.
    Scalar,
    /// Consecutive elements with the bits of the numbers, read in place.
    Slice,
    /// Consecutive elements of another type, converted into a slot.
    Convert,
    /// Gathered into a slot, row by row of the operand's own layout.
    Gather,
}

struct Operand {
    dtype: DType,
    access: Access,
    /// Layout of the operand alone, if it is gathered.
    gathered: Option<Layout>,
    /// Elements in each row of the node's [`RowPlan`](anabranch_op::op::RowPlan), if the operand is windowed; else 0.
    window: usize,
}

/// Source of the output's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Writing {
    /// Bytes of the only input.
    Input,
    /// Elements of the only input, which are the numbers, converted at once.
    ConvertedInput,
    /// Numbers with the bits of the output's elements.
    Numbers,
    /// Truth values.
    Truths,
    /// Numbers in a slot, which are converted.
    Converted,
    /// Numbers in a slot, or an input that is read in place, which are rounded to a grid.
    Rounded(Grid, Option<usize>),
}

struct MapKernel<T> {
    code: Code<T>,
    layout: Layout,
    operands: Vec<Operand>,
    output: DType,
    writing: Writing,
    /// Elements of the output in each row of the node's row plan.
    row_elements: usize,
}

/// Whether a conversion by way of a domain keeps all bits: of the domain's own type, and in a domain of integers
/// between integers of the same size and from truth values to bytes.
fn keeps_bits(domain: Domain, from: DType, to: DType) -> bool {
    use DType::{Bool, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    match domain {
        Domain::F32 => [from, to] == [F32; 2],
        Domain::F64 => [from, to] == [F64; 2],
        Domain::I64 | Domain::U64 => {
            let bytes = matches!(from, Bool | I8 | U8) && matches!(to, I8 | U8);
            let wider = [[I16, U16], [I32, U32], [I64, U64]];
            [from, to] == [Bool; 2] || bytes || wider.iter().any(|size| size.contains(&from) && size.contains(&to))
        }
    }
}

impl<T: Number> MapKernel<T> {
    fn new(node: &NodeSpec, map: &Map) -> Result<Self, KernelError> {
        for step in map.expression.steps() {
            if let Step::Unary(function, _) = step
                && let Some(reason) = T::missing(*function)
            {
                return Err(node.unsupported(format!("{function:?}: {reason}")));
            }
        }
        let output = &node.outputs[0];
        let shapes: Vec<_> = node.inputs.iter().map(|input| &input.shape).collect();
        let layout = Layout::new(&output.shape, &shapes)?;
        let plan = node.row_plan();
        let rows = plan.as_ref().map_or(1, |plan| plan.rows);
        let whole_rows = whole_rows(&layout, shapes.len());
        let operands: Vec<Operand> = (0..shapes.len())
            .map(|index| {
                let input = &node.inputs[index];
                let access = access::<T>(&layout, index, input.dtype, whole_rows);
                let gathered = (access == Access::Gather).then(|| layout.of_operand(index));
                let windowed = plan.as_ref().is_some_and(|plan| plan.windowed[index]);
                let window = if windowed { input.shape.elements() / rows } else { 0 };
                Operand { dtype: input.dtype, access, gathered, window }
            })
            .collect();
        let direct: Vec<bool> = operands.iter().map(|o| matches!(o.access, Access::Scalar | Access::Slice)).collect();
        let grid = match map.domain {
            Domain::F32 => Grid::of(&map.expression, output.dtype),
            _ => None,
        };
        let grid = grid.filter(|(grid, _)| grid.inputs().all(|input| operands[input].access == Access::Scalar));
        let code = match grid {
            Some((_, rounded)) => Code::up_to(rounded, &map.expression, &direct)?,
            None => Code::new(&map.expression, &direct)?,
        };
        let is_identity = map.expression.steps().is_empty();
        let writing = match output.dtype {
            to if is_identity && layout.is_linear(0) && keeps_bits(map.domain, node.inputs[0].dtype, to) => {
                Writing::Input
            }
            to if T::writes(to) => Writing::Numbers,
            _ if is_identity && operands[0].access == Access::Slice => Writing::ConvertedInput,
            DType::Bool if code.is_test() => Writing::Truths,
            _ => match grid {
                Some((grid, rounded)) => {
                    let input = usize::from(rounded.0);
                    let in_place = operands.get(input).is_some_and(|operand| operand.access == Access::Slice);
                    Writing::Rounded(grid, in_place.then_some(input))
                }
                None => Writing::Converted,
            },
        };
        // Blocks that gather short rows see the output as one row.
        let layout = if whole_rows { layout } else { layout.as_one_row() };
        let row_elements = output.shape.elements() / rows;
        Ok(Self { code, layout, operands, output: output.dtype, writing, row_elements })
    }

    /// Computes the output's elements from `start` on.
    fn piece(&self, start: usize, inputs: &Windows<'_>, out: &mut [u8]) -> Result<(), Undefined> {
        // Sizes are powers of two, so a shift suffices; a division takes as long as a tiny node.
        let shift = self.output.size().trailing_zeros();
        if self.writing == Writing::Input {
            let first = start - self.operands[0].window * inputs.first_row;
            out.copy_from_slice(&inputs.inputs[0][first << shift..][..out.len()]);
            return Ok(());
        }
        let mut done = Ok(());
        let spare = usize::from(matches!(self.writing, Writing::Converted | Writing::Rounded(_, None)));
        self.code.with_slots(spare, out.len() >> shift, |slots, converted, block| {
            self.layout.runs(start, out.len() >> shift, |row, column, run| {
                let mut column = column;
                for out in out[run.start << shift..run.end << shift].chunks_mut(block << shift) {
                    let operands = Operands { kernel: self, windows: inputs, row, column, length: out.len() >> shift };
                    column += operands.length;
                    let computed = self.block(&operands, slots, converted, out);
                    done = done.and(computed);
                }
            });
        });
        done
    }

    /// Computes one block of the output.
    fn block(
        &self,
        operands: &Operands<'_, T>,
        slots: &mut [T],
        converted: &mut [T],
        out: &mut [u8],
    ) -> Result<(), Undefined> {
        let scalar = |input| operands.scalar(input);
        match &self.writing {
            Writing::Numbers => self.code.run(operands, slots, Output::Numbers(elements_mut(out)))?,
            Writing::Truths => self.code.run(operands, slots, Output::Truths(out))?,
            Writing::Input | Writing::ConvertedInput => T::store(operands.slice(0), self.output, out),
            Writing::Converted => T::store(self.values(operands, slots, converted)?, self.output, out),
            Writing::Rounded(grid, Some(input)) => T::round_to(grid, operands.slice(*input), scalar, out),
            Writing::Rounded(grid, None) => T::round_to(grid, self.values(operands, slots, converted)?, scalar, out),
        }
        Ok(())
    }

    /// Computes the numbers of one block into a slot.
    fn values<'s>(&self, operands: &Operands<'_, T>, slots: &mut [T], slot: &'s mut [T]) -> Result<&'s [T], Undefined> {
        let values = &mut slot[..operands.length];
        self.code.run(operands, slots, Output::Numbers(values))?;
        Ok(values)
    }

    /// Computes pieces in parallel. If several values are undefined, the error of the first piece is returned.
    fn pieces(
        &self,
        start: usize,
        inputs: &Windows<'_>,
        call: &mut [u8],
        team: &anabranch_cpu_base::Team,
    ) -> Result<(), Undefined> {
        let failed = Mutex::new(None::<(usize, Undefined)>);
        team.run_pieces(call, PIECE * self.output.size(), &|index, out| {
            if let Err(undefined) = self.piece(start + index * PIECE, inputs, out) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.is_none_or(|(first, _)| index < first) {
                    *failed = Some((index, undefined));
                }
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), |(_, undefined)| Err(undefined))
    }
}

/// Whether blocks may be cut at the rows of the layout, because rows are long or no operand depends on them.
fn whole_rows(layout: &Layout, operands: usize) -> bool {
    layout.row() >= LONG_ROW || (0..operands).all(|o| layout.is_scalar(o) || layout.is_linear(o))
}

fn access<T: Number>(layout: &Layout, operand: usize, dtype: DType, whole_rows: bool) -> Access {
    let scalar = if whole_rows { !layout.varies(operand) } else { layout.is_scalar(operand) };
    match () {
        () if scalar => Access::Scalar,
        () if !whole_rows && !layout.is_linear(operand) => Access::Gather,
        () if T::reads(dtype) => Access::Slice,
        () => Access::Convert,
    }
}

impl<T: Number> CpuKernel for MapKernel<T> {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let start = call.rows.start * self.row_elements;
        let windows = Windows { inputs: call.inputs, first_row: call.rows.start };
        let out = &mut *call.outputs[0];
        let done = if out.len() <= PIECE * self.output.size() {
            self.piece(start, &windows, out)
        } else {
            self.pieces(start, &windows, out, call.team)
        };
        done.map_err(|Undefined(reason)| KernelError::Value { op: "map", reason: reason.into() })
    }
}

/// Inputs of a call; windowed inputs begin at its first row.
struct Windows<'a> {
    inputs: &'a [&'a [u8]],
    first_row: usize,
}

/// Operands over one block: `length` elements from `column` of a row of the layout.
struct Operands<'a, T> {
    kernel: &'a MapKernel<T>,
    windows: &'a Windows<'a>,
    row: usize,
    column: usize,
    length: usize,
}

impl<T: Number> Operands<'_, T> {
    /// Returns the given bytes of an input, and the offset in them of the operand's first element in the block.
    #[inline]
    fn at(&self, input: usize) -> (&Operand, &[u8], usize) {
        let operand = &self.kernel.operands[input];
        let layout = &self.kernel.layout;
        let column = if layout.varies(input) { self.column } else { 0 };
        let offset = layout.offset(input, self.row) + column - operand.window * self.windows.first_row;
        (operand, self.windows.inputs[input], offset)
    }

    /// Returns the element of an input that has one along each row.
    #[inline]
    fn scalar(&self, input: usize) -> T {
        let (operand, bytes, offset) = self.at(input);
        one(operand.dtype, bytes, offset)
    }

    /// Returns the elements of an input that is read in place.
    #[inline]
    fn slice(&self, input: usize) -> &[T] {
        let (_, bytes, offset) = self.at(input);
        &elements(bytes)[offset..][..self.length]
    }
}

impl<T: Number> Inputs<T> for Operands<'_, T> {
    #[inline]
    fn direct(&self, input: usize) -> Source<'_, T> {
        match self.kernel.operands[input].access {
            Access::Slice => Source::Slice(self.slice(input)),
            _ => Source::Scalar(self.scalar(input)),
        }
    }

    fn load(&self, input: usize, out: &mut [T]) {
        if let Some(layout) = &self.kernel.operands[input].gathered {
            let operand = &self.kernel.operands[input];
            let base = operand.window * self.windows.first_row;
            return gather(layout, operand.dtype, self.windows.inputs[input], base, self.column, out);
        }
        let (operand, bytes, offset) = self.at(input);
        match operand.access {
            Access::Scalar => out.fill(one(operand.dtype, bytes, offset)),
            _ => consecutive(operand.dtype, bytes, offset, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, run_all_ways, shape, tensor};
    use anabranch_op::op::{Binary, Expression, Literal, Op, Register, Unary};
    use anabranch_op::shape::Shape;
    use anabranch_op::tensor::{Tensor, TensorSpec};
    use arbtest::arbitrary::{Result as Arbitrary, Unstructured};

    fn node(domain: Domain, expression: Expression, inputs: &[&Tensor], output: (DType, &[usize])) -> NodeSpec {
        NodeSpec {
            op: Op::Map(Map { domain, expression }),
            inputs: inputs.iter().map(|input| input.spec().clone()).collect(),
            outputs: vec![TensorSpec::new(output.0, shape(output.1))],
        }
    }

    /// Returns a shape that broadcasts to `output`.
    fn operand_of(u: &mut Unstructured<'_>, output: &[usize]) -> Arbitrary<Vec<usize>> {
        let skipped = u.int_in_range(0..=output.len())?;
        output[skipped..].iter().map(|dim| Ok(if u.ratio(1, 3)? { 1 } else { *dim })).collect()
    }

    /// Returns the index of the operand's element for the output's element `flat`.
    fn index(operand: &Shape, output: &Shape, flat: usize) -> usize {
        let strides = operand.broadcast_strides(output).expect("made to broadcast");
        output.strides().iter().zip(output.dims()).zip(&strides).map(|((s, d), o)| flat / s % d * o).sum()
    }

    #[test]
    fn operands_of_any_shapes_and_types_are_broadcast() {
        let dtypes = [DType::F32, DType::I64, DType::U8, DType::F16, DType::F64, DType::I32];
        arbtest::arbtest(|u| {
            let rank = u.int_in_range(0..=4)?;
            let output: Vec<usize> =
                (0..rank).map(|_| u.choose(&[0, 1, 2, 3, 4, 5, 7, 13, 16, 300]).copied()).collect::<Arbitrary<_>>()?;
            let output = if output.iter().product::<usize>() > 50_000 { vec![7, 300] } else { output };
            let inputs = [operand_of(u, &output)?, operand_of(u, &output)?, operand_of(u, &output)?];
            let inputs: Vec<Tensor> = inputs
                .iter()
                .map(|dims| Ok(tensor(*u.choose(&dtypes)?, dims, |i| (i * 7 % 23) as f64)))
                .collect::<Arbitrary<_>>()?;
            // (a + b) · c + a; unsigned domains compute it too.
            let steps = vec![
                Step::Binary(Binary::Add, Register(0), Register(1)),
                Step::Binary(Binary::Multiply, Register(3), Register(2)),
                Step::Binary(Binary::Add, Register(4), Register(0)),
            ];
            let expression = Expression::new(3, steps).expect("sound");
            let domain = *u.choose(&[Domain::F32, Domain::F64, Domain::I64, Domain::U64])?;
            let dtype = *u.choose(&[DType::F32, DType::I32, DType::F64, DType::I64])?;
            let node = node(domain, expression, &inputs.iter().collect::<Vec<_>>(), (dtype, &output));
            let found = run_all_ways(&node, &inputs).remove(0);
            let output = shape(&output);
            let want = tensor(dtype, output.dims(), |flat| {
                let [a, b, c] = [0, 1, 2].map(|i| (index(inputs[i].shape(), &output, flat) * 7 % 23) as f64);
                (a + b) * c + a
            });
            assert!(found.same_bits(&want), "{node:?}");
            Ok(())
        })
        .budget_ms(800);
    }

    #[test]
    fn large_tensors_are_cut_into_pieces_with_equal_bits() {
        let dims = [3, 5 * PIECE / 7];
        let a = tensor(DType::F32, &dims, |i| (i % 1009) as f64 / 128.0);
        let b = tensor(DType::F32, &[3, 1], |i| i as f64);
        let steps = vec![
            Step::Unary(Unary::Exp, Register(0)),
            Step::Constant(Literal::Float(0.5)),
            Step::Binary(Binary::Multiply, Register(2), Register(3)),
            Step::Binary(Binary::Add, Register(4), Register(1)),
        ];
        let expression = Expression::new(2, steps).expect("sound");
        let node = node(Domain::F32, expression, &[&a, &b], (DType::F32, &dims));
        let found = run_all_ways(&node, &[a, b]).remove(0);
        for (i, found) in found.elements::<f32>().expect("f32").iter().enumerate() {
            let want = ((i % 1009) as f64 / 128.0).exp() * 0.5 + (i / dims[1]) as f64;
            assert!((f64::from(*found) - want).abs() <= want * 3e-7, "{i}: {found} is not {want}");
        }
    }

    #[test]
    fn every_function_has_its_values() {
        let nan = f64::NAN;
        let unary = [
            (Unary::Negate, -2.5, 2.5),
            (Unary::Abs, -2.5, 2.5),
            (Unary::Sign, -2.5, -1.0),
            (Unary::Sign, nan, nan),
            (Unary::Reciprocal, 4.0, 0.25),
            (Unary::Sqrt, 6.25, 2.5),
            (Unary::Exp, 1.0, std::f64::consts::E),
            (Unary::Log, 2.0, std::f64::consts::LN_2),
            (Unary::Sin, 2.0, 2f64.sin()),
            // The C library of mingw reduces by a π of 66 bits.
            #[cfg(not(all(windows, target_env = "gnu")))]
            (Unary::Sin, 1e7, 1e7f64.sin()),
            (Unary::Cos, 2.0, 2f64.cos()),
            (Unary::Cos, -3e9, 3e9f64.cos()),
            (Unary::Tan, 2.0, 2f64.tan()),
            (Unary::Asin, 0.5, 0.5f64.asin()),
            (Unary::Acos, 0.5, 0.5f64.acos()),
            (Unary::Atan, 2.0, 2f64.atan()),
            (Unary::Sinh, 2.0, 2f64.sinh()),
            (Unary::Cosh, 2.0, 2f64.cosh()),
            (Unary::Asinh, 2.0, 2f64.asinh()),
            (Unary::Asinh, -3e38, -89.289_993_003_001_8),
            (Unary::Acosh, 3e38, 89.289_993_003_001_8),
            (Unary::Acosh, 2.0, 2f64.acosh()),
            (Unary::Atanh, 0.5, 0.5f64.atanh()),
            (Unary::Tanh, 0.7, 0.7f64.tanh()),
            (Unary::Sigmoid, 1.0, 1.0 / (1.0 + (-1f64).exp())),
            (Unary::Erf, 0.5, 0.520_499_877_813_046_5),
            (Unary::Relu, -1.0, 0.0),
            (Unary::Relu, nan, nan),
            (Unary::Floor, -1.5, -2.0),
            (Unary::Ceil, -1.5, -1.0),
            (Unary::Round, 2.5, 2.0),
            (Unary::Round, -3.5, -4.0),
            (Unary::Truncate, -1.5, -1.0),
            (Unary::Not, 0.0, 1.0),
            (Unary::Not, nan, 0.0),
            (Unary::IsNan, nan, 1.0),
            (Unary::IsInfinite, f64::NEG_INFINITY, 1.0),
        ];
        for (function, x, want) in unary {
            expect(Expression::unary(function), &[x], want);
        }
        let binary = [
            (Binary::Subtract, 1.0, 2.5, -1.5),
            (Binary::Divide, 1.0, 0.0, f64::INFINITY),
            (Binary::Min, nan, 1.0, nan),
            (Binary::Min, 1.0, nan, nan),
            (Binary::Max, nan, 1.0, nan),
            (Binary::Max, 1.0, nan, nan),
            (Binary::Max, 1.0, 2.0, 2.0),
            (Binary::Power, -2.0, 3.0, -8.0),
            (Binary::Power, 2.0, 0.5, std::f64::consts::SQRT_2),
            (Binary::FloorModulo, -7.0, 3.0, 2.0),
            (Binary::TruncatedModulo, -7.0, 3.0, -1.0),
            (Binary::Equal, 2.0, 2.0, 1.0),
            (Binary::Less, nan, 2.0, 0.0),
            (Binary::LessOrEqual, 2.0, 2.0, 1.0),
            (Binary::Greater, 2.0, 2.0, 0.0),
            (Binary::GreaterOrEqual, 2.0, 2.0, 1.0),
            (Binary::And, 2.0, 0.5, 1.0),
            (Binary::Or, 0.0, -1.0, 1.0),
            (Binary::Xor, 3.0, 1.0, 0.0),
        ];
        for (function, x, y, want) in binary {
            expect(Expression::binary(function), &[x, y], want);
        }
        let select = Step::Select(Register(0), Register(1), Register(2));
        for (condition, want) in [(0.0, 2.0), (-1.0, 1.0), (nan, 1.0)] {
            expect(Expression::new(3, vec![select]).expect("sound"), &[condition, 1.0, 2.0], want);
        }
    }

    /// Checks that the expression has this value in both float domains, as scalars and in every mix with slices.
    fn expect(expression: Expression, arguments: &[f64], want: f64) {
        for (domain, dtype, tolerance) in [(Domain::F32, DType::F32, 3e-7), (Domain::F64, DType::F64, 1e-15)] {
            for mix in 0..1 << arguments.len() {
                let inputs: Vec<Tensor> = arguments
                    .iter()
                    .enumerate()
                    .map(|(i, x)| tensor(dtype, if mix >> i & 1 == 0 { &[19] } else { &[1] }, |_| *x))
                    .collect();
                let node = node(domain, expression.clone(), &inputs.iter().collect::<Vec<_>>(), (DType::F64, &[19]));
                let found = run(&node, &inputs).expect("sound").remove(0);
                for found in found.elements::<f64>().expect("f64") {
                    let near = (found - want).abs() <= want.abs() * tolerance;
                    assert!(
                        near || *found == want || (found.is_nan() && want.is_nan()),
                        "{node:?}: {found} is not {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn results_are_converted_as_by_rust() {
        let values = tensor(DType::F64, &[6], |i| [-1.5, 300.0, f64::NAN, 1e20, 0.25, -0.0][i]);
        let converted = |dtype| {
            let node = node(Domain::F64, Expression::identity(), &[&values], (dtype, &[6]));
            run(&node, std::slice::from_ref(&values)).expect("sound").remove(0)
        };
        assert_eq!(converted(DType::U8).bytes(), [0, 255, 0, 255, 0, 0]);
        assert_eq!(converted(DType::Bool).bytes(), [1, 1, 1, 1, 1, 0]);
        assert_eq!(converted(DType::I32).elements::<i32>(), Some(&[-1, 300, 0, i32::MAX, 0, 0][..]));
        assert_eq!(converted(DType::I64).elements::<i64>(), Some(&[-1, 300, 0, i64::MAX, 0, 0][..]));
    }

    #[test]
    fn quotients_beneath_a_staircase_are_rounded_once() {
        let (x, [value, constant, quotient]) = (Register(0), [1, 2, 3].map(Register));
        for before in [Step::Unary(Unary::Relu, x), Step::Binary(Binary::Multiply, x, x)] {
            for divisor in (1..300).map(f64::from) {
                let steps = vec![
                    before,
                    Step::Constant(Literal::Float(divisor)),
                    Step::Binary(Binary::Divide, value, constant),
                    Step::Unary(Unary::Floor, quotient),
                ];
                let expression = Expression::new(1, steps).expect("each step reads earlier ones");
                let input = tensor(DType::F32, &[40], |i| match before {
                    Step::Unary(..) => i as f64 * divisor,
                    _ => i as f64,
                });
                let node = node(Domain::F32, expression, &[&input], (DType::F32, &[40]));
                let made = run(&node, std::slice::from_ref(&input)).expect("runs");
                let want = |i: usize| match before {
                    Step::Unary(..) => i as f32,
                    _ => ((i * i) as f64 / divisor).floor() as f32,
                };
                let made: &[f32] = made[0].elements().expect("f32");
                assert!(made.iter().enumerate().all(|(i, made)| *made == want(i)), "{divisor}: {made:?}");
            }
        }
    }

    #[test]
    fn integer_division_by_zero_is_an_error() {
        let (a, b) = (Tensor::from_i64s(&[1, 2, 3]), Tensor::from_i64s(&[1, 0, 3]));
        let expression = Expression::binary(Binary::Divide);
        let node = node(Domain::I64, expression, &[&a, &b], (DType::I64, &[3]));
        assert!(matches!(run(&node, &[a, b]), Err(KernelError::Value { op: "map", .. })));
    }

    #[test]
    fn nodes_that_do_not_fit_are_refused() {
        let a = tensor(DType::F32, &[2, 3], |_| 0.0);
        let exp = node(Domain::I64, Expression::unary(Unary::Exp), &[&a], (DType::F32, &[2, 3]));
        assert!(matches!(run(&exp, std::slice::from_ref(&a)), Err(KernelError::Unsupported { .. })));
        let shapes = node(Domain::F32, Expression::identity(), &[&a], (DType::F32, &[2, 4]));
        assert!(matches!(run(&shapes, std::slice::from_ref(&a)), Err(KernelError::Invalid { .. })));
        let count = node(Domain::F32, Expression::binary(Binary::Add), &[&a], (DType::F32, &[2, 3]));
        assert!(matches!(run(&count, &[a]), Err(KernelError::Invalid { .. })));
    }
}
