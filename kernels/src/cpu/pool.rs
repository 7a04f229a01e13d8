//! Pooling over windows of images: greatest element or mean.

use super::elements::{elements, elements_mut};
use super::team::with_workspace;
use super::vector::{Isa, LANES, Loop, vectorised};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{NodeSpec, Pool, PoolKind};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements, read and written, that are worth a hand-over to another thread.
const PIECE: usize = 16 * 1024;

/// Elements along an axis up to which windows may reach, beside twice the input's: [`TOGETHER`] rows with their padding are held in memory.
const MOST_PADDED: usize = 1 << 19;

/// Rows of the output that are computed together.
const TOGETHER: usize = 8;

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
        let padded = end.unwrap_or(0).max(input[2 + axis].saturating_add(op.pads[axis]));
        node.require(
            padded <= MOST_PADDED.saturating_add(2 * input[2 + axis]),
            "its windows reach not too far beyond the input",
        )?;
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

    /// Elements between the windows of neighbouring outputs of a row.
    fn stride(&self) -> usize {
        if self.output[1] == 1 { 1 } else { self.op.strides[1] }
    }

    /// Numbers of a thread's workspace: a row with its padding, as far as the windows of all outputs reach, of whole vectors where these are
    /// near; and the counts of a mean.
    fn workspace(&self) -> [usize; 2] {
        let outputs = self.output[1].next_multiple_of(LANES);
        let joined = if self.stride() <= 2 { outputs.max(LANES) + LANES } else { self.output[1] };
        let reach = joined * self.stride() + (self.op.window[1] - 1) * self.op.dilations[1];
        [reach.max(self.op.pads[1] + self.input[1] + LANES), outputs]
    }
}

/// How elements of a window are joined.
trait Join {
    /// What joins with a number to that number.
    const NEUTRAL: f32;

    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector;

    /// The same of one lane.
    fn scalar(a: f32, b: f32) -> f32;
}

/// The greatest of numbers none of which is NaN.
struct Greatest;

impl Join for Greatest {
    const NEUTRAL: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        I::greater(a, b)
    }

    #[inline(always)]
    fn scalar(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }
}

struct Sum;

impl Join for Sum {
    const NEUTRAL: f32 = -0.0;

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        I::sum(a, b)
    }

    #[inline(always)]
    fn scalar(a: f32, b: f32) -> f32 {
        a + b
    }
}

/// One plane: for each row of the output the rows of its windows are joined to one, and then that one's columns; several rows at once,
/// because what was just stored is slow to load at other places.
struct Plane<'a, J> {
    kernel: &'a PoolKernel,
    source: &'a [f32],
    /// Memory for [`TOGETHER`] rows of the input with their padding.
    joined: &'a mut [f32],
    /// For the columns of the output, by how many columns of the input a mean divides.
    counts: &'a [f32],
    target: &'a mut [f32],
    join: PhantomData<J>,
}

impl<J: Join> Loop for Plane<'_, J> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel: PoolKernel { op, input: [_, width], output: [_, wide] }, source, .. } = self;
        let columns = |column: usize| column * op.dilations[1];
        self.joined.fill(J::NEUTRAL);
        let reach = self.joined.len() / TOGETHER;
        for (block, target) in self.target.chunks_mut(TOGETHER * wide).enumerate() {
            for (at, joined) in self.joined.chunks_exact_mut(reach).take(target.len() / wide).enumerate() {
                let ((rows, top), joined) =
                    (self.kernel.window(0, block * TOGETHER + at), &mut joined[op.pads[1]..][..*width]);
                let row = |i: usize| (top + ((rows.start + i) * op.dilations[0]) as isize) as usize * width;
                match rows.len() {
                    0 => joined.fill(J::NEUTRAL),
                    count => join_all::<I, J>((count, &row), source, 1, joined),
                }
            }
            for (at, target) in target.chunks_exact_mut(*wide).enumerate() {
                join_all::<I, J>(
                    (op.window[1], &columns),
                    &self.joined[at * reach..][..reach],
                    self.kernel.stride(),
                    target,
                );
                if let PoolKind::Average { .. } = op.kind {
                    let rows = self.kernel.count(0, block * TOGETHER + at) as f32;
                    target.iter_mut().zip(self.counts).for_each(|(sum, columns)| *sum /= rows * columns);
                }
            }
        }
    }
}

