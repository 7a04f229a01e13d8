//! Loops compiled for several vector instruction sets; the best set of the processor is chosen at run time.
//!
//! A [`Loop`] is plain code over slices that the compiler vectorises. It is instantiated inside functions that enable
//! an instruction set, so everything that it calls must be `#[inline(always)]`. A function that is not inlined would be
//! compiled for the baseline.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use x86::store_first;

use std::sync::atomic::{AtomicU8, Ordering};

/// Number of elements of an [`Isa::Vector`], the same for all processors.
pub const LANES: usize = 16;

/// Instructions that a loop may use. All functions are inlined always.
///
/// # Safety
/// The processor has the instructions where a loop runs with them, and [`Self::WIDE`] is as documented.
pub unsafe trait Isa {
    /// Vector of [`LANES`] numbers.
    type Vector: Copy;

    /// Four unsigned bytes for each of [`LANES`] columns.
    type Quads: Copy;

    /// Sums of integers for each of [`LANES`] columns: two of 16 bits, or one of 32 bits.
    type Sums: Copy;

    /// Whether there are 32 registers of a whole vector each, instead of 16 of half a vector. On x86-64 these are the
    /// registers of AVX-512, with its instructions F, BW, DQ and VL.
    const WIDE: bool;

    /// Calls of [`Self::add_quads`] with bytes of at most 15 after which no sum has wrapped.
    const QUADS: usize;

    /// Returns `a · b + c`, rounded once if the hardware can, else twice.
    fn fused(a: f32, b: f32, c: f32) -> f32;

    /// Returns [`Self::fused`] of binary64 numbers.
    fn fused_f64(a: f64, b: f64, c: f64) -> f64;

    /// Returns a vector with `value` in each lane.
    fn splat(value: f32) -> Self::Vector;

    /// Loads numbers in their order.
    fn load(from: &[f32; LANES]) -> Self::Vector;

    /// Loads the first lanes from `from`, as many as it has; the remaining lanes are those of `beyond`.
    fn load_part(from: &[f32], beyond: Self::Vector) -> Self::Vector;

    /// Stores all lanes, the inverse of [`Self::load`].
    fn store(vector: Self::Vector, to: &mut [f32; LANES]);

    /// Stores the first lanes, as many as fit into `to`.
    fn store_part(vector: Self::Vector, to: &mut [f32]);

    /// Returns [`Self::fused`] in each lane.
    fn fused_lanes(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// Returns `a + b` in each lane.
    fn sum(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns `a / b` in each lane.
    fn quotient(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the greater in each lane; `b` if either is NaN.
    fn greater(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the lesser in each lane; `b` if either is NaN.
    fn lesser(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns lanes 0, 2, … of the 32 lanes of both.
    fn even(low: Self::Vector, high: Self::Vector) -> Self::Vector;

    /// Returns lanes 1, 3, … of the 32 lanes of both.
    fn odd(low: Self::Vector, high: Self::Vector) -> Self::Vector;

    /// Returns lanes 1, 2, … and then `last`.
    fn shifted(vector: Self::Vector, last: f32) -> Self::Vector;

    /// Returns the number in `BITS` bits of each byte, from bit `SHIFT` on, plus `shift`.
    fn bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], shift: Self::Vector) -> Self::Vector;

    /// Returns [`Self::bits`] with a shift of −2^(`BITS` − 1).
    fn centred_bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES]) -> Self::Vector;

    /// Converts IEEE 754 binary16 numbers.
    fn halves(from: &[u8; 2 * LANES]) -> Self::Vector;

    /// Converts to the nearest IEEE 754 binary16 numbers, the inverse of [`Self::halves`].
    fn to_halves(vector: Self::Vector, to: &mut [u8; 2 * LANES]);

    /// Converts upper halves of binary32 numbers.
    fn upper_halves(from: &[u8; 2 * LANES]) -> Self::Vector;

    /// Returns the lower and the upper four bits of each byte.
    fn nibbles(from: &[u8; 4 * LANES]) -> [Self::Quads; 2];

    /// Adds to the sums of each column the products of its four bytes, which are at most 127, with these numbers. Sums
    /// wrap.
    fn add_quads(sums: Self::Sums, bytes: Self::Quads, by: [i8; 4]) -> Self::Sums;

    /// Returns sums of zero.
    fn no_sums() -> Self::Sums;

    /// Returns the sum of each column.
    fn joined_sums(sums: Self::Sums) -> Self::Vector;

    /// Prefetches the cache line of any address into the L1 cache, if the processor can.
    fn prefetch(address: *const f32);
}

/// Joins all lanes into one: neighbours first, then neighbours of the results, and so on. Inlined always, as `join`
/// must be.
#[inline(always)]
pub fn joined<I: Isa>(mut vector: I::Vector, join: impl Fn(I::Vector, I::Vector) -> I::Vector) -> f32 {
    for _ in 0..LANES.ilog2() {
        vector = join(I::even(vector, vector), I::odd(vector, vector));
    }
    let mut lanes = [0.0; LANES];
    I::store(vector, &mut lanes);
    lanes[0]
}

/// Code to compile for each instruction set; it captures its arguments.
pub trait Loop {
    /// Result of the code.
    type Output;

