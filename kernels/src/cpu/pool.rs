//! Pooling over windows of images: greatest element or mean.

use super::elements::{elements, elements_mut};
use super::number::greater;
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{NodeSpec, Pool, PoolKind};
use std::ops::Range;

/// Pooling of images of one size.
struct PoolKernel {
    op: Pool,
    /// Height and width of the input and of the output.
    input: [usize; 2],
    output: [usize; 2],
}

/// Prepares a pooling.
pub(crate) fn prepare(node: &NodeSpec, op: &Pool) -> Result<Box<dyn CpuKernel>, KernelError> {
    let (input, output) = (node.inputs[0].shape.dims(), node.outputs[0].shape.dims());
    for axis in 0..2 {
        let start = (output[2 + axis].saturating_sub(1)).checked_mul(op.strides[axis]);
        let reach = (op.window[axis] - 1).checked_mul(op.dilations[axis]);
        let sum = |a: Option<usize>, b| a.and_then(|a: usize| a.checked_add(b));
        let end = sum(sum(start, reach.unwrap_or(usize::MAX)), 0).filter(|end| isize::try_from(*end).is_ok());
        let small = op.pads.iter().all(|pad| isize::try_from(*pad).is_ok());
        node.require(end.is_some() && small, "its windows lie within the address space")?;
    }
    Ok(Box::new(PoolKernel { op: op.clone(), input: [input[2], input[3]], output: [output[2], output[3]] }))
}

impl PoolKernel {
    /// Of the window at an output index along an axis: the window's elements that lie within the input, and the input index
    /// of element 0.
    fn window(&self, axis: usize, index: usize) -> (Range<usize>, isize) {
        let (size, dilation) = (self.input[axis] as isize, self.op.dilations[axis] as isize);
        let start = (index * self.op.strides[axis]) as isize - self.op.pads[axis] as isize;
        let first = (-start).max(0).unsigned_abs().div_ceil(dilation.unsigned_abs());
        let behind = (size - start).max(0).unsigned_abs().div_ceil(dilation.unsigned_abs());
        let behind = behind.min(self.op.window[axis]);
        (first.min(behind)..behind, start)
    }

    /// Elements of the window that lie within the padded input.
    fn padded(&self, axis: usize, index: usize) -> usize {
        let start = index * self.op.strides[axis];
        let size = self.input[axis] + self.op.pads[axis] + self.op.pads[axis + 2];
        size.saturating_sub(start).div_ceil(self.op.dilations[axis]).min(self.op.window[axis])
    }

    fn plane(&self, source: &[f32], target: &mut [f32]) {
        let width = self.input[1];
        let columns = |x: usize| self.window(1, x);
        for (y, target) in target.chunks_exact_mut(self.output[1]).enumerate() {
            let (rows, top) = self.window(0, y);
            let row = |i: usize| (top + (i * self.op.dilations[0]) as isize) as usize * width;
            for (x, target) in target.iter_mut().enumerate() {
                let (inside, left) = columns(x);
                let at = |j: usize| (left + (j * self.op.dilations[1]) as isize) as usize;
                let values = rows.clone().flat_map(|i| inside.clone().map(move |j| (i, j)));
                let values = values.map(|(i, j)| source[row(i) + at(j)]);
                *target = match self.op.kind {
                    PoolKind::Max => values.fold(f32::NEG_INFINITY, greater),
                    PoolKind::Average { count_padding } => {
                        let count = match count_padding {
                            true => self.padded(0, y) * self.padded(1, x),
                            false => rows.len() * inside.len(),
                        };
                        values.sum::<f32>() / count as f32
                    }
                };
            }
        }
    }
}

impl CpuKernel for PoolKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, to) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        if target.is_empty() {
            return Ok(());
        }
        // Small planes go together, so that a part is worth a hand-over.
        let planes = (16_384 / (to * self.op.window[0] * self.op.window[1]).max(1)).max(1);
        call.team.run_pieces(target, planes * to, &|piece, target| {
            for (plane, target) in target.chunks_exact_mut(to).enumerate() {
                let start = (piece * planes + plane) * from;
                self.plane(&source[start..start + from], target);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{Op, Pool, PoolKind};

    fn pooled(pool: Pool, dims: [usize; 4], out: [usize; 4]) {
        let input = tensor(DType::F32, &dims, |i| ((i * 37 + 11) % 101) as f64 - 50.0);
        let got: Vec<f32> = computed(Op::Pool(pool.clone()), std::slice::from_ref(&input), &out);
        assert_eq!(got, naive(&pool, input.elements().expect("f32"), dims, out));
    }

    /// By the definition, index by index.
    fn naive(pool: &Pool, x: &[f32], [_, _, h, w]: [usize; 4], [n, c, oh, ow]: [usize; 4]) -> Vec<f32> {
        let mut out = Vec::new();
        for (plane, y, z) in (0..n * c).flat_map(|p| (0..oh).flat_map(move |y| (0..ow).map(move |z| (p, y, z)))) {
            let (mut values, mut padded) = (Vec::new(), 0);
            for (i, j) in (0..pool.window[0]).flat_map(|i| (0..pool.window[1]).map(move |j| (i, j))) {
                let row = (y * pool.strides[0] + i * pool.dilations[0]) as isize - pool.pads[0] as isize;
                let column = (z * pool.strides[1] + j * pool.dilations[1]) as isize - pool.pads[1] as isize;
                let inside = |at: isize, size: usize, after: usize| at < (size + after) as isize;
                padded += usize::from(inside(row, h, pool.pads[2]) && inside(column, w, pool.pads[3]));
                if (0..h as isize).contains(&row) && (0..w as isize).contains(&column) {
                    values.push(x[plane * h * w + row as usize * w + column as usize]);
                }
            }
            out.push(match pool.kind {
                PoolKind::Max => values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                PoolKind::Average { count_padding } => {
                    values.iter().sum::<f32>() / if count_padding { padded } else { values.len() } as f32
                }
            });
        }
        out
    }

    #[test]
    fn windows_of_all_kinds() {
        let average = |count_padding| PoolKind::Average { count_padding };
        for kind in [PoolKind::Max, average(true), average(false)] {
            let pool = |window, strides, pads, dilations| Pool { kind, window, strides, pads, dilations };
            pooled(pool([3, 3], [2, 2], [1, 1, 1, 1], [1, 1]), [2, 3, 9, 9], [2, 3, 5, 5]);
            pooled(pool([2, 2], [2, 2], [0, 0, 0, 0], [1, 1]), [1, 2, 5, 7], [1, 2, 3, 4]);
            pooled(pool([2, 3], [1, 2], [0, 1, 1, 0], [2, 1]), [1, 1, 6, 8], [1, 1, 5, 4]);
            pooled(pool([5, 1], [1, 1], [0, 0, 0, 0], [1, 1]), [1, 1, 5, 3], [1, 1, 1, 3]);
        }
    }
}
