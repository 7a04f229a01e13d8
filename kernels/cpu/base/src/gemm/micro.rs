//! Micro-kernels: the product of a few rows and a panel of columns, accumulated in registers.
//!
//! A micro-kernel sums `rows × columns` elements over `k` outer products (Goto 2008, section 5). Per step it loads one
//! row of B as vectors and multiplies it by each of `rows` broadcast elements of A. The instruction set determines how
//! large a block the registers hold.

use super::block::Blocks;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
#[cfg(target_arch = "x86_64")]
use crate::features::has;
use std::sync::OnceLock;

/// Micro-kernel and the largest block that it computes.
#[derive(Debug)]
pub struct MicroKernel {
    /// Name of the instruction set, for tests.
    pub name: &'static str,
    /// Maximum number of rows of a block.
    pub rows: usize,
    /// Maximum number of columns of a block: the width of a panel of packed B.
    pub columns: usize,
    /// Columns of one vector: the cost of a narrow block is a multiple of it.
    pub lanes: usize,
    /// For each number of rows of a block, from 1, the number of chains in which its sums are interleaved.
    pub(super) chains: &'static [usize],
    /// Computes blocks of rows.
    ///
    /// # Safety
    /// The pointers of the [`Blocks`] are valid as it says, and the kernel came from [`MicroKernel::available`].
    pub(super) run: unsafe fn(&Blocks),
}

impl MicroKernel {
    /// Returns the fastest kernel that this processor can run.
    pub fn best() -> &'static Self {
        static BEST: OnceLock<&MicroKernel> = OnceLock::new();
        BEST.get_or_init(|| Self::available()[0])
    }

    /// Returns all kernels that this processor can run, the fastest first.
    pub fn available() -> Vec<&'static Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if has!("avx512f") {
                kernels.push(&avx512::KERNEL);
            }
            if has!("avx2", "fma") {
                kernels.push(&avx2::KERNEL);
            }
        }
        kernels.push(&portable::KERNEL);
        kernels
    }

    /// Returns all kernels that this processor can run, and kernels of other processors' sizes.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_all_sizes() -> Vec<&'static Self> {
        Self::available().into_iter().chain(&super::emulated::KERNELS).collect()
    }

    /// Returns the height of the row blocks into which `rows` rows are cut. Heights are as equal as possible, because a
    /// low block cannot use the arithmetic units fully. Only the last block may be lower.
    #[inline]
    pub fn block_height(&self, rows: usize) -> usize {
        let blocks = rows.div_ceil(self.rows).max(1);
        rows.div_ceil(blocks).max(1)
    }

    /// Returns the number of chains in which the sums of a product of so many rows are interleaved; `None` if its last
    /// block has another number.
    pub fn chains(&self, rows: usize) -> Option<usize> {
        let of_block = |rows: usize| self.chains[rows - 1];
        let height = self.block_height(rows);
        let whole = of_block(height);
        (rows.is_multiple_of(height) || of_block(rows % height) == whole).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Ahead;
    use super::*;

    #[test]
    fn row_blocks_are_nearly_equal() {
        let kernel =
            &MicroKernel { name: "", rows: 14, columns: 32, lanes: 16, chains: &[1; 14], run: portable::KERNEL.run };
        for (rows, height) in [(0, 1), (1, 1), (14, 14), (15, 8), (64, 13), (512, 14)] {
            assert_eq!(kernel.block_height(rows), height, "{rows} rows");
        }
    }

    #[test]
    fn every_kernel_computes_every_block_size() {
        let value = |i: usize| ((i * 37 + 11) % 17) as f32 - 8.0;
        let a: Vec<f32> = (0..2000).map(value).collect();
        let b: Vec<f32> = (500..3000).map(value).collect();
        for kernel in MicroKernel::of_all_sizes() {
            for (rows, columns) in (1..=kernel.rows).flat_map(|r| (1..=kernel.columns).map(move |c| (r, c))) {
                for (depth, (a_row, a_step), b_step) in [(1, (1, 1), 1), (7, (20, 3), 40), (13, (1, 15), columns)] {
                    let mut c = vec![1.0f32; rows * columns];
                    let block = Blocks {
                        count: 1,
                        rows,
                        columns,
                        depth,
                        a: a.as_ptr(),
                        a_row,
                        a_step,
                        a_block: 0,
                        b: b.as_ptr(),
                        b_step,
                        whole: columns.is_multiple_of(kernel.lanes),
                        c: c.as_mut_ptr(),
                        c_row: columns,
                        accumulate: depth == 13,
                        initial: None,
                        change: None,
                        ahead: Ahead { data: a.as_ptr(), step: 16, block: 0, last: 0, columns },
                    };
                    assert!((rows - 1) * a_row + (depth - 1) * a_step < a.len());
                    assert!((depth - 1) * b_step + columns <= b.len());
                    // SAFETY: the greatest offsets into `a` and `b` were checked above, `c` has rows · columns
                    // elements, and the kernel is available.
                    unsafe { (kernel.run)(&block) };
                    let want = (0..rows * columns).map(|at| {
                        let (i, j) = (at / columns, at % columns);
                        let product: f32 = (0..depth).map(|p| a[i * a_row + p * a_step] * b[p * b_step + j]).sum();
                        product + if depth == 13 { 1.0 } else { 0.0 }
                    });
                    // Small integers: every order of summation is exact.
                    assert_eq!(c, want.collect::<Vec<_>>(), "{} {rows}×{columns}, depth {depth}", kernel.name);
                }
            }
        }
    }
}
