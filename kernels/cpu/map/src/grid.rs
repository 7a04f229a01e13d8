//! Last steps of a quantisation, `clamp(round(x / divisor) + zero)`, in one pass that writes the bytes.

use super::source::{Source, each};
use anabranch_op::dtype::DType;
use anabranch_op::op::{Binary, Expression, Register, Step, Unary};

/// Grid of 8-bit integers to which numbers are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grid {
    divisor: Option<Term>,
    /// Integer that stands for zero.
    zero: Term,
    /// Least and greatest integer.
    bounds: (f32, f32),
}

/// Number that is the same for all elements of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    Constant(f32),
    Input(usize),
}

impl Grid {
    /// Returns the grid to whose 8-bit integers an expression in `f32` rounds, and the register that it rounds.
    pub(crate) fn of(expression: &Expression, output: DType) -> Option<(Self, Register)> {
        let (inputs, steps) = (expression.inputs(), expression.steps());
        let range = match output {
            DType::I8 => -128.0..=127.0,
            DType::U8 => 0.0..=255.0,
            _ => return None,
        };
        let step = |register: Register| steps.get(usize::from(register.0).checked_sub(inputs)?).copied();
        let term = |register: Register| match step(register) {
            None => Some(Term::Input(usize::from(register.0))),
            Some(Step::Constant(literal)) => Some(Term::Constant(literal.as_f32())),
            _ => None,
        };
        let bound = |register: Register| match term(register) {
            Some(Term::Constant(bound)) if range.contains(&bound) && bound.fract() == 0.0 => Some(bound),
            _ => None,
        };
        let Step::Binary(Binary::Min, raised, greatest) = *steps.last()? else { return None };
        let Step::Binary(Binary::Max, shifted, least) = step(raised)? else { return None };
        let (rounded, zero) = match step(shifted)? {
            Step::Binary(Binary::Add, rounded, zero) => (rounded, term(zero)?),
            _ => (shifted, Term::Constant(-0.0)),
        };
        let Step::Unary(Unary::Round, quotient) = step(rounded)? else { return None };
        let (number, divisor) = match step(quotient) {
            Some(Step::Binary(Binary::Divide, number, divisor)) if term(divisor).is_some() => (number, term(divisor)),
            _ => (quotient, None),
        };
        let uses = |of: Register| steps.iter().flat_map(Step::operands).filter(|register| *register == of).count();
        let once = [raised, shifted, rounded].into_iter().all(|register| uses(register) == 1);
        let once = once && (divisor.is_none() || uses(quotient) == 1);
        let bounds = (bound(least)?, bound(greatest)?);
        (once && bounds.0 <= bounds.1).then_some((Self { divisor, zero, bounds }, number))
    }

    /// Returns the inputs that must be one number for all elements of a row.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        [self.divisor, Some(self.zero)].into_iter().flatten().filter_map(|term| match term {
            Term::Input(input) => Some(input),
            Term::Constant(_) => None,
        })
    }

    /// Writes the integers to which the numbers are rounded; 0 for NaN. `input` returns the number of an input.
    pub(crate) fn round(&self, numbers: &[f32], input: impl Fn(usize) -> f32, out: &mut [u8]) {
        let number = |term| match term {
            Term::Constant(number) => number,
            Term::Input(index) => input(index),
        };
        let (zero, (least, greatest)) = (number(self.zero), self.bounds);
        let integer = move |quotient: f32| {
            /// A sum with it has the integer in its low bits.
            const SHIFT: f32 = 12_582_912.0;
            let x = quotient.round_ties_even() + zero;
            let x = if x < least { least } else { x };
            let x = if x > greatest { greatest } else { x };
            let x = if x.is_nan() { 0.0 } else { x };
            (x.trunc() + SHIFT).to_bits() as u8
        };
        match self.divisor.map(number) {
            Some(divisor) => each(Source::Slice(numbers), out, |x| integer(x / divisor)),
            None => each(Source::Slice(numbers), out, integer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_all_ways, shape, tensor};
    use anabranch_op::op::{Domain, Literal, Map, NodeSpec, Op};
    use anabranch_op::tensor::{Tensor, TensorSpec};
    use arbtest::arbitrary::Unstructured;

    /// Returns `clamp(round(x / s) + z)` of three inputs, without the division or the addition if not asked for.
    fn quantisation(divides: bool, shifts: bool, (least, greatest): (f64, f64)) -> Expression {
        let mut steps = Vec::new();
        let mut push = |step: Step| {
            steps.push(step);
            Register(steps.len() as u16 + 2)
        };
        let mut x = Register(0);
        if divides {
            x = push(Step::Binary(Binary::Divide, x, Register(1)));
        }
        x = push(Step::Unary(Unary::Round, x));
        if shifts {
            x = push(Step::Binary(Binary::Add, x, Register(2)));
        }
        let low = push(Step::Constant(Literal::Float(least)));
        x = push(Step::Binary(Binary::Max, x, low));
        let high = push(Step::Constant(Literal::Float(greatest)));
        push(Step::Binary(Binary::Min, x, high));
        Expression::new(3, steps).expect("sound")
    }

    #[test]
    fn numbers_are_rounded_as_by_their_definition() {
        let special =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, 8_388_609.0];
        arbtest::arbtest(|u: &mut Unstructured<'_>| {
            let (divides, shifts) = (u.arbitrary()?, u.arbitrary()?);
            let (output, bounds) =
                *u.choose(&[(DType::U8, (0.0, 255.0)), (DType::I8, (-128.0, 127.0)), (DType::I8, (-5.0, 3.0))])?;
            let (rows, columns) = (u.int_in_range(1..=3)?, *u.choose(&[1usize, 15, 17, 63, 300, 1500])?);
            // One parameter for all, or one for each row.
            let each = if u.arbitrary()? { rows } else { 1 };
            let x = tensor(DType::F32, &[rows, columns], |i| match i % 5 {
                0 => f64::from(special[i / 5 % special.len()]),
                _ => (i * 37 % 1009) as f64 / 8.0 - 60.0,
            });
            let scale = tensor(DType::F32, &[each, 1], |i| 0.25 + i as f64 * 0.1);
            let zero = tensor(output, &[each, 1], |i| 3.0 + i as f64);
            let inputs = [x, scale, zero];
            let op = Op::Map(Map { domain: Domain::F32, expression: quantisation(divides, shifts, bounds) });
            let outputs = vec![TensorSpec::new(output, shape(&[rows, columns]))];
            let node = NodeSpec { op, inputs: inputs.iter().map(|input| input.spec().clone()).collect(), outputs };
            let found = run_all_ways(&node, &inputs).remove(0);
            let numbers = |tensor: &Tensor| anabranch_kernel_testing::numbers(tensor);
            let ([x, scale, zero], found) = (inputs.each_ref().map(numbers), numbers(&found));
            for (at, found) in found.iter().enumerate() {
                let row = if each == 1 { 0 } else { at / columns };
                let quotient = if divides { x[at] as f32 / scale[row] as f32 } else { x[at] as f32 };
                let shifted = quotient.round_ties_even() + if shifts { zero[row] as f32 } else { 0.0 };
                let want = if shifted.is_nan() { 0.0 } else { f64::from(shifted).clamp(bounds.0, bounds.1) };
                assert!(*found == want, "{} becomes {found} rather than {want}: {node:?}", x[at]);
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
