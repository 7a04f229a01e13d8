//! Resize: each output element is a weighted sum of at most 4 × 4 neighbours. The weights of rows and columns are
//! computed in advance.
//!
//! Each input row is resized along its width once, and the output rows are weighted sums of these rows. If that takes
//! longer, sums of rows are resized. With a whole factor, weights recur along a row. Columns of equal weights are then
//! computed together, as vectors, and put into order afterwards.

mod columns;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::strided::{add_every, repeat};
use anabranch_cpu_base::team::with_workspace;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NEIGHBOURS, NodeSpec, Resize, Taps};
use columns::Columns;
use std::ops::Range;

/// Elements of the output that are worth a hand-over to another thread.
const PIECE: usize = 8192;

/// Elements of input rows that are resized together.
const STACK: usize = 4096;

/// Kernel that resamples planes of one size.
struct ResizeKernel {
    rows: Vec<Taps>,
    columns: Columns,
    input: [usize; 2],
    /// Number of copies of each row and each column, if copies are all.
    repeats: Option<[usize; 2]>,
    order: Order,
}

/// Order in which the rows that an output row needs are resized.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Each input row along its width, once.
    Rows,
    /// Neighbouring input rows along their width together: the pattern of each continues that of the row before.
    Stacks,
    /// Sums of input rows along their width. There are fewer output rows, and a row takes long.
    Sums,
}

/// Prepares a resampling.
pub(crate) fn prepare(node: &NodeSpec, op: &Resize) -> Result<Box<dyn CpuKernel>, KernelError> {
    let sizes = |dims: &[usize]| [dims[dims.len() - 2], dims[dims.len() - 1]];
    let (input, output) = (sizes(node.inputs[0].shape.dims()), sizes(node.outputs[0].shape.dims()));
    let axis = |axis: usize| node.table((0..output[axis]).map(|i| op.taps(axis, i, input[axis], output[axis])));
    Ok(Box::new(ResizeKernel::new(axis(0)?, axis(1)?, input)))
}

/// Returns the number of copies of each element of an axis, if copies are all.
fn repetition(taps: &[Taps], input: usize) -> Option<usize> {
    let times = taps.len().checked_div(input).filter(|times| *times > 0 && times * input == taps.len())?;
    let repeats = |(at, taps): (usize, &Taps)| taps.count == 1 && taps.indices[0] == at / times;
    taps.iter().enumerate().all(repeats).then_some(times)
}

impl ResizeKernel {
    fn new(rows: Vec<Taps>, columns: Vec<Taps>, input: [usize; 2]) -> Self {
        let repeats = repetition(&rows, input[0]).zip(repetition(&columns, input[1])).map(|(high, wide)| [high, wide]);
        let columns = Columns::new(columns, input[1]);
        // Rows that no output row needs are resized with the others of a stack, and long rows gain nothing.
        let suits_stacks = columns.len() <= STACK / 16 && 2 * rows.len() >= input[0];
        let order = match rows.iter().any(|taps| taps.count > 1) {
            true if suits_stacks && columns.continue_in_rows() => Order::Stacks,
            true if !columns.have_pattern() && rows.len() <= input[0] => Order::Sums,
            _ => Order::Rows,
        };
        Self { rows, columns, input, repeats, order }
    }
}

/// Loop over lines of the input, each of which is repeated in both directions.
struct Repeated<'a> {
    times: [usize; 2],
    width: usize,
    source: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Repeated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { times: [high, across], width, source, out } = self;
        let wide = width * across;
        for (line, out) in source.chunks_exact(width).zip(out.chunks_exact_mut(high * wide)) {
            let (first, others) = out.split_at_mut(wide);
            repeat(line, across, first);
            others.chunks_exact_mut(wide).for_each(|out| out.copy_from_slice(first));
        }
    }
}

/// Loop over neighbouring output rows of one plane.
struct Rows<'a> {
    kernel: &'a ResizeKernel,
    plane: &'a [f32],
    rows: &'a [Taps],
    /// As many elements as [`ResizeKernel::memory`] returns.
    memory: &'a mut [f32],
    out: &'a mut [f32],
}

