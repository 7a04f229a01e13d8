//! Strided copies, which transposition and slicing share.
//!
//! The output is written in order; the input is read at strides. Neighbouring axes whose strides fit are merged first,
//! so that most copies are runs of whole memory blocks. In a matrix transpose, the output's innermost axis strides
//! through the input, and the axis before it is contiguous there. Then stripes of 16 rows are copied block by block, so
//! that each cache line is read once. Elements of four bytes go through vector registers.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel, gemm, runs};
use anabranch_op::error::KernelError;
use anabranch_op::shape::merged;
use bytemuck::Pod;

/// Elements along one edge of a transposed block.
const BLOCK: usize = 16;

/// Columns, or distance between elements, up to which there are copies for each number.
const FEW: usize = 8;

/// Columns of a few rows that are copied at a time.
const PART: usize = 256;

/// Minimum bytes of the output that one part of a parallel run writes.
const PIECE: usize = 64 << 10;

/// Copy of a strided part of one tensor to the whole of another.
pub(crate) struct StridedCopy {
    /// Output dimensions, merged if possible; never empty.
    dims: Vec<usize>,
    /// Input stride along each of them, in elements.
    strides: Vec<isize>,
    /// Input element of the first output element.
    start: usize,
    /// Bytes of an element.
    size: usize,
}

impl StridedCopy {
    /// Creates a copy whose output element at index `i` is input element `start + Σ iₐ · strides[a]`. The caller knows
    /// that all of these are within the input.
    pub(crate) fn new(dims: &[usize], strides: &[isize], start: usize, size: usize) -> Self {
        let axes = dims.iter().copied().zip(strides.iter().copied());
        let mut merged = merged(axes, |outer, inner, size| *outer == inner * size as isize);
        if merged.is_empty() {
            merged.push((1, 1));
        }
        let (dims, strides) = merged.into_iter().unzip();
        Self { dims, strides, start, size }
    }

    /// Copies on the call's team, in pieces of whole lines.
    fn copy<T: Pod + Send + Sync>(&self, call: &mut Call<'_>) {
        let source: &[T] = elements(call.inputs[0]);
        let target: &mut [T] = elements_mut(call.outputs[0]);
        let [rows, columns] = self.matrix().map(|(size, _)| size);
        if target.is_empty() {
            return;
        }
        let lines = self.lines(size_of::<T>());
        call.team.run_pieces(target, lines * columns, &|piece, mut target| {
            let mut line = piece * lines;
            while !target.is_empty() {
                let row = line % rows;
                let count = (rows - row).min(target.len() / columns);
                let (part, rest) = target.split_at_mut(count * columns);
                self.copy_lines(source, self.offset(line / rows, row), part);
                (target, line) = (rest, line + count);
            }
        });
    }

    /// Returns the lines of a piece: whole stripes of a transposed matrix.
    fn lines(&self, size: usize) -> usize {
        let [(rows, down), (columns, right)] = self.matrix();
        let lines = (PIECE / (columns * size)).max(1);
        match right {
            1 => lines,
            // Whole matrices of a few rows.
            _ if down == 1 && rows <= FEW && right as usize == rows => lines.next_multiple_of(rows),
            _ => lines.next_multiple_of(BLOCK),
        }
    }

    /// Returns the innermost two axes.
    fn matrix(&self) -> [(usize, isize); 2] {
        let axis = |from_end: usize| {
            let axis = self.dims.len().checked_sub(from_end);
            axis.map_or((1, 1), |axis| (self.dims[axis], self.strides[axis]))
        };
        [axis(2), axis(1)]
    }

    /// Returns the input element at which a row of matrix number `matrix` begins. Matrices are counted over the outer
    /// axes.
    fn offset(&self, mut matrix: usize, row: usize) -> isize {
        let mut offset = self.start as isize + row as isize * self.matrix()[0].1;
        for axis in (0..self.dims.len().saturating_sub(2)).rev() {
            offset += (matrix % self.dims[axis]) as isize * self.strides[axis];
            matrix /= self.dims[axis];
        }
        offset
    }

    /// Copies lines of one matrix; the first line begins at element `from`.
    fn copy_lines<T: Pod>(&self, source: &[T], from: isize, target: &mut [T]) {
        let [(_, down), (columns, right)] = self.matrix();
        match (down, right) {
            (1, _) if (2..=FEW).contains(&columns) && right > 1 => few(columns, Few { source, from, right, target }),
            (_, 1) => {
                for (row, target) in target.chunks_exact_mut(columns).enumerate() {
                    let source = &source[(from + row as isize * down) as usize..][..columns];
                    runs::copy(bytemuck::cast_slice(source), bytemuck::cast_slice_mut(target));
                }
            }
            (_, 2..) if right as usize <= FEW => few(right as usize, Apart { source, from, down, columns, target }),
            (1, 2..) if size_of::<T>() == size_of::<f32>() => {
                let source: &[f32] = bytemuck::cast_slice(&source[from as usize..]);
                for (stripe, target) in target.chunks_mut(BLOCK * columns).enumerate() {
                    let size = (columns, target.len() / columns);
                    let target = bytemuck::cast_slice_mut(target);
                    gemm::transpose(&source[stripe * BLOCK..], (right as usize, 1), size, target, columns);
                }
            }
            _ => {
                for (stripe, target) in target.chunks_mut(BLOCK * columns).enumerate() {
                    let from = from + (stripe * BLOCK) as isize * down;
                    copy_stripe(source, from, (down, right), columns, target);
                }
            }
        }
    }
}

