//! Narrowest type of integers in which an expression has the results of its domain.
//!
//! There are two reasons for equal results. Either no number leaves the type, or the output keeps only low bits, and
//! all steps agree with those of the domain in these bits.

use anabranch_op::dtype::DType;
use anabranch_op::op::{Binary as B, Domain, Literal, Map, Step, Unary as U};

/// Least and greatest integer.
type Range = (i128, i128);

/// Returns the narrowest type of at most 32 bits in which the expression can be computed, if there is one.
pub(crate) fn narrowest(map: &Map, inputs: &[DType], output: DType) -> Option<DType> {
    let types = [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32];
    types.into_iter().find(|number| fits(map, inputs, output, *number))
}

fn fits(map: &Map, inputs: &[DType], output: DType, number: DType) -> bool {
    let (integers, steps) = (map.domain.is_integer(), map.expression.steps());
    let keeps_low_bits = integers && output != DType::Bool && range(output).is_some() && output.size() <= number.size();
    if keeps_low_bits && inputs.iter().all(|input| range(*input).is_some()) && steps.iter().all(agrees) {
        return true;
    }
    let Some(values) = values(map, inputs) else { return false };
    let is_last = |at: usize| at + 1 == steps.len();
    let exact = |(at, step)| stays(step, integers) || keeps_low_bits && is_last(at) && ends(step);
    is_within(values, range(number)) && is_stored(map.domain, values, output) && steps.iter().enumerate().all(exact)
}

/// Returns the range of the integers in the inputs and the constants, of 0 and of 1. `None` if there are other numbers,
/// or integers that the domain does not hold.
fn values(map: &Map, inputs: &[DType]) -> Option<Range> {
    let inputs = inputs.iter().map(|input| range(*input));
    let constants = map.expression.steps().iter().filter_map(|step| match step {
        Step::Constant(Literal::Int(value)) => Some(Some((i128::from(*value), i128::from(*value)))),
        // Not −0, and no fraction.
        Step::Constant(Literal::Float(value)) => {
            let whole = *value as i64;
            let is_whole = (whole as f64).to_bits() == value.to_bits();
            Some(is_whole.then_some((i128::from(whole), i128::from(whole))))
        }
        _ => None,
    });
    let all = inputs.chain(constants).try_fold((0, 1), |(least, most), next| {
        let (low, high) = next?;
        Some((low.min(least), high.max(most)))
    })?;
    let exact = |bits: u32| Some((-(1i128 << bits), 1i128 << bits));
    let domain = match map.domain {
        Domain::F32 => exact(f32::MANTISSA_DIGITS),
        Domain::F64 => exact(f64::MANTISSA_DIGITS),
        Domain::I64 => range(DType::I64),
        Domain::U64 => range(DType::U64),
    };
    is_within(all, domain).then_some(all)
}

/// Whether integers are stored as the numbers of the domain are. Floats saturate, and are rounded once.
fn is_stored(domain: Domain, values: Range, output: DType) -> bool {
    domain.is_integer() || output == DType::Bool || is_within(values, range(output))
}

fn is_within((least, most): Range, range: Option<Range>) -> bool {
    range.is_some_and(|(low, high)| low <= least && most <= high)
}

/// Returns the range of a type of integers.
fn range(dtype: DType) -> Option<Range> {
    use DType::{Bool, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64};
    match dtype {
        Bool => Some((0, 1)),
        U2 | U4 | U8 | U16 | U32 | U64 => Some((0, (1 << dtype.bits()) - 1)),
        I2 | I4 | I8 | I16 | I32 | I64 => Some((-(1 << (dtype.bits() - 1)), (1 << (dtype.bits() - 1)) - 1)),
        _ => None,
    }
}

/// Whether the result of a step over integers is 0, 1 or between its operands, or nearer to zero than an operand, and
/// the same integer in each domain.
fn stays(step: &Step, integers: bool) -> bool {
    match step {
        Step::Constant(_) | Step::Select(..) => true,
        Step::Unary(function, _) => function.is_test() || matches!(function, U::Sign | U::Relu),
        Step::Binary(function, ..) => {
            let bits = matches!(function, B::BitAnd | B::BitOr | B::BitXor | B::ShiftRight);
            // A remainder of integers may be undefined, one of floats is NaN.
            let remainder = matches!(function, B::FloorModulo | B::TruncatedModulo) && integers;
            function.is_test() || bits || remainder || matches!(function, B::Min | B::Max)
        }
    }
}

