//! Pooling over windows of images: greatest element or mean.

mod general;
mod small;

use general::Planes;
use small::{Copied, Small};

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::{Grid, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pool, PoolKind};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements, read and written, that are worth a hand-over to another thread.
const PIECE: usize = 16 * 1024;

/// Maximum elements along an axis that windows may reach, in addition to twice the input's. The rows from which
/// [`TOGETHER`] rows of the output are made, at most 17, are held in memory with their padding.
const MOST_PADDED: usize = 1 << 19;

/// Prefetch distance in elements: images come from memory, row after row.
const AHEAD: usize = 1024;

/// Rows of the output that are computed together.
const TOGETHER: usize = 8;

/// Maximum elements that are joined in one part, unless a row of the output has more: some milliseconds, after which a
/// run can be interrupted.
const MOST_JOINED: usize = 1 << 24;

/// Pooling of images of one size.
pub struct PoolKernel {
    /// Window and kind of the pooling.
    pub op: Pool,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
}

/// Prepares a pooling.
pub(crate) fn prepare(node: &NodeSpec, op: &Pool) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(Box::new(PoolKernel::new(node, op)?))
}

impl PoolKernel {
    /// Creates the pooling of a node.
    ///
    /// # Errors
    /// If its windows reach too far beyond the input.
    pub fn new(node: &NodeSpec, op: &Pool) -> Result<Self, KernelError> {
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
        Ok(Self { op: op.clone(), input: [input[2], input[3]], output: [output[2], output[3]] })
    }

    /// Returns, for the window at an output index along an axis, the window's elements that lie within the input, and
    /// the input index of element 0.
    #[inline]
    pub fn window(&self, axis: usize, index: usize) -> (Range<usize>, isize) {
        let (size, dilation) = (self.input[axis] as isize, self.op.dilations[axis]);
        let start = (index * self.op.strides[axis]) as isize - self.op.pads[axis] as isize;
        // Divisions are slow, and most windows need none.
        let elements = |distance: isize| match distance.max(0).unsigned_abs() {
            distance if dilation == 1 => distance,
            distance => distance.div_ceil(dilation),
        };
        let (first, behind) = (elements(-start), elements(size - start));
        let behind = behind.min(self.op.window[axis]);
        (first.min(behind)..behind, start)
    }

    /// Returns the number of the window's elements over which a mean is taken.
    #[inline]
    pub fn count(&self, axis: usize, index: usize) -> usize {
        if let PoolKind::Average { count_padding: true } = self.op.kind {
            let size = self.input[axis] + self.op.pads[axis] + self.op.pads[axis + 2];
            let behind = size.saturating_sub(index * self.op.strides[axis]);
            return behind.div_ceil(self.op.dilations[axis]).min(self.op.window[axis]);
        }
        self.window(axis, index).0.len()
    }

    /// Returns the elements between the windows of neighbouring outputs of a row.
    fn stride(&self) -> usize {
        if self.output[1] == 1 { 1 } else { self.op.strides[1] }
    }

    /// Whether the columns of a joined row are parted into even and odd ones. With a stride of 2, the elements at the
    /// same position of neighbouring windows then lie side by side.
    fn parts(&self) -> bool {
        self.stride() == 2
    }

    /// Returns the sizes of a thread's workspace, in numbers. The first is a row with its padding, as far as the
    /// windows of all outputs reach, in whole vectors if these are near. The second is the counts of a mean, or the
    /// columns that hold NaN.
    fn workspace(&self) -> [usize; 2] {
        let outputs = self.output[1].next_multiple_of(LANES);
        let (last, [left, width]) = ((self.op.window[1] - 1) * self.op.dilations[1], [self.op.pads[1], self.input[1]]);
        let reach = match self.stride() {
            1 => (outputs + LANES + last).max(left + width.next_multiple_of(2 * LANES)),
            2 => 2 * (outputs + LANES + last / 2).max(left / 2 + 1 + width.div_ceil(2).next_multiple_of(LANES)),
            stride => (self.output[1] * stride + last).max(left + width.next_multiple_of(2 * LANES)),
        };
        [reach, if let PoolKind::Max = self.op.kind { self.input[1] } else { outputs }]
    }

    /// Returns the positions of an input row's even and odd columns in a joined row that is parted.
    fn parted<'a>(&self, joined: &'a mut [f32]) -> [&'a mut [f32]; 2] {
        let (even, odd) = joined.split_at_mut(joined.len() / 2);
        let left = self.op.pads[1];
        match left % 2 {
            0 => [&mut even[left / 2..], &mut odd[left / 2..]],
            _ => [&mut odd[left / 2..], &mut even[left / 2 + 1..]],
        }
    }
}

