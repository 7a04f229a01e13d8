//! Resize: each output element is a weighted sum of at most 4 × 4 neighbours. The weights of rows and columns are
//! computed in advance.
//!
//! Each input row is resized along its width once, and the output rows are weighted sums of these rows. With a whole
//! factor, weights recur along a row. Columns of equal weights are then computed together, as vectors, and put into
//! order afterwards.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::strided::{add_every, interleave, repeat};
use anabranch_cpu_base::team::with_workspace;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NEIGHBOURS, NodeSpec, Resize, Taps};
use std::ops::Range;

/// Elements of the output that are worth a hand-over to another thread.
const PIECE: usize = 8192;

/// Output columns between the borders, in which neighbours and weights recur.
///
/// The taps of a column are those of the column `period` before, moved by `advance` input columns.
#[derive(Clone, Debug, PartialEq)]
struct Pattern {
    columns: Range<usize>,
    period: usize,
    advance: usize,
    /// Whether all columns of a period have the same single neighbour.
    repeats: bool,
}

/// Patterns that are recognised: those of factors 1, 2, 3, 4, 8, ½, ⅓ and ¼.
const PATTERNS: [(usize, usize); 8] = [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (1, 2), (1, 3), (1, 4)];

impl Pattern {
    /// Returns the pattern of most columns, if there is one.
    fn of(columns: &[Taps]) -> Option<Self> {
        PATTERNS.into_iter().find_map(|(period, advance)| {
            let recurs = |at: &usize| columns.get(at + period).is_some_and(|next| *next == columns[*at].moved(advance));
            let middle = columns.len() / 2;
            let start = (0..middle).rev().take_while(recurs).last()?;
            let behind = (start..columns.len()).take_while(recurs).last()? + 1 + period;
            let first = &columns[start..start + period];
            let repeats = advance == 1 && first.iter().all(|taps| taps.count == 1 && *taps == first[0]);
            let columns = start..behind - (behind - start) % period;
            (columns.len() > middle).then_some(Self { columns, period, advance, repeats })
        })
    }
}

/// Kernel that resamples planes of one size.
struct ResizeKernel {
    rows: Vec<Taps>,
    columns: Vec<Taps>,
    pattern: Option<Pattern>,
    input: [usize; 2],
}

/// Prepares a resampling.
pub(crate) fn prepare(node: &NodeSpec, op: &Resize) -> Result<Box<dyn CpuKernel>, KernelError> {
    let sizes = |dims: &[usize]| [dims[dims.len() - 2], dims[dims.len() - 1]];
    let (input, output) = (sizes(node.inputs[0].shape.dims()), sizes(node.outputs[0].shape.dims()));
    let axis = |axis: usize| node.table((0..output[axis]).map(|i| op.taps(axis, i, input[axis], output[axis])));
    let (rows, columns): (_, Vec<Taps>) = (axis(0)?, axis(1)?);
    Ok(Box::new(ResizeKernel { rows, pattern: Pattern::of(&columns), columns, input }))
}

/// Loop over neighbouring output rows of one plane.
struct Rows<'a> {
    kernel: &'a ResizeKernel,
    plane: &'a [f32],
    rows: &'a [Taps],
    /// Memory for five output rows.
    memory: &'a mut [f32],
    out: &'a mut [f32],
}

