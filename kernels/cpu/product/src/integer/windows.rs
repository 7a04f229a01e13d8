//! Windows of an image of 8-bit integers, as panels of a right-hand matrix.

use super::block::Panel;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use std::ops::Range;

/// Channels of a group of an image, whose windows become panels. For each element of a window and each channel there is
/// a row, which holds the element's input for each output. Four rows lie next to each other.
pub(super) struct Windows<'a> {
    pub(super) geometry: &'a Geometry,
    /// Channels, one after the other.
    pub(super) image: &'a [u8],
    /// Number added to each number modulo 2⁸, by its highest bit.
    pub(super) mask: u8,
    /// Number around the image, before anything is added.
    pub(super) border: u8,
}

/// Neighbouring outputs of one row for which an element of the window lies inside the image.
#[derive(Clone, Copy, Default)]
pub(super) struct Run {
    /// First column of the panel.
    pub(super) column: usize,
    pub(super) length: usize,
    /// Element of a channel for the first output.
    pub(super) from: usize,
}

impl Windows<'_> {
    /// Writes the panel of these outputs, at most [`PANEL`]: `width` quads per four rows, zeros after the last row.
    /// Columns beyond the last output are the border.
    pub(super) fn panel<'a>(&self, pixels: Range<usize>, width: usize, panel: &'a mut [u32]) -> Panel<'a> {
        vectorised(Pack { windows: self, pixels, width, panel: &mut *panel });
        Panel::dense(bytemuck::cast_slice(panel), width)
    }
}

/// Writes the sources of the outputs' elements for the window's element `tap`. Returns the number of runs.
#[inline(always)]
pub(super) fn runs(geometry: &Geometry, tap: usize, pixels: &Range<usize>, runs: &mut [Run; PANEL]) -> usize {
    let Geometry { size, output, window, steps, .. } = geometry;
    let (top, bottom, row) = steps.inside(0, tap / window[1], size[0], output[0]);
    let (left, right, column) = steps.inside(1, tap % window[1], size[1], output[1]);
    let mut count = 0;
    let mut pixel = pixels.start;
    while pixel < pixels.end {
        let (y, x) = (pixel / output[1], pixel % output[1]);
        let end = (x + pixels.end - pixel).min(output[1]);
        let (from, to) = (left.max(x), right.min(end));
        if (top..bottom).contains(&y) && from < to {
            let first = (row + (y - top) * steps.strides[0]) * size[1] + column + (from - left) * steps.strides[1];
            runs[count] = Run { column: pixel - pixels.start + from - x, length: to - from, from: first };
            count += 1;
        }
        pixel += end - x;
    }
    count
}

struct Pack<'a> {
    windows: &'a Windows<'a>,
    pixels: Range<usize>,
    width: usize,
    panel: &'a mut [u32],
}

impl Loop for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { windows, pixels, width, panel } = self;
        let Windows { geometry, image, mask, border } = *windows;
        let (plane, stride) = (geometry.plane(), geometry.steps.strides[1]);
        let mut rows = [[border; PANEL]; 4];
        let (mut step, mut runs) = (0, [Run::default(); PANEL]);
        for tap in 0..geometry.taps() {
            let count = self::runs(geometry, tap, &pixels, &mut runs);
            let runs = &runs[..count];
            // An image without pixels still has a border.
            for channel in (0..geometry.group_channels()).map(|channel| &image[channel * plane..][..plane]) {
                let row = &mut rows[step % 4];
                row[..width].fill(border);
                for run in runs {
                    let to = &mut row[run.column..][..run.length];
                    match stride {
                        1 => copy(&channel[run.from..][..run.length], to),
                        _ => to.iter_mut().zip(channel[run.from..].iter().step_by(stride)).for_each(|(to, x)| *to = *x),
                    }
                }
                step += 1;
                if step % 4 == 0 {
                    interleave(&rows, mask, &mut panel[(step / 4 - 1) * width..][..width]);
                }
            }
        }
        if step % 4 > 0 {
            rows[step % 4..].fill([mask; PANEL]);
            interleave(&rows, mask, &mut panel[step / 4 * width..][..width]);
        }
    }
}

/// Copies a few bytes, without a call whose length is known only at run time.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    match (from.first_chunk::<PANEL>(), to.first_chunk_mut()) {
        (Some(from), Some(to)) => *to = *from,
        _ => to.copy_from_slice(from),
    }
}

#[inline(always)]
fn interleave(rows: &[[u8; PANEL]; 4], mask: u8, to: &mut [u32]) {
    let mask = u32::from_ne_bytes([mask; 4]);
    for (j, to) in to.iter_mut().enumerate().take(PANEL) {
        *to = u32::from_ne_bytes([rows[0][j], rows[1][j], rows[2][j], rows[3][j]]) ^ mask;
    }
}
