//! Vectors in the registers of x86 processors.
//!
//! Only `vector::run_at` names the types here, inside functions that enable the instruction set and that are called
//! only if the processor has it. Their functions may therefore use the instruction set.

use super::{Isa, LANES};
use std::arch::x86_64::*;

/// AVX-512, and dot products of four bytes if `DOTS`: a vector is one register.
pub(super) struct Avx512<const DOTS: bool>;

// SAFETY: `run_at` runs loops with it on processors with AVX-512 F, BW, DQ and VL alone.
unsafe impl<const DOTS: bool> Isa for Avx512<DOTS> {
    type Vector = __m512;
    type Quads = __m512i;
    type Sums = __m512i;

    const WIDE: bool = true;
    // Sums of 32 bits, or the sums of two products of at most 15 · 128 in 16 bits.
    const QUADS: usize = if DOTS { 1 << 16 } else { 8 };

    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(value: f32) -> __m512 {
        // SAFETY: the processor has AVX-512 (see the file's head).
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> __m512 {
        // SAFETY: as for `splat`; the array is readable.
        unsafe { _mm512_maskz_loadu_ps(u16::MAX, from.as_ptr()) }
    }

    #[inline(always)]
    fn load_part(from: &[f32], beyond: __m512) -> __m512 {
        // SAFETY: as for `splat`; the mask selects elements of `from` only.
        unsafe { _mm512_mask_loadu_ps(beyond, first(from.len()), from.as_ptr()) }
    }

    #[inline(always)]
    fn store(vector: __m512, to: &mut [f32; LANES]) {
        // SAFETY: as for `splat`; the array is writable.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), u16::MAX, vector) };
    }

    #[inline(always)]
    fn store_part(vector: __m512, to: &mut [f32]) {
        // SAFETY: as for `splat`; the mask selects elements of `to` only.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), first(to.len()), vector) };
    }

    #[inline(always)]
    fn fused_lanes(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sum(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn quotient(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn greater(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn lesser(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn even(low: __m512, high: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(low, even, high)
        }
    }

    #[inline(always)]
    fn odd(low: __m512, high: __m512) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe {
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_ps(low, odd, high)
        }
    }

    #[inline(always)]
    fn shifted(vector: __m512, last: f32) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe {
            let last = _mm512_castps_si512(_mm512_set1_ps(last));
            _mm512_castsi512_ps(_mm512_alignr_epi32::<1>(last, _mm512_castps_si512(vector)))
        }
    }

    #[inline(always)]
    fn bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], shift: __m512) -> __m512 {
        Self::sum(Self::numbers::<SHIFT, BITS>(from, 0), shift)
    }

    #[inline(always)]
    fn centred_bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES]) -> __m512 {
        Self::numbers::<SHIFT, BITS>(from, 1 << (BITS - 1))
    }

    #[inline(always)]
    fn halves(from: &[u8; 2 * LANES]) -> __m512 {
        // SAFETY: as for `splat`; the array is readable.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(u16::MAX, from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn to_halves(vector: __m512, to: &mut [u8; 2 * LANES]) {
        // SAFETY: as for `splat`; the array is writable.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(vector);
            _mm256_mask_storeu_epi16(to.as_mut_ptr().cast(), u16::MAX, halves);
        }
    }

    #[inline(always)]
    fn upper_halves(from: &[u8; 2 * LANES]) -> __m512 {
        // SAFETY: as for `splat`; the array is readable.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(u16::MAX, from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn nibbles(from: &[u8; 4 * LANES]) -> [__m512i; 2] {
        // SAFETY: as for `splat`; the array is readable.
        unsafe {
            let (bytes, mask) = (_mm512_maskz_loadu_epi8(u64::MAX, from.as_ptr().cast()), _mm512_set1_epi8(15));
            [_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask)]
        }
    }

    #[inline(always)]
    fn add_quads(sums: __m512i, bytes: __m512i, by: [i8; 4]) -> __m512i {
        // SAFETY: as for `splat`, and the processor has dot products if `DOTS`.
        unsafe {
            let by = _mm512_set1_epi32(bytemuck::cast(by));
            match DOTS {
                true => _mm512_dpbusd_epi32(sums, bytes, by),
                false => _mm512_add_epi16(sums, _mm512_maddubs_epi16(bytes, by)),
            }
        }
    }

    #[inline(always)]
    fn no_sums() -> __m512i {
        // SAFETY: as for `splat`.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn joined_sums(sums: __m512i) -> __m512 {
        // SAFETY: as for `splat`.
        unsafe { _mm512_cvtepi32_ps(if DOTS { sums } else { _mm512_madd_epi16(sums, _mm512_set1_epi16(1)) }) }
    }

    #[inline(always)]
    fn prefetch(address: *const f32) {
        // SAFETY: a prefetch reads nothing that the program sees, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

impl<const DOTS: bool> Avx512<DOTS> {
    /// Returns the number in `BITS` bits of each byte, from bit `SHIFT` on, less `middle`.
    ///
    /// Neither way shifts, because processors have fewer units for shifts and permutations than for other instructions:
    /// the lowest bits select a value from a register, and other bits become those of a mantissa whose bit `SHIFT`
    /// stands for 1.
    #[inline(always)]
    fn numbers<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], middle: u32) -> __m512 {
        // SAFETY: as for `splat`; the array is readable.
        unsafe {
            let wide = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(u16::MAX, from.as_ptr().cast()));
            if SHIFT == 0 && BITS <= 4 {
                let mut values = [0.0; LANES];
                for at in 0..LANES {
                    values[at] = (at % (1 << BITS)) as f32 - middle as f32;
                }
                return _mm512_permutexvar_ps(wide, Self::load(&values));
            }
            let one = (1u32 << (23 - SHIFT)) as f32;
            let mask = _mm512_set1_epi32(((1 << BITS) - 1) << SHIFT);
            // Result: `one`, or `wide` and `mask`.
            let raised = _mm512_ternarylogic_epi32::<0xF8>(_mm512_castps_si512(Self::splat(one)), wide, mask);
            _mm512_sub_ps(_mm512_castsi512_ps(raised), Self::splat(one + middle as f32))
        }
    }
}

