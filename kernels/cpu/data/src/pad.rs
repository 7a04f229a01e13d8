//! Pad: each output row is a part of the input between two borders, or all border.
//!
//! A row is made of blocks: an index of the last padded axis together with all axes after it. Blocks inside the borders
//! lie next to each other in the input, too, and are copied as one.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel, runs};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pad, PadMode};
use bytemuck::Pod;
use std::ops::Range;

/// Approximate elements of the output that one part of a parallel run writes.
const PIECE: usize = 16 << 10;

/// Kernel of a pad: for each axis the input index of each output index, or `None` in a constant border.
struct PadKernel {
    /// Axes before the last padded one.
    outer: Vec<Vec<Option<usize>>>,
    /// Last padded axis.
    blocks: Vec<Option<usize>>,
    /// Blocks that follow each other in the input as they do in the output.
    inside: Range<usize>,
    /// Elements of a block.
    block: usize,
    /// Input stride along each axis, in elements.
    strides: Vec<usize>,
    value: Vec<u8>,
    size: usize,
}

/// Prepares a pad.
pub(crate) fn prepare(node: &NodeSpec, op: &Pad) -> Result<Box<dyn CpuKernel>, KernelError> {
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let mut sources = Vec::with_capacity(input.rank());
    let is_padded = |axis: &usize| op.before[*axis] != 0 || input.dims()[*axis] != output.dims()[*axis];
    let axes = (0..input.rank()).rev().find(is_padded).map_or(0, |last| last + 1);
    for (axis, before) in op.before[..axes].iter().enumerate() {
        let (size, count) = (input.dims()[axis], output.dims()[axis]);
        node.require(
            size > 0 || count == 0 || matches!(op.mode, PadMode::Constant(_)),
            "an axis padded with its own elements is not empty",
        )?;
        let of = |index: usize| source(op.mode, index as isize, *before, size);
        // Indices that would be mirrored twice are at the ends.
        let sound = count == 0 || (of(0).is_some() && of(count - 1).is_some());
        node.require(sound, "its borders are not narrower than what they mirror")?;
        sources.push(node.table((0..count).map(|index| of(index).flatten()))?);
    }
    let dtype = node.inputs[0].dtype;
    let value = match op.mode {
        PadMode::Constant(constant) => anabranch_cpu_base::convert::bytes_of(constant, dtype),
        PadMode::Reflect | PadMode::Edge | PadMode::Wrap => vec![0; dtype.size()],
    };
    // A tensor without a border is one block.
    let blocks = sources.pop().unwrap_or_else(|| vec![Some(0)]);
    let before = axes.checked_sub(1).map_or(0, |last| op.before[last].max(0).unsigned_abs());
    let start = before.min(blocks.len());
    let inside = (0..)
        .zip(&blocks[start..])
        .take_while(|(at, source)| source.is_some() && **source == blocks[start].map(|first| first + at));
    let inside = start..start + inside.count();
    let block = input.dims()[axes..].iter().product();
    let strides = input.strides();
    Ok(Box::new(PadKernel { outer: sources, blocks, inside, block, strides, value, size: dtype.size() }))
}

/// Returns the source of an index: `Some(None)` for the constant, `None` if the index would be mirrored twice.
fn source(mode: PadMode, index: isize, before: isize, size: usize) -> Option<Option<usize>> {
    let at = index.checked_sub(before)?;
    let last = size as isize - 1;
    if (0..=last).contains(&at) {
        return Some(Some(at as usize));
    }
    match mode {
        PadMode::Constant(_) => Some(None),
        PadMode::Edge => Some(Some(at.clamp(0, last) as usize)),
        PadMode::Wrap => Some(Some(at.rem_euclid(size as isize) as usize)),
        PadMode::Reflect => {
            let mirrored = if at < 0 { at.checked_neg()? } else { last.checked_mul(2)?.checked_sub(at)? };
            (0..=last).contains(&mirrored).then_some(Some(mirrored as usize))
        }
    }
}

