//! The micro-kernel for AVX-512: blocks of up to 8 × 48, 24 of the 32 vector registers.
//!
//! Rows of B and of C are read and written under masks, so a narrow block touches nothing beyond its columns.

use super::micro::{Block, MicroKernel};
use std::arch::x86_64::*;

pub(super) static KERNEL: MicroKernel = MicroKernel { name: "AVX-512", rows: 8, columns: 48, lanes: 16, run };

/// How many elements ahead few rows fetch their own panel, which they read faster than it is expected.
const AHEAD: usize = 1024;

/// Elements of a vector.
const LANES: usize = 16;

/// # Safety
/// As [`MicroKernel::run`] says; the processor has AVX-512F.
unsafe fn run(block: &Block) {
    // SAFETY: passed on to the caller.
    unsafe {
        match block.columns.div_ceil(LANES) {
            1 => by_rows::<1>(block),
            2 => by_rows::<2>(block),
            _ => by_rows::<3>(block),
        }
    }
}

/// # Safety
/// As [`run`].
unsafe fn by_rows<const VECTORS: usize>(block: &Block) {
    // Few rows need several chains of sums each, or every multiply-add would wait for the one before.
    // SAFETY: passed on to the caller.
    unsafe {
        match block.rows {
            1 => compute::<1, VECTORS, 4>(block),
            2 => compute::<2, VECTORS, 4>(block),
            3 => compute::<3, VECTORS, 2>(block),
            4 => compute::<4, VECTORS, 2>(block),
            5 => compute::<5, VECTORS, 1>(block),
            6 => compute::<6, VECTORS, 1>(block),
            7 => compute::<7, VECTORS, 1>(block),
            _ => compute::<8, VECTORS, 1>(block),
        }
    }
}

/// The sums of a block's elements, one vector for each row and `LANES` columns.
type Sums<const ROWS: usize, const VECTORS: usize> = [[__m512; VECTORS]; ROWS];

/// Where the operands of the next step are.
struct Cursor<const VECTORS: usize> {
    /// Rows 0, 3 and 6 of A: the distances to the rows between are address modes.
    a: [*const f32; 3],
    b: *const f32,
    prefetch: *const f32,
    masks: [__mmask16; VECTORS],
}

/// Computes a block of `ROWS` rows and up to `VECTORS` vectors of columns, adding up every `CHAINS`-th step separately.
///
/// # Safety
/// As [`run`]; the block has `ROWS` rows and at most `VECTORS` vectors of columns.
#[target_feature(enable = "avx512f")]
unsafe fn compute<const ROWS: usize, const VECTORS: usize, const CHAINS: usize>(block: &Block) {
    let mut cursor = Cursor { a: [block.a; 3], b: block.b, prefetch: block.prefetch, masks: [0; VECTORS] };
    for (i, a) in cursor.a.iter_mut().enumerate() {
        *a = a.wrapping_add(3 * i * block.a_row);
    }
    for (v, mask) in cursor.masks.iter_mut().enumerate() {
        *mask = mask_of(block.columns.saturating_sub(v * LANES));
    }
    let mut sums = [[[_mm512_setzero_ps(); VECTORS]; ROWS]; CHAINS];
    for _ in 0..block.depth / CHAINS {
        for sums in &mut sums {
            // SAFETY: these are the first steps of the block's depth.
            unsafe { step(block, &mut cursor, sums) };
        }
    }
    for _ in 0..block.depth % CHAINS {
        // SAFETY: these are the other steps.
        unsafe { step(block, &mut cursor, &mut sums[0]) };
    }
    for i in 0..ROWS {
        for v in 0..VECTORS {
            let mut sum = sums[0][i][v];
            for chain in &sums[1..] {
                sum = _mm512_add_ps(sum, chain[i][v]);
            }
            let c = block.c.wrapping_add(i * block.c_row + v * LANES);
            // SAFETY: row i of C and the columns that the mask selects are exclusively ours.
            unsafe {
                if block.accumulate {
                    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(cursor.masks[v], c), sum);
                }
                _mm512_mask_storeu_ps(c, cursor.masks[v], sum);
            }
        }
    }
}

/// Adds one outer product to the sums.
///
/// # Safety
/// The cursor has made fewer steps than the block's depth.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn step<const ROWS: usize, const VECTORS: usize>(
    block: &Block,
    cursor: &mut Cursor<VECTORS>,
    sums: &mut Sums<ROWS, VECTORS>,
) {
    _mm_prefetch::<_MM_HINT_T1>(cursor.prefetch.cast());
    let mut row = [_mm512_setzero_ps(); VECTORS];
    for (v, row) in row.iter_mut().enumerate() {
        if ROWS <= 2 {
            _mm_prefetch::<_MM_HINT_T0>(cursor.b.wrapping_add(AHEAD + v * LANES).cast());
        }
        // SAFETY: the columns of this step's row of B that the mask selects are readable.
        *row = unsafe { _mm512_maskz_loadu_ps(cursor.masks[v], cursor.b.wrapping_add(v * LANES)) };
    }
    for (i, sums) in sums.iter_mut().enumerate() {
        // SAFETY: row i of A is readable at this step.
        let factor = _mm512_set1_ps(unsafe { *cursor.a[i / 3].wrapping_add(i % 3 * block.a_row) });
        for (sum, row) in sums.iter_mut().zip(row) {
            *sum = _mm512_fmadd_ps(factor, row, *sum);
        }
    }
    for a in &mut cursor.a {
        *a = a.wrapping_add(block.a_step);
    }
    cursor.b = cursor.b.wrapping_add(block.b_step);
    cursor.prefetch = cursor.prefetch.wrapping_add(LANES);
}

/// The mask of the first `columns` lanes.
fn mask_of(columns: usize) -> __mmask16 {
    if columns >= LANES { u16::MAX } else { (1 << columns) - 1 }
}
