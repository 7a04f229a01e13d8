//! Images of 8-bit integers as planes of quads, which dot products of four bytes read without a copy of the windows.
//!
//! A product's steps go through the columns of the window, in a column through its rows, and in a row through all
//! channels. Four steps of a column are a quad. A plane has a quad for each position of the window, row by row, and for
//! positions between two rows that are no outputs. Windows that are shifted read the same plane further on:
//!
//! - If windows move by several columns, each column of the window modulo that stride has planes of its own.
//! - If the channels are a multiple of four, all numbers of a quad are of one row of the window. Then planes are shared
//!   by rows of the window, too, which differ by a multiple of the stride.

mod strips;

use super::block::Starts;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::team::{Grid, Team, with_workspace};
use anabranch_cpu_base::vector::{LANES, vectorised};
use std::collections::HashMap;
use std::ops::Range;
use strips::Write;

/// Numbers of a quad.
const QUAD: usize = 4;

/// Approximate quads that a thread writes at once.
const TILE_QUADS: usize = 1 << 14;

/// Approximate quads whose numbers lie in the innermost cache while they are written.
const BAND_QUADS: usize = 1 << 12;

/// Rows that are written together though they are many quads: all copy the rows of the window.
pub(super) const LEAST_ROWS: usize = 4;

/// Maximum quads of a filter: a table has an entry for each.
const MOST_QUADS: usize = 1 << 16;

/// Planes of the images, and where windows read them.
pub(super) struct Planes {
    geometry: Geometry,
    /// Planes of a group of an image.
    planes: Vec<Plane>,
    rows: usize,
    /// Positions of a row.
    pub(super) pitch: usize,
    /// First quad of the first window for each quad of a filter.
    pub(super) starts: Starts,
    /// Flips the bits of each number of an image.
    mask: u8,
    /// Number around an image, before it is flipped.
    border: u8,
}

/// Plane, whose quads are made of strips: rows of a channel that are a stride apart, with the border around them.
struct Plane {
    /// Channel of the group, and first row of the image with its border.
    strips: Vec<[usize; 2]>,
    /// Strip of each number of a quad, and its row there.
    sources: [[usize; 2]; QUAD],
    /// Bits of the numbers of a quad that are not missing: the last of a column of the window may be.
    present: u32,
    /// First column of the image with its border.
    column: usize,
}

impl Plane {
    /// Returns a plane whose numbers are those of these channels and rows.
    fn new(numbers: [Option<[usize; 2]>; QUAD], column: usize, stride: usize) -> Self {
        let mut strips = Vec::new();
        let sources = numbers.map(|number| {
            let Some([channel, row]) = number else { return [0, 0] };
            let strip = [channel, row % stride];
            let at = strips.iter().position(|known| *known == strip).unwrap_or_else(|| {
                strips.push(strip);
                strips.len() - 1
            });
            [at, row / stride]
        });
        let present = u32::from_ne_bytes(numbers.map(|number| if number.is_some() { u8::MAX } else { 0 }));
        Self { strips, sources, present, column }
    }

    /// Returns the rows of a strip that are read below the plane's row of the same number.
    fn below(&self) -> usize {
        self.sources.iter().map(|[_, row]| *row).max().unwrap_or(0)
    }
}

impl Planes {
    /// Returns the planes for so many rows of the output. `None` if they would have more than `most` bytes, as windows
    /// with distant elements demand, or if most positions are no outputs. Numbers of the images are flipped by `mask`;
    /// `border` is the number around an image before that. O(depth of a window).
    pub(super) fn new(geometry: Geometry, rows: usize, [mask, border]: [u8; 2], most: usize) -> Option<Self> {
        let Geometry { window: [high, wide], steps, output, .. } = geometry;
        let (channels, [down, right]) = (geometry.group_channels(), steps.strides);
        let below = |row: usize| row.saturating_mul(steps.dilations[0]);
        let beside = |column: usize| column.saturating_mul(steps.dilations[1]);
        let shared = channels.is_multiple_of(QUAD);
        let is_single = rows == 1;
        let rows = rows.saturating_add(if shared { below(high - 1) / down } else { 0 });
        let pitch = output[1].saturating_add(beside(wide - 1) / right);
        let size = rows.saturating_mul(pitch);
        let quads = (high * channels).div_ceil(QUAD);
        // At most as many: elements of the window whose distance is a multiple of the stride share planes.
        let count = wide.min(right) * if shared { high.min(down) * channels / QUAD } else { quads };
        // A thread's strips have at most as many rows as a plane, and those below it.
        let strips = rows.saturating_add(below(high - 1)).saturating_mul(pitch);
        let bytes = count.saturating_mul(size).saturating_add(strips).saturating_mul(QUAD);
        let is_dense = is_single || pitch / 2 <= output[1];
        if !is_dense || bytes > most || bytes == usize::MAX || wide * quads > MOST_QUADS {
            return None;
        }
        let (mut planes, mut starts, mut known) = (Vec::new(), Vec::with_capacity(wide * quads), HashMap::new());
        for (column, quad) in (0..wide).flat_map(|column| (0..quads).map(move |quad| (beside(column), quad))) {
            let row = if shared { below(quad * QUAD / channels) } else { 0 };
            let source = |step: usize| match shared {
                true => Some([step % channels, row % down]),
                false => (step < high * channels).then(|| [step % channels, below(step / channels)]),
            };
            let numbers = std::array::from_fn(|i| source(quad * QUAD + i));
            let number = *known.entry((numbers, column % right)).or_insert_with(|| {
                planes.push(Plane::new(numbers, column % right, down));
                planes.len() - 1
            });
            starts.push(number * size + row / down * pitch + column / right);
        }
        Some(Self { geometry, planes, rows, pitch, starts: Starts::new(starts), mask, border })
    }