impl PadKernel {
    fn pad<T: Pod + Send + Sync>(&self, call: &mut Call<'_>) {
        let source: &[T] = elements(call.inputs[0]);
        let target: &mut [T] = elements_mut(call.outputs[0]);
        let value: T = bytemuck::pod_read_unaligned(&self.value);
        let row = self.blocks.len() * self.block;
        if target.is_empty() {
            return;
        }
        // Whole rows, or parts of a long one.
        let piece = if row <= PIECE { PIECE / row * row } else { PIECE };
        call.team.run_pieces(target, piece, &|number, mut target| {
            let mut at = number * piece;
            while !target.is_empty() {
                let count = (row - at % row).min(target.len());
                let (part, rest) = target.split_at_mut(count);
                match self.row(at / row) {
                    // Behind an axis without elements there is nothing.
                    Some(from) => self.copy(source.get(from..).unwrap_or_default(), at % row, part, value),
                    None => part.fill(value),
                }
                (at, target) = (at + count, rest);
            }
        });
    }

    /// Returns the input offset of an output row, or `None` if the row is border.
    fn row(&self, mut row: usize) -> Option<usize> {
        let mut offset = 0;
        for (sources, stride) in self.outer.iter().zip(&self.strides).rev() {
            offset += sources[row % sources.len()]? * stride;
            row /= sources.len();
        }
        Some(offset)
    }

    /// Writes a part of a row, from element `at` of the row on. The row's elements begin at the start of `source`.
    fn copy<T: Pod>(&self, source: &[T], at: usize, target: &mut [T], value: T) {
        let [first, last] = [self.inside.start, self.inside.end].map(|block| block * self.block);
        let (start, end) = (first.max(at), last.min(at + target.len()));
        if start >= end {
            return self.border(source, at, target, value);
        }
        let (lead, rest) = target.split_at_mut(start - at);
        let (middle, trail) = rest.split_at_mut(end - start);
        self.border(source, at, lead, value);
        if let Some(from) = self.blocks[self.inside.start] {
            copy(&source[from * self.block + start - first..][..end - start], middle);
        }
        self.border(source, end, trail, value);
    }

    /// Writes a part of a row's border, block by block.
    fn border<T: Pod>(&self, source: &[T], at: usize, mut target: &mut [T], value: T) {
        if self.block == 1 {
            let sources = &self.blocks[at..];
            let elements = sources.iter().map(|from| from.map_or(value, |from| source[from]));
            return target.iter_mut().zip(elements).for_each(|(to, element)| *to = element);
        }
        let (mut block, mut within) = (at / self.block, at % self.block);
        while !target.is_empty() {
            let count = (self.block - within).min(target.len());
            let (part, rest) = target.split_at_mut(count);
            match self.blocks[block] {
                Some(from) => copy(&source[from * self.block + within..][..count], part),
                None => part.fill(value),
            }
            (block, within, target) = (block + 1, 0, rest);
        }
    }
}

