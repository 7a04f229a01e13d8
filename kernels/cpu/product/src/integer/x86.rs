//! Blocks of products of 8-bit integers on x86 processors.

use super::block::{Block, ROWS};
use anabranch_cpu_base::vector::LANES;
use std::arch::x86_64::*;

/// # Safety
/// The processor has the features. `rows` are 1, 2, 4 or [`ROWS`] rows of as many quads as there are starts. `panel`
/// has `width` quads from each start on; `width` is 16, 32 or 48.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn vnni<const SIGNED: bool>(
    rows: &[u8],
    panel: &[u8],
    starts: &[usize],
    [count, width]: [usize; 2],
    block: &mut Block,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (count, width) {
            (1, 16) => registers::<SIGNED, 1, 1>(rows, panel, starts, block),
            (1, 32) => registers::<SIGNED, 1, 2>(rows, panel, starts, block),
            (1, _) => registers::<SIGNED, 1, 3>(rows, panel, starts, block),
            (2, 16) => registers::<SIGNED, 2, 1>(rows, panel, starts, block),
            (2, 32) => registers::<SIGNED, 2, 2>(rows, panel, starts, block),
            (2, _) => registers::<SIGNED, 2, 3>(rows, panel, starts, block),
            (4, 16) => registers::<SIGNED, 4, 1>(rows, panel, starts, block),
            (4, 32) => registers::<SIGNED, 4, 2>(rows, panel, starts, block),
            (4, _) => registers::<SIGNED, 4, 3>(rows, panel, starts, block),
            (_, 16) => registers::<SIGNED, ROWS, 1>(rows, panel, starts, block),
            (_, 32) => registers::<SIGNED, ROWS, 2>(rows, panel, starts, block),
            (_, _) => registers::<SIGNED, ROWS, 3>(rows, panel, starts, block),
        }
    }
}

/// Computes the sums of `COUNT` rows and `WIDE` registers of columns.
///
/// # Safety
/// The promises of [`vnni`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn registers<const SIGNED: bool, const COUNT: usize, const WIDE: usize>(
    rows: &[u8],
    panel: &[u8],
    starts: &[usize],
    block: &mut Block,
) {
    // SAFETY: all reads are of the quads that the caller promises; all writes are within rows of the block.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); WIDE]; COUNT];
        for (quad, start) in starts.iter().enumerate() {
            let from = panel.as_ptr().add(4 * start);
            let mut b = [_mm512_setzero_si512(); WIDE];
            for v in 0..WIDE {
                b[v] = _mm512_maskz_loadu_epi32(u16::MAX, from.add(64 * v).cast());
            }
            for i in 0..COUNT {
                let a =
                    _mm512_set1_epi32(rows.as_ptr().add((i * starts.len() + quad) * 4).cast::<i32>().read_unaligned());
                for v in 0..WIDE {
                    sums[i][v] = match SIGNED {
                        true => _mm512_dpbusd_epi32(sums[i][v], b[v], a),
                        false => _mm512_dpbusd_epi32(sums[i][v], a, b[v]),
                    };
                }
            }
        }
        for i in 0..COUNT {
            for v in 0..WIDE {
                _mm512_mask_storeu_epi32(block[i].0.as_mut_ptr().add(16 * v), u16::MAX, sums[i][v]);
            }
        }
    }
}

/// Computes a block with AVX2. Sums of pairs of 16-bit products are exact; sums of pairs of 8-bit products would
/// saturate.
///
/// # Safety
/// The promises of [`vnni`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2<const SIGNED: bool>(
    rows: &[u8],
    panel: &[u8],
    starts: &[usize],
    [count, width]: [usize; 2],
    block: &mut Block,
) {
    /// Rows whose sums of 16 columns fit the registers together with their operands.
    const TOGETHER: usize = 2;
    for (top, first) in (0..count).step_by(TOGETHER).flat_map(|top| (0..width).step_by(16).map(move |j| (top, j))) {
        // SAFETY: as in `registers`: 16 columns of quads are read, 16 sums of each row are written.
        unsafe {
            match count - top {
                1 => pairs::<SIGNED, 1>(rows, panel, [top, first], starts, block),
                _ => pairs::<SIGNED, TOGETHER>(rows, panel, [top, first], starts, block),
            }
        }
    }
}

