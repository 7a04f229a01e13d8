//! Expressions over 64-bit floats: the standard library's functions, one element at a time.

use super::number::{Number, Undefined, floor_modulo};
use super::source::{Source, each, pairs, select};
use super::truth;
use anabranch_cpu_base::convert;
use anabranch_cpu_base::math;
use anabranch_op::dtype::DType;
use anabranch_op::minifloat::Minifloat;
use anabranch_op::op::{Binary, Literal, Unary};

/// Returns a power; squares and cubes are products, as fusion writes them.
fn power(x: f64, y: f64) -> f64 {
    match y {
        2.0 => x * x,
        3.0 => x * x * x,
        _ => x.powf(y),
    }
}

impl Number for f64 {
    const DTYPE: DType = DType::F64;

    #[inline(always)]
    fn is_infinite(self) -> bool {
        self.is_infinite()
    }

    fn literal(literal: Literal) -> Self {
        literal.as_f64()
    }

    fn unary(function: Unary, a: Source<'_, f64>, out: &mut [f64]) -> Result<(), Undefined> {
        match function {
            Unary::Negate => each(a, out, |x| -x),
            Unary::Abs => each(a, out, f64::abs),
            Unary::Sign => each(a, out, |x| if x == 0.0 { x } else { x.signum() }),
            Unary::Reciprocal => each(a, out, f64::recip),
            Unary::Sqrt => each(a, out, f64::sqrt),
            Unary::Exp => each(a, out, f64::exp),
            Unary::Log => each(a, out, f64::ln),
            Unary::Sin => each(a, out, f64::sin),
            Unary::Cos => each(a, out, f64::cos),
            Unary::Tan => each(a, out, f64::tan),
            Unary::Asin => each(a, out, f64::asin),
            Unary::Acos => each(a, out, f64::acos),
            Unary::Atan => each(a, out, f64::atan),
            Unary::Sinh => each(a, out, f64::sinh),
            Unary::Cosh => each(a, out, f64::cosh),
            Unary::Asinh => each(a, out, math::asinh_f64),
            Unary::Acosh => each(a, out, math::acosh_f64),
            Unary::Atanh => each(a, out, math::atanh_f64),
            Unary::Tanh => each(a, out, f64::tanh),
            Unary::Sigmoid => each(a, out, math::sigmoid_f64),
            Unary::Erf => each(a, out, math::erf_f64),
            Unary::Relu => each(a, out, |x| if x < 0.0 { 0.0 } else { x }),
            Unary::Floor => each(a, out, f64::floor),
            Unary::Ceil => each(a, out, f64::ceil),
            Unary::Round => each(a, out, f64::round_ties_even),
            Unary::Truncate => each(a, out, f64::trunc),
            Unary::Not | Unary::IsNan | Unary::IsInfinite => truth::unary(function, a, out),
            Unary::Narrowed(DType::F32) => each(a, out, |x| f64::from(x as f32)),
            Unary::Narrowed(DType::F16) => each(a, out, |x| convert::f16_of(x).to_f64()),
            Unary::Narrowed(DType::BF16) => each(a, out, |x| convert::bf16_of(x).to_f64()),
            Unary::Narrowed(dtype) => match Minifloat::of(dtype) {
                Some(format) => each(a, out, |x| format.decoded(format.encoded(x))),
                // Preparing the kernel rejects these.
                None => out.fill(f64::NAN),
            },
        }
        Ok(())
    }

    fn binary(function: Binary, a: Source<'_, f64>, b: Source<'_, f64>, out: &mut [f64]) -> Result<(), Undefined> {
        match function {
            Binary::Add => pairs(a, b, out, |x, y| x + y),
            Binary::Subtract => pairs(a, b, out, |x, y| x - y),
            Binary::Multiply => pairs(a, b, out, |x, y| x * y),
            Binary::Divide => pairs(a, b, out, |x, y| x / y),
            Binary::Min => pairs(a, b, out, |x, y| if y < x || y.is_nan() { y } else { x }),
            Binary::Max => pairs(a, b, out, |x, y| if y > x || y.is_nan() { y } else { x }),
            Binary::Power => pairs(a, b, out, power),
            Binary::FloorModulo => pairs(a, b, out, floor_modulo),
            Binary::TruncatedModulo => pairs(a, b, out, |x, y| x % y),
            // Preparing the kernel rejects these.
            Binary::BitAnd | Binary::BitOr | Binary::BitXor | Binary::ShiftLeft | Binary::ShiftRight => {
                out.fill(f64::NAN);
            }
            _ => truth::binary(function, a, b, out),
        }
        Ok(())
    }

    fn select(a: Source<'_, f64>, b: Source<'_, f64>, c: Source<'_, f64>, out: &mut [f64]) {
        select(a, b, c, out, |condition| condition != 0.0);
    }

    fn load(dtype: DType, bytes: &[u8], out: &mut [f64]) {
        convert::to_f64(dtype, bytes, out);
    }

    fn store(values: &[f64], dtype: DType, bytes: &mut [u8]) {
        convert::from_f64(values, dtype, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Number, Source};
    use anabranch_op::op::Unary;

    /// Values computed with 120 digits and rounded.
    #[test]
    fn functions_are_accurate_to_a_few_last_places() {
        for (function, x, want) in [
            (Unary::Sigmoid, -740.0, 4.2e-322),
            (Unary::Sigmoid, -700.5, 5.980196118639791e-305),
            (Unary::Sigmoid, -36.7, 1.1518409493076095e-16),
            (Unary::Sigmoid, -1e-12, 0.49999999999975),
            (Unary::Sigmoid, 0.3, 0.574442516811659),
            (Unary::Sigmoid, 20.0, 0.9999999979388464),
            (Unary::Sigmoid, 40.0, 1.0),
            (Unary::Tanh, 1e-300, 1e-300),
            (Unary::Tanh, -1e-12, -1e-12),
            (Unary::Tanh, 0.5, 0.46211715726000974),
            (Unary::Tanh, -3.3, -0.9972829600991421),
            (Unary::Tanh, 19.0, 0.9999999999999999),
            (Unary::Tanh, 400.0, 1.0),
            (Unary::Erf, 1e-300, 1.1283791670955126e-300),
            (Unary::Erf, -1e-12, -1.1283791670955126e-12),
            (Unary::Erf, 0.1, 0.1124629160182849),
            (Unary::Erf, -0.7, -0.6778011938374184),
            (Unary::Erf, 1.9, 0.9927904292352575),
            (Unary::Erf, 2.7, 0.9998656672600594),
            (Unary::Erf, 3.3, 0.9999969422902035),
            (Unary::Erf, 5.5, 0.9999999999999927),
            (Unary::Erf, -30.0, -1.0),
            (Unary::Exp, -740.0, 4.2e-322),
            (Unary::Exp, -1e-12, 0.999999999999),
            (Unary::Exp, 1.0, std::f64::consts::E),
            (Unary::Exp, 709.5, 1.3549863193146328e308),
            (Unary::Log, 1e-300, -690.7755278982137),
            (Unary::Log, 1.000000000001, 1.000088900581841e-12),
            (Unary::Log, 3.0, 1.0986122886681098),
            (Unary::Log, 1e300, 690.7755278982137),
        ] {
            let mut found = [0.0];
            f64::unary(function, Source::Slice(&[x]), &mut found).expect("defined everywhere");
            let bound = 4.0 * f64::EPSILON * f64::abs(want) + f64::from_bits(1);
            assert!(f64::abs(found[0] - want) <= bound, "{function:?} of {x}: {} rather than {want}", found[0]);
        }
    }
}
