//! Micro-kernel for any processor: blocks of up to 6 × 8, which the compiler turns into the vectors of the processor.

use super::block::{Blocks, compute};
use super::micro::MicroKernel;
use super::simd::Simd;
use std::array::from_fn;

pub(super) static KERNEL: MicroKernel =
    MicroKernel { name: "portable", rows: 6, columns: LANES, lanes: LANES, chains: &[1; 6], run };

const LANES: usize = 8;

struct Portable;

impl Simd for Portable {
    type Vector = [f32; LANES];
    /// Number of selected lanes.
    type Mask = usize;

    const LANES: usize = LANES;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> usize {
        lanes
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; LANES] {
        // SAFETY: the caller's promise, as in all functions below.
        unsafe { from.cast::<[f32; LANES]>().read() }
    }

    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: usize) -> [f32; LANES] {
        let mut vector = [0.0; LANES];
        // SAFETY: as above; a mask has at most all lanes.
        unsafe { std::ptr::copy_nonoverlapping(from, vector.as_mut_ptr(), mask) };
        vector
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: [f32; LANES]) {
        // SAFETY: as above.
        unsafe { to.cast::<[f32; LANES]>().write(vector) };
    }

    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, mask: usize, vector: [f32; LANES]) {
        if mask == LANES {
            // SAFETY: as above.
            return unsafe { Self::store(to, vector) };
        }
        // SAFETY: as above; a mask has at most all lanes.
        unsafe { std::ptr::copy_nonoverlapping(vector.as_ptr(), to, mask) };
    }

    #[inline(always)]
    unsafe fn add(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        from_fn(
            #[inline(always)]
            |i| a[i] + b[i],
        )
    }

    #[inline(always)]
    unsafe fn multiply(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        from_fn(
            #[inline(always)]
            |i| a[i] * b[i],
        )
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        // A single instruction if every processor of the architecture has it; else `mul_add` would be a call.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            from_fn(
                #[inline(always)]
                |i| a[i].mul_add(b[i], c[i]),
            )
        } else {
            from_fn(
                #[inline(always)]
                |i| a[i] * b[i] + c[i],
            )
        }
    }

    #[inline(always)]
    unsafe fn clamp(value: [f32; LANES], least: [f32; LANES], greatest: [f32; LANES]) -> [f32; LANES] {
        from_fn(
            #[inline(always)]
            |i| {
                let raised = if value[i] < least[i] { least[i] } else { value[i] };
                if raised > greatest[i] { greatest[i] } else { raised }
            },
        )
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    #[inline(always)]
    unsafe fn prefetch_far(_: *const f32) {}
}

/// # Safety
/// The promises of [`MicroKernel::run`].
unsafe fn run(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match blocks.whole {
            true => by_rows::<true>(blocks),
            false => by_rows::<false>(blocks),
        }
    }
}

/// # Safety
/// The promises of [`run`].
unsafe fn by_rows<const WHOLE: bool>(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match blocks.rows {
            1 => compute::<Portable, 1, 1, 1, WHOLE>(blocks),
            2 => compute::<Portable, 2, 1, 1, WHOLE>(blocks),
            3 => compute::<Portable, 3, 1, 1, WHOLE>(blocks),
            4 => compute::<Portable, 4, 1, 1, WHOLE>(blocks),
            5 => compute::<Portable, 5, 1, 1, WHOLE>(blocks),
            _ => compute::<Portable, 6, 1, 1, WHOLE>(blocks),
        }
    }
}
