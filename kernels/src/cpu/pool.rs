//! Pooling over windows of images: greatest element or mean.

use super::elements::{elements, elements_mut};
use super::number::greater;
use super::team::with_workspace;
use super::vector::{Isa, Loop, vectorised};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{NodeSpec, Pool, PoolKind};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements, read and written, that are worth a hand-over to another thread.
const PIECE: usize = 16 * 1024;

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

    /// The elements of that window that a mean is taken over.
    fn count(&self, axis: usize, index: usize) -> usize {
        if let PoolKind::Average { count_padding: true } = self.op.kind {
            let size = self.input[axis] + self.op.pads[axis] + self.op.pads[axis + 2];
            let behind = size.saturating_sub(index * self.op.strides[axis]);
            return behind.div_ceil(self.op.dilations[axis]).min(self.op.window[axis]);
        }
        self.window(axis, index).0.len()
    }

    /// The columns of windows that lie within the input for some output.
    fn columns(&self) -> Range<usize> {
        let (before, dilation) = (self.op.pads[1], self.op.dilations[1]);
        let first = before.saturating_sub((self.output[1] - 1) * self.op.strides[1]).div_ceil(dilation);
        first..(self.input[1] + before).div_ceil(dilation).min(self.op.window[1])
    }

    /// The outputs along a row for which a column of the window lies within the input.
    fn reached(&self, column: usize) -> Range<usize> {
        let (offset, stride, before) = (column * self.op.dilations[1], self.op.strides[1], self.op.pads[1]);
        let behind = (self.input[1] + before).saturating_sub(offset).div_ceil(stride).min(self.output[1]);
        before.saturating_sub(offset).div_ceil(stride).min(behind)..behind
    }
}

/// How elements of a window are joined.
trait Join {
    /// What joins with a number to that number.
    const NEUTRAL: f32;

    fn join(a: f32, b: f32) -> f32;
}

struct Greatest;

impl Join for Greatest {
    const NEUTRAL: f32 = f32::NEG_INFINITY;

    /// NaN if one is.
    #[inline(always)]
    fn join(a: f32, b: f32) -> f32 {
        greater(a, b)
    }
}

struct Sum;

impl Join for Sum {
    const NEUTRAL: f32 = -0.0;

    #[inline(always)]
    fn join(a: f32, b: f32) -> f32 {
        a + b
    }
}

/// One plane: for each row of the output the rows of its windows are joined to one, and then that one's columns.
struct Plane<'a, J> {
    kernel: &'a PoolKernel,
    source: &'a [f32],
    /// Memory for a row of the input.
    joined: &'a mut [f32],
    target: &'a mut [f32],
    join: PhantomData<J>,
}

impl<J: Join> Loop for Plane<'_, J> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (op, width) = (&self.kernel.op, self.kernel.input[1]);
        for (y, target) in self.target.chunks_exact_mut(self.kernel.output[1]).enumerate() {
            let (rows, top) = self.kernel.window(0, y);
            target.fill(J::NEUTRAL);
            if rows.is_empty() {
                continue;
            }
            let row = |i: usize| &self.source[(top + (i * op.dilations[0]) as isize) as usize * width..][..width];
            self.joined.copy_from_slice(row(rows.start));
            for i in rows.start + 1..rows.end {
                self.joined.iter_mut().zip(row(i)).for_each(|(joined, x)| *joined = J::join(*joined, *x));
            }
            for column in self.kernel.columns() {
                let reached = self.kernel.reached(column);
                if !reached.is_empty() {
                    let first = reached.start * op.strides[1] + column * op.dilations[1] - op.pads[1];
                    join_column::<J>(&mut target[reached], &self.joined[first..], op.strides[1]);
                }
            }
        }
    }
}

/// Joins every `stride`th element of `source` to the target.
#[inline(always)]
fn join_column<J: Join>(target: &mut [f32], source: &[f32], stride: usize) {
    let join = |(target, x): (&mut f32, &f32)| *target = J::join(*target, *x);
    match stride {
        1 => target.iter_mut().zip(source).for_each(join),
        // Pairs become vectors, which a step of unknown length does not.
        2 => {
            let (pairs, rest) = source.as_chunks::<2>();
            let (whole, last) = target.split_at_mut(target.len().min(pairs.len()));
            whole.iter_mut().zip(pairs).for_each(|(target, [x, _])| join((target, x)));
            last.iter_mut().zip(rest).for_each(join);
        }
        _ => target.iter_mut().zip(source.iter().step_by(stride)).for_each(join),
    }
}

impl PoolKernel {
    fn plane(&self, source: &[f32], joined: &mut [f32], counts: &[f32], target: &mut [f32]) {
        if let PoolKind::Max = self.op.kind {
            return vectorised(Plane::<Greatest> { kernel: self, source, joined, target, join: PhantomData });
        }
        vectorised(Plane::<Sum> { kernel: self, source, joined, target: &mut *target, join: PhantomData });
        for (y, target) in target.chunks_exact_mut(self.output[1]).enumerate() {
            let rows = self.count(0, y) as f32;
            target.iter_mut().zip(counts).for_each(|(sum, columns)| *sum /= rows * columns);
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
        let planes = (PIECE / (from + to)).max(1);
        call.team.run_pieces(target, planes * to, &|piece, target| {
            with_workspace(self.input[1] + self.output[1], |memory| {
                let (joined, counts) = memory.split_at_mut(self.input[1]);
                counts.iter_mut().enumerate().for_each(|(x, count)| *count = self.count(1, x) as f32);
                for (plane, target) in target.chunks_exact_mut(to).enumerate() {
                    let start = (piece * planes + plane) * from;
                    self.plane(&source[start..start + from], joined, counts, target);
                }
            });
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
            pooled(pool([2, 3], [3, 3], [1, 2, 1, 2], [1, 2]), [1, 2, 8, 11], [1, 2, 3, 4]);
        }
        // Windows that lie outside.
        let outside = Pool { kind: PoolKind::Max, window: [1, 2], strides: [1, 1], pads: [2; 4], dilations: [1, 1] };
        pooled(outside, [1, 1, 3, 3], [1, 1, 7, 6]);
    }

    #[test]
    fn the_greatest_of_a_window_with_nan_is_nan() {
        for at in 0..4 {
            let input = tensor(DType::F32, &[1, 1, 2, 2], |i| if i == at { f64::NAN } else { i as f64 });
            let op = Pool { kind: PoolKind::Max, window: [2, 2], strides: [1, 1], pads: [0; 4], dilations: [1, 1] };
            assert!(computed::<f32>(Op::Pool(op), &[input], &[1, 1, 1, 1])[0].is_nan(), "{at}");
        }
    }
}