/// Whether the low bits of a step depend only on the low bits of its operands.
fn agrees(step: &Step) -> bool {
    match step {
        Step::Constant(literal) => matches!(literal, Literal::Int(_)),
        Step::Unary(function, _) => matches!(function, U::Negate),
        Step::Binary(function, ..) => {
            matches!(function, B::Add | B::Subtract | B::Multiply | B::BitAnd | B::BitOr | B::BitXor)
        }
        Step::Select(..) => false,
    }
}

/// Whether the low bits of a step over integers that are exact are those of the domain.
fn ends(step: &Step) -> bool {
    let one = matches!(step, Step::Unary(U::Abs, _) | Step::Binary(B::Divide | B::ShiftLeft, ..));
    one || agrees(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_op::op::{Expression, Register};

    /// Narrowest type for a chain of functions of the two inputs.
    fn of(domain: Domain, functions: &[B], inputs: [DType; 2], output: DType) -> Option<DType> {
        let step = |(at, function): (usize, &B)| {
            let before = if at == 0 { 0 } else { at as u16 + 1 };
            Step::Binary(*function, Register(before), Register(1))
        };
        let expression = Expression::new(2, functions.iter().enumerate().map(step).collect()).expect("sound");
        narrowest(&Map { domain, expression }, &inputs, output)
    }

    #[test]
    fn steps_that_overflow_are_found() {
        use DType::{Bool, F32, I8, I16, I32, I64, U8, U16, U32};
        let mixed = [I8, I32];
        for (functions, inputs, output, want) in [
            (&[B::Add, B::Multiply][..], mixed, I32, Some(U32)),
            (&[B::Add, B::Multiply], mixed, U8, Some(U8)),
            (&[B::Min, B::Less], mixed, Bool, Some(I32)),
            (&[B::Less], [I8, I8], Bool, Some(I8)),
            (&[B::Less], [U8, U8], Bool, Some(U8)),
            (&[B::Less], [U8, I8], Bool, Some(I16)),
            (&[B::Less], [U16, U32], Bool, Some(U32)),
            (&[B::Less], [I8, U32], Bool, None),
            (&[B::Max], [I16, I8], F32, Some(I16)),
            // A sum may overflow, and is compared.
            (&[B::Add, B::Less], mixed, Bool, None),
            // The high bits are kept.
            (&[B::Add], mixed, I64, None),
            (&[B::Divide], [I8, I8], I8, Some(I8)),
            (&[B::Divide], [I8, I8], I16, Some(I16)),
            // The quotient of the least number by −1 is compared.
            (&[B::Divide, B::Less], [I8, I8], Bool, None),
            (&[B::Add, B::Divide], [I8, I8], I8, None),
            (&[B::FloorModulo, B::Less], [I8, I8], Bool, Some(I8)),
            // Zero or not depends on the high bits.
            (&[B::Add], mixed, Bool, None),
            (&[B::ShiftRight], [U8, U8], U8, Some(U8)),
            (&[B::ShiftLeft], [U8, U8], U16, Some(U16)),
            (&[B::ShiftLeft, B::ShiftRight], [U8, U8], U8, None),
        ] {
            assert_eq!(of(Domain::I64, functions, inputs, output), want, "{functions:?} of {inputs:?} to {output}");
        }
    }

    #[test]
    fn integers_in_domains_of_floats_stay_integers_if_they_are_exact() {
        use DType::{Bool, F16, I8, I16, I32, U8};
        for (function, inputs, output, want) in [
            (B::And, [Bool, Bool], Bool, Some(U8)),
            (B::Equal, [Bool, Bool], Bool, Some(U8)),
            (B::Max, [I16, U8], I16, Some(I16)),
            // Floats saturate, integers wrap.
            (B::Max, [I16, U8], I8, None),
            (B::Max, [I16, U8], F16, None),
            (B::Add, [U8, U8], U8, None),
            (B::TruncatedModulo, [U8, U8], U8, None),
            (B::Less, [I32, I32], Bool, None),
        ] {
            assert_eq!(of(Domain::F32, &[function], inputs, output), want, "{function:?} of {inputs:?} to {output}");
        }
        assert_eq!(of(Domain::F64, &[B::Less], [I32, I32], Bool), Some(I32));
        assert_eq!(of(Domain::U64, &[B::Less], [I8, I8], Bool), None, "negative numbers are large ones");
    }
}