    /// Runs the code. Implementations are `#[inline(always)]`.
    fn run<I: Isa>(self) -> Self::Output;
}

const UNKNOWN: u8 = 0;
const BASELINE: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;
const AVX512_DOTS: u8 = 4;

static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Runs `body`, compiled for this processor.
// Always inlined: a call would copy the body, parts of which have only just been written, and the processor would
// stall.
#[inline(always)]
pub fn vectorised<L: Loop>(body: L) -> L::Output {
    run_at(level(), body)
}

/// Runs `body` like [`vectorised`], also compiled for processors with dot products of four bytes: for loops that
/// multiply integers.
#[inline(always)]
pub fn vectorised_with_dots<L: Loop>(body: L) -> L::Output {
    run_with_dots_at(level(), body)
}

/// Returns the instruction set of this processor.
#[inline(always)]
fn level() -> u8 {
    // Relaxed: every thread that detects finds the same value, and nothing else is published with it.
    match LEVEL.load(Ordering::Relaxed) {
        UNKNOWN => detect(),
        known => known,
    }
}

/// Returns the instruction sets up to this processor's, for [`vectorised_at`].
#[doc(hidden)]
pub fn levels() -> std::ops::RangeInclusive<u8> {
    BASELINE..=best()
}

/// Runs `body`, compiled for one of [`levels`].
#[doc(hidden)]
pub fn vectorised_at<L: Loop>(level: u8, body: L) -> L::Output {
    assert!(levels().contains(&level), "level {level} of an instruction set that this processor does not have");
    run_with_dots_at(level, body)
}

#[cold]
fn detect() -> u8 {
    let level = best();
    LEVEL.store(level, Ordering::Relaxed);
    level
}

#[cfg(target_arch = "x86_64")]
fn best() -> u8 {
    use super::features::has;
    match (has!("avx2", "fma", "f16c"), has!("avx512f", "avx512bw", "avx512dq", "avx512vl"), has!("avx512vnni")) {
        (true, true, true) => AVX512_DOTS,
        (true, true, false) => AVX512,
        (true, false, _) => AVX2,
        (false, ..) => BASELINE,
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn run_with_dots_at<L: Loop>(level: u8, body: L) -> L::Output {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn with_dots<L: Loop>(body: L) -> L::Output {
        body.run::<x86::Avx512<true>>()
    }

    match level {
        // SAFETY: `best` returned this level because it found each of these features on the processor.
        AVX512_DOTS => unsafe { with_dots(body) },
        level => run_at(level, body),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn run_at<L: Loop>(level: u8, body: L) -> L::Output {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    fn avx512<L: Loop>(body: L) -> L::Output {
        body.run::<x86::Avx512<false>>()
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2<L: Loop>(body: L) -> L::Output {
        body.run::<x86::Avx2>()
    }

    match level {
        // SAFETY: `best` returned this level because it found each of these features on the processor.
        AVX512 | AVX512_DOTS => unsafe { avx512(body) },
        // SAFETY: as above.
        AVX2 => unsafe { avx2(body) },
        _ => body.run::<portable::Separate>(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> u8 {
    BASELINE
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn run_with_dots_at<L: Loop>(level: u8, body: L) -> L::Output {
    run_at(level, body)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn run_at<L: Loop>(_: u8, body: L) -> L::Output {
    #[cfg(target_arch = "aarch64")]
    return body.run::<portable::Fused>();
    #[cfg(not(target_arch = "aarch64"))]
    return body.run::<portable::Separate>();
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum<'a>(&'a [f32]);

    impl Loop for Sum<'_> {
        type Output = f32;

        #[inline(always)]
        fn run<I: Isa>(self) -> f32 {
            self.0.iter().fold(0.0, |sum, x| I::fused(*x, 2.0, sum))
        }
    }

    #[test]
    fn every_level_up_to_the_processors_computes_the_same() {
        let data: Vec<f32> = (0..100u8).map(f32::from).collect();
        for level in BASELINE..=best() {
            assert_eq!(vectorised_at(level, Sum(&data)), 9900.0, "level {level}");
        }
        assert_eq!(vectorised(Sum(&data)), 9900.0);
    }

    /// Test of each function on vectors, with parts of every length.
    struct Lanes([f32; LANES], [f32; LANES], usize);

    impl Loop for Lanes {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<I: Isa>(self) -> Vec<f32> {
            let Self(a, b, count) = self;
            let (x, y) = (I::load(&a), I::load(&b));
            let two = I::splat(2.0);
            let part = I::load_part(&a[..count], two);
            let mut made = Vec::new();
            let joined =
                [I::fused_lanes(x, two, y), I::sum(x, y), I::quotient(x, y), I::greater(x, y), I::lesser(x, y)];
            let moved = [I::even(x, y), I::odd(x, y), I::shifted(x, b[0])];
            for vector in [part].into_iter().chain(joined).chain(moved) {
                let mut lanes = [0.0; LANES];
                I::store(vector, &mut lanes);
                made.extend(lanes);
            }
            let mut stored = [-1.0; LANES];
            I::store_part(x, &mut stored[..count]);
            made.extend(stored);
            made
        }
    }

    #[test]
    fn vectors_of_every_level_are_those_of_the_definition() {
        let a: [f32; LANES] = std::array::from_fn(|i| (i * 7 % 16) as f32);
        let mut b: [f32; LANES] = std::array::from_fn(|i| (i * 5 % 16) as f32);
        b[3] = f32::NAN;
        for (level, count) in (BASELINE..=best()).flat_map(|level| (0..=LANES).map(move |count| (level, count))) {
            let made = vectorised_at(level, Lanes(a, b, count));
            let both = [a, b].concat();
            let want: [&dyn Fn(usize) -> f32; 10] = [
                &|i| if i < count { a[i] } else { 2.0 },
                &|i| a[i] * 2.0 + b[i],
                &|i| a[i] + b[i],
                &|i| a[i] / b[i],
                &|i| if a[i] > b[i] { a[i] } else { b[i] },
                &|i| if a[i] < b[i] { a[i] } else { b[i] },
                &|i| both[2 * i],
                &|i| both[2 * i + 1],
                &|i| both[i + 1],
                &|i| if i < count { a[i] } else { -1.0 },
            ];
            for (at, made) in made.iter().enumerate() {
                let want = want[at / LANES](at % LANES);
                assert!(
                    *made == want || made.is_nan() && want.is_nan(),
                    "level {level}, {count}, at {at}: {made} {want}"
                );
            }
        }
    }
}
