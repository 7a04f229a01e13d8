//! Columns of a resized row: weighted sums of elements of one input row, by a pattern if the weights recur.

use anabranch_cpu_base::strided::{add_every, interleave, repeat};
use anabranch_cpu_base::vector::Isa;
use anabranch_op::op::Taps;
use std::ops::Range;

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

/// Columns without a pattern, computed one by one.
enum Loose {
    /// Each column's only neighbour.
    Single(Vec<u32>),
    /// Two neighbours of each column with their weights, and columns that have a single neighbour, with it.
    Pairs(Vec<([u32; 2], [f32; 2])>, Vec<[u32; 2]>),
    Any,
}

impl Loose {
    fn of(columns: &[Taps]) -> Self {
        let index = |at: usize| u32::try_from(at).ok();
        let single = |taps: &Taps| if taps.count == 1 { index(taps.indices[0]) } else { None };
        if let Some(single) = columns.iter().map(single).collect() {
            return Self::Single(single);
        }
        let pair = |taps: &Taps| {
            let [first, second, ..] = taps.indices;
            let second = if taps.count == 1 { first } else { second };
            let indices = [index(first)?, index(second)?];
            (taps.count <= 2).then_some((indices, [taps.weights[0], taps.weights[1]]))
        };
        let lone = |(at, taps): (usize, &Taps)| Some([index(at)?, single(taps)?]);
        match columns.iter().map(pair).collect() {
            Some(pairs) => Self::Pairs(pairs, columns.iter().enumerate().filter_map(lone).collect()),
            None => Self::Any,
        }
    }
}

/// Output columns of rows of `input` elements.
pub(super) struct Columns {
    taps: Vec<Taps>,
    pattern: Option<Pattern>,
    loose: Loose,
    input: usize,
}

impl Columns {
    pub(super) fn new(taps: Vec<Taps>, input: usize) -> Self {
        Self { pattern: Pattern::of(&taps), loose: Loose::of(&taps), taps, input }
    }

    /// Returns the number of output columns.
    pub(super) fn len(&self) -> usize {
        self.taps.len()
    }

    /// Whether most columns follow a pattern.
    pub(super) fn have_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether the pattern of a row continues in the next row, so that both are like one long row.
    pub(super) fn continue_in_rows(&self) -> bool {
        self.pattern.as_ref().is_some_and(|Pattern { columns, period, advance, .. }| {
            *columns == (0..self.len()) && self.len() / period * advance == self.input
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let loose = match &self.loose {
            Loose::Single(single) => size_of_val(&single[..]),
            Loose::Pairs(pairs, single) => size_of_val(&pairs[..]) + size_of_val(&single[..]),
            Loose::Any => 0,
        };
        size_of_val(&self.taps[..]) + loose
    }

    /// Resizes one input row along its width.
    #[inline(always)]
    pub(super) fn across<I: Isa>(&self, line: &[f32], parts: &mut [f32], out: &mut [f32]) {
        let Some(pattern) = &self.pattern else { return self.one_by_one(line, out) };
        let Range { start, end } = pattern.columns;
        any(line, &self.taps[..start], &mut out[..start]);
        any(line, &self.taps[end..], &mut out[end..]);
        self.along::<I>(pattern, line, parts, &mut out[start..end]);
    }

    /// Resizes rows whose pattern [continues](Self::continue_in_rows).
    #[inline(always)]
    pub(super) fn stack<I: Isa>(&self, lines: &[f32], parts: &mut [f32], out: &mut [f32]) {
        let pattern = self.pattern.as_ref().expect("only a pattern continues");
        self.along::<I>(pattern, lines, parts, out);
    }

    /// Computes the columns of a pattern, of one row or of several rows whose pattern continues.
    #[inline(always)]
    fn along<I: Isa>(&self, pattern: &Pattern, line: &[f32], parts: &mut [f32], out: &mut [f32]) {
        let Pattern { columns: Range { start, .. }, period, advance, repeats } = pattern;
        let length = out.len() / period;
        if *repeats {
            return repeat(&line[self.taps[*start].indices[0]..][..length], *period, out);
        }
        if *period == 1 {
            return part::<I>(&self.taps[*start], line, *advance, out);
        }
        // Rows that are resized together have one part each at a time.
        for (line, out) in line.chunks(self.input).zip(out.chunks_mut(pattern.columns.len())) {
            let (length, parts) = (out.len() / period, &mut parts[..out.len()]);
            for (taps, made) in self.taps[*start..].iter().zip(parts.chunks_exact_mut(length)) {
                part::<I>(taps, line, *advance, made);
            }
            interleave(parts, length, out);
        }
    }

    /// Computes output columns without a pattern.
    #[inline(always)]
    fn one_by_one(&self, line: &[f32], out: &mut [f32]) {
        match &self.loose {
            Loose::Single(indices) => {
                out.iter_mut().zip(indices).for_each(|(out, index)| *out = line[*index as usize]);
            }
            Loose::Pairs(pairs, single) => {
                for (out, ([first, second], weights)) in out.iter_mut().zip(pairs) {
                    *out = weights[0] * line[*first as usize] + weights[1] * line[*second as usize];
                }
                // The weight 0 would make a NaN of an infinite element.
                single.iter().for_each(|[at, index]| out[*at as usize] = line[*index as usize]);
            }
            Loose::Any => any(line, &self.taps, out),
        }
    }
}

/// Computes columns that are `advance` input columns apart, with the taps of the first.
#[inline(always)]
fn part<I: Isa>(taps: &Taps, line: &[f32], advance: usize, out: &mut [f32]) {
    let first = &line[taps.indices[0]..];
    match (taps.count, advance) {
        (1, 1) => return out.copy_from_slice(&first[..out.len()]),
        (1, 2) => {
            let (pairs, rest) = first.as_chunks::<2>();
            let (whole, last) = out.split_at_mut(out.len().min(pairs.len()));
            whole.iter_mut().zip(pairs).for_each(|(out, [x, _])| *out = *x);
            return last.iter_mut().zip(rest).for_each(|(out, x)| *out = *x);
        }
        (1, _) => return out.iter_mut().zip(first.iter().step_by(advance)).for_each(|(out, x)| *out = *x),
        (2, 2) if taps.indices[1] == taps.indices[0] + 1 && first.len() >= 2 * out.len() => {
            let [a, b] = [taps.weights[0], taps.weights[1]];
            let pairs = out.iter_mut().zip(first.as_chunks::<2>().0);
            return pairs.for_each(|(out, [x, y])| *out = I::fused(b, *y, a * x));
        }
        _ => out.fill(0.0),
    }
    for (index, weight) in taps.indices.iter().zip(taps.weights).take(taps.count) {
        add_every::<I>(out, &line[*index..], advance, weight);
    }
}

/// Computes output columns with any taps.
#[inline(always)]
fn any(line: &[f32], columns: &[Taps], out: &mut [f32]) {
    for (taps, out) in columns.iter().zip(out) {
        let neighbours = taps.indices.iter().zip(taps.weights).take(taps.count);
        *out = neighbours.fold(0.0, |sum, (index, weight)| sum + weight * line[*index]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_op::op::{Coordinates, Interpolation, NearestRounding, Resize};

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
