//! Pad: each output row is an input row between two borders, or all border.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pad, PadMode};
use bytemuck::Pod;
use std::ops::Range;

/// Approximate elements of the output that one part of a parallel run writes.
const PIECE: usize = 16 << 10;

/// Kernel of a pad: for each axis the input index of each output index, or `None` in a constant border.
struct PadKernel {
    sources: Vec<Vec<Option<usize>>>,
    /// Elements of a row that are consecutive in the input.
    inside: Range<usize>,
    strides: Vec<usize>,
    value: Vec<u8>,
    size: usize,
}

/// Prepares a pad.
pub(crate) fn prepare(node: &NodeSpec, op: &Pad) -> Result<Box<dyn CpuKernel>, KernelError> {
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let mut sources = Vec::with_capacity(input.rank());
    for (axis, before) in op.before.iter().enumerate() {
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
        PadMode::Reflect | PadMode::Edge => vec![0; dtype.size()],
    };
    if sources.is_empty() {
        sources.push(vec![Some(0)]);
    }
    let strides = if input.rank() == 0 { vec![1] } else { input.strides() };
    let row = &sources[sources.len() - 1];
    let start = op.before.last().map_or(0, |before| before.unsigned_abs() * usize::from(*before > 0)).min(row.len());
    let inside = (0..)
        .zip(&row[start..])
        .take_while(|(at, source)| source.is_some() && **source == row[start].map(|first| first + at));
    let inside = start..start + inside.count();
    Ok(Box::new(PadKernel { sources, inside, strides, value, size: dtype.size() }))
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
        let (columns, outer) = self.sources.split_last().expect("a scalar was given one axis");
        let width = columns.len();
        if target.is_empty() {
            return;
        }
        let rows = (PIECE / width).max(1);
        call.team.run_pieces(target, rows * width, &|piece, target| {
            for (row, target) in target.chunks_exact_mut(width).enumerate() {
                match self.row(outer, piece * rows + row) {
                    Some(from) => {
                        for at in (0..self.inside.start).chain(self.inside.end..width) {
                            target[at] = columns[at].map_or(value, |column| source[from + column]);
                        }
                        if let Some(first) = columns.get(self.inside.start).copied().flatten() {
                            target[self.inside.clone()].copy_from_slice(&source[from + first..][..self.inside.len()]);
                        }
                    }
                    None => target.fill(value),
                }
            }
        });
    }

    /// Returns the input offset of an output row, or `None` if the row is border.
    fn row(&self, outer: &[Vec<Option<usize>>], mut row: usize) -> Option<usize> {
        let mut offset = 0;
        for (axis, sources) in outer.iter().enumerate().rev() {
            offset += sources[row % sources.len()]? * self.strides[axis];
            row /= sources.len();
        }
        Some(offset)
    }
}

impl CpuKernel for PadKernel {
    fn resident_bytes(&self) -> usize {
        self.sources.iter().map(|axis| axis.len() * size_of::<Option<usize>>()).sum()
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
    use crate::testing::{computed, node, tensor};
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
        assert_eq!(padded(PadMode::ZERO, &[-1], &[3], &[2]), [2.0, 3.0]);
        assert_eq!(padded(PadMode::ZERO, &[1, 0], &[1, 2], &[2, 3]), [0.0, 0.0, 0.0, 1.0, 2.0, 0.0]);
    }

    #[test]
    fn what_cannot_be_mirrored_is_refused() {
        for (mode, before, size, out) in [(PadMode::Reflect, 3, 3, 6), (PadMode::Edge, 1, 0, 1)] {
            let input = tensor(DType::F32, &[size], |_| 0.0);
            let node = node(Op::Pad(Pad { mode, before: vec![before] }), &[input], DType::F32, &[out]);
            assert!(prepare(&node, &[false]).is_err(), "{node:?}");
        }
    }
}
