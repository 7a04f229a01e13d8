//! An image as the right-hand matrix of a convolution, written panel by panel without ever being stored whole.
//!
//! Row `tap · channels + channel` of the matrix holds, for each output pixel, the input element under that element of
//! the window (im2col). The channels are innermost, so that what to copy is worked out once a tap and panel.

use super::geometry::Geometry;
use crate::cpu::gemm::PanelSource;
use crate::cpu::vector::{Isa, Loop, vectorised};
use std::ops::Range;

/// Elements copied at a time. A copy may write so many after its end, which a later one overwrites.
const BLOCK: usize = 16;

/// The channels of one group of one image.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    pub(super) geometry: &'a Geometry,
    /// The group's channels, one after the other.
    pub(super) data: &'a [f32],
}

/// Columns of the widest panel.
const WIDEST: usize = 64;

impl PanelSource for Image<'_> {
    fn depth(&self) -> usize {
        self.geometry.taps() * self.geometry.group_channels()
    }

    fn columns(&self) -> usize {
        self.geometry.pixels()
    }

    fn pack(&self, steps: Range<usize>, first: usize, width: usize, panel: &mut [f32]) {
        let (channels, plane) = (self.geometry.group_channels(), self.geometry.plane());
        let stride = self.geometry.steps.strides[1];
        let pixels = first..self.columns().min(first + width);
        let mut step = steps.start;
        while step < steps.end {
            let end = steps.end.min((step / channels + 1) * channels);
            let runs = self.runs(step / channels, &pixels, width);
            let rows = &mut panel[(step - steps.start) * width..(end - steps.start) * width];
            let source = &self.data[step % channels * plane..];
            vectorised(CopyRuns { runs: runs.as_slice(), source, plane, stride, rows, width });
            step = end;
        }
    }
}

impl Image<'_> {
    /// What a panel's row holds at these pixels for one element of the window, the same in each channel.
    fn runs(&self, tap: usize, pixels: &Range<usize>, width: usize) -> Runs {
        let Geometry { size, output, window, steps, .. } = *self.geometry;
        let [ky, kx] = [tap / window[1], tap % window[1]];
        let (top, bottom, row) = steps.inside(0, ky, size[0], output[0]);
        let (left, right, column) = steps.inside(1, kx, size[1], output[1]);
        let mut runs = Runs::new();
        let mut pixel = pixels.start;
        while pixel < pixels.end {
            let [y, x] = [pixel / output[1], pixel % output[1]];
            let end = output[1].min(x + pixels.end - pixel);
            if (top..bottom).contains(&y) {
                let (from, to) = (left.clamp(x, end), right.clamp(x, end));
                let start = (row + (y - top) * steps.strides[0]) * size[1] + column;
                runs.push(from - x, None);
                runs.push(to - from, Some(start + (from - left.min(from)) * steps.strides[1]));
                runs.push(end - to, None);
            } else {
                runs.push(end - x, None);
            }
            pixel += end - x;
        }
        runs.push(width - pixels.len(), None);
        runs
    }
}

/// A run of a panel's row and where its elements come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    length: usize,
    /// First element in the channel; `None` where the window lies on the padding or beyond the last pixel.
    source: Option<usize>,
}

/// The runs of one panel's row, from the left to the right: at most three for each of its columns and one more.
struct Runs {
    runs: [Run; 3 * WIDEST + 1],
    count: usize,
}

impl Runs {
    fn new() -> Self {
        Self { runs: [Run { length: 0, source: None }; 3 * WIDEST + 1], count: 0 }
    }

    /// Adds a run, joined with the one before if both are zeros.
    fn push(&mut self, length: usize, source: Option<usize>) {
        match self.runs[..self.count].last_mut() {
            _ if length == 0 => {}
            Some(last) if last.source.is_none() && source.is_none() => last.length += length,
            _ => {
                self.runs[self.count] = Run { length, source };
                self.count += 1;
            }
        }
    }

    fn as_slice(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}

/// Writes consecutive channels as rows of a panel.
struct CopyRuns<'a> {
    runs: &'a [Run],
    /// The input from the first channel on.
    source: &'a [f32],
    /// Elements of a channel.
    plane: usize,
    /// Distance of neighbouring elements in the channel.
    stride: usize,
    rows: &'a mut [f32],
    width: usize,
}

impl Loop for CopyRuns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { runs, source, plane, stride, rows, width } = self;
        for channel in 0..rows.len() / width {
            let source = &source[channel * plane..];
            let mut at = channel * width;
            for run in runs {
                match (run.source, stride) {
                    (None, _) => fill(&mut rows[at..], run.length),
                    (Some(from), 1) => copy(&source[from..], &mut rows[at..], run.length),
                    (Some(from), 2) => copy_every_second(&source[from..], &mut rows[at..], run.length),
                    (Some(from), _) => copy_strided(&source[from..], &mut rows[at..], run.length, stride),
                }
                at += run.length;
            }
        }
    }
}