/// Returns the mask of the first lanes.
#[inline(always)]
fn first(count: usize) -> u16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

/// AVX2 with fused multiply-add and conversions of 16-bit floats: a vector is two registers.
pub(super) struct Avx2;

// SAFETY: `run_at` runs loops with it on processors with AVX2 alone; its registers are not wide.
unsafe impl Isa for Avx2 {
    type Vector = [__m256; 2];
    type Quads = [__m256i; 2];
    type Sums = [__m256i; 2];

    const WIDE: bool = false;
    // A sum of 16 bits grows by two products of at most 15 · 128.
    const QUADS: usize = 8;

    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(value: f32) -> Self::Vector {
        // SAFETY: the processor has AVX2 and fused multiply-add (see the file's head).
        [unsafe { _mm256_set1_ps(value) }; 2]
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::Vector {
        // SAFETY: as for `splat`; both halves of the array are readable.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(LANES / 2))] }
    }

    #[inline(always)]
    fn load_part(from: &[f32], beyond: Self::Vector) -> Self::Vector {
        let mut lanes = [0.0; LANES];
        Self::store(beyond, &mut lanes);
        let count = from.len().min(LANES);
        lanes[..count].copy_from_slice(&from[..count]);
        Self::load(&lanes)
    }

    #[inline(always)]
    fn store(vector: Self::Vector, to: &mut [f32; LANES]) {
        // SAFETY: as for `splat`; both halves of the array are writable.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), vector[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(LANES / 2), vector[1]);
        }
    }

    #[inline(always)]
    fn store_part(vector: Self::Vector, to: &mut [f32]) {
        let mut lanes = [0.0; LANES];
        Self::store(vector, &mut lanes);
        let count = to.len().min(LANES);
        to[..count].copy_from_slice(&lanes[..count]);
    }