/// Function that joins elements of a window.
trait Join {
    /// Number that changes nothing when joined.
    const NEUTRAL: f32;
    /// Whether NaN joined with a number gives NaN.
    const KEEPS_NAN: bool;

    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector;

    /// Joins two numbers, as `join` does in each lane.
    fn scalar(a: f32, b: f32) -> f32;
}

/// Greatest of numbers none of which is NaN.
struct Greatest;

impl Join for Greatest {
    const NEUTRAL: f32 = f32::NEG_INFINITY;
    const KEEPS_NAN: bool = false;

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
    const KEEPS_NAN: bool = true;

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        I::sum(a, b)
    }

    #[inline(always)]
    fn scalar(a: f32, b: f32) -> f32 {
        a + b
    }
}

impl PoolKernel {
    /// Pools planes with a workspace from [`pool`](Self::pool).
    fn planes(&self, copied: Option<Copied>, source: &[f32], [rows, beside]: [&mut [f32]; 2], target: &mut [f32]) {
        match self.op.kind {
            PoolKind::Max => {
                if self.joined::<Greatest>(copied, source, [rows, beside], target) {
                    let planes = source.chunks_exact(self.input[0] * self.input[1]);
                    let targets = target.chunks_exact_mut(self.output[0] * self.output[1]);
                    planes.zip(targets).for_each(|(source, target)| self.spread_nan(source, beside, target));
                }
            }
            PoolKind::Average { .. } => {
                self.joined::<Sum>(copied, source, [rows, beside], target);
            }
        }
    }

    /// Pools planes, and returns whether an element that a window may hold is NaN and was lost.
    fn joined<J: Join>(
        &self,
        copied: Option<Copied>,
        source: &[f32],
        [rows, counts]: [&mut [f32]; 2],
        target: &mut [f32],
    ) -> bool {
        let (kernel, join) = (self, PhantomData::<J>);
        match copied {
            Some(copied) => vectorised(Small { kernel, copied, source, copy: rows, counts, target, join }),
            None => vectorised(Planes { kernel, source, joined: rows, counts, target, join }),
        }
    }

    /// Sets each output to NaN whose window holds NaN, from the columns that hold NaN in each row of windows.
    fn spread_nan(&self, source: &[f32], columns: &mut [f32], target: &mut [f32]) {
        let place = |start: isize, axis: usize, i: usize| (start + (i * self.op.dilations[axis]) as isize) as usize;
        for (y, target) in target.chunks_exact_mut(self.output[1]).enumerate() {
            let (rows, top) = self.window(0, y);
            columns.fill(0.0);
            for row in rows.map(|row| place(top, 0, row)) {
                let row = &source[row * self.input[1]..][..self.input[1]];
                columns.iter_mut().zip(row).filter(|(_, x)| x.is_nan()).for_each(|(column, _)| *column = 1.0);
            }
            for (x, target) in target.iter_mut().enumerate() {
                let (mut window, left) = self.window(1, x);
                if window.any(|column| columns[place(left, 1, column)] != 0.0) {
                    *target = f32::NAN;
                }
            }
        }
    }
}

impl PoolKernel {
    /// Returns the rows of the output that are worth a part.
    fn band(&self) -> usize {
        let joined = [0, 1].map(|axis| self.op.window[axis].saturating_mul([self.input[1], self.output[1]][axis]));
        (MOST_JOINED / joined[0].saturating_add(joined[1]).max(1)).max(1)
    }

    /// Returns the pooling that makes these rows of an image's output, and the rows of the image that it reads.
    fn of_rows(&self, rows: &Range<usize>) -> (Self, Range<usize>) {
        let ([top, left, bottom, right], height) = (self.op.pads, self.input[0]);
        // Rows of the padded image.
        let first = rows.start * self.op.strides[0];
        let behind = (rows.end - 1) * self.op.strides[0] + (self.op.window[0] - 1) * self.op.dilations[0] + 1;
        let within = |row: usize| row.saturating_sub(top).min(height);
        let below = behind.min(top + height + bottom).saturating_sub(first.max(top + height));
        let op = Pool { pads: [top.saturating_sub(first), left, below, right], ..self.op.clone() };
        let read = within(first)..within(behind);
        (Self { op, input: [read.len(), self.input[1]], output: [rows.len(), self.output[1]] }, read)
    }

