//! Micro-kernel for AVX2 with FMA: blocks of up to 6 × 16 in 12 of the 16 vector registers.

use super::block::{Blocks, compute};
use super::micro::MicroKernel;
use super::simd::Simd;
use crate::vector::store_first;
use std::arch::x86_64::*;

pub(super) static KERNEL: MicroKernel =
    MicroKernel { name: "AVX2", rows: 6, columns: 16, lanes: 8, chains: &CHAINS, run };

/// Chains of sums for each number of rows. Few rows need several; otherwise every multiply-add would wait for the last
/// one.
const CHAINS: [usize; 6] = [4, 2, 2, 1, 1, 1];

struct Avx2;

/// Mask of the first lanes of a vector.
#[derive(Clone, Copy)]
struct First {
    count: usize,
    mask: __m256i,
}

impl Simd for Avx2 {
    type Vector = __m256;
    type Mask = First;

    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> First {
        // SAFETY: the caller's promise, as in all functions below.
        unsafe {
            let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            First { count: lanes, mask: _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes as i32), numbers) }
        }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: First) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_maskload_ps(from, mask.mask) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: __m256) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, mask: First, vector: __m256) {
        // SAFETY: as above.
        unsafe { store_first(to, mask.count, vector) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn clamp(value: __m256, least: __m256, greatest: __m256) -> __m256 {
        // SAFETY: as above. If one of two operands is NaN, both instructions return the second.
        unsafe { _mm256_min_ps(greatest, _mm256_max_ps(least, value)) }
    }

    #[inline(always)]
    unsafe fn prefetch(address: *const f32) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }

    #[inline(always)]
    unsafe fn prefetch_far(address: *const f32) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
}

/// # Safety
/// The promises of [`MicroKernel::run`]; the processor has AVX2 and FMA.
unsafe fn run(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match (blocks.columns.div_ceil(Avx2::LANES), blocks.whole) {
            (1, true) => by_rows::<1, true>(blocks),
            (1, false) => by_rows::<1, false>(blocks),
            (_, true) => by_rows::<2, true>(blocks),
            (_, false) => by_rows::<2, false>(blocks),
        }
    }
}

/// # Safety
/// The promises of [`run`].
unsafe fn by_rows<const VECTORS: usize, const WHOLE: bool>(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match blocks.rows {
            1 => on_avx2::<1, VECTORS, { CHAINS[0] }, WHOLE>(blocks),
            2 => on_avx2::<2, VECTORS, { CHAINS[1] }, WHOLE>(blocks),
            3 => on_avx2::<3, VECTORS, { CHAINS[2] }, WHOLE>(blocks),
            4 => on_avx2::<4, VECTORS, { CHAINS[3] }, WHOLE>(blocks),
            5 => on_avx2::<5, VECTORS, { CHAINS[4] }, WHOLE>(blocks),
            _ => on_avx2::<6, VECTORS, { CHAINS[5] }, WHOLE>(blocks),
        }
    }
}

/// # Safety
/// The promises of [`compute`].
#[target_feature(enable = "avx2,fma")]
unsafe fn on_avx2<const ROWS: usize, const VECTORS: usize, const CHAINS: usize, const WHOLE: bool>(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe { compute::<Avx2, ROWS, VECTORS, CHAINS, WHOLE>(blocks) }
}
