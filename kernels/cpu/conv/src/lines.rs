//! Rows of an image with the zeros around them, for kernels that read windows in place.
//!
//! The elements that neighbouring outputs read through one element of the window lie side by side in a line, for every
//! stride. A line holds every stride-th column from the row's first on, then from its second on, and so forth. No load
//! is masked, and no row is missing.

use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use std::ops::Range;

/// Conversion of the rows of a convolution's image to lines.
///
/// Columns with the same remainder by the stride are a part, and each part is a plane of lines without gaps: what is
/// written behind the end of a line is written over by the next one.
#[derive(Debug)]
pub(super) struct Lines {
    geometry: Geometry,
    /// Numbers of a line, and distance of lines.
    length: usize,
    /// Number of columns that windows reach from the image's first on, including the zeros on its right.
    end: usize,
    /// Distance of the planes of parts.
    plane: usize,
}

impl Lines {
    /// Returns the conversion of the lines that windows of at most `rows` rows of outputs reach.
    pub(super) fn new(geometry: &Geometry, rows: usize) -> Self {
        let Geometry { size: [_, width], output: [_, wide], window, steps, .. } = *geometry;
        let (stride, left) = (steps.strides[1], steps.pads[1]);
        let reach = (window[1] - 1) * steps.dilations[1];
        let end = ((wide.max(1) - 1) * stride + reach + 1).saturating_sub(left).max(width);
        let length = left.saturating_add(end).div_ceil(stride);
        let mut lines = Self { geometry: *geometry, length, end, plane: 0 };
        // Vectors that begin in the last line are written and read whole.
        lines.plane = lines.count(rows).saturating_mul(length).saturating_add(LANES);
        lines
    }

    /// Returns the distance of lines that follow each other.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Returns the numbers of a channel's lines.
    pub(super) fn floats(&self) -> usize {
        self.plane.saturating_mul(self.geometry.steps.strides[1])
    }

    /// Returns the number of lines that windows of `rows` rows of outputs reach.
    fn count(&self, rows: usize) -> usize {
        let Geometry { window, steps, .. } = self.geometry;
        (rows.max(1) - 1).saturating_mul(steps.strides[0]).saturating_add((window[0] - 1) * steps.dilations[0] + 1)
    }

    /// Returns the offset from the first line of the elements that the window's element in row `tap.0` and column
    /// `tap.1` covers, for the first output.
    pub(super) fn offset(&self, tap: (usize, usize)) -> usize {
        let steps = &self.geometry.steps;
        let column = tap.1 * steps.dilations[1];
        let (part, at) = (column % steps.strides[1], column / steps.strides[1]);
        part * self.plane + tap.0 * steps.dilations[0] * self.length + at
    }

    /// Writes the lines of channels that windows of the output rows `rows` reach.
    pub(super) fn fill(&self, channels: &[f32], rows: Range<usize>, lines: &mut [f32]) {
        let (first, count) = (rows.start * self.geometry.steps.strides[0], self.count(rows.len()));
        vectorised(Fill { shape: self, channels, first, count, lines });
    }
}

struct Fill<'a> {
    shape: &'a Lines,
    channels: &'a [f32],
    /// Number of the first line, counted from the zeros above the image.
    first: usize,
    /// Number of lines.
    count: usize,
    lines: &'a mut [f32],
}

impl Loop for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let stride = self.shape.geometry.steps.strides[1];
        match stride {
            1 => self.each::<I>(copy::<I>),
            2 => self.each::<I>(halve::<I>),
            _ => self.each::<I>(scatter),
        }
    }
}

impl Fill<'_> {
    /// Writes every line; `write` writes a row of the image and what is behind it.
    #[inline(always)]
    fn each<I: Isa>(self, write: impl Fn(&[f32], &Lines, &mut [f32])) {
        let Lines { geometry: Geometry { size: [height, width], steps, .. }, length, plane, .. } = *self.shape;
        let (above, left, floats) = (steps.pads[0], steps.pads[1].min(length), self.shape.floats());
        for (at, lines) in self.lines.chunks_exact_mut(floats).enumerate() {
            let channel = &self.channels[at * height * width..][..height * width];
            for at in 0..self.count {
                let (row, line) = ((self.first + at).wrapping_sub(above), &mut lines[at * length..]);
                let zeros = if row < height { left } else { length };
                for part in 0..steps.strides[1] {
                    zero::<I>(&mut line[part * plane..], 0, zeros);
                }
                if row < height {
                    write(&channel[row * width..][..width], self.shape, line);
                }
            }
        }
    }
}

/// Copies a row whose columns are neighbours.
#[inline(always)]
fn copy<I: Isa>(row: &[f32], shape: &Lines, line: &mut [f32]) {
    let line = &mut line[shape.geometry.steps.pads[1]..];
    let mut done = row.len();
    if let Some(last) = row.len().checked_sub(LANES) {
        // Vectors may overlap: the last one ends with the row.
        let mut at = 0;
        while at < last {
            copy_vector::<I>(row, at, line);
            at += LANES;
        }
        copy_vector::<I>(row, last, line);
    } else {
        I::store(I::load_part(row, I::splat(0.0)), &mut line.as_chunks_mut().0[0]);
        done = LANES;
    }
    zero::<I>(line, done, shape.end);
}

#[inline(always)]
fn copy_vector<I: Isa>(row: &[f32], at: usize, line: &mut [f32]) {
    I::store(I::load(&row[at..].as_chunks().0[0]), &mut line[at..].as_chunks_mut().0[0]);
}

/// Writes zeros from a position up to another, and perhaps some behind it.
#[inline(always)]
fn zero<I: Isa>(line: &mut [f32], mut at: usize, end: usize) {
    while at < end {
        I::store(I::splat(0.0), &mut line[at..].as_chunks_mut().0[0]);
        at += LANES;
    }
}

/// Splits a row: every second column goes to one part, the remaining columns to the other part.
#[inline(always)]
fn halve<I: Isa>(row: &[f32], shape: &Lines, line: &mut [f32]) {
    let left = shape.geometry.steps.pads[1];
    let (first, second) = line.split_at_mut(shape.plane);
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
        done = LANES;
    }
    for (at, x) in row.iter().enumerate().skip(2 * done) {
        let half = if at % 2 == 0 { &mut *even } else { &mut *odd };
        half[at / 2] = *x;
    }
    let end = shape.end.div_ceil(2);
    zero::<I>(even, row.len().div_ceil(2).max(done), end);
    zero::<I>(odd, (row.len() / 2).max(done), end);
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
    let (stride, left) = (shape.geometry.steps.strides[1], shape.geometry.steps.pads[1]);
    (0..stride).for_each(|part| line[part * shape.plane..][..shape.length].fill(0.0));
    for (at, x) in row.iter().enumerate() {
        let column = left + at;
        line[column % stride * shape.plane + column / stride] = *x;
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
            let plane: Vec<f32> = (1..=size[0] * size[1]).map(|i| i as f32).collect();
            let [high, wide] = geometry.output;
            for (level, first) in levels().flat_map(|level| [0, high / 2].map(|first| (level, first))) {
                let lines = Lines::new(&geometry, high);
                let mut found = vec![f32::NAN; lines.floats()];
                let (first_line, count) = (first * strides[0], lines.count(high - first));
                let (shape, channels) = (&lines, &*plane);
                vectorised_at(level, Fill { shape, channels, first: first_line, count, lines: &mut found });
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
