//! The micro-kernel for any processor: blocks of up to 6 × 8, which the compiler turns into the vectors it has.

use super::micro::{Block, MicroKernel};

pub(super) static KERNEL: MicroKernel = MicroKernel { name: "portable", rows: 6, columns: LANES, lanes: LANES, run };

const LANES: usize = 8;

/// # Safety
/// As [`MicroKernel::run`] says.
unsafe fn run(block: &Block) {
    // SAFETY: passed on to the caller.
    unsafe {
        match block.rows {
            1 => compute::<1>(block),
            2 => compute::<2>(block),
            3 => compute::<3>(block),
            4 => compute::<4>(block),
            5 => compute::<5>(block),
            _ => compute::<6>(block),
        }
    }
}

/// # Safety
/// As [`run`]; the block has `ROWS` rows.
unsafe fn compute<const ROWS: usize>(block: &Block) {
    let mut sums = [[0f32; LANES]; ROWS];
    for p in 0..block.depth {
        let mut row = [0f32; LANES];
        let b = block.b.wrapping_add(p * block.b_step);
        // SAFETY: p < depth, so `columns` elements of B's row are readable; `row` has room for them, as has each whole
        // array.
        unsafe {
            match block.columns {
                LANES => row = b.cast::<[f32; LANES]>().read(),
                columns => std::ptr::copy_nonoverlapping(b, row.as_mut_ptr(), columns),
            }
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: i < rows and p < depth.
            let factor = unsafe { *block.a.wrapping_add(i * block.a_row + p * block.a_step) };
            for (sum, b) in sums.iter_mut().zip(row) {
                *sum = multiply_add(factor, b, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        // SAFETY: row i of C has `columns` elements that are exclusively ours.
        let c = unsafe { std::slice::from_raw_parts_mut(block.c.wrapping_add(i * block.c_row), block.columns) };
        for (c, sum) in c.iter_mut().zip(sums) {
            *c = if block.accumulate { *c + sum } else { *sum };
        }
    }
}

/// `a · b + c` in one instruction where every processor of the architecture has it; else `mul_add` would be a call.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
}
