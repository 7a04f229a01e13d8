//! Number types in which expressions are computed: one implementation of every function for each domain.

use super::chain::Chain;
use super::grid::Grid;
use super::source::Source;
use anabranch_op::dtype::DType;
use anabranch_op::op::{Binary, Literal, Unary};
use bytemuck::Pod;
use std::fmt;
use std::ops::{Add, Rem};

/// Error of a function that is undefined for an element's value; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undefined(pub(crate) &'static str);

/// Type of a [`Domain`](anabranch_op::op::Domain)'s registers.
///
/// The functions over blocks write every element of `out`; slices among the sources have its length.
pub(crate) trait Number: Pod + PartialOrd + From<bool> + fmt::Debug + Send + Sync {
    /// Tensor type whose elements are this type.
    const DTYPE: DType;

    /// Whether elements of `dtype` have the bits of the numbers to which they are converted.
    fn reads(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }

    /// Whether numbers have the bits of the elements of `dtype` to which they are converted.
    fn writes(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }

    /// Whether the number is an infinity.
    fn is_infinite(self) -> bool {
        false
    }

    /// Returns why a function does not exist in the domain, if it does not.
    fn missing(_function: Unary) -> Option<&'static str> {
        None
    }

    fn literal(literal: Literal) -> Self;

    /// Computes a function of one operand at each element.
    fn unary(function: Unary, a: Source<'_, Self>, out: &mut [Self]) -> Result<(), Undefined>;

    /// Computes a function of two operands at each element.
    fn binary(function: Binary, a: Source<'_, Self>, b: Source<'_, Self>, out: &mut [Self]) -> Result<(), Undefined>;

    /// Computes a chain at each element. Only code in 32-bit floats has chains.
    fn chain(_: &Chain, _: Source<'_, Self>, _: Source<'_, Self>, _: &mut [Self]) {
        unreachable!("the compiler makes chains of 32-bit floats only");
    }

    /// Rounds numbers to a grid of bytes. Only 32-bit floats are.
    fn round_to(_: &Grid, _: &[Self], _input: impl Fn(usize) -> Self, _: &mut [u8]) {
        unreachable!("only expressions in 32-bit floats have a grid");
    }

    /// Selects `b` if `a` is not 0, else `c`, at each element.
    fn select(a: Source<'_, Self>, b: Source<'_, Self>, c: Source<'_, Self>, out: &mut [Self]);

    /// Converts elements of `dtype`.
    fn load(dtype: DType, bytes: &[u8], out: &mut [Self]);

    /// Converts numbers to elements of `dtype`.
    fn store(values: &[Self], dtype: DType, bytes: &mut [u8]);
}

/// Returns the remainder with the sign of the divisor.
#[inline(always)]
pub(crate) fn floor_modulo<T: Copy + Default + PartialOrd + Rem<Output = T> + Add<Output = T>>(x: T, y: T) -> T {
    let (remainder, zero) = (x % y, T::default());
    if remainder != zero && (remainder < zero) != (y < zero) { remainder + y } else { remainder }
}
