//! Rows of an image with the zeros around them, for kernels that read windows in place.
//!
//! The elements that neighbouring outputs read through one element of the window lie side by side in a line, for every
//! stride. A line holds every stride-th column from the row's first on, then from its second on, and so forth. No load
//! is masked, and no row is missing.

use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use std::ops::Range;

/// Conversion of the rows of a convolution's image to lines.
#[derive(Debug)]
pub(super) struct Lines {
    geometry: Geometry,
    /// Numbers of one part of a line: the columns with the same remainder by the stride.
    part: usize,
    /// Number of columns that windows reach from the image's first on, including the zeros on its right.
    end: usize,
}

impl Lines {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let Geometry { size: [_, width], output: [_, wide], window, steps, .. } = *geometry;
        let (stride, left) = (steps.strides[1], steps.pads[1]);
        let reach = (window[1] - 1) * steps.dilations[1];
        let end = ((wide.max(1) - 1) * stride + reach + 1).saturating_sub(left).max(width);
        // Vectors write zeros, and the last vector may continue after the end. Blocks of at most a vector read them.
        let written = left.div_ceil(stride) + end.div_ceil(stride) + LANES;
        let part = written.max(left).next_multiple_of(LANES);
        Self { geometry: *geometry, part, end }
    }

    /// Returns the numbers of a line.
    pub(super) fn length(&self) -> usize {
        self.part.saturating_mul(self.geometry.steps.strides[1])
    }

    /// Returns the number of lines that windows of `rows` rows of outputs reach.
    pub(super) fn count(&self, rows: usize) -> usize {
        let Geometry { window, steps, .. } = self.geometry;
        (rows.max(1) - 1).saturating_mul(steps.strides[0]).saturating_add((window[0] - 1) * steps.dilations[0] + 1)
    }

    /// Returns the offset from the first line of the elements that the window's element in row `tap.0` and column
    /// `tap.1` covers, for the first output.
    pub(super) fn offset(&self, tap: (usize, usize)) -> usize {
        let steps = &self.geometry.steps;
        let column = tap.1 * steps.dilations[1];
        let (part, at) = (column % steps.strides[1], column / steps.strides[1]);
        tap.0 * steps.dilations[0] * self.length() + part * self.part + at
    }

    /// Writes the lines of a channel, beginning with the first line of this output row's windows.
    pub(super) fn fill(&self, plane: &[f32], row: usize, lines: &mut [f32]) {
        vectorised(Fill { shape: self, plane, first: row * self.geometry.steps.strides[0], lines });
    }
}

struct Fill<'a> {
    shape: &'a Lines,
    plane: &'a [f32],
    /// Number of the first line, counted from the zeros above the image.
    first: usize,
    lines: &'a mut [f32],
}

impl Loop for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Lines { geometry: Geometry { size: [height, width], steps, .. }, .. } = *self.shape;
        for (at, line) in self.lines.chunks_exact_mut(self.shape.length()).enumerate() {
            let row = (self.first + at).wrapping_sub(steps.pads[0]);
            let row = if row < height { &self.plane[row * width..][..width] } else { &[] };
            // The first vector is stored separately: the compiler would turn a loop into a call of `memset` for each
            // line.
            for part in (0..steps.strides[1]).map(|at| at * self.shape.part) {
                if steps.pads[1] > 0 {
                    zero::<I>(line, part..part + 1);
                    zero::<I>(line, part + LANES..part + steps.pads[1]);
                }
            }
            match steps.strides[1] {
                1 => copy::<I>(row, self.shape, line),
                2 => halve::<I>(row, self.shape, line),
                _ => scatter(row, self.shape, line),
            }
        }
    }
}

/// Copies a row whose columns are neighbours.
#[inline(always)]
fn copy<I: Isa>(row: &[f32], shape: &Lines, line: &mut [f32]) {
    let line = &mut line[shape.geometry.steps.pads[1]..];
    if let Some(last) = row.len().checked_sub(LANES) {
        // Vectors may overlap: the last one ends with the row.
        for at in (0..last).step_by(LANES) {
            copy_vector::<I>(row, at, line);
        }
        copy_vector::<I>(row, last, line);
    } else {
        I::store(I::load_part(row, I::splat(0.0)), &mut line.as_chunks_mut().0[0]);
    }
    zero::<I>(line, row.len()..shape.end);
}

#[inline(always)]
fn copy_vector<I: Isa>(row: &[f32], at: usize, line: &mut [f32]) {
    I::store(I::load(&row[at..].as_chunks().0[0]), &mut line[at..].as_chunks_mut().0[0]);
}

/// Writes zeros at these positions, and perhaps some after them.
#[inline(always)]
fn zero<I: Isa>(line: &mut [f32], places: Range<usize>) {
    for at in places.step_by(LANES) {
        I::store(I::splat(0.0), &mut line[at..].as_chunks_mut().0[0]);
    }
}

