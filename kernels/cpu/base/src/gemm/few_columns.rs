//! Last columns of a product, if a panel has up to four, as for the 196 pixels of 14 × 14. A vector holds them for four
//! rows at once; each row alone would fill a quarter of a vector.

use super::avx512::Avx512;
use super::block::{Blocks, begin, complete, fetch};
use super::simd::Simd;
use std::arch::x86_64::*;

/// Number of columns, and of rows in one vector.
const QUAD: usize = 4;

/// Number of chains of sums, one for every fourth step: with few vectors, every multiply-add would wait for the last
/// one.
const CHAINS: usize = 4;

/// Whether [`run`] suits the blocks: they have `4 · QUADS` rows, which lie side by side in each step.
pub(super) fn suit<const QUADS: usize>(blocks: &Blocks) -> bool {
    blocks.columns <= QUAD && blocks.rows == QUADS * QUAD && blocks.a_row == 1
}

/// Computes blocks of `QUADS · 4 = ROWS` rows and up to four columns.
///
/// # Safety
/// The pointers are valid as [`Blocks`] says, the blocks [suit], and the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn run<const QUADS: usize, const ROWS: usize>(blocks: &Blocks) {
    const { assert!(ROWS == QUADS * QUAD) };
    // SAFETY: there is a column.
    let last = unsafe { Avx512::mask(blocks.columns) };
    // Lanes of a vector that hold the columns of a quad's first row; further lanes are not stored.
    let first_row = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    let columns = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    for index in 0..blocks.count {
        let top = index * ROWS;
        let (mut a, mut b) = (blocks.a.wrapping_add(index * blocks.a_block), blocks.b);
        // Element 4 · j + i of a vector belongs to row i and column j.
        let mut sums = [[_mm512_setzero_ps(); QUADS]; CHAINS];
        let mut step = |sums: &mut [__m512; QUADS]| {
            // SAFETY: this step's row of B has the block's columns, and each row of A has an element.
            unsafe {
                let row = _mm512_permutexvar_ps(columns, Avx512::load_masked(b, last));
                for (quad, sum) in sums.iter_mut().enumerate() {
                    let factors = _mm512_broadcast_f32x4(_mm_loadu_ps(a.wrapping_add(quad * QUAD)));
                    *sum = _mm512_fmadd_ps(factors, row, *sum);
                }
            }
            (a, b) = (a.wrapping_add(blocks.a_step), b.wrapping_add(blocks.b_step));
        };
        // SAFETY: any address may be prefetched.
        unsafe { fetch::<Avx512, ROWS, 1>(blocks, top) };
        for _ in 0..blocks.depth / CHAINS {
            sums.iter_mut().for_each(&mut step);
        }
        for _ in 0..blocks.depth % CHAINS {
            step(&mut sums[0]);
        }
        let mut total = [[_mm512_setzero_ps(); 1]; ROWS];
        if let Some(initial) = &blocks.initial {
            // SAFETY: as below.
            unsafe { begin::<Avx512, ROWS, 1>(initial, top, last, &mut total) };
        }
        for (quad, rows) in total.as_chunks_mut::<QUAD>().0.iter_mut().enumerate() {
            let sum = sums[1..].iter().fold(sums[0][quad], |sum, other| _mm512_add_ps(sum, other[quad]));
            for (i, row) in rows.iter_mut().enumerate() {
                let lanes = _mm512_add_epi32(first_row, _mm512_set1_epi32(i as i32));
                row[0] = _mm512_add_ps(row[0], _mm512_permutexvar_ps(lanes, sum));
            }
        }
        // SAFETY: only elements of the block are touched, as the mask selects its columns.
        unsafe { complete::<Avx512, ROWS, 1>(blocks, top, last, total) };
    }
}
