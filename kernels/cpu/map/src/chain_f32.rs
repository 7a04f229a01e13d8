//! Vectorised loops that compute a [`Chain`] over `f32` elements.

use super::chain::{Chain, Join, Middle};
use super::source::Source;
use anabranch_cpu_base::math;
use anabranch_cpu_base::team::Tile;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use std::marker::PhantomData;

/// Function in the middle of a chain; `bounds` are those of a clamp, or begin with the slope of a leaky function.
trait Function {
    fn at<I: Isa>(x: f32, bounds: (f32, f32)) -> f32;
}

/// Operation that is generic over the function in the middle.
trait With {
    fn with<F: Function>(self);
}

fn function_of(chain: &Chain, then: impl With) {
    macro_rules! with {
        (|$x:ident, $bounds:pat_param| $body:expr) => {{
            struct This;
            impl Function for This {
                #[inline(always)]
                fn at<I: Isa>($x: f32, $bounds: (f32, f32)) -> f32 {
                    $body
                }
            }
            then.with::<This>()
        }};
    }
    match chain.middle {
        Middle::Identity => with!(|x, _| x),
        Middle::Clamp(..) => with!(|x, (lower, upper)| {
            let raised = if x < lower { lower } else { x };
            if raised > upper { upper } else { raised }
        }),
        Middle::Leaky(_) => with!(|x, (slope, _)| if x < 0.0 { x * slope } else { x }),
        Middle::Abs => with!(|x, _| x.abs()),
        Middle::Square => with!(|x, _| x * x),
        Middle::Cube => with!(|x, _| x * x * x),
        Middle::Exp => with!(|x, _| math::exp::<I>(x)),
        Middle::Sigmoid => with!(|x, _| math::sigmoid::<I>(x)),
        Middle::Tanh => with!(|x, _| math::tanh::<I>(x)),
        Middle::Erf => with!(|x, _| math::erf::<I>(x)),
    }
}

/// Computes the chain of `a` and `b` at each element.
pub(crate) fn run(chain: &Chain, a: Source<'_, f32>, b: Source<'_, f32>, out: &mut [f32]) {
    match a {
        Source::Slice(a) => function_of(chain, Beside { chain: *chain, a, b, out }),
        Source::Scalar(a) => run_scalar(chain, a, b, out),
    }
}

/// Replaces each element by the chain of it and itself.
pub(crate) fn run_in_place(chain: &Chain, tile: &mut Tile<'_, f32>) {
    function_of(chain, Within { chain: *chain, tile });
}

/// Computes a chain whose first operand is one value. Everything before the second operand is then one value too.
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

struct Beside<'a> {
    chain: Chain,
    a: &'a [f32],
    b: Source<'a, f32>,
    out: &'a mut [f32],
}

impl With for Beside<'_> {
    fn with<F: Function>(self) {
        let Self { chain, a, b, out } = self;
        let alone = |times: f32, plus: f32, out| Alone::<F> { chain, a, times, plus, out, function: PhantomData };
        match (chain.join, b) {
            (Join::Times, Source::Slice(b)) => {
                vectorised(Joined::<F, true> { chain, a, b, out, function: PhantomData })
            }
            (Join::Plus, Source::Slice(b)) => {
                vectorised(Joined::<F, false> { chain, a, b, out, function: PhantomData })
            }
            (Join::Times, Source::Scalar(times)) => vectorised(alone(times, -0.0, out)),
            (Join::Plus, Source::Scalar(plus)) => vectorised(alone(1.0, plus, out)),
            (Join::Nothing, _) => vectorised(alone(1.0, -0.0, out)),
        }
    }
}

struct Within<'a, 'b> {
    chain: Chain,
    tile: &'a mut Tile<'b, f32>,
}

impl With for Within<'_, '_> {
    fn with<F: Function>(self) {
        // Steps that change nothing would take as long as the function itself.
        if self.chain.is_plain() { self.joined::<F, true>() } else { self.joined::<F, false>() }
    }
}

impl Within<'_, '_> {
    fn joined<F: Function, const PLAIN: bool>(self) {
        let Self { chain, tile } = self;
        match chain.join {
            Join::Times => vectorised(Replaced::<F, PLAIN, true, false> { chain, tile, function: PhantomData }),
            Join::Plus => vectorised(Replaced::<F, PLAIN, false, true> { chain, tile, function: PhantomData }),
            Join::Nothing => vectorised(Replaced::<F, PLAIN, false, false> { chain, tile, function: PhantomData }),
        }
    }
}

/// Returns the chain up to the second operand.
#[inline(always)]
fn before_join<F: Function, I: Isa>(chain: &Chain, x: f32) -> f32 {
    middle::<F, I>(chain, x * chain.scale + chain.shift) * chain.factor + chain.offset
}

/// Returns the function in the middle.
#[inline(always)]
fn middle<F: Function, I: Isa>(chain: &Chain, x: f32) -> f32 {
    let bounds = match chain.middle {
        Middle::Clamp(lower, upper) => (lower, upper),
        Middle::Leaky(slope) => (slope, 0.0),
        _ => (0.0, 0.0),
    };
    F::at::<I>(x, bounds)
}

/// Loop of a chain with a second operand, which multiplies the chain (`TIMES`) or is added to it.
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

/// Loop of a chain without a second operand, or with the same operand everywhere.
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

/// Elements of a step; the compiler would compute the elements of smaller steps one by one.
const STEP: usize = 2 * LANES;

/// Loop that replaces each element by its chain. The element also multiplies the chain (`TIMES`) or is added to it
/// (`PLUS`). If `PLAIN`, the chain is only its function.
struct Replaced<'a, 'b, F, const PLAIN: bool, const TIMES: bool, const PLUS: bool> {
    chain: Chain,
    tile: &'a mut Tile<'b, f32>,
    function: PhantomData<F>,
}

impl<F: Function, const PLAIN: bool, const TIMES: bool, const PLUS: bool> Loop
    for Replaced<'_, '_, F, PLAIN, TIMES, PLUS>
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        for row in 0..self.tile.rows.len() {
            self.row::<I>(row);
        }
    }
}

impl<F: Function, const PLAIN: bool, const TIMES: bool, const PLUS: bool> Replaced<'_, '_, F, PLAIN, TIMES, PLUS> {
    #[inline(always)]
    fn row<I: Isa>(&mut self, row: usize) {
        let chain = self.chain;
        let (steps, rest) = self.tile.row(row).as_chunks_mut::<STEP>();
        for step in steps {
            Self::replace::<I>(&chain, step);
        }
        if !rest.is_empty() {
            // Rows may be so short that copies of variable length would take longer than the steps.
            let (low, high) = rest.split_at_mut(rest.len().min(LANES));
            let mut step = [0.0; STEP];
            let [first, second] = step.as_chunks_mut().0 else { unreachable!("a step is two vectors") };
            I::store(I::load_part(low, I::splat(0.0)), first);
            I::store(I::load_part(high, I::splat(0.0)), second);
            Self::replace::<I>(&chain, &mut step);
            let [first, second] = step.as_chunks().0 else { unreachable!("a step is two vectors") };
            I::store_part(I::load(first), low);
            I::store_part(I::load(second), high);
        }
    }

    #[inline(always)]
    fn replace<I: Isa>(chain: &Chain, step: &mut [f32; STEP]) {
        for x in step {
            let value = if PLAIN { middle::<F, I>(chain, *x) } else { before_join::<F, I>(chain, *x) };
            let value = if TIMES { value * *x } else { value };
            let value = if PLUS { value + *x } else { value };
            *x = if PLAIN { value } else { value * chain.last };
        }
    }
}