    /// Returns the quads of a plane.
    fn size(&self) -> usize {
        self.rows * self.pitch
    }

    /// Returns the quads of a group of an image.
    pub(super) fn group_quads(&self) -> usize {
        self.planes.len() * self.size()
    }

    /// Returns the bytes of the planes for each position of the window.
    pub(super) fn position_bytes(&self) -> usize {
        QUAD * self.planes.len()
    }

    /// Returns the quads of all images, and those after them that a panel may reach.
    pub(super) fn count(&self) -> usize {
        let groups = self.geometry.images.saturating_mul(self.geometry.group);
        groups.saturating_mul(self.group_quads()).saturating_add(PANEL)
    }

    /// Returns the bytes of the strips for so many rows of a plane, and those after them that are read.
    pub(super) fn strip_bytes(&self, rows: usize) -> usize {
        if self.geometry.is_pointwise() {
            return 0;
        }
        let lines = |plane: &Plane| plane.strips.len() * (rows + plane.below());
        self.planes.iter().map(lines).max().unwrap_or(0) * self.pitch + LANES
    }

    /// Writes all quads of the images. Threads share large planes by rows, and small ones whole.
    pub(super) fn write(&self, images: &[u8], team: &Team, quads: &mut [u32]) {
        let (planes, size) = (self.planes.len(), self.size());
        let count = quads.len().saturating_sub(PANEL) / size.max(1);
        let (quads, beyond) = quads.split_at_mut(count * size);
        beyond.fill(0);
        let band = (BAND_QUADS / self.pitch.max(1)).max(LEAST_ROWS);
        let by_rows = size > BAND_QUADS;
        let grid = if by_rows {
            Grid { batch: count, rows: self.rows, columns: self.pitch, tile_rows: band, tile_columns: self.pitch }
        } else {
            let tile_rows = (TILE_QUADS / size.max(1)).max(1);
            Grid { batch: 1, rows: count, columns: size, tile_rows, tile_columns: size }
        };
        team.run_tiles(quads, grid, &|mut tile| {
            let (first, rows) = match by_rows {
                true => (tile.matrix, tile.rows.clone()),
                false => (tile.rows.start, 0..self.rows),
            };
            with_workspace(self.strip_bytes(rows.len()).div_ceil(QUAD), |workspace| {
                let strips: &mut [u8] = bytemuck::cast_slice_mut(workspace);
                let length = rows.len() * self.pitch;
                for (plane, quads) in (first..).zip(tile.whole_rows().chunks_exact_mut(length.max(1))) {
                    let (groups, numbers) = (plane / planes..plane / planes + 1, plane % planes..plane % planes + 1);
                    let (rows, strips) = (rows.clone(), &mut *strips);
                    vectorised(Write { planes: self, images, groups, numbers, rows, strips, quads });
                }
            });
        });
    }

    /// Writes the quads of groups, numbered through all images, for some rows of the output, at most as many as a plane
    /// has.
    pub(super) fn write_rows(
        &self,
        images: &[u8],
        groups: Range<usize>,
        rows: Range<usize>,
        strips: &mut [u8],
        quads: &mut [u32],
    ) {
        vectorised(Write { planes: self, images, groups, numbers: 0..self.planes.len(), rows, strips, quads });
    }

    /// Returns the positions of a row of a plane that lie inside the image, and the image's column of the first.
    #[inline(always)]
    fn inside(&self, plane: &Plane) -> (Range<usize>, usize) {
        let (left, stride) = (self.geometry.steps.pads[1], self.geometry.steps.strides[1]);
        let first = left.saturating_sub(plane.column).div_ceil(stride).min(self.pitch);
        let end = (self.geometry.size[1] + left).saturating_sub(plane.column).div_ceil(stride);
        let end = end.clamp(first, self.pitch);
        (first..end, if first < end { first * stride + plane.column - left } else { 0 })
    }
}
