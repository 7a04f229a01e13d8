//! Micro-kernel for AVX-512: blocks of up to 8 × 48 in 24 of the 32 vector registers.

use super::block::{Blocks, compute};
use super::few_columns;
use super::micro::MicroKernel;
use super::simd::Simd;
use std::arch::x86_64::*;

pub(super) static KERNEL: MicroKernel =
    MicroKernel { name: "AVX-512", rows: 8, columns: 48, lanes: 16, chains: &CHAINS, run };

/// Chains of sums for each number of rows. Few rows need several; otherwise every multiply-add would wait for the last
/// one.
const CHAINS: [usize; 8] = [4, 4, 2, 2, 1, 1, 1, 1];

pub(super) struct Avx512;

impl Simd for Avx512 {
    type Vector = __m512;
    type Mask = __mmask16;

    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> __mmask16 {
        u16::MAX >> (16 - lanes)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: the caller's promise, as in all functions below.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, mask: __mmask16, vector: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(to, mask, vector) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn clamp(value: __m512, least: __m512, greatest: __m512) -> __m512 {
        // SAFETY: as above. If one of two operands is NaN, both instructions return the second.
        unsafe { _mm512_min_ps(greatest, _mm512_max_ps(least, value)) }
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
/// The promises of [`MicroKernel::run`]; the processor has AVX-512F.
unsafe fn run(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match (blocks.columns.div_ceil(Avx512::LANES), blocks.whole) {
            _ if few_columns::suit::<2>(blocks) => few_columns::run::<2, 8>(blocks),
            _ if few_columns::suit::<1>(blocks) => few_columns::run::<1, 4>(blocks),
            (1, true) => by_rows::<1, true>(blocks),
            (1, false) => by_rows::<1, false>(blocks),
            (2, true) => by_rows::<2, true>(blocks),
            (2, false) => by_rows::<2, false>(blocks),
            (_, true) => by_rows::<3, true>(blocks),
            (_, false) => by_rows::<3, false>(blocks),
        }
    }
}

/// # Safety
/// The promises of [`run`].
unsafe fn by_rows<const VECTORS: usize, const WHOLE: bool>(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe {
        match blocks.rows {
            1 => on_avx512::<1, VECTORS, { CHAINS[0] }, WHOLE>(blocks),
            2 => on_avx512::<2, VECTORS, { CHAINS[1] }, WHOLE>(blocks),
            3 => on_avx512::<3, VECTORS, { CHAINS[2] }, WHOLE>(blocks),
            4 => on_avx512::<4, VECTORS, { CHAINS[3] }, WHOLE>(blocks),
            5 => on_avx512::<5, VECTORS, { CHAINS[4] }, WHOLE>(blocks),
            6 => on_avx512::<6, VECTORS, { CHAINS[5] }, WHOLE>(blocks),
            7 => on_avx512::<7, VECTORS, { CHAINS[6] }, WHOLE>(blocks),
            _ => on_avx512::<8, VECTORS, { CHAINS[7] }, WHOLE>(blocks),
        }
    }
}

/// # Safety
/// The promises of [`compute`].
#[target_feature(enable = "avx512f")]
unsafe fn on_avx512<const ROWS: usize, const VECTORS: usize, const CHAINS: usize, const WHOLE: bool>(blocks: &Blocks) {
    // SAFETY: the caller's promise.
    unsafe { compute::<Avx512, ROWS, VECTORS, CHAINS, WHOLE>(blocks) }
}
