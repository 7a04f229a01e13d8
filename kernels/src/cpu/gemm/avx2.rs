//! The micro-kernel for AVX2 with FMA: blocks of up to 6 × 16, 12 of the 16 vector registers.

use super::micro::{Block, MicroKernel};
use std::arch::x86_64::*;

pub(super) static KERNEL: MicroKernel = MicroKernel { name: "AVX2", rows: 6, columns: 16, lanes: 8, run };

/// Elements of a vector.
const LANES: usize = 8;

/// # Safety
/// As [`MicroKernel::run`] says; the processor has AVX2 and FMA.
unsafe fn run(block: &Block) {
    // SAFETY: passed on to the caller; a whole block has all columns of its vectors.
    unsafe {
        match block.columns {
            ..LANES => by_rows::<1, false>(block),
            LANES => by_rows::<1, true>(block),
            16 => by_rows::<2, true>(block),
            _ => by_rows::<2, false>(block),
        }
    }
}

/// # Safety
/// As [`run`].
unsafe fn by_rows<const VECTORS: usize, const WHOLE: bool>(block: &Block) {
    // Few rows need several chains of sums each, or every multiply-add would wait for the one before.
    // SAFETY: passed on to the caller.
    unsafe {
        match block.rows {
            1 => compute::<1, VECTORS, 4, WHOLE>(block),
            2 => compute::<2, VECTORS, 2, WHOLE>(block),
            3 => compute::<3, VECTORS, 2, WHOLE>(block),
            4 => compute::<4, VECTORS, 1, WHOLE>(block),
            5 => compute::<5, VECTORS, 1, WHOLE>(block),
            _ => compute::<6, VECTORS, 1, WHOLE>(block),
        }
    }
}

/// The sums of a block's elements, one vector for each row and `LANES` columns.
type Sums<const ROWS: usize, const VECTORS: usize> = [[__m256; VECTORS]; ROWS];

/// Where the operands of the next step are.
struct Cursor<const VECTORS: usize> {
    /// Rows 0 and 3 of A: the distances to the rows between are address modes.
    a: [*const f32; 2],
    b: *const f32,
    prefetch: *const f32,
    masks: [__m256i; VECTORS],
}

/// Computes a block of `ROWS` rows and `VECTORS` vectors of columns, the last not full unless the block is `WHOLE`,
/// adding up every `CHAINS`-th step separately.
///
/// # Safety
/// As [`run`]; the block has `ROWS` rows and at most `VECTORS` vectors of columns, all of them if it is `WHOLE`.
#[target_feature(enable = "avx2,fma")]
unsafe fn compute<const ROWS: usize, const VECTORS: usize, const CHAINS: usize, const WHOLE: bool>(block: &Block) {
    let second = block.a.wrapping_add(3 * block.a_row);
    let masks = [_mm256_setzero_si256(); VECTORS];
    let mut cursor = Cursor { a: [block.a, second], b: block.b, prefetch: block.prefetch, masks };
    for (v, mask) in cursor.masks.iter_mut().enumerate() {
        *mask = mask_of(block.columns.saturating_sub(v * LANES));
    }
    let mut sums = [[[_mm256_setzero_ps(); VECTORS]; ROWS]; CHAINS];
    for _ in 0..block.depth / CHAINS {
        for sums in &mut sums {
            // SAFETY: these are the first steps of the block's depth.
            unsafe { step::<ROWS, VECTORS, WHOLE>(block, &mut cursor, sums) };
        }
    }
    for _ in 0..block.depth % CHAINS {
        // SAFETY: these are the other steps.
        unsafe { step::<ROWS, VECTORS, WHOLE>(block, &mut cursor, &mut sums[0]) };
    }
    for i in 0..ROWS {
        for v in 0..VECTORS {
            let mut sum = sums[0][i][v];
            for chain in &sums[1..] {
                sum = _mm256_add_ps(sum, chain[i][v]);
            }
            let c = block.c.wrapping_add(i * block.c_row + v * LANES);
            // SAFETY: row i of C and the columns that the mask selects, all if the block is whole, are exclusively ours.
            unsafe {
                if block.accumulate {
                    sum = _mm256_add_ps(_mm256_maskload_ps(c, cursor.masks[v]), sum);
                }
                if WHOLE { _mm256_storeu_ps(c, sum) } else { _mm256_maskstore_ps(c, cursor.masks[v], sum) }
            }
        }
    }
}

/// Adds one outer product to the sums.
///
/// # Safety
/// The cursor has made fewer steps than the block's depth; the block has all columns of its vectors if it is `WHOLE`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn step<const ROWS: usize, const VECTORS: usize, const WHOLE: bool>(
    block: &Block,
    cursor: &mut Cursor<VECTORS>,
    sums: &mut Sums<ROWS, VECTORS>,
) {
    _mm_prefetch::<_MM_HINT_T1>(cursor.prefetch.cast());
    let mut row = [_mm256_setzero_ps(); VECTORS];
    for (v, row) in row.iter_mut().enumerate() {
        let b = cursor.b.wrapping_add(v * LANES);
        // SAFETY: the columns of this step's row of B that the mask selects are readable, all of them in a whole block.
        *row = unsafe { if WHOLE { _mm256_loadu_ps(b) } else { _mm256_maskload_ps(b, cursor.masks[v]) } };
    }
    for (i, sums) in sums.iter_mut().enumerate() {
        // SAFETY: row i of A is readable at this step.
        let factor = _mm256_set1_ps(unsafe { *cursor.a[i / 3].wrapping_add(i % 3 * block.a_row) });
        for (sum, row) in sums.iter_mut().zip(row) {
            *sum = _mm256_fmadd_ps(factor, row, *sum);
        }
    }
    for a in &mut cursor.a {
        *a = a.wrapping_add(block.a_step);
    }
    cursor.b = cursor.b.wrapping_add(block.b_step);
    cursor.prefetch = cursor.prefetch.wrapping_add(LANES);
}

/// The mask of the first `columns` lanes.
#[target_feature(enable = "avx2")]
fn mask_of(columns: usize) -> __m256i {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(columns.min(LANES) as i32), lanes)
}
