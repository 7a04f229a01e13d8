//! One loop, compiled for several vector instruction sets; the best that the processor has is chosen when it runs.
//!
//! A [`Loop`] is plain code over slices that the compiler vectorises. It is instantiated inside functions that enable an
//! instruction set, so everything that it calls must be `#[inline(always)]`: what is not inlined would be compiled for
//! the baseline.

use std::sync::atomic::{AtomicU8, Ordering};

/// What a loop may assume of the instructions it is compiled to.
pub(crate) trait Isa {
    /// `a · b + c`, rounded once where the hardware can, else twice.
    fn fused(a: f32, b: f32, c: f32) -> f32;

    /// [`Self::fused`] of binary64 numbers.
    fn fused_f64(a: f64, b: f64, c: f64) -> f64;
}

/// Code to compile for each instruction set; captures its arguments.
pub(crate) trait Loop {
    /// What it returns.
    type Output;

    /// Runs the code. Implementations are `#[inline(always)]`.
    fn run<I: Isa>(self) -> Self::Output;
}

/// The hardware multiplies and adds in one instruction.
struct Fused;

impl Isa for Fused {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
}

/// It does not, and `mul_add` would be a library call.
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "all such processors have fused instructions"))]
struct Separate;

impl Isa for Separate {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
}

const UNKNOWN: u8 = 0;
const BASELINE: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;

static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Runs `body` compiled for this processor.
#[inline]
pub(crate) fn vectorised<L: Loop>(body: L) -> L::Output {
    // Relaxed: every thread that detects finds the same value, and nothing else is published with it.
    let level = match LEVEL.load(Ordering::Relaxed) {
        UNKNOWN => detect(),
        known => known,
    };
    run_at(level, body)
}

#[cold]
fn detect() -> u8 {
    let level = best();
    LEVEL.store(level, Ordering::Relaxed);
    level
}

#[cfg(target_arch = "x86_64")]
fn best() -> u8 {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => AVX512,
        (true, false) => AVX2,
        (false, _) => BASELINE,
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn run_at<L: Loop>(level: u8, body: L) -> L::Output {
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    fn avx512<L: Loop>(body: L) -> L::Output {
        body.run::<Fused>()
    }

    #[target_feature(enable = "avx2,fma")]
    fn avx2<L: Loop>(body: L) -> L::Output {
        body.run::<Fused>()
    }

    match level {
        // SAFETY: `best` gave this level, having found each of these features on the processor.
        AVX512 => unsafe { avx512(body) },
        // SAFETY: as above.
        AVX2 => unsafe { avx2(body) },
        _ => body.run::<Separate>(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> u8 {
    BASELINE
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn run_at<L: Loop>(_: u8, body: L) -> L::Output {
    #[cfg(target_arch = "aarch64")]
    return body.run::<Fused>();
    #[cfg(not(target_arch = "aarch64"))]
    return body.run::<Separate>();
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
            assert_eq!(run_at(level, Sum(&data)), 9900.0, "level {level}");
        }
        assert_eq!(vectorised(Sum(&data)), 9900.0);
    }
}