    /// Pools consecutive images, with a workspace of this thread.
    fn pool(&self, source: &[f32], target: &mut [f32]) {
        let (copied, [reach, beside]) = (Copied::of(self), self.workspace());
        let rows = copied.map_or(TOGETHER * reach, Copied::elements);
        with_workspace(rows + beside, |memory| {
            let (rows, beside) = memory.split_at_mut(rows);
            if let PoolKind::Average { .. } = self.op.kind {
                // Columns beyond the last output are divided too, but not stored.
                let count = |x| if x < self.output[1] { self.count(1, x) as f32 } else { 1.0 };
                beside.iter_mut().enumerate().for_each(|(x, of)| *of = count(x));
            }
            self.planes(copied, source, [rows, beside], target);
        });
    }

    /// Pools all images; an image with more than `band` rows of output is pooled by bands of that many rows.
    fn run_by_bands(&self, call: Call<'_>, band: usize) {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, to) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        if target.is_empty() {
            return;
        }
        if band < self.output[0] {
            let [rows, columns] = self.output;
            let grid = Grid { batch: target.len() / to, rows, columns, tile_rows: band, tile_columns: columns };
            return call.team.run_tiles(target, grid, &|mut tile| {
                let (kernel, read) = self.of_rows(&tile.rows);
                let source = &source[tile.matrix * from..][..from];
                kernel.pool(&source[read.start * self.input[1]..read.end * self.input[1]], tile.whole_rows());
            });
        }
        // Small planes are pooled together, so that a part is worth a hand-over.
        let planes = (PIECE / (from + to)).min(band / self.output[0]).max(1);
        call.team.run_pieces(target, planes * to, &|piece, target| {
            self.pool(&source[piece * planes * from..][..target.len() / to * from], target);
        });
    }
}

