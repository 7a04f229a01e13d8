//! Expressions over 32-bit floats: every function as a loop compiled for the processor's vectors.

use super::chain::Chain;
use super::chain_f32;
use super::grid::Grid;
use super::number::{Number, Undefined, floor_modulo};
use super::source::{self, Source, select};
use super::truth;
use anabranch_cpu_base::convert;
use anabranch_cpu_base::math;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_op::dtype::DType;
use anabranch_op::narrowing::Narrowing;
use anabranch_op::op::{Binary, Literal, Unary};
use std::marker::PhantomData;

/// Function of one number, without branches, so that a loop over it is vectorised.
trait Function {
    fn at<I: Isa>(x: f32) -> f32;
}

/// Function of two numbers, without branches.
trait Function2 {
    fn at<I: Isa>(x: f32, y: f32) -> f32;
}

struct Each<'a, F>(Source<'a, f32>, &'a mut [f32], PhantomData<F>);

impl<F: Function> Loop for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self(a, out, _) = self;
        match a {
            Source::Slice(a) => {
                for (out, x) in out.iter_mut().zip(a) {
                    *out = F::at::<I>(*x);
                }
            }
            Source::Scalar(a) => out.fill(F::at::<I>(a)),
        }
    }
}

struct Pairs<'a, F>(Source<'a, f32>, Source<'a, f32>, &'a mut [f32], PhantomData<F>);

impl<F: Function2> Loop for Pairs<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self(a, b, out, _) = self;
        match (a, b) {
            (Source::Slice(a), Source::Slice(b)) => {
                for ((out, x), y) in out.iter_mut().zip(a).zip(b) {
                    *out = F::at::<I>(*x, *y);
                }
            }
            (Source::Slice(a), Source::Scalar(b)) => {
                for (out, x) in out.iter_mut().zip(a) {
                    *out = F::at::<I>(*x, b);
                }
            }
            (Source::Scalar(a), Source::Slice(b)) => {
                for (out, y) in out.iter_mut().zip(b) {
                    *out = F::at::<I>(a, *y);
                }
            }
            (Source::Scalar(a), Source::Scalar(b)) => out.fill(F::at::<I>(a, b)),
        }
    }
}

/// Replaces results by those of the standard library if an argument is too large for this crate's function.
fn correct_large(function: fn(f32) -> f32, a: Source<'_, f32>, out: &mut [f32]) {
    let is_large = |x: f32| x.abs() > math::LARGEST_REDUCED;
    let any = match a {
        Source::Slice(a) => a.iter().fold(false, |any, x| any | is_large(*x)),
        Source::Scalar(a) => is_large(a),
    };
    for (index, out) in out.iter_mut().enumerate().filter(|(index, _)| any && is_large(a.at(*index))) {
        *out = function(a.at(index));
    }
}

/// Defines a [`Function`] and runs it: `each!(a, out, |x| expression)`.
macro_rules! each {
    ($a:expr, $out:expr, |$x:ident| $body:expr) => {{
        struct This;
        impl Function for This {
            #[inline(always)]
            fn at<I: Isa>($x: f32) -> f32 {
                $body
            }
        }
        vectorised(Each::<This>($a, $out, PhantomData))
    }};
}

/// Defines a [`Function2`] and runs it: `pairs!(a, b, out, |x, y| expression)`.
macro_rules! pairs {
    ($a:expr, $b:expr, $out:expr, |$x:ident, $y:ident| $body:expr) => {{
        struct This;
        impl Function2 for This {
            #[inline(always)]
            fn at<I: Isa>($x: f32, $y: f32) -> f32 {
                $body
            }
        }
        vectorised(Pairs::<This>($a, $b, $out, PhantomData))
    }};
}

