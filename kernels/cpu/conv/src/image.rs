//! Image as the right-hand matrix of a convolution, written panel by panel without ever being stored whole.
//!
//! Row `tap · channels + channel` of the matrix holds, for each output pixel, the input element under that element of
//! the window (im2col). The channels are innermost, so that the pieces to copy are computed once for a tap and a panel.

use super::pieces::{LANES, Piece, write_rows};
use anabranch_cpu_base::gemm::PanelSource;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use std::ops::Range;

/// Columns of the widest panel.
const WIDEST: usize = 64;

/// Positions at which each element of the window lies inside the image.
///
/// For each row and column of the window, they are the first output position, the position after the last, and the
/// input element at the first.
pub(super) struct Coverage {
    rows: Vec<(usize, usize, usize)>,
    columns: Vec<(usize, usize, usize)>,
}

impl Coverage {
    /// # Errors
    /// If the window is too large for a table.
    pub(super) fn new(geometry: &Geometry, node: &NodeSpec) -> Result<Self, KernelError> {
        let Geometry { size, output, window, steps, .. } = geometry;
        let along = |axis: usize| (0..window[axis]).map(move |tap| steps.inside(axis, tap, size[axis], output[axis]));
        Ok(Self { rows: node.table(along(0))?, columns: node.table(along(1))? })
    }

    /// Returns the bytes of both tables.
    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.columns)
    }

    /// Returns the channels that product `product` reads: those of one group of one image.
    pub(super) fn image<'a>(&'a self, geometry: &'a Geometry, input: &'a [f32], product: usize) -> Image<'a> {
        let length = geometry.group_channels() * geometry.plane();
        Image { geometry, coverage: self, data: &input[product * length..][..length] }
    }
}

/// Channels of one group of one image.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    geometry: &'a Geometry,
    coverage: &'a Coverage,
    /// Channels of the group, one after the other.
    pub(super) data: &'a [f32],
}

/// Neighbouring pixels of one output row in one vector of a panel.
#[derive(Clone, Copy, Default)]
struct Segment {
    /// First column in the panel.
    column: usize,
    length: usize,
    y: usize,
    x: usize,
}

impl PanelSource for Image<'_> {
    fn depth(&self) -> usize {
        self.geometry.depth()
    }

    fn columns(&self) -> usize {
        self.geometry.pixels()
    }

    fn pack(&self, steps: Range<usize>, first: usize, width: usize, panel: &mut [f32]) {
        let (channels, plane) = (self.geometry.group_channels(), self.geometry.plane());
        let stride = self.geometry.steps.strides[1];
        let mut pixels = List::<Segment, WIDEST>::new();
        pixels.refill(segments(self.geometry, first..self.columns().min(first + width)));
        let mut pieces = List::<Piece, WIDEST>::new();
        let (mut tap, mut channel) = (steps.start / channels, steps.start % channels);
        let mut row = 0;
        while row < steps.len() {
            let count = (channels - channel).min(steps.len() - row);
            pieces.refill(self.pieces(tap, pixels.as_slice()));
            let rows = &mut panel[row * width..(row + count) * width];
            write_rows(pieces.as_slice(), &self.data[channel * plane..], (plane, stride), rows, width);
            (tap, channel, row) = (tap + 1, 0, row + count);
        }
    }
}

impl<'a> Image<'a> {
    /// Returns the pieces of a panel's row for one element of the window, which are the same in each channel: at most
    /// one per segment.
    fn pieces<'b>(&'b self, tap: usize, segments: &'b [Segment]) -> impl Iterator<Item = Piece> + 'b {
        let Geometry { size, window, steps, .. } = self.geometry;
        let (top, bottom, row) = self.coverage.rows[tap / window[1]];
        let (left, right, column) = self.coverage.columns[tap % window[1]];
        segments.iter().filter_map(move |segment| {
            let (from, to) = (left.max(segment.x), right.min(segment.x + segment.length));
            if !(top..bottom).contains(&segment.y) || from >= to {
                return None;
            }
            let start = (row + (segment.y - top) * steps.strides[0]) * size[1] + column;
            let (vector, lane) = (segment.column / LANES, segment.column % LANES);
            let (first, end) = (lane + from - segment.x, lane + to - segment.x);
            // Source of an element at column 0 of the panel; it may lie before the image.
            let shift = (from - left) * steps.strides[1];
            let origin = start.wrapping_add(shift).wrapping_sub((vector * LANES + first) * steps.strides[1]);
            Some(Piece { vector, first, end, origin })
        })
    }
}

/// Cuts pixels at the ends of output rows and of a panel's vectors.
fn segments(geometry: &Geometry, pixels: Range<usize>) -> impl Iterator<Item = Segment> {
    let width = geometry.output[1];
    let mut pixel = pixels.start;
    let [mut y, mut x] = [pixel / width, pixel % width];
    std::iter::from_fn(move || {
        let column = pixel - pixels.start;
        let length = (width - x).min(pixels.end - pixel).min(LANES - column % LANES);
        let segment = Segment { column, length, y, x };
        (pixel, x) = (pixel + length, x + length);
        if x == width {
            (y, x) = (y + 1, 0);
        }
        (length > 0).then_some(segment)
    })
}

/// Short list on the stack, which is made again for each panel.
struct List<T, const MOST: usize> {
    items: [T; MOST],
    count: usize,
}

impl<T: Copy + Default, const MOST: usize> List<T, MOST> {
    fn new() -> Self {
        Self { items: [T::default(); MOST], count: 0 }
    }

    fn refill(&mut self, items: impl Iterator<Item = T>) {
        self.count = 0;
        for item in items {
            self.items[self.count] = item;
            self.count += 1;
        }
    }

    fn as_slice(&self) -> &[T] {
        &self.items[..self.count]
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_cpu_base::geometry::Steps;
    use anabranch_op::op::{Conv, Op};

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
            let geometry = Geometry::of_image([3, 1, 1], size, window, steps);
            let op = Op::Conv(Conv { strides, pads, dilations, group: 1, epilogue: None });
            let node = NodeSpec { op, inputs: vec![], outputs: vec![] };
            let coverage = Coverage::new(&geometry, &node).expect("small windows");
            let image = Image { geometry: &geometry, coverage: &coverage, data: &data[..3 * geometry.plane()] };
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