/// Writes `length` zeros, and up to a block of others after them if there is room.
#[inline(always)]
fn fill(to: &mut [f32], length: usize) {
    let mut done = 0;
    while done < length {
        match to[done..].first_chunk_mut::<BLOCK>() {
            Some(block) => *block = [0.0; BLOCK],
            None => to[done..length].fill(0.0),
        }
        done += BLOCK;
    }
}

/// Copies `length` elements, and writes up to a block of others after them if there is room.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32], length: usize) {
    let mut done = 0;
    while done < length {
        match (from[done..].first_chunk::<BLOCK>(), to[done..].first_chunk_mut::<BLOCK>()) {
            (Some(from), Some(to)) => *to = *from,
            _ => to[done..length].copy_from_slice(&from[done..length]),
        }
        done += BLOCK;
    }
}

/// As [`copy`], of every second element.
#[inline(always)]
fn copy_every_second(from: &[f32], to: &mut [f32], length: usize) {
    let mut done = 0;
    while done < length {
        match (from[2 * done..].first_chunk::<{ 2 * BLOCK }>(), to[done..].first_chunk_mut::<BLOCK>()) {
            (Some(from), Some(to)) => {
                for i in 0..BLOCK {
                    to[i] = from[2 * i];
                }
            }
            _ => return copy_strided(&from[2 * done..], &mut to[done..], length - done, 2),
        }
        done += BLOCK;
    }
}

/// Copies `length` elements that are `stride` apart.
#[inline(always)]
fn copy_strided(from: &[f32], to: &mut [f32], length: usize, stride: usize) {
    for (to, from) in to[..length].iter_mut().zip(from.iter().step_by(stride)) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::conv::geometry::Steps;

    #[test]
    fn every_element_of_every_panel_is_the_one_under_the_window() {
        let data: Vec<f32> = (1..=3 * 11 * 23).map(|i| i as f32).collect();
        for (size, window, strides, pads, dilations) in [
            ([11, 23], [3, 3], [1, 1], [1, 1, 1, 1], [1, 1]),
            ([11, 23], [3, 2], [2, 2], [0, 1, 2, 0], [1, 2]),
            ([5, 7], [5, 4], [3, 3], [4, 3, 4, 3], [1, 1]),
            ([11, 23], [1, 1], [1, 2], [0, 0, 0, 0], [1, 1]),
            ([2, 2], [3, 3], [1, 1], [3, 3, 3, 3], [1, 1]),
        ] {
            let steps = Steps { strides, pads, dilations };
            let positions = |axis: usize| {
                let extent = (window[axis] - 1) * dilations[axis] + 1;
                (size[axis] + pads[axis] + pads[axis + 2] - extent) / strides[axis] + 1
            };
            let output = [positions(0), positions(1)];
            let geometry = Geometry { images: 1, channels: 3, size, maps: 1, output, window, steps, group: 1 };
            let image = Image { geometry: &geometry, data: &data[..3 * geometry.plane()] };
            for width in [8, 16, 48] {
                for (first, rows) in
                    (0..image.columns()).step_by(width).flat_map(|f| [(f, 0..image.depth()), (f, 2..5)])
                {
                    let rows = rows.start..rows.end.min(image.depth());
                    let mut panel = vec![-1.0; rows.len() * width];
                    image.pack(rows.clone(), first, width, &mut panel);
                    for (at, found) in panel.iter().enumerate() {
                        let (row, pixel) = (rows.start + at / width, first + at % width);
                        assert_eq!(
                            *found,
                            expected(&geometry, &data, row, pixel),
                            "row {row}, pixel {pixel}, {geometry:?}"
                        );
                    }
                }
            }
        }
    }

    fn expected(geometry: &Geometry, data: &[f32], row: usize, pixel: usize) -> f32 {
        let (tap, channel) = (row / geometry.channels, row % geometry.channels);
        let place = [pixel / geometry.output[1], pixel % geometry.output[1]];
        let tap = [tap / geometry.window[1], tap % geometry.window[1]];
        let Steps { strides, pads, dilations } = geometry.steps;
        let covered = |axis: usize| {
            let element = (place[axis] * strides[axis] + tap[axis] * dilations[axis]).checked_sub(pads[axis])?;
            (element < geometry.size[axis]).then_some(element)
        };
        match (covered(0), covered(1)) {
            (Some(y), Some(x)) if pixel < geometry.pixels() => {
                data[channel * geometry.plane() + y * geometry.size[1] + x]
            }
            _ => 0.0,
        }
    }
}