impl Loop for Rows<'_> {
    type Output = ();

    /// Resizes each needed input row along its width, once, and adds the weighted results. A single neighbour has
    /// weight 1.
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (width, wide) = (self.kernel.input[1], self.kernel.columns.len());
        let line = |row: usize| &self.plane[row * width..][..width];
        let (across, parts) = self.memory.split_at_mut(NEIGHBOURS * wide);
        // At most four consecutive neighbours are in use, so each has its own slot.
        let mut present = [usize::MAX; NEIGHBOURS];
        for (at, taps) in self.rows.iter().enumerate() {
            let (before, out) = self.out.split_at_mut(at * wide);
            let out = &mut out[..wide];
            // For a row with one neighbour, the weights and the remaining indices have no meaning.
            let is_same = |last: &Taps| match taps.count {
                1 => last.count == 1 && last.indices[0] == taps.indices[0],
                _ => last == taps,
            };
            if at > 0 && is_same(&self.rows[at - 1]) {
                out.copy_from_slice(&before[(at - 1) * wide..]);
                continue;
            }
            if taps.count == 1 {
                self.kernel.across::<I>(line(taps.indices[0]), parts, out);
                continue;
            }
            for (at, row) in taps.indices[..taps.count].iter().enumerate() {
                let across = &mut across[row % NEIGHBOURS * wide..][..wide];
                if std::mem::replace(&mut present[row % NEIGHBOURS], *row) != *row {
                    self.kernel.across::<I>(line(*row), parts, across);
                }
                match at {
                    0 => out.iter_mut().zip(&*across).for_each(|(out, x)| *out = taps.weights[0] * x),
                    _ => add_every::<I>(out, across, 1, taps.weights[at]),
                }
            }
        }
    }
}

impl ResizeKernel {
    /// Resizes one input row along its width.
    #[inline(always)]
    fn across<I: Isa>(&self, line: &[f32], parts: &mut [f32], out: &mut [f32]) {
        let Some(Pattern { columns, period, advance, repeats }) = &self.pattern else {
            return one_by_one(line, &self.columns, out);
        };
        let (start, end) = (columns.start, columns.end);
        one_by_one(line, &self.columns[..start], &mut out[..start]);
        one_by_one(line, &self.columns[end..], &mut out[end..]);
        let length = columns.len() / period;
        if *repeats {
            return repeat(&line[self.columns[start].indices[0]..][..length], *period, &mut out[start..end]);
        }
        let parts = &mut parts[..columns.len()];
        for (taps, part) in self.columns[start..].iter().zip(parts.chunks_exact_mut(length)) {
            if taps.count == 1 && *advance == 1 {
                part.copy_from_slice(&line[taps.indices[0]..][..length]);
                continue;
            }
            part.fill(0.0);
            for (index, weight) in taps.indices.iter().zip(taps.weights).take(taps.count) {
                add_every::<I>(part, &line[*index..], *advance, weight);
            }
        }
        interleave(parts, length, &mut out[start..end]);
    }
}

/// Computes output columns without a pattern.
#[inline(always)]
fn one_by_one(line: &[f32], columns: &[Taps], out: &mut [f32]) {
    for (taps, out) in columns.iter().zip(out) {
        let neighbours = taps.indices.iter().zip(taps.weights).take(taps.count);
        *out = neighbours.fold(0.0, |sum, (index, weight)| sum + weight * line[*index]);
    }
}

impl CpuKernel for ResizeKernel {
    fn resident_bytes(&self) -> usize {
        (self.rows.len() + self.columns.len()) * size_of::<Taps>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, high, wide) = (self.input[0] * self.input[1], self.rows.len(), self.columns.len());
        if target.is_empty() {
            return Ok(());
        }
        let lines = (PIECE / wide).max(1);
        call.team.run_pieces(target, lines * wide, &|piece, target| {
            with_workspace((NEIGHBOURS + 1) * wide, |memory| {
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
    fn whole_factors_have_a_pattern() {
        for (interpolation, input, output, want) in [
            (Interpolation::Linear, 56, 112, (2, 1)),
            (Interpolation::Nearest(NearestRounding::Floor), 56, 112, (2, 1)),
            (Interpolation::Cubic { coefficient: -0.75 }, 56, 224, (4, 1)),
            (Interpolation::Linear, 56, 28, (1, 2)),
        ] {
            let op = Resize {
                interpolation,
                coordinates: Coordinates::HalfPixel,
                scales: [1.0, output as f64 / input as f64],
            };
            let columns: Vec<Taps> = (0..output).map(|i| op.taps(1, i, input, output)).collect();
            let pattern = Pattern::of(&columns).expect("a whole factor");
            assert_eq!((pattern.period, pattern.advance), want);
            assert!(pattern.columns.len() + 4 * pattern.period >= output, "{pattern:?} of {output}");
        }
    }
}
