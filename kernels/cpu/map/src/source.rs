//! Operand of a vectorised loop: a slice, or one value for all elements.

use super::code::Comparison;
use super::number::Number;
use anabranch_cpu_base::convert::Each;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_op::op::Binary;
use std::ops::Range;

/// Values of an operand over a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a, T> {
    /// One value per element.
    Slice(&'a [T]),
    /// One value for all elements.
    Scalar(T),
}

impl<T: Copy> Source<'_, T> {
    /// Returns the values for a part of the block.
    #[inline(always)]
    pub(crate) fn part(self, part: &Range<usize>) -> Self {
        match self {
            Self::Slice(slice) => Self::Slice(&slice[part.clone()]),
            scalar => scalar,
        }
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> T {
        match self {
            Self::Slice(slice) => slice[index],
            Self::Scalar(value) => *value,
        }
    }

    pub(crate) fn copy_to(self, out: &mut [T]) {
        match self {
            Self::Slice(slice) => out.copy_from_slice(slice),
            Self::Scalar(value) => out.fill(value),
        }
    }
}

/// Computes `out[i] = function(a[i])`.
pub(crate) fn each<A: Copy, B: Copy>(a: Source<'_, A>, out: &mut [B], function: impl Fn(A) -> B) {
    match a {
        Source::Slice(values) => vectorised(Each { values, out, function }),
        Source::Scalar(a) => out.fill(function(a)),
    }
}

/// Computes `out[i] = function(a[i], b[i])`.
pub(crate) fn pairs<A: Copy, B: Copy>(a: Source<'_, A>, b: Source<'_, A>, out: &mut [B], function: impl Fn(A, A) -> B) {
    match (a, b) {
        (Source::Slice(a), Source::Slice(b)) => vectorised(Pairs { a, b, out, function }),
        (Source::Slice(a), Source::Scalar(b)) => each(Source::Slice(a), out, |a| function(a, b)),
        (Source::Scalar(a), b) => each(b, out, |b| function(a, b)),
    }
}

struct Pairs<'a, A, B, F> {
    a: &'a [A],
    b: &'a [A],
    out: &'a mut [B],
    function: F,
}

impl<A: Copy, B, F: Fn(A, A) -> B> Loop for Pairs<'_, A, B, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        self.out.iter_mut().zip(self.a).zip(self.b).for_each(|((out, a), b)| *out = (self.function)(*a, *b));
    }
}

/// Computes `out[i] = b[i]` if `holds(a[i])`, else `c[i]`.
#[inline(always)]
pub(crate) fn select<T: Copy>(
    a: Source<'_, T>,
    b: Source<'_, T>,
    c: Source<'_, T>,
    out: &mut [T],
    holds: impl Fn(T) -> bool,
) {
    let a = match a {
        Source::Slice(a) => a,
        Source::Scalar(a) => return if holds(a) { b } else { c }.copy_to(out),
    };
    // Slices as long as the result need no check of an index, so that both values are read, and the loop has no branch.
    let (a, count) = (&a[..out.len()], out.len());
    match (b, c) {
        (Source::Slice(b), Source::Slice(c)) => {
            let (b, c) = (&b[..count], &c[..count]);
            chosen(a, |i| b[i], |i| c[i], out, holds);
        }
        (Source::Slice(b), Source::Scalar(c)) => {
            let b = &b[..count];
            chosen(a, |i| b[i], |_| c, out, holds);
        }
        (Source::Scalar(b), Source::Slice(c)) => {
            let c = &c[..count];
            chosen(a, |_| b, |i| c[i], out, holds);
        }
        (Source::Scalar(b), Source::Scalar(c)) => chosen(a, |_| b, |_| c, out, holds),
    }
}

/// Computes `out[i] = b[i]` if the comparison of `a[i]` holds, else `c[i]`.
pub(crate) fn choose<T: Number>(
    comparison: Comparison<T>,
    a: Source<'_, T>,
    b: Source<'_, T>,
    c: Source<'_, T>,
    out: &mut [T],
) {
    vectorised(Choose { comparison, a, b, c, out });
}

struct Choose<'a, T> {
    comparison: Comparison<T>,
    a: Source<'a, T>,
    b: Source<'a, T>,
    c: Source<'a, T>,
    out: &'a mut [T],
}

impl<T: Number> Loop for Choose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { comparison: Comparison { function, with }, a, b, c, out } = self;
        match function {
            Binary::Less => select(a, b, c, out, |x| x < with),
            Binary::LessOrEqual => select(a, b, c, out, |x| x <= with),
            Binary::Greater => select(a, b, c, out, |x| x > with),
            Binary::GreaterOrEqual => select(a, b, c, out, |x| x >= with),
            _ => select(a, b, c, out, |x| x == with),
        }
    }
}

#[inline(always)]
fn chosen<T: Copy>(a: &[T], b: impl Fn(usize) -> T, c: impl Fn(usize) -> T, out: &mut [T], holds: impl Fn(T) -> bool) {
    for index in 0..out.len() {
        let (b, c) = (b(index), c(index));
        out[index] = if holds(a[index]) { b } else { c };
    }
}