    #[inline(always)]
    fn fused_lanes(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn sum(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn quotient(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn greater(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn lesser(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn even(low: Self::Vector, high: Self::Vector) -> Self::Vector {
        [half::<0x88>(low), half::<0x88>(high)]
    }

    #[inline(always)]
    fn odd(low: Self::Vector, high: Self::Vector) -> Self::Vector {
        [half::<0xDD>(low), half::<0xDD>(high)]
    }

    #[inline(always)]
    fn shifted([low, high]: Self::Vector, last: f32) -> Self::Vector {
        // Moves the first lane of the second register behind the last lanes of the first.
        let with_first = |half: __m256, next: __m256| {
            // SAFETY: as for `splat`.
            unsafe {
                let rotated = _mm256_permutevar8x32_ps(half, _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
                _mm256_blend_ps::<0x80>(rotated, _mm256_broadcastss_ps(_mm256_castps256_ps128(next)))
            }
        };
        // SAFETY: as for `splat`.
        let last = unsafe { _mm256_set1_ps(last) };
        [with_first(low, high), with_first(high, last)]
    }

    #[inline(always)]
    fn bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], shift: Self::Vector) -> Self::Vector {
        Self::sum(numbers::<SHIFT, BITS>(from, 0), shift)
    }

    #[inline(always)]
    fn centred_bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES]) -> Self::Vector {
        numbers::<SHIFT, BITS>(from, 1 << (BITS - 1))
    }

    #[inline(always)]
    fn halves(from: &[u8; 2 * LANES]) -> Self::Vector {
        // SAFETY: as for `splat`, and the processor has conversions of 16-bit floats; both halves of the array are
        // readable.
        unsafe {
            let (low, high) = (_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(LANES).cast()));
            [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
        }
    }

    #[inline(always)]
    fn to_halves(vector: Self::Vector, to: &mut [u8; 2 * LANES]) {
        // SAFETY: as for `halves`; both halves of the array are writable.
        unsafe {
            let [low, high] = vector;
            let (low, high) =
                (_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high));
            _mm_storeu_si128(to.as_mut_ptr().cast(), low);
            _mm_storeu_si128(to.as_mut_ptr().add(LANES).cast(), high);
        }
    }

    #[inline(always)]
    fn upper_halves(from: &[u8; 2 * LANES]) -> Self::Vector {
        // SAFETY: as for `splat`; both halves of the array are readable.
        unsafe {
            let (low, high) = (_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(LANES).cast()));
            let (low, high) = (_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))]
        }
    }

    #[inline(always)]
    fn nibbles(from: &[u8; 4 * LANES]) -> [Self::Quads; 2] {
        // SAFETY: as for `splat`; both halves of the array are readable.
        unsafe {
            let low = _mm256_loadu_si256(from.as_ptr().cast());
            let high = _mm256_loadu_si256(from.as_ptr().add(2 * LANES).cast());
            let mask = _mm256_set1_epi8(15);
            let upper = [_mm256_srli_epi16::<4>(low), _mm256_srli_epi16::<4>(high)];
            [
                [_mm256_and_si256(low, mask), _mm256_and_si256(high, mask)],
                [_mm256_and_si256(upper[0], mask), _mm256_and_si256(upper[1], mask)],
            ]
        }
    }

    #[inline(always)]
    fn add_quads(sums: Self::Sums, bytes: Self::Quads, by: [i8; 4]) -> Self::Sums {
        // SAFETY: as for `splat`.
        unsafe {
            let by = _mm256_set1_epi32(bytemuck::cast(by));
            let products = [_mm256_maddubs_epi16(bytes[0], by), _mm256_maddubs_epi16(bytes[1], by)];
            [_mm256_add_epi16(sums[0], products[0]), _mm256_add_epi16(sums[1], products[1])]
        }
    }

    #[inline(always)]
    fn no_sums() -> Self::Sums {
        // SAFETY: as for `splat`.
        [unsafe { _mm256_setzero_si256() }; 2]
    }

    #[inline(always)]
    fn joined_sums(sums: Self::Sums) -> Self::Vector {
        // SAFETY: as for `splat`.
        unsafe {
            let one = _mm256_set1_epi16(1);
            let joined = [_mm256_madd_epi16(sums[0], one), _mm256_madd_epi16(sums[1], one)];
            [_mm256_cvtepi32_ps(joined[0]), _mm256_cvtepi32_ps(joined[1])]
        }
    }

    #[inline(always)]
    fn prefetch(address: *const f32) {
        // SAFETY: a prefetch reads nothing that the program sees, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

/// Returns the number in `BITS` bits of each byte, from bit `SHIFT` on, less `middle`. The bits become those of a
/// mantissa whose bit `SHIFT` stands for 1, without a shift.
#[inline(always)]
fn numbers<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], middle: u32) -> [__m256; 2] {
    let one = (1u32 << (23 - SHIFT)) as f32;
    let half = |at: usize| {
        // SAFETY: as for `Avx2::splat`; both halves of the array are readable.
        unsafe {
            let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(at).cast()));
            let bits = _mm256_and_si256(wide, _mm256_set1_epi32(((1 << BITS) - 1) << SHIFT));
            let raised = _mm256_or_si256(bits, _mm256_castps_si256(_mm256_set1_ps(one)));
            _mm256_sub_ps(_mm256_castsi256_ps(raised), _mm256_set1_ps(one + middle as f32))
        }
    };
    [half(0), half(LANES / 2)]
}

/// Stores the first `count` lanes, at most eight. Masked stores take a dozen cycles on processors without mask
/// registers.
///
/// # Safety
/// The processor has AVX2, and `count` elements from `to` on are writable.
#[inline(always)]
pub unsafe fn store_first(mut to: *mut f32, count: usize, vector: __m256) {
    // SAFETY: the caller's promise; the parts stored have 8, or 4, 2 and 1 elements, whose sum is `count`.
    unsafe {
        if count >= 8 {
            return _mm256_storeu_ps(to, vector);
        }
        let mut lanes = _mm256_castps256_ps128(vector);
        if count & 4 != 0 {
            _mm_storeu_ps(to, lanes);
            lanes = _mm256_extractf128_ps::<1>(vector);
            to = to.wrapping_add(4);
        }
        if count & 2 != 0 {
            _mm_storel_epi64(to.cast(), _mm_castps_si128(lanes));
            lanes = _mm_movehl_ps(lanes, lanes);
            to = to.wrapping_add(2);
        }
        if count & 1 != 0 {
            _mm_store_ss(to, lanes);
        }
    }
}

/// Returns lanes 0, 2, … of 16, or 1, 3, …: those that `PAIR` selects of each four.
#[inline(always)]
fn half<const PAIR: i32>([low, high]: [__m256; 2]) -> __m256 {
    // SAFETY: as for `splat`.
    unsafe {
        let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<PAIR>(low, high));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(pairs))
    }
}