impl Loop for Rows<'_> {
    type Output = ();

    /// Computes the output rows in order. A row that equals the row before is copied.
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, plane, rows, memory, out } = self;
        let (width, wide) = (kernel.input[1], kernel.columns.len());
        let (parts, memory) = memory.split_at_mut(wide);
        let mut lines = Lines { kernel, plane, parts, memory, present: [usize::MAX; NEIGHBOURS], stack: 0..0 };
        for (at, taps) in rows.iter().enumerate() {
            let (before, out) = out.split_at_mut(at * wide);
            let out = &mut out[..wide];
            // For a row with one neighbour, the weights and the remaining indices have no meaning.
            let is_same = |last: &Taps| match taps.count {
                1 => last.count == 1 && last.indices[0] == taps.indices[0],
                _ => last == taps,
            };
            if at > 0 && is_same(&rows[at - 1]) {
                out.copy_from_slice(&before[(at - 1) * wide..]);
                continue;
            }
            match kernel.order {
                Order::Stacks => lines.hold::<I>(&rows[at..]),
                _ if taps.count == 1 => {
                    kernel.columns.across::<I>(&plane[taps.indices[0] * width..][..width], lines.parts, out);
                    continue;
                }
                Order::Sums => {
                    let sum = &mut lines.memory[..width];
                    weighted::<I>(taps, |row| &plane[row * width..][..width], sum);
                    kernel.columns.across::<I>(sum, lines.parts, out);
                    continue;
                }
                // A closure that is not inlined would not have the instruction set.
                Order::Rows => {
                    for row in &taps.indices[..taps.count] {
                        lines.resize::<I>(*row);
                    }
                }
            }
            weighted::<I>(taps, |row| lines.resized(row), out);
        }
    }
}

/// Writes the weighted sum of rows. A single neighbour has weight 1.
#[inline(always)]
fn weighted<'a, I: Isa>(taps: &Taps, row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
    let Taps { indices, weights, count } = taps;
    let first = row(indices[0]);
    match count {
        1 => return out.copy_from_slice(first),
        2 => {
            let rows = first.iter().zip(row(indices[1]));
            return out.iter_mut().zip(rows).for_each(|(out, (a, b))| *out = I::fused(weights[1], *b, weights[0] * a));
        }
        4 => {
            let [second, third, fourth] = [1, 2, 3].map(|at| row(indices[at]));
            let rows = first.iter().zip(second).zip(third.iter().zip(fourth));
            return out.iter_mut().zip(rows).for_each(|(out, ((a, b), (c, d)))| {
                let half = I::fused(weights[1], *b, weights[0] * a);
                *out = I::fused(weights[3], *d, I::fused(weights[2], *c, half));
            });
        }
        _ => out.iter_mut().zip(first).for_each(|(out, x)| *out = weights[0] * x),
    }
    for (index, weight) in indices.iter().zip(weights).take(*count).skip(1) {
        add_every::<I>(out, row(*index), 1, *weight);
    }
}

/// Input rows of a plane that are resized along their width.
struct Lines<'a> {
    kernel: &'a ResizeKernel,
    plane: &'a [f32],
    /// Memory for one output row.
    parts: &'a mut [f32],
    memory: &'a mut [f32],
    /// Rows in the slots of the memory: at most four consecutive neighbours are in use, so each has its own slot.
    present: [usize; NEIGHBOURS],
    /// Rows in the memory, if rows are resized together.
    stack: Range<usize>,
}

impl Lines<'_> {
    /// Resizes a row, if it is not there.
    #[inline(always)]
    fn resize<I: Isa>(&mut self, row: usize) {
        let (width, wide) = (self.kernel.input[1], self.kernel.columns.len());
        let slot = row % NEIGHBOURS;
        if std::mem::replace(&mut self.present[slot], row) != row {
            let (line, out) = (&self.plane[row * width..][..width], &mut self.memory[slot * wide..][..wide]);
            self.kernel.columns.across::<I>(line, self.parts, out);
        }
    }

    /// Resizes the rows from the first neighbour of the first of `rows` on, as many as fit, if its neighbours are not
    /// there.
    #[inline(always)]
    fn hold<I: Isa>(&mut self, rows: &[Taps]) {
        let [high, width] = self.kernel.input;
        let (wide, taps) = (self.kernel.columns.len(), &rows[0]);
        let neighbours = &taps.indices[..taps.count];
        if neighbours.iter().all(|row| self.stack.contains(row)) {
            return;
        }
        let first = neighbours.iter().copied().min().unwrap_or(0);
        let last = rows[rows.len() - 1].indices.iter().take(rows[rows.len() - 1].count).copied().max();
        // A last row at a whole coordinate has one neighbour, which earlier rows reach beyond.
        let own = neighbours.iter().copied().max();
        let end = last.max(own).map_or(high, |last| last + 1).min(first + self.memory.len() / wide);
        let (lines, out) = (&self.plane[first * width..end * width], &mut self.memory[..(end - first) * wide]);
        self.kernel.columns.stack::<I>(lines, self.parts, out);
        self.stack = first..end;
    }

    /// Returns a row that is there.
    #[inline(always)]
    fn resized(&self, row: usize) -> &[f32] {
        let wide = self.kernel.columns.len();
        let slot = if self.stack.is_empty() { row % NEIGHBOURS } else { row - self.stack.start };
        &self.memory[slot * wide..][..wide]
    }
}

