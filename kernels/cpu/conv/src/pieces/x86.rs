//! Masked loads of x86 processors.

use super::masked::{Masked, write};
use super::{LANES, Piece};
use anabranch_cpu_base::features::has;
use anabranch_cpu_base::vector::store_first;
use std::arch::x86_64::*;

/// Writes rows of `width` columns from pieces of a source whose channels are planes of `plane` elements.
///
/// # Safety
/// The promises of [`write`].
pub(super) type Write = unsafe fn(pieces: &[Piece], source: &[f32], plane: usize, rows: &mut [f32], width: usize);

/// Returns the functions of this processor for columns whose elements are `stride` apart, the fastest first.
pub(super) fn ways(stride: usize) -> impl Iterator<Item = Write> {
    let wide = has!("avx512f", "bmi2");
    let narrow = has!("avx2");
    let [on_avx512, on_avx2]: [Option<Write>; 2] = match stride {
        1 => [Some(on_avx512::<1>), Some(on_avx2::<1>)],
        2 => [Some(on_avx512::<2>), Some(on_avx2::<2>)],
        _ => [None, None],
    };
    on_avx512.filter(|_| wide).into_iter().chain(on_avx2.filter(|_| narrow))
}

/// # Safety
/// The promises of [`write`].
#[target_feature(enable = "avx512f,bmi2")]
unsafe fn on_avx512<const STRIDE: usize>(
    pieces: &[Piece],
    source: &[f32],
    plane: usize,
    rows: &mut [f32],
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { write::<Avx512, STRIDE>(pieces, source, plane, rows, width) }
}

/// # Safety
/// The promises of [`write`].
#[target_feature(enable = "avx2")]
unsafe fn on_avx2<const STRIDE: usize>(pieces: &[Piece], source: &[f32], plane: usize, rows: &mut [f32], width: usize) {
    // SAFETY: the caller's promise.
    unsafe { write::<Avx2, STRIDE>(pieces, source, plane, rows, width) }
}

/// AVX-512: a vector is one register, and masks have registers of their own.
struct Avx512;

impl Masked for Avx512 {
    type Vector = __m512;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn zeros() -> __m512 {
        // SAFETY: the caller's promise, as in all functions below.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn mask<const STRIDE: usize>(piece: &Piece) -> __mmask16 {
        lanes_below(piece.end) & !lanes_below(piece.first)
    }

    #[inline(always)]
    unsafe fn with<const STRIDE: usize>(values: __m512, mask: __mmask16, from: *const f32) -> __m512 {
        // SAFETY: as above; bit 2i of the masks of two vectors is bit i of `mask`, so exactly the elements of the
        // caller's promise are read.
        unsafe {
            if STRIDE == 1 {
                return _mm512_mask_loadu_ps(values, mask, from);
            }
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let spread = _pdep_u32(u32::from(mask), 0x5555_5555);
            let low = _mm512_maskz_loadu_ps(spread as u16, from);
            let high = _mm512_maskz_loadu_ps((spread >> LANES) as u16, from.wrapping_add(LANES));
            _mm512_mask_mov_ps(values, mask, _mm512_permutex2var_ps(low, even, high))
        }
    }

    #[inline(always)]
    unsafe fn store(to: &mut [f32; LANES], vector: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), vector) };
    }

    #[inline(always)]
    unsafe fn store_part(to: &mut [f32], vector: __m512) {
        // SAFETY: as above; the mask selects elements of `to`.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), lanes_below(to.len()), vector) };
    }
}

/// Returns a mask with a bit for each of the first lanes.
#[inline(always)]
fn lanes_below(count: usize) -> u16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

/// AVX2: a vector is two registers.
struct Avx2;

/// Lanes of a register.
const HALF: usize = LANES / 2;

impl Masked for Avx2 {
    type Vector = [__m256; 2];
    /// Selected elements of the loads of four registers; with a stride of 1, of the first two.
    type Mask = [__m256i; 4];

    #[inline(always)]
    unsafe fn zeros() -> [__m256; 2] {
        // SAFETY: the caller's promise, as in all functions below.
        [unsafe { _mm256_setzero_ps() }; 2]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.wrapping_add(HALF))] }
    }

    #[inline(always)]
    unsafe fn mask<const STRIDE: usize>(piece: &Piece) -> [__m256i; 4] {
        // SAFETY: as above.
        unsafe {
            let zero = _mm256_setzero_si256();
            match STRIDE {
                1 => [selected::<STRIDE>(piece, 0), selected::<STRIDE>(piece, 1), zero, zero],
                _ => [
                    selected::<STRIDE>(piece, 0),
                    selected::<STRIDE>(piece, 1),
                    selected::<STRIDE>(piece, 2),
                    selected::<STRIDE>(piece, 3),
                ],
            }
        }
    }

    #[inline(always)]
    unsafe fn with<const STRIDE: usize>(values: [__m256; 2], mask: [__m256i; 4], from: *const f32) -> [__m256; 2] {
        // SAFETY: as above; only elements that the mask selects are read. All remaining lanes are zero.
        unsafe {
            let (low, high) = match STRIDE {
                1 => (part(from, 0, mask), part(from, 1, mask)),
                _ => (
                    every_second(part(from, 0, mask), part(from, 1, mask)),
                    every_second(part(from, 2, mask), part(from, 3, mask)),
                ),
            };
            [_mm256_or_ps(values[0], low), _mm256_or_ps(values[1], high)]
        }
    }

    #[inline(always)]
    unsafe fn store(to: &mut [f32; LANES], vector: [__m256; 2]) {
        // SAFETY: as above; both halves are writable.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), vector[0]);
            _mm256_storeu_ps(to.as_mut_ptr().wrapping_add(HALF), vector[1]);
        }
    }

    #[inline(always)]
    unsafe fn store_part(to: &mut [f32], vector: [__m256; 2]) {
        // SAFETY: as above; this many elements of `to` are writable.
        unsafe {
            store_first(to.as_mut_ptr(), to.len().min(HALF), vector[0]);
            store_first(to.as_mut_ptr().wrapping_add(HALF), to.len().saturating_sub(HALF).min(HALF), vector[1]);
        }
    }
}

/// Returns the elements of a register's load that belong to the piece: those from its first lane's to its last lane's,
/// or every second of these.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn selected<const STRIDE: usize>(piece: &Piece, register: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let begins = (piece.first * STRIDE) as i32 - (register * HALF) as i32;
        let ends = (piece.end * STRIDE) as i32 - (register * HALF) as i32;
        let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(begins), numbers);
        let inside = _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32(ends), numbers));
        if STRIDE == 1 { inside } else { _mm256_and_si256(inside, _mm256_setr_epi32(-1, 0, -1, 0, -1, 0, -1, 0)) }
    }
}

/// Loads the elements that a register's mask selects.
///
/// # Safety
/// The processor has AVX2, and these elements are readable.
#[inline(always)]
unsafe fn part(from: *const f32, register: usize, mask: [__m256i; 4]) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_maskload_ps(from.wrapping_add(register * HALF), mask[register]) }
}

/// Returns lanes 0, 2, … of both.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn every_second(low: __m256, high: __m256) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(pairs))
    }
}