/// Joins to element `i` of the target the elements of `source` that are `i · stride` after the starts, of which there are so many, at
/// least one.
#[inline(always)]
fn join_all<I: Isa, J: Join>(
    (count, start): (usize, &impl Fn(usize) -> usize),
    source: &[f32],
    stride: usize,
    target: &mut [f32],
) {
    let from = |at: usize| &source[start(at)..];
    match (stride, count) {
        (1, 1) => join::<I, J, 1, 1>([from(0)], target, false),
        (1, 2) => join::<I, J, 1, 2>([from(0), from(1)], target, false),
        (1, _) => join::<I, J, 1, 3>([from(0), from(1), from(2)], target, false),
        (2, 1) => join::<I, J, 2, 1>([from(0)], target, false),
        (2, 2) => join::<I, J, 2, 2>([from(0), from(1)], target, false),
        (2, _) => join::<I, J, 2, 3>([from(0), from(1), from(2)], target, false),
        _ => target.iter_mut().zip(from(0).iter().step_by(stride)).for_each(|(to, x)| *to = *x),
    }
    for at in if stride <= 2 { 3 } else { 1 }..count {
        match stride {
            1 => join::<I, J, 1, 1>([from(at)], target, true),
            2 => join::<I, J, 2, 1>([from(at)], target, true),
            _ => target.iter_mut().zip(from(at).iter().step_by(stride)).for_each(|(to, x)| *to = J::scalar(*to, *x)),
        }
    }
}

/// Joins elements `i · STRIDE` of all sources to element `i` of the target, with what it is if `add`. With a stride of 2 the sources have as
/// many elements as a whole number of vectors of the target reaches.
#[inline(always)]
fn join<I: Isa, J: Join, const STRIDE: usize, const COUNT: usize>(
    sources: [&[f32]; COUNT],
    target: &mut [f32],
    add: bool,
) {
    for (vector, to) in target.chunks_mut(LANES).enumerate() {
        let mut all = I::splat(J::NEUTRAL);
        if add {
            all = I::load_part(to, all);
        }
        for (at, source) in sources.iter().enumerate() {
            let from = &source[vector * LANES * STRIDE..];
            let next = match from.as_chunks::<LANES>().0 {
                [low, high, ..] if STRIDE == 2 => I::even(I::load(low), I::load(high)),
                [from, ..] => I::load(from),
                [] => I::load_part(from, all),
            };
            all = if at == 0 && !add { next } else { J::join::<I>(all, next) };
        }
        match to.first_chunk_mut() {
            Some(to) => I::store(all, to),
            None => I::store_part(all, to),
        }
    }
}

/// Whether an element is NaN.
struct HasNan<'a>(&'a [f32]);

impl Loop for HasNan<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        self.0.iter().fold(false, |found, x| found | x.is_nan())
    }
}

impl PoolKernel {
    fn plane(&self, source: &[f32], joined: &mut [f32], counts: &[f32], target: &mut [f32]) {
        match self.op.kind {
            PoolKind::Max => {
                vectorised(Plane::<Greatest> {
                    kernel: self,
                    source,
                    joined,
                    counts,
                    target: &mut *target,
                    join: PhantomData,
                });
                if vectorised(HasNan(source)) {
                    self.spread_nan(source, target);
                }
            }
            PoolKind::Average { .. } => {
                vectorised(Plane::<Sum> { kernel: self, source, joined, counts, target, join: PhantomData });
            }
        }
    }

    /// Makes NaN of each output whose window holds NaN.
    fn spread_nan(&self, source: &[f32], target: &mut [f32]) {
        for (at, target) in target.iter_mut().enumerate() {
            let (rows, top) = self.window(0, at / self.output[1]);
            let (columns, left) = self.window(1, at % self.output[1]);
            let place = |start: isize, axis: usize, i: usize| (start + (i * self.op.dilations[axis]) as isize) as usize;
            let mut row = |row| {
                let row = place(top, 0, row) * self.input[1];
                columns.clone().any(|column| source[row + place(left, 1, column)].is_nan())
            };
            if rows.into_iter().any(&mut row) {
                *target = f32::NAN;
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
        let planes = (PIECE / (from + to)).max(1);
        call.team.run_pieces(target, planes * to, &|piece, target| {
            let [reach, outputs] = self.workspace();
            with_workspace(TOGETHER * reach + outputs, |memory| {
                let (joined, counts) = memory.split_at_mut(TOGETHER * reach);
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

    #[test]
    fn a_stride_that_is_never_made_takes_no_memory() {
        let pool = |kind| Pool { kind, window: [2, 2], strides: [1, 1 << 40], pads: [0; 4], dilations: [1; 2] };
        for kind in [PoolKind::Max, PoolKind::Average { count_padding: false }] {
            pooled(pool(kind), [1, 2, 3, 2], [1, 2, 2, 1]);
        }
    }

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
            // More than a vector, and more rows than go together.
            pooled(pool([3, 3], [2, 2], [1, 1, 1, 1], [1, 1]), [1, 2, 37, 83], [1, 2, 19, 42]);
            pooled(pool([4, 5], [1, 2], [0, 2, 0, 2], [1, 3]), [1, 2, 21, 50], [1, 2, 18, 21]);
            pooled(pool([1, 5], [2, 1], [0, 2, 0, 2], [1, 1]), [1, 1, 21, 50], [1, 1, 11, 50]);
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
