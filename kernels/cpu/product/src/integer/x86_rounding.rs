//! Rounding of sums to 8 bits with AVX-512.

use super::output::ROUNDED;
use super::panels::copy;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::LANES;
use std::arch::x86_64::*;

/// Grid of 8-bit numbers to which sums are rounded. All fields are as wide as a lane.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Upper bound, before the zero point is added.
    greatest: f32,
    /// Zero point, plus 128 if the numbers are signed, twice.
    zero: i32,
    /// Lower bound, plus 128 if the numbers are signed, four times.
    least: i32,
    /// Bits of the numbers that are flipped at the end, four times.
    flip: i32,
}

impl Grid {
    /// Grid of no number but 0.
    pub(super) const NONE: Self = Self { greatest: 0.0, zero: 0, least: 0, flip: 0 };

    /// Returns the grid of numbers with these bounds, which are less the zero point.
    pub(super) fn new([least, greatest]: [f64; 2], zero: i32, signed: bool) -> Self {
        let moved = if signed { 128 } else { 0 };
        Self {
            greatest: greatest as f32,
            zero: (zero + moved) * 0x0001_0001,
            least: i32::from_ne_bytes([(least as i32 + zero + moved) as u8; 4]),
            flip: i32::from_ne_bytes([moved as u8; 4]),
        }
    }
}

/// Rounds the sums of a channel in `f32`, after `summand` was added to each. Returns whether all results are at most
/// `certain` from an integer.
///
/// # Safety
/// The processor has the features. There are as many outputs as sums, at most [`ROUNDED`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn round(sums: &[i32], summand: i32, scale: [f32; 3], grid: &Grid, out: &mut [u8]) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match sums.len().div_ceil(LANES) {
            0 => true,
            1 => round_registers::<1>(sums, summand, scale, grid, out),
            2 => round_registers::<2>(sums, summand, scale, grid, out),
            3 => round_registers::<3>(sums, summand, scale, grid, out),
            _ => round_registers::<4>(sums, summand, scale, grid, out),
        }
    }
}

/// Rounds sums of `COUNT` registers.
///
/// # Safety
/// The promises of [`round`]; the last register has a sum.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn round_registers<const COUNT: usize>(
    sums: &[i32],
    summand: i32,
    [scale, offset, certain]: [f32; 3],
    grid: &Grid,
    out: &mut [u8],
) -> bool {
    let (scale, offset) = (_mm512_set1_ps(scale), _mm512_set1_ps(offset));
    let (greatest, summand) = (_mm512_set1_ps(grid.greatest), _mm512_set1_epi32(summand));
    let mask = u64::MAX >> (ROUNDED - sums.len());
    let mut rounded = [_mm512_setzero_si512(); ROUNDED / LANES];
    let mut distances = [_mm512_setzero_ps(); ROUNDED / LANES];
    for v in 0..COUNT {
        let lanes = (mask >> (LANES * v)) as u16;
        // SAFETY: the mask is of the sums.
        let sums = unsafe { _mm512_maskz_loadu_epi32(lanes, sums.as_ptr().add(LANES * v)) };
        let sums = _mm512_cvtepi32_ps(_mm512_add_epi32(sums, summand));
        let x = _mm512_min_ps(_mm512_fmadd_ps(sums, scale, offset), greatest);
        distances[v] = _mm512_reduce_ps::<0b1000>(x);
        rounded[v] = _mm512_cvtps_epi32(x);
    }
    // SAFETY: the caller's promise.
    unsafe { write(rounded, grid, out) };
    are_certain(distances, certain)
}

/// Rounds sums of as many columns as there are outputs. Returns whether all results are at most `certain`, the bits of
/// a number, from an integer.
///
/// # Safety
/// The processor has the features. There are at most [`PANEL`] outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn round_columns(
    sums: &[i32; PANEL],
    scales: &[f32; PANEL],
    offsets: &[f32; PANEL],
    certain: i32,
    grid: &Grid,
    out: &mut [u8],
) -> bool {
    let greatest = _mm512_set1_ps(grid.greatest);
    let mut rounded = [_mm512_setzero_si512(); ROUNDED / LANES];
    let mut distances = [_mm512_setzero_ps(); ROUNDED / LANES];
    for v in 0..PANEL / LANES {
        // SAFETY: the arrays have as many numbers. Sums of absent columns, and their scales, are zeros.
        let (sums, scales, offsets) = unsafe {
            (
                _mm512_loadu_si512(sums.as_ptr().add(LANES * v).cast()),
                _mm512_loadu_ps(scales.as_ptr().add(LANES * v)),
                _mm512_loadu_ps(offsets.as_ptr().add(LANES * v)),
            )
        };
        let x = _mm512_min_ps(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scales, offsets), greatest);
        distances[v] = _mm512_reduce_ps::<0b1000>(x);
        rounded[v] = _mm512_cvtps_epi32(x);
    }
    // SAFETY: the caller's promise.
    unsafe { write(rounded, grid, out) };
    are_certain(distances, f32::from_bits(certain as u32))
}

/// Writes numbers as bytes, at most [`ROUNDED`].
///
/// # Safety
/// The promises of [`round`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn write(rounded: [__m512i; ROUNDED / LANES], grid: &Grid, out: &mut [u8]) {
    // Numbers below all bounds are cut here and stay below them.
    let zero = _mm512_set1_epi32(grid.zero);
    let low = _mm512_adds_epi16(_mm512_packs_epi32(rounded[0], rounded[1]), zero);
    let high = _mm512_adds_epi16(_mm512_packs_epi32(rounded[2], rounded[3]), zero);
    let bytes = _mm512_max_epu8(_mm512_packus_epi16(low, high), _mm512_set1_epi32(grid.least));
    let bytes = _mm512_xor_si512(bytes, _mm512_set1_epi32(grid.flip));
    // Each quarter has four numbers of each register.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let bytes = _mm512_permutexvar_epi32(order, bytes);
    let to = out.as_mut_ptr();
    // Stores with a mask take much longer, also than a copy.
    // SAFETY: all stores are of as many bytes as there are outputs, or to `all`.
    unsafe {
        match out.len() {
            0 => {}
            64 => _mm512_storeu_si512(to.cast(), bytes),
            48 => {
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(bytes));
                _mm_storeu_si128(to.add(32).cast(), _mm512_extracti32x4_epi32::<2>(bytes));
            }
            32 => _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(bytes)),
            16 => _mm_storeu_si128(to.cast(), _mm512_castsi512_si128(bytes)),
            _ => {
                let mut all = [0u8; ROUNDED];
                _mm512_storeu_si512(all.as_mut_ptr().cast(), bytes);
                copy(&all[..out.len()], out);
            }
        }
    }
}

/// Whether all distances are at most `certain`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn are_certain(distances: [__m512; ROUNDED / LANES], certain: f32) -> bool {
    // The greatest absolute values.
    let low = _mm512_range_ps::<0b1011>(distances[0], distances[1]);
    let high = _mm512_range_ps::<0b1011>(distances[2], distances[3]);
    let farthest = _mm512_range_ps::<0b1011>(low, high);
    _mm512_cmp_ps_mask::<_CMP_LE_OQ>(farthest, _mm512_set1_ps(certain)) == u16::MAX
}