/// Copy that is compiled for a number of columns or a distance, so that its loop becomes vectors.
trait OfFew {
    fn copy<const N: usize>(self);
}

/// Does a copy for a number from 2 to [`FEW`].
fn few(number: usize, copy: impl OfFew) {
    match number {
        2 => copy.copy::<2>(),
        3 => copy.copy::<3>(),
        4 => copy.copy::<4>(),
        5 => copy.copy::<5>(),
        6 => copy.copy::<6>(),
        7 => copy.copy::<7>(),
        _ => copy.copy::<FEW>(),
    }
}

/// Lines of a few elements, which are `right` apart in the input; elements of neighbouring lines are neighbours there.
struct Few<'a, T> {
    source: &'a [T],
    from: isize,
    right: isize,
    target: &'a mut [T],
}

impl<T: Pod> OfFew for Few<'_, T> {
    fn copy<const N: usize>(self) {
        vectorised(Interleaved::<T, N>(self));
    }
}

struct Interleaved<'a, T, const N: usize>(Few<'a, T>);

impl<T: Pod, const N: usize> Loop for Interleaved<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Few { source, from, right, target } = self.0;
        let lines = target.as_chunks_mut::<N>().0;
        let count = lines.len();
        let columns: [&[T]; N] =
            std::array::from_fn(|column| &source[(from + column as isize * right) as usize..][..count]);
        for (at, line) in lines.iter_mut().enumerate() {
            *line = std::array::from_fn(|column| columns[column][at]);
        }
    }
}

/// Lines of elements that are a few elements apart in the input. The lines begin `down` elements apart.
struct Apart<'a, T> {
    source: &'a [T],
    from: isize,
    down: isize,
    columns: usize,
    target: &'a mut [T],
}

impl<T: Pod> OfFew for Apart<'_, T> {
    fn copy<const N: usize>(self) {
        vectorised(Every::<T, N>(self));
    }
}

struct Every<'a, T, const N: usize>(Apart<'a, T>);

impl<T: Pod, const N: usize> Loop for Every<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Apart { source, from, down, columns, target } = self.0;
        // Elements of a part stay in the L1 cache while each line takes its own.
        for start in (0..columns).step_by(PART) {
            let count = PART.min(columns - start);
            for (line, target) in target.chunks_exact_mut(columns).enumerate() {
                let first = (from + line as isize * down) as usize + start * N;
                let source = &source[first..][..(count - 1) * N + 1];
                let (most, last) = target[start..][..count].split_at_mut(count - 1);
                most.iter_mut().zip(source.as_chunks::<N>().0).for_each(|(to, from)| *to = from[0]);
                last.copy_from_slice(&source[source.len() - 1..]);
            }
        }
    }
}

/// Copies a few lines block by block.
fn copy_stripe<T: Copy>(source: &[T], from: isize, (down, right): (isize, isize), columns: usize, target: &mut [T]) {
    for column in (0..columns).step_by(BLOCK) {
        for (row, target) in target.chunks_exact_mut(columns).enumerate() {
            let from = from + row as isize * down;
            for (at, target) in target.iter_mut().enumerate().skip(column).take(BLOCK) {
                *target = source[(from + at as isize * right) as usize];
            }
        }
    }
}

impl CpuKernel for StridedCopy {
    fn run(&self, mut call: Call<'_>) -> Result<(), KernelError> {
        match self.size {
            1 => self.copy::<u8>(&mut call),
            2 => self.copy::<u16>(&mut call),
            4 => self.copy::<u32>(&mut call),
            _ => self.copy::<u64>(&mut call),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_long_rows_are_shared_out() {
        let whole = StridedCopy::new(&[12, 8192], &[16384, 1], 0, 4);
        assert_eq!(whole.lines(whole.size), 2);
        let few = StridedCopy::new(&[8, 4 << 20], &[5 << 20, 1], 0, 4);
        assert_eq!(few.lines(few.size), 1);
        let transposed = StridedCopy::new(&[64, 8192], &[1, 64], 0, 4);
        assert_eq!(transposed.lines(transposed.size), BLOCK);
    }
}