impl Number for f32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn is_infinite(self) -> bool {
        self.is_infinite()
    }

    fn literal(literal: Literal) -> Self {
        literal.as_f32()
    }

    fn unary(function: Unary, a: Source<'_, f32>, out: &mut [f32]) -> Result<(), Undefined> {
        match function {
            Unary::Negate => each!(a, out, |x| -x),
            Unary::Abs => each!(a, out, |x| x.abs()),
            Unary::Sign => each!(a, out, |x| if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }),
            Unary::Reciprocal => each!(a, out, |x| 1.0 / x),
            Unary::Sqrt => each!(a, out, |x| x.sqrt()),
            Unary::Exp => each!(a, out, |x| math::exp::<I>(x)),
            Unary::Log => each!(a, out, |x| math::log::<I>(x)),
            Unary::Sin => {
                each!(a, out, |x| math::sin::<I>(x));
                correct_large(f32::sin, a, out);
            }
            Unary::Cos => {
                each!(a, out, |x| math::cos::<I>(x));
                correct_large(f32::cos, a, out);
            }
            Unary::Tanh => each!(a, out, |x| math::tanh::<I>(x)),
            Unary::Sigmoid => each!(a, out, |x| math::sigmoid::<I>(x)),
            Unary::Erf => each!(a, out, |x| math::erf::<I>(x)),
            Unary::Relu => each!(a, out, |x| if x < 0.0 { 0.0 } else { x }),
            Unary::Floor => each!(a, out, |x| x.floor()),
            Unary::Ceil => each!(a, out, |x| x.ceil()),
            Unary::Round => each!(a, out, |x| x.round_ties_even()),
            Unary::Truncate => each!(a, out, |x| x.trunc()),
            Unary::Not | Unary::IsNan | Unary::IsInfinite => truth::unary(function, a, out),
            Unary::Tan => {
                each!(a, out, |x| math::tan::<I>(x));
                correct_large(f32::tan, a, out);
            }
            Unary::Asin => each!(a, out, |x| math::asin::<I>(x)),
            Unary::Acos => each!(a, out, |x| math::acos::<I>(x)),
            Unary::Atan => each!(a, out, |x| math::atan::<I>(x)),
            Unary::Sinh => each!(a, out, |x| math::sinh::<I>(x)),
            Unary::Cosh => each!(a, out, |x| math::cosh::<I>(x)),
            Unary::Asinh => each!(a, out, |x| math::asinh::<I>(x)),
            Unary::Acosh => each!(a, out, |x| math::acosh::<I>(x)),
            Unary::Atanh => each!(a, out, |x| math::atanh::<I>(x)),
            Unary::Narrowed(DType::F16) => each!(a, out, |x| Narrowing::F16.applied(x)),
            Unary::Narrowed(DType::BF16) => each!(a, out, |x| Narrowing::BF16.applied(x)),
            Unary::Narrowed(dtype) => match Narrowing::of(dtype) {
                Some(narrowing) => source::each(a, out, |x| narrowing.applied(x)),
                None => a.copy_to(out),
            },
        }
        Ok(())
    }

    fn binary(function: Binary, a: Source<'_, f32>, b: Source<'_, f32>, out: &mut [f32]) -> Result<(), Undefined> {
        match function {
            Binary::Add => pairs!(a, b, out, |x, y| x + y),
            Binary::Subtract => pairs!(a, b, out, |x, y| x - y),
            Binary::Multiply => pairs!(a, b, out, |x, y| x * y),
            Binary::Divide => pairs!(a, b, out, |x, y| x / y),
            // Returns `x` unless `y` is beyond it or NaN; a NaN in `x` makes both comparisons false.
            Binary::Min => pairs!(a, b, out, |x, y| if y < x || y.is_nan() { y } else { x }),
            Binary::Max => pairs!(a, b, out, |x, y| if y > x || y.is_nan() { y } else { x }),
            Binary::Power => power(a, b, out),
            Binary::FloorModulo => pairs!(a, b, out, |x, y| floor_modulo(x, y)),
            Binary::TruncatedModulo => pairs!(a, b, out, |x, y| x % y),
            // Preparing the kernel rejects these.
            Binary::BitAnd | Binary::BitOr | Binary::BitXor | Binary::ShiftLeft | Binary::ShiftRight => {
                out.fill(f32::NAN);
            }
            _ => truth::binary(function, a, b, out),
        }
        Ok(())
    }

    fn chain(chain: &Chain, a: Source<'_, f32>, b: Source<'_, f32>, out: &mut [f32]) {
        chain_f32::run(chain, a, b, out);
    }

    fn round_to(grid: &Grid, numbers: &[f32], input: impl Fn(usize) -> f32, out: &mut [u8]) {
        grid.round(numbers, input, out);
    }

    fn select(a: Source<'_, f32>, b: Source<'_, f32>, c: Source<'_, f32>, out: &mut [f32]) {
        vectorised(Choose(a, b, c, out));
    }

    fn load(dtype: DType, bytes: &[u8], out: &mut [f32]) {
        convert::to_f32(dtype, bytes, out);
    }

    fn store(values: &[f32], dtype: DType, bytes: &mut [u8]) {
        convert::from_f32(values, dtype, bytes);
    }
}

/// Computes powers. Small whole exponents, common in normalisations and polynomials, are products.
fn power(a: Source<'_, f32>, b: Source<'_, f32>, out: &mut [f32]) {
    match b {
        Source::Scalar(1.0) => a.copy_to(out),
        Source::Scalar(2.0) => each!(a, out, |x| x * x),
        Source::Scalar(3.0) => each!(a, out, |x| x * x * x),
        // Unlike the square root, the power ½ of −0 is 0 and that of −∞ is ∞.
        Source::Scalar(0.5) => each!(a, out, |x| if x == f32::NEG_INFINITY { f32::INFINITY } else { (x + 0.0).sqrt() }),
        _ => pairs!(a, b, out, |x, y| math::power::<I>(x, y)),
    }
}

struct Choose<'a>(Source<'a, f32>, Source<'a, f32>, Source<'a, f32>, &'a mut [f32]);

impl Loop for Choose<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        select(self.0, self.1, self.2, self.3, |condition| condition != 0.0);
    }
}