/// Splits a row: every second column goes to one part, the remaining columns to the other part.
#[inline(always)]
fn halve<I: Isa>(row: &[f32], shape: &Lines, line: &mut [f32]) {
    let left = shape.geometry.steps.pads[1];
    let (first, second) = line.split_at_mut(shape.part);
    let (even, odd) = if left.is_multiple_of(2) { (first, second) } else { (second, first) };
    let (even, odd) = (&mut even[left / 2..], &mut odd[left.div_ceil(2)..]);
    let done;
    // Vectors may overlap, as in `copy`; the last pair of vectors begins with an even column.
    if let Some(last) = row.len().checked_sub(2 * LANES) {
        let last = last & !1;
        for at in (0..last).step_by(2 * LANES) {
            halve_vectors::<I>(row, at, even, odd);
        }
        halve_vectors::<I>(row, last, even, odd);
        done = last / 2 + LANES;
    } else {
        let (low, high) = row.split_at(row.len().min(LANES));
        let zero = I::splat(0.0);
        halved::<I>([I::load_part(low, zero), I::load_part(high, zero)], even, odd);
        done = row.len();
    }
    for (at, x) in row.iter().enumerate().skip(2 * done) {
        let half = if at % 2 == 0 { &mut *even } else { &mut *odd };
        half[at / 2] = *x;
    }
    let end = shape.end.div_ceil(2);
    zero::<I>(even, row.len().div_ceil(2)..end);
    zero::<I>(odd, row.len() / 2..end);
}

#[inline(always)]
fn halve_vectors<I: Isa>(row: &[f32], at: usize, even: &mut [f32], odd: &mut [f32]) {
    let pair = &row[at..].as_chunks().0[..2];
    halved::<I>([I::load(&pair[0]), I::load(&pair[1])], &mut even[at / 2..], &mut odd[at / 2..]);
}

#[inline(always)]
fn halved<I: Isa>([low, high]: [I::Vector; 2], even: &mut [f32], odd: &mut [f32]) {
    I::store(I::even(low, high), &mut even.as_chunks_mut().0[0]);
    I::store(I::odd(low, high), &mut odd.as_chunks_mut().0[0]);
}

/// Copies a row whose columns are far apart.
fn scatter(row: &[f32], shape: &Lines, line: &mut [f32]) {
    line.fill(0.0);
    let (stride, left) = (shape.geometry.steps.strides[1], shape.geometry.steps.pads[1]);
    for (at, x) in row.iter().enumerate() {
        let column = left + at;
        line[column % stride * shape.part + column / stride] = *x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_cpu_base::geometry::Steps;
    use anabranch_cpu_base::vector::{levels, vectorised_at};

    #[test]
    fn lines_hold_what_windows_cover() {
        for (size, window, strides, pads, dilations) in [
            ([5, 40], [3, 3], [1, 1], [1, 1, 1, 1], [1, 1]),
            ([6, 32], [3, 2], [1, 1], [0, 0, 2, 20], [2, 3]),
            ([7, 67], [3, 3], [2, 2], [1, 1, 1, 1], [1, 1]),
            ([9, 64], [5, 4], [1, 2], [2, 2, 1, 3], [1, 1]),
            ([9, 31], [2, 7], [2, 2], [3, 35, 0, 1], [1, 3]),
            ([8, 50], [3, 5], [3, 3], [2, 1, 2, 7], [1, 2]),
            ([1, 1], [1, 3], [1, 4], [0, 5, 0, 9], [1, 1]),
        ] {
            let geometry = Geometry::of_image([1, 1, 1], size, window, Steps { strides, pads, dilations });
            let lines = Lines::new(&geometry);
            let plane: Vec<f32> = (1..=size[0] * size[1]).map(|i| i as f32).collect();
            let [high, wide] = geometry.output;
            for (level, first) in levels().flat_map(|level| [0, high / 2].map(|first| (level, first))) {
                let mut found = vec![f32::NAN; lines.count(high - first) * lines.length()];
                let first_line = first * strides[0];
                vectorised_at(level, Fill { shape: &lines, plane: &plane, first: first_line, lines: &mut found });
                let taps = (0..window[0]).flat_map(|ky| (0..window[1]).map(move |kx| (ky, kx)));
                for ((ky, kx), y, x) in
                    taps.flat_map(|tap| (first..high).flat_map(move |y| (0..wide).map(move |x| (tap, y, x))))
                {
                    let row = (y * strides[0] + ky * dilations[0]).wrapping_sub(pads[0]);
                    let column = (x * strides[1] + kx * dilations[1]).wrapping_sub(pads[1]);
                    let inside = row < size[0] && column < size[1];
                    let want = if inside { plane[row * size[1] + column] } else { 0.0 };
                    let at = (y - first) * strides[0] * lines.length() + lines.offset((ky, kx)) + x;
                    assert_eq!(found[at], want, "level {level}, {geometry:?}, ({ky}, {kx}), ({y}, {x})");
                }
            }
        }
    }
}
