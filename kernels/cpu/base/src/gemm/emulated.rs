//! Micro-kernels with the block sizes of other processors, computed element by element. Every kernel cuts its work and
//! its memory by these sizes, so tests find on any machine what would go wrong on another.

use super::block::{Blocks, Term};
use super::micro::MicroKernel;

/// Kernels with the sizes of AVX-512 and of AVX2, and with sizes that no processor has.
pub(super) static KERNELS: [MicroKernel; 3] = [
    MicroKernel { name: "AVX-512's sizes", rows: 8, columns: 48, lanes: 16, chains: &[1; 8], run },
    MicroKernel { name: "AVX2's sizes", rows: 6, columns: 16, lanes: 8, chains: &[1; 6], run },
    MicroKernel { name: "odd sizes", rows: 5, columns: 40, lanes: 8, chains: &[1; 5], run },
];

/// # Safety
/// The promises of [`MicroKernel::run`].
unsafe fn run(blocks: &Blocks) {
    for (row, column) in (0..blocks.count * blocks.rows).flat_map(|i| (0..blocks.columns).map(move |j| (i, j))) {
        let (block, i) = (row / blocks.rows, row % blocks.rows);
        let a = blocks.a.wrapping_add(block * blocks.a_block + i * blocks.a_row);
        let b = blocks.b.wrapping_add(column);
        let c = blocks.c.wrapping_add(row * blocks.c_row + column);
        // SAFETY: the caller's promise. Each row of A and each column of B has an element at each step. The terms have
        // an element for each element of the blocks, and C is readable if the product is added to it.
        unsafe {
            let mut sum = blocks.initial.as_ref().map_or(0.0, |term| element(term, row, column));
            for step in 0..blocks.depth {
                sum += *a.wrapping_add(step * blocks.a_step) * *b.wrapping_add(step * blocks.b_step);
            }
            if blocks.accumulate {
                sum += *c;
            }
            if let Some(change) = &blocks.change {
                sum *= change.scale;
                sum += change.summand.as_ref().map_or(0.0, |term| element(term, row, column));
                sum = if sum < change.least { change.least } else { sum };
                sum = if sum > change.greatest { change.greatest } else { sum };
            }
            *c = sum;
        }
    }
}

/// # Safety
/// The term is readable at this row and column.
unsafe fn element(term: &Term, row: usize, column: usize) -> f32 {
    let column = if term.shared { 0 } else { column };
    // SAFETY: the caller's promise.
    unsafe { *term.data.wrapping_add(row * term.row + column) }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::{avx2, avx512};
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_processors() {
        let sizes = |kernel: &MicroKernel| [kernel.rows, kernel.columns, kernel.lanes];
        let real = [&avx512::KERNEL, &avx2::KERNEL].map(sizes);
        assert_eq!([&KERNELS[0], &KERNELS[1]].map(sizes), real);
    }
}