/// Computes the sums of `COUNT` rows from `top` on and 16 columns from `first` on.
///
/// # Safety
/// The promises of [`vnni`]; the rows and columns exist.
#[target_feature(enable = "avx2")]
unsafe fn pairs<const SIGNED: bool, const COUNT: usize>(
    rows: &[u8],
    panel: &[u8],
    [top, first]: [usize; 2],
    starts: &[usize],
    block: &mut Block,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Each register has the sums of both halves of the quads of four columns.
        let mut sums = [[_mm256_setzero_si256(); 4]; COUNT];
        for (quad, start) in starts.iter().enumerate() {
            let from = panel.as_ptr().add(4 * (start + first));
            for i in 0..COUNT {
                let quad = rows.as_ptr().add(((top + i) * starts.len() + quad) * 4).cast::<i32>().read_unaligned();
                let a = _mm_cvtsi32_si128(quad);
                let a = if SIGNED { _mm_cvtepi8_epi16(a) } else { _mm_cvtepu8_epi16(a) };
                let a = _mm256_broadcastq_epi64(a);
                for v in 0..4 {
                    let b = _mm_loadu_si128(from.add(16 * v).cast());
                    let b = if SIGNED { _mm256_cvtepu8_epi16(b) } else { _mm256_cvtepi8_epi16(b) };
                    sums[i][v] = _mm256_add_epi32(sums[i][v], _mm256_madd_epi16(a, b));
                }
            }
        }
        for i in 0..COUNT {
            store_pairs(sums[i], block[top + i].0.as_mut_ptr().add(first));
        }
    }
}

/// Sums of the dot products of filters and the quads at `starts` beyond each position.
///
/// # Safety
/// The processor has the features. There are a multiple of [`LANES`] sums, four numbers of the filter for each start,
/// and as many quads from each start on as there are sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn vnni_windows(filters: &[u8], starts: &[usize], quads: &[u32], sums: &mut [i32]) {
    let mut first = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while sums.len() - first >= 4 * LANES {
            windows_in_registers::<4>(filters, starts, quads, &mut sums[first..], first);
            first += 4 * LANES;
        }
        while first < sums.len() {
            windows_in_registers::<1>(filters, starts, quads, &mut sums[first..], first);
            first += LANES;
        }
    }
}

/// Computes the sums of `WIDE` registers of positions from `first` on.
///
/// # Safety
/// The promises of [`vnni_windows`]; the positions exist.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn windows_in_registers<const WIDE: usize>(
    filters: &[u8],
    starts: &[usize],
    quads: &[u32],
    sums: &mut [i32],
    first: usize,
) {
    // SAFETY: all reads are of the quads that the caller promises; all writes are of `WIDE` registers of sums.
    unsafe {
        let mut made = [_mm512_setzero_si512(); WIDE];
        for (filter, start) in filters.as_chunks::<4>().0.iter().zip(starts) {
            let filter = _mm512_set1_epi32(i32::from_ne_bytes(*filter));
            let from = quads.as_ptr().add(start + first);
            for v in 0..WIDE {
                let quads = _mm512_maskz_loadu_epi32(u16::MAX, from.add(LANES * v).cast());
                made[v] = _mm512_dpbusd_epi32(made[v], quads, filter);
            }
        }
        for v in 0..WIDE {
            _mm512_mask_storeu_epi32(sums.as_mut_ptr().add(LANES * v), u16::MAX, made[v]);
        }
    }
}

/// As [`vnni_windows`], with AVX2.
///
/// # Safety
/// The promises of [`vnni_windows`], for AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2_windows(filters: &[u8], starts: &[usize], quads: &[u32], sums: &mut [i32]) {
    // SAFETY: all reads are of the quads that the caller promises; all writes are of whole registers of sums.
    unsafe {
        for first in (0..sums.len()).step_by(LANES) {
            // Each register has the sums of both halves of the quads of four positions.
            let mut made = [_mm256_setzero_si256(); 4];
            for (filter, start) in filters.as_chunks::<4>().0.iter().zip(starts) {
                let filter = _mm_cvtsi32_si128(i32::from_ne_bytes(*filter));
                let filter = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(filter));
                let from = quads.as_ptr().add(start + first);
                for v in 0..4 {
                    let quads = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(4 * v).cast()));
                    made[v] = _mm256_add_epi32(made[v], _mm256_madd_epi16(filter, quads));
                }
            }
            store_pairs(made, sums.as_mut_ptr().add(first));
        }
    }
}

/// Adds the halves of quads, and stores the sums of [`LANES`] columns.
///
/// # Safety
/// The processor has AVX2, and `to` is the first of [`LANES`] sums.
#[target_feature(enable = "avx2")]
unsafe fn store_pairs(sums: [__m256i; 4], to: *mut i32) {
    for v in 0..2 {
        // Pairs are added within each half of a register: columns 0, 1, 4, 5, 2, 3, 6, 7.
        let pairs = _mm256_hadd_epi32(sums[2 * v], sums[2 * v + 1]);
        let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.add(8 * v).cast(), ordered) };
    }
}
