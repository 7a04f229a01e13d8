//! Strided copies: what transposition and slicing have in common.
//!
//! The output is written in order; the input is read at strides. Neighbouring axes whose strides fit are merged first, so that
//! most copies are runs of whole memory blocks. Where the output's innermost axis strides through the input while the
//! axis before it is contiguous there (a matrix transpose), blocks of 16 × 16 elements are copied, so that each cache
//! line is read once.

use super::elements::{elements, elements_mut};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::shape::merged;
use bytemuck::Pod;

/// Elements along one edge of a transposed block.
const BLOCK: usize = 16;

/// Bytes of the output that one part of a parallel run writes, at least.
const PIECE: usize = 64 << 10;

/// A copy from anywhere in one tensor to the whole of another.
pub(crate) struct StridedCopy {
    /// Output dimensions, merged where possible; never empty.
    dims: Vec<usize>,
    /// Input distance of neighbours along each of them, in elements.
    strides: Vec<isize>,
    /// Input element of the first output element.
    start: usize,
    /// Bytes of an element.
    size: usize,
}

impl StridedCopy {
    /// A copy whose output element at index `i` is input element `start + Σ iₐ · strides[a]`. The caller knows that all of
    /// these are within the input.
    pub(crate) fn new(dims: &[usize], strides: &[isize], start: usize, size: usize) -> Self {
        let axes = dims.iter().copied().zip(strides.iter().copied());
        let mut merged = merged(axes, |outer, inner, size| *outer == inner * size as isize);
        if merged.is_empty() {
            merged.push((1, 1));
        }
        let (dims, strides) = merged.into_iter().unzip();
        Self { dims, strides, start, size }
    }

    /// Copies on the call's team.
    fn copy<T: Pod + Send + Sync>(&self, call: &mut Call<'_>) {
        let source: &[T] = elements(call.inputs[0]);
        let target: &mut [T] = elements_mut(call.outputs[0]);
        let rank = self.dims.len();
        let is_transpose = rank >= 2 && self.strides[rank - 1] != 1 && self.strides[rank - 2] == 1;
        let inner = if is_transpose { self.dims[rank - 2] * self.dims[rank - 1] } else { self.dims[rank - 1] };
        if inner == 0 || target.is_empty() {
            return;
        }
        let outer = (PIECE / (inner * size_of::<T>())).max(1);
        call.team.run_pieces(target, outer * inner, &|piece, target| {
            for (row, target) in target.chunks_exact_mut(inner).enumerate() {
                let from = self.offset(piece * outer + row, if is_transpose { rank - 2 } else { rank - 1 });
                if is_transpose { self.transpose(source, from, target) } else { self.line(source, from, target) }
            }
        });
    }

    /// The input element at which the block of this number begins, blocks being counted over the first `axes` axes.
    fn offset(&self, mut block: usize, axes: usize) -> isize {
        let mut offset = self.start as isize;
        for axis in (0..axes).rev() {
            offset += (block % self.dims[axis]) as isize * self.strides[axis];
            block /= self.dims[axis];
        }
        offset
    }

    fn line<T: Copy>(&self, source: &[T], from: isize, target: &mut [T]) {
        match self.strides[self.dims.len() - 1] {
            1 => target.copy_from_slice(&source[from as usize..][..target.len()]),
            stride => {
                for (index, target) in target.iter_mut().enumerate() {
                    *target = source[(from + index as isize * stride) as usize];
                }
            }
        }
    }

    fn transpose<T: Copy>(&self, source: &[T], from: isize, target: &mut [T]) {
        let rank = self.dims.len();
        let (rows, columns, stride) = (self.dims[rank - 2], self.dims[rank - 1], self.strides[rank - 1]);
        for row in (0..rows).step_by(BLOCK) {
            for column in (0..columns).step_by(BLOCK) {
                let width = BLOCK.min(columns - column);
                for i in row..rows.min(row + BLOCK) {
                    let target = &mut target[i * columns + column..][..width];
                    for (j, target) in target.iter_mut().enumerate() {
                        *target = source[(from + i as isize + (column + j) as isize * stride) as usize];
                    }
                }
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