/// Copies elements, often a few.
fn copy<T: Pod>(from: &[T], to: &mut [T]) {
    runs::copy(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
}

impl CpuKernel for PadKernel {
    fn resident_bytes(&self) -> usize {
        let axes = self.outer.iter().chain([&self.blocks]);
        axes.map(|axis| axis.len() * size_of::<Option<usize>>()).sum()
    }

    fn run(&self, mut call: Call<'_>) -> Result<(), KernelError> {
        match self.size {
            1 => self.pad::<u8>(&mut call),
            2 => self.pad::<u16>(&mut call),
            4 => self.pad::<u32>(&mut call),
            _ => self.pad::<u64>(&mut call),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::prepare;
    use crate::testing::{computed, node, run_all_ways, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Pad, PadMode};

    fn padded(mode: PadMode, before: &[isize], dims: &[usize], out: &[usize]) -> Vec<f32> {
        let op = Op::Pad(Pad { mode, before: before.to_vec() });
        computed(op, &[tensor(DType::F32, dims, |i| i as f64 + 1.0)], out)
    }

    #[test]
    fn borders_are_constant_mirrored_or_repeated() {
        assert_eq!(padded(PadMode::Constant(9.0.into()), &[1], &[2], &[4]), [9.0, 1.0, 2.0, 9.0]);
        assert_eq!(padded(PadMode::Reflect, &[2], &[3], &[7]), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]);
        assert_eq!(padded(PadMode::Edge, &[2], &[2], &[5]), [1.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!(padded(PadMode::Wrap, &[3], &[2], &[6]), [2.0, 1.0, 2.0, 1.0, 2.0, 1.0]);
        assert_eq!(padded(PadMode::ZERO, &[-1], &[3], &[2]), [2.0, 3.0]);
        assert_eq!(padded(PadMode::ZERO, &[1, 0], &[1, 2], &[2, 3]), [0.0, 0.0, 0.0, 1.0, 2.0, 0.0]);
        assert_eq!(padded(PadMode::ZERO, &[0, 1], &[2, 0], &[2, 2]), [0.0; 4]);
    }

    #[test]
    fn borders_around_any_axes_of_every_size() {
        let cases: [(&[usize], &[isize], &[usize]); 11] = [
            (&[2, 4, 9, 3, 1], &[0, 0, 0, 0, 0], &[2, 4, 10, 3, 1]),
            (&[6, 4, 7, 1, 5], &[0, 1, 0, 0, 0], &[8, 7, 7, 1, 5]),
            (&[7, 1, 34, 2], &[3, 0, 0, 0], &[10, 1, 34, 2]),
            (&[5, 20, 3], &[2, 0, 0], &[10, 21, 3]),
            (&[3, 4], &[-1, 2], &[2, 6]),
            (&[4, 3, 2], &[0, -1, 0], &[4, 2, 2]),
            (&[2, 3], &[0, 0], &[2, 3]),
            (&[2, 9000, 3], &[0, 1, 0], &[2, 9004, 3]),
            (&[3, 170, 101], &[1, 0, 0], &[5, 170, 101]),
            (&[40_000], &[7], &[40_009]),
            (&[2, 0, 3], &[1, 0, 0], &[3, 0, 3]),
        ];
        for (dims, before, out) in cases {
            for mode in [PadMode::Constant((-1.0).into()), PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
                for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
                    let inputs = [tensor(dtype, dims, |i| (i % 121) as f64)];
                    let op = Op::Pad(Pad { mode, before: before.to_vec() });
                    let got = run_all_ways(&node(op, &inputs, dtype, out), &inputs).remove(0);
                    let of = |index: usize, axis: usize| {
                        let (at, size) = (index as isize - before[axis], dims[axis] as isize);
                        let inside = (0..size).contains(&at);
                        match mode {
                            PadMode::Constant(_) => inside.then_some(at),
                            PadMode::Edge => Some(at.clamp(0, size - 1)),
                            PadMode::Wrap => Some((at + 9 * size) % size),
                            PadMode::Reflect if at < 0 => Some(-at),
                            PadMode::Reflect => Some(if inside { at } else { 2 * size - 2 - at }),
                        }
                    };
                    let constant = tensor(dtype, &[1], |_| -1.0);
                    for (flat, got) in got.bytes().chunks_exact(dtype.size()).enumerate() {
                        let (mut rest, mut from, mut stride) = (flat, Some(0), 1);
                        for axis in (0..dims.len()).rev() {
                            let source = of(rest % out[axis], axis).map(|at| at as usize * stride);
                            from = from.zip(source).map(|(sum, more)| sum + more);
                            (rest, stride) = (rest / out[axis], stride * dims[axis]);
                        }
                        let want = match from {
                            Some(from) => &inputs[0].bytes()[from * dtype.size()..][..dtype.size()],
                            None => constant.bytes(),
                        };
                        assert_eq!(got, want, "{mode:?} {dtype} {dims:?} by {before:?} at {flat}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_mirrored_is_refused() {
        for (mode, before, size, out) in
            [(PadMode::Reflect, 3, 3, 6), (PadMode::Edge, 1, 0, 1), (PadMode::Wrap, 1, 0, 1)]
        {
            let input = tensor(DType::F32, &[size], |_| 0.0);
            let node = node(Op::Pad(Pad { mode, before: vec![before] }), &[input], DType::F32, &[out]);
            assert!(prepare(&node, &[false]).is_err(), "{node:?}");
        }
    }
}
