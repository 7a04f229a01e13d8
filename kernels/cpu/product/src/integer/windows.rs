//! Windows of an image of 8-bit integers, copied one by one: for windows with distant elements (see
//! [`Planes`](super::planes::Planes)).

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
        let Geometry { window: [high, wide], .. } = self.geometry;
        let depth = high * self.geometry.group_channels();
        let of_column = depth.div_ceil(4);
        for (at, quads) in quads.chunks_exact_mut(width).enumerate() {
            let (column, first) = (at / of_column % wide, at % of_column * 4);
            for (quad, pixel) in quads.iter_mut().zip(pixels.clone()) {
                let number = |step: usize| if step < depth { self.number(pixel, step, column) } else { self.mask };
                *quad = u32::from_ne_bytes(std::array::from_fn(|i| number(first + i) ^ self.mask));
            }
        }
    }

    /// Returns the number at a step of a column of the window.
    fn number(&self, pixel: usize, step: usize, column: usize) -> u8 {
        let Geometry { size, output, steps, .. } = self.geometry;
        let channels = self.geometry.group_channels();
        let place = |axis: usize, position: usize, tap: usize| {
            (position * steps.strides[axis] + tap * steps.dilations[axis])
                .checked_sub(steps.pads[axis])
                .filter(|at| *at < size[axis])
        };
        let row = place(0, pixel / output[1], step / channels);
        match (row, place(1, pixel % output[1], column)) {
            (Some(row), Some(column)) => self.image[(step % channels * size[0] + row) * size[1] + column],
            _ => self.border,
        }
    }
}