impl ResizeKernel {
    /// Returns the number of elements of memory for neighbouring output rows.
    fn memory(&self) -> usize {
        let wide = self.columns.len();
        wide + match self.order {
            Order::Rows => NEIGHBOURS * wide,
            Order::Stacks => (STACK / wide).max(NEIGHBOURS) * wide,
            Order::Sums => self.input[1],
        }
    }
}

impl CpuKernel for ResizeKernel {
    fn resident_bytes(&self) -> usize {
        size_of_val(&self.rows[..]) + self.columns.bytes()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, high, wide) = (self.input[0] * self.input[1], self.rows.len(), self.columns.len());
        if target.is_empty() {
            return Ok(());
        }
        if let Some(times @ [down, across]) = self.repeats {
            let (width, each) = (self.input[1], down * across);
            let lines = (PIECE / (width * each)).max(1);
            call.team.run_pieces(target, lines * width * each, &|piece, out| {
                let source = &source[piece * lines * width..][..out.len() / each];
                vectorised(Repeated { times, width, source, out });
            });
            return Ok(());
        }
        let lines = (PIECE / wide).max(1);
        call.team.run_pieces(target, lines * wide, &|piece, target| {
            with_workspace(self.memory(), |memory| {
                let (mut target, mut line) = (target, piece * lines);
                while !target.is_empty() {
                    let (plane, row) = (line / high, line % high);
                    let count = (high - row).min(target.len() / wide);
                    let (out, rest) = target.split_at_mut(count * wide);
                    let (plane, rows) = (&source[plane * from..][..from], &self.rows[row..row + count]);
                    vectorised(Rows { kernel: self, plane, rows, memory: &mut *memory, out });
                    (target, line) = (rest, line + count);
                }
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{computed, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Coordinates, Interpolation, NearestRounding, Op, cubic_weights};

    /// Resizes one row `1 2 3 4` along its width.
    fn resized(interpolation: Interpolation, coordinates: Coordinates, out: usize) -> Vec<f32> {
        let input = tensor(DType::F32, &[1, 1, 1, 4], |i| i as f64 + 1.0);
        let op = Op::Resize(Resize { interpolation, coordinates, scales: [1.0, out as f64 / 4.0] });
        computed(op, &[input], &[1, 1, 1, out])
    }

    #[test]
    fn nearest_takes_the_neighbour_that_the_rounding_says() {
        let nearest = |rounding, coordinates, out| resized(Interpolation::Nearest(rounding), coordinates, out);
        use Coordinates::{Asymmetric, HalfPixel};
        use NearestRounding::{Ceil, Floor, RoundPreferCeil, RoundPreferFloor};
        assert_eq!(nearest(Floor, Asymmetric, 8), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!(nearest(Ceil, Asymmetric, 8), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
        assert_eq!(nearest(RoundPreferFloor, HalfPixel, 2), [1.0, 3.0]);
        assert_eq!(nearest(RoundPreferCeil, HalfPixel, 2), [2.0, 4.0]);
    }

    #[test]
    fn linear_and_cubic_interpolate() {
        let linear = |coordinates, out| resized(Interpolation::Linear, coordinates, out);
        assert_eq!(linear(Coordinates::HalfPixel, 8), [1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
        assert_eq!(linear(Coordinates::AlignCorners, 7), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
        let cubic = resized(Interpolation::Cubic { coefficient: -0.75 }, Coordinates::HalfPixel, 4);
        assert_eq!(cubic, [1.0, 2.0, 3.0, 4.0]);
        assert!((cubic_weights(-0.75, 0.3).iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }

    /// Computes the definition in `f64`: the element at a position of one plane.
    fn naive(op: &Resize, x: &[f32], [h, w]: [usize; 2], [oh, ow]: [usize; 2], at: usize) -> f64 {
        let taps: [Taps; 2] = [op.taps(0, at / ow, h, oh), op.taps(1, at % ow, w, ow)];
        let weighted = |axis: usize, value: &dyn Fn(usize) -> f64| -> f64 {
            let Taps { indices, weights, count } = &taps[axis];
            (0..*count).map(|i| f64::from(weights[i]) * value(indices[i])).sum()
        };
        weighted(0, &|row| weighted(1, &|column| f64::from(x[row * w + column])))
    }

    #[test]
    fn every_factor_agrees_with_the_definition() {
        use Coordinates::{AlignCorners, Asymmetric, HalfPixel};
        let cubic = Interpolation::Cubic { coefficient: -0.75 };
        let nearest = Interpolation::Nearest(NearestRounding::Floor);
        for [h, w, oh, ow] in [
            [1, 1, 3, 5],
            [7, 9, 14, 18],
            [6, 40, 18, 120],
            [5, 33, 20, 132],
            [12, 50, 6, 25],
            [13, 47, 29, 31],
            [3, 24, 24, 192],
            [64, 96, 16, 24],
            [9, 2, 9, 2],
            // Rows resized together: all of a plane, parts of it, rows alone; and rows that are too long for it.
            [40, 32, 20, 16],
            [2050, 4, 1025, 2],
            [30, 24, 15, 24],
            [9, 30, 18, 15],
            [6, 600, 3, 300],
            [33, 18, 11, 6],
            // Pieces of rows whose columns are at whole coordinates.
            [32, 768, 96, 256],
            [40, 400, 80, 200],
        ] {
            for interpolation in [nearest, Interpolation::Linear, cubic] {
                for coordinates in [HalfPixel, Asymmetric, AlignCorners] {
                    let scales = [oh as f64 / h as f64, ow as f64 / w as f64];
                    let op = Resize { interpolation, coordinates, scales };
                    let x = tensor(DType::F32, &[2, 3, h, w], |i| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0);
                    let got: Vec<f32> = computed(Op::Resize(op.clone()), std::slice::from_ref(&x), &[2, 3, oh, ow]);
                    let x = x.elements::<f32>().expect("f32");
                    for (at, got) in got.iter().enumerate() {
                        let (plane, at) = (at / (oh * ow), at % (oh * ow));
                        let want = naive(&op, &x[plane * h * w..][..h * w], [h, w], [oh, ow], at);
                        assert!((f64::from(*got) - want).abs() < 1e-6, "{op:?} {h} × {w} to {oh} × {ow} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn nearest_neighbours_keep_their_bits() {
        let values = [f64::from(f32::NAN), f64::INFINITY, -0.0, 1.5, f64::NEG_INFINITY, 0.0];
        for [h, w, oh, ow] in [[3, 4, 6, 8], [3, 5, 9, 20], [4, 6, 2, 3], [8, 32, 4, 16], [7, 13, 9, 17], [9, 12, 3, 3]]
        {
            let scales = [oh as f64 / h as f64, ow as f64 / w as f64];
            let (interpolation, coordinates) =
                (Interpolation::Nearest(NearestRounding::Floor), Coordinates::Asymmetric);
            let op = Resize { interpolation, coordinates, scales };
            let x = tensor(DType::F32, &[5, 1, h, w], |i| values[i % values.len()]);
            let got: Vec<f32> = computed(Op::Resize(op.clone()), std::slice::from_ref(&x), &[5, 1, oh, ow]);
            let x = x.elements::<f32>().expect("f32");
            for (at, got) in got.iter().enumerate() {
                let (plane, row, column) = (at / (oh * ow), at / ow % oh, at % ow);
                let taps: [Taps; 2] = [op.taps(0, row, h, oh), op.taps(1, column, w, ow)];
                let want = x[(plane * h + taps[0].indices[0]) * w + taps[1].indices[0]];
                assert_eq!(got.to_bits(), want.to_bits(), "{h} × {w} to {oh} × {ow} at {at}");
            }
        }
    }

    #[test]
    fn infinite_elements_stay_where_they_have_a_weight() {
        // The outermost samples are elements, and the second column is in between.
        let x = tensor(DType::F32, &[1, 1, 1, 5], |i| if i == 4 { f64::INFINITY } else { i as f64 });
        let op = Op::Resize(Resize {
            interpolation: Interpolation::Linear,
            coordinates: Coordinates::AlignCorners,
            scales: [1.0, 0.6],
        });
        assert_eq!(computed::<f32>(op, &[x], &[1, 1, 1, 3]), [0.0, 2.0, f32::INFINITY]);
    }
}
