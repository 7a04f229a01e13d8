//! The loops of chains.

use super::chain::{Chain, Join, Middle};
use super::source::Source;
use crate::cpu::math;
use crate::cpu::vector::{Isa, Loop, vectorised};
use std::marker::PhantomData;

/// The function in the middle; `bounds` are those of a clamp.
trait Function {
    fn at<I: Isa>(x: f32, bounds: (f32, f32)) -> f32;
}

/// Computes the chain of `a` and `b` at each element.
pub(crate) fn run(chain: &Chain, a: Source<'_, f32>, b: Source<'_, f32>, out: &mut [f32]) {
    let a = match a {
        Source::Slice(a) => a,
        Source::Scalar(a) => return run_scalar(chain, a, b, out),
    };
    macro_rules! with {
        (|$x:ident, $bounds:pat_param| $body:expr) => {{
            struct This;
            impl Function for This {
                #[inline(always)]
                fn at<I: Isa>($x: f32, $bounds: (f32, f32)) -> f32 {
                    $body
                }
            }
            joined::<This>(chain, a, b, out)
        }};
    }
    match chain.middle {
        Middle::Identity => with!(|x, _| x),
        Middle::Clamp(..) => with!(|x, (lower, upper)| {
            let raised = if x < lower { lower } else { x };
            if raised > upper { upper } else { raised }
        }),
        Middle::Exp => with!(|x, _| math::exp::<I>(x)),
        Middle::Sigmoid => with!(|x, _| math::sigmoid::<I>(x)),
        Middle::Tanh => with!(|x, _| math::tanh::<I>(x)),
        Middle::Erf => with!(|x, _| math::erf::<I>(x)),
    }
}

/// A chain whose first operand is one value: so is all of it before the second operand enters.
fn run_scalar(chain: &Chain, a: f32, b: Source<'_, f32>, out: &mut [f32]) {
    let mut value = [0.0];
    match (chain.join, b) {
        (Join::Times | Join::Plus, Source::Slice(b)) => {
            run(
                &Chain { join: Join::Nothing, last: 1.0, ..*chain },
                Source::Slice(&[a]),
                Source::Scalar(a),
                &mut value,
            );
            let rest = Chain { join: chain.join, last: chain.last, ..Chain::EMPTY };
            run(&rest, Source::Slice(b), Source::Scalar(value[0]), out);
        }
        _ => {
            run(chain, Source::Slice(&[a]), b, &mut value);
            out.fill(value[0]);
        }
    }
}

fn joined<F: Function>(chain: &Chain, a: &[f32], b: Source<'_, f32>, out: &mut [f32]) {
    let chain = *chain;
    match (chain.join, b) {
        (Join::Times, Source::Slice(b)) => vectorised(Joined::<F, true> { chain, a, b, out, function: PhantomData }),
        (Join::Plus, Source::Slice(b)) => vectorised(Joined::<F, false> { chain, a, b, out, function: PhantomData }),
        (Join::Times, Source::Scalar(times)) => {
            vectorised(Alone::<F> { chain, a, times, plus: -0.0, out, function: PhantomData });
        }
        (Join::Plus, Source::Scalar(plus)) => {
            vectorised(Alone::<F> { chain, a, times: 1.0, plus, out, function: PhantomData });
        }
        (Join::Nothing, _) => {
            vectorised(Alone::<F> { chain, a, times: 1.0, plus: -0.0, out, function: PhantomData });
        }
    }
}

/// The chain up to the second operand.
#[inline(always)]
fn before_join<F: Function, I: Isa>(chain: &Chain, x: f32) -> f32 {
    let bounds = match chain.middle {
        Middle::Clamp(lower, upper) => (lower, upper),
        _ => (0.0, 0.0),
    };
    F::at::<I>(x * chain.scale + chain.shift, bounds) * chain.factor + chain.offset
}

/// With a second operand, by which the chain is multiplied (`TIMES`) or to which it is added.
struct Joined<'a, F, const TIMES: bool> {
    chain: Chain,
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
    function: PhantomData<F>,
}

impl<F: Function, const TIMES: bool> Loop for Joined<'_, F, TIMES> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for ((out, x), y) in self.out.iter_mut().zip(self.a).zip(self.b) {
            let before = before_join::<F, I>(&self.chain, *x);
            let joined = if TIMES { before * *y } else { before + *y };
            *out = joined * self.chain.last;
        }
    }
}

/// Without a second operand, or with one that is the same everywhere.
struct Alone<'a, F> {
    chain: Chain,
    a: &'a [f32],
    times: f32,
    plus: f32,
    out: &'a mut [f32],
    function: PhantomData<F>,
}

impl<F: Function> Loop for Alone<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (out, x) in self.out.iter_mut().zip(self.a) {
            *out = (before_join::<F, I>(&self.chain, *x) * self.times + self.plus) * self.chain.last;
        }
    }
}