impl CpuKernel for PoolKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        self.run_by_bands(call, self.band());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, PoolKernel};
    use crate::testing::{computed, tensor};
    use anabranch_cpu_base::Team;
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Pool, PoolKind};

    #[test]
    fn a_stride_that_is_never_made_takes_no_memory() {
        let pool = |kind| Pool { kind, window: [2, 2], strides: [1, 1 << 61], pads: [0; 4], dilations: [1; 2] };
        for kind in [PoolKind::Max, PoolKind::Average { count_padding: false }] {
            pooled(pool(kind), [1, 2, 3, 2], [1, 2, 2, 1]);
            let high = Pool { strides: [1 << 61, 1], ..pool(kind) };
            pooled(high, [1, 2, 2, 3], [1, 2, 1, 2]);
        }
    }

    fn pooled(pool: Pool, dims: [usize; 4], out: [usize; 4]) {
        let input = tensor(DType::F32, &dims, |i| ((i * 37 + 11) % 101) as f64 - 50.0);
        let got: Vec<f32> = computed(Op::Pool(pool.clone()), std::slice::from_ref(&input), &out);
        assert_eq!(got, naive(&pool, input.elements().expect("f32"), dims, out));
    }

    /// Computes the definition, index by index.
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
            // More than a vector, and more rows than are computed together.
            pooled(pool([3, 3], [2, 2], [1, 1, 1, 1], [1, 1]), [1, 2, 37, 83], [1, 2, 19, 42]);
            pooled(pool([4, 5], [1, 2], [0, 2, 0, 2], [1, 3]), [1, 2, 21, 50], [1, 2, 18, 21]);
            pooled(pool([1, 5], [2, 1], [0, 2, 0, 2], [1, 1]), [1, 1, 21, 50], [1, 1, 11, 50]);
            // Pieces that begin within the images.
            pooled(pool([3, 3], [2, 2], [1, 1, 1, 1], [1, 1]), [1, 40, 30, 30], [1, 40, 15, 15]);
            pooled(pool([2, 2], [2, 2], [0, 0, 0, 0], [1, 1]), [1, 40, 30, 30], [1, 40, 15, 15]);
            // Small windows: read in place, copied, of a single row or column, and with a last plane that ends with its
            // memory.
            for (window, strides, pads) in [2, 3].into_iter().flat_map(|window| {
                let strides = [[1, 1], [2, 2], [1, 2], [2, 1]];
                strides.into_iter().flat_map(move |strides| {
                    let pads = [[0; 4], [1; 4], [0, 1, 1, 0], [window - 1, 0, 0, window - 1]];
                    pads.into_iter().map(move |pads| (window, strides, pads))
                })
            }) {
                for [h, w] in [[3, 3], [4, 17], [14, 14], [19, 33], [20, 64], [9, 65], [3, 130]] {
                    let places = |size: usize, at: usize| (size + pads[at] + pads[at + 2] - window) / strides[at] + 1;
                    let out = [2, 3, places(h, 0), places(w, 1)];
                    pooled(pool([window; 2], strides, pads, [1, 1]), [2, 3, h, w], out);
                }
            }
        }
        // Windows that lie outside of the image.
        let outside = Pool { kind: PoolKind::Max, window: [1, 2], strides: [1, 1], pads: [2; 4], dilations: [1, 1] };
        pooled(outside, [1, 1, 3, 3], [1, 1, 7, 6]);
    }

    #[test]
    fn bands_of_rows_have_the_bits_of_whole_images() {
        let average = |count_padding| PoolKind::Average { count_padding };
        // Window, strides, dilation, padding, rows beyond it, and width. Small windows are read in place in some bands
        // and copied in others.
        let sizes = [
            ([3, 1, 1, 1], [1, 1, 2, 0], 0, 50),
            ([2, 2, 2, 1], [0, 1, 1, 0], 1, 50),
            ([3, 2, 2, 1], [1, 0, 1, 0], 1, 130),
            ([3, 3, 1, 1], [1, 0, 1, 0], 0, 130),
            ([3, 3, 2, 1], [2, 0, 1, 0], 0, 40),
            ([5, 3, 3, 2], [4, 1, 5, 0], 2, 50),
            ([9, 1, 1, 1], [8, 1, 8, 0], 0, 50),
            ([40, 2, 1, 1], [0, 1, 1, 0], 9, 50),
        ];
        let (team, kinds) = (Team::new(3, |_| ()), [PoolKind::Max, average(true), average(false)]);
        for (kind, (sizes, pads, more, wide)) in kinds.into_iter().flat_map(|kind| sizes.map(|sizes| (kind, sizes))) {
            let ([window, down, across, dilation], height) = (sizes, 41);
            let reach = (window - 1) * dilation + 1;
            let op = Pool { kind, window: [window; 2], strides: [down, across], pads, dilations: [dilation; 2] };
            let high = (height + pads[0] + pads[2] + more - reach) / down + 1;
            let columns = (wide + pads[1] + pads[3] - reach) / across + 1;
            let kernel = PoolKernel { op, input: [height, wide], output: [high, columns] };
            let number = |i: usize| if i == 700 { f64::NAN } else { (i * 37 % 101) as f64 / 7.0 - 5.0 };
            let input = tensor(DType::F32, &[2, height, wide], number);
            let pooled = |band: usize| {
                let mut output = vec![0f32; 2 * high * columns];
                let outputs: &mut [&mut [u8]] = &mut [bytemuck::cast_slice_mut(&mut output)];
                let call = Call { inputs: &[input.bytes()], outputs, rows: 0..1, scratch: &mut [], team: &team };
                kernel.run_by_bands(call, band);
                output.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let whole = pooled(high);
            for band in [1, 2, 7, high - 1] {
                assert_eq!(pooled(band), whole, "{band} rows of {:?}", kernel.op);
            }
        }
    }

    #[test]
    fn the_greatest_of_a_window_with_nan_is_nan() {
        // The middle one of three planes has NaN; neither neighbour may have NaN.
        for (window, stride, w, padded) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (5, 2), (2, 3)]
            .into_iter()
            .flat_map(|(window, stride)| [5, 14, 35, 64, 65].map(move |w| (window, stride, w)))
            .flat_map(|(window, stride, w)| (0..4).map(move |padded| (window, stride, w, padded)))
        {
            let (h, far) = (20, window - 1);
            let pads = [[0; 4], [far.min(1); 4], [0, far, far, 0], [far, 0, 0, far]][padded];
            let (strides, out) = (
                [stride; 2],
                [(h, 0), (w, 1)].map(|(size, axis)| (size + pads[axis] + pads[axis + 2] - window) / stride + 1),
            );
            for at in (0..h * w).step_by(17) {
                let is_nan = |i: usize| i == h * w + at;
                let input = tensor(DType::F32, &[1, 3, h, w], |i| if is_nan(i) { f64::NAN } else { (i % 31) as f64 });
                let op = Pool { kind: PoolKind::Max, window: [window; 2], strides, pads, dilations: [1, 1] };
                let got = computed::<f32>(Op::Pool(op), &[input], &[1, 3, out[0], out[1]]);
                for (index, got) in got.iter().enumerate() {
                    let (plane, index) = (index / (out[0] * out[1]), index % (out[0] * out[1]));
                    let holds = |place: usize, at: usize| (place * stride..place * stride + window).contains(&at);
                    let inside = holds(index / out[1], at / w + pads[0]) && holds(index % out[1], at % w + pads[1]);
                    let case =
                        format!("window {window} by {stride} over {w}, pads {pads:?}, NaN at {at}, output {index}");
                    assert_eq!(got.is_nan(), plane == 1 && inside, "{case} of plane {plane}");
                }
            }
        }
    }
}
