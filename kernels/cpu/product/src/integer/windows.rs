//! Windows of an image of 8-bit integers, copied one by one: where [`Planes`](super::planes::Planes) do not pay.

use anabranch_cpu_base::geometry::Geometry;
use std::ops::Range;

/// Channels of a group of an image, whose windows are copied.
pub(super) struct Windows<'a> {
    pub(super) geometry: &'a Geometry,
    /// Channels, one after the other.
    pub(super) image: &'a [u8],
    /// Flips the bits of each number.
    pub(super) mask: u8,
    /// Number around the image, before it is flipped.
    pub(super) border: u8,
}

impl Windows<'_> {
    /// Writes the quads of the windows of these outputs: for each quad of a filter, those of all outputs and then
    /// others up to `width`. Missing numbers are 0. O(width × depth).
    pub(super) fn write(&self, pixels: Range<usize>, width: usize, quads: &mut [u32]) {
        let Geometry { window: [high, _], .. } = self.geometry;
        let depth = high * self.geometry.group_channels();
        let of_column = depth.div_ceil(4);
        let mut lines = [const { Vec::new() }; 4].map(|mut line: Vec<u8>| {
            line.resize(width, self.border);
            line
        });
        for (at, quads) in quads.chunks_exact_mut(width).enumerate() {
            let (column, first) = (at / of_column, at % of_column * 4);
            for (line, step) in lines.iter_mut().zip(first..) {
                match step < depth {
                    true => self.copy(pixels.clone(), step, column, line),
                    false => line.fill(self.mask),
                }
            }
            let [a, b, c, d] = &lines;
            for (quad, ((a, b), (c, d))) in quads.iter_mut().zip(a.iter().zip(b).zip(c.iter().zip(d))) {
                *quad = u32::from_ne_bytes([*a, *b, *c, *d]) ^ u32::from_ne_bytes([self.mask; 4]);
            }
        }
    }

    /// Copies the number of each output's window at a step of a column.
    fn copy(&self, pixels: Range<usize>, step: usize, column: usize, line: &mut [u8]) {
        let Geometry { size, output, steps, .. } = self.geometry;
        let (channel, row) = (step % self.geometry.group_channels(), step / self.geometry.group_channels());
        let (top, bottom, source_row) = steps.inside(0, row, size[0], output[0]);
        let (left, right, source_column) = steps.inside(1, column, size[1], output[1]);
        line.fill(self.border);
        let (mut y, mut x, mut done) = (pixels.start / output[1], pixels.start % output[1], 0);
        while done < pixels.len() {
            let end = output[1].min(x + pixels.len() - done);
            let (from, to) = (left.max(x), right.min(end));
            if (top..bottom).contains(&y) && from < to {
                let row = source_row + (y - top) * steps.strides[0];
                let first = source_column + (from - left) * steps.strides[1];
                let numbers = self.image[(channel * size[0] + row) * size[1] + first..].iter();
                let line = &mut line[done + from - x..][..to - from];
                line.iter_mut().zip(numbers.step_by(steps.strides[1])).for_each(|(to, number)| *to = *number);
            }
            done += end - x;
            (y, x) = (y + 1, 0);
        }
    }
}
