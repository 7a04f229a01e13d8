//! Images of 8-bit integers with four channels next to each other, as dot products of bytes read them.
//!
//! Panels of windows are then copies of whole quads, and panels of single pixels are parts of the image.

use super::block::Panel;
use super::windows::{Run, runs};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::team::{Grid, Team};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use std::ops::Range;

/// Channels of a quad.
const CHANNELS: usize = 4;

/// Approximate quads that a thread writes at once.
const TILE_QUADS: usize = 1 << 14;

/// Whether quads never span two groups.
pub(super) fn suits(geometry: &Geometry) -> bool {
    geometry.group_channels() > 0 && geometry.group_channels().is_multiple_of(CHANNELS)
}

/// Returns the quads of all images, and those after them that a panel may reach.
pub(super) fn count(geometry: &Geometry) -> usize {
    geometry.images * geometry.channels / CHANNELS * geometry.plane() + PANEL
}

/// Writes the quads of images, whose numbers' bits are flipped by `mask`.
pub(super) fn write(geometry: &Geometry, images: &[u8], mask: u8, team: &Team, quads: &mut [u32]) {
    let (rows, plane) = (geometry.images * geometry.channels / CHANNELS, geometry.plane());
    let tile_rows = (TILE_QUADS / plane.max(1)).max(1);
    let grid = Grid { batch: 1, rows, columns: plane, tile_rows, tile_columns: plane };
    let (quads, beyond) = quads.split_at_mut(rows * plane);
    beyond.fill(0);
    team.run_tiles(quads, grid, &|mut tile| {
        for (at, row) in tile.rows.clone().enumerate() {
            let channels = &images[row * CHANNELS * plane..][..CHANNELS * plane];
            vectorised(Interleave { channels, mask, quads: tile.row(at) });
        }
    });
}

struct Interleave<'a> {
    channels: &'a [u8],
    mask: u8,
    quads: &'a mut [u32],
}

impl Loop for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let plane = self.quads.len();
        let (first, second) = self.channels.split_at(2 * plane);
        let ((a, b), (c, d)) = (first.split_at(plane), second.split_at(plane));
        let mask = u32::from_ne_bytes([self.mask; 4]);
        let channels = a.iter().zip(b).zip(c.iter().zip(d));
        for (quad, ((a, b), (c, d))) in self.quads.iter_mut().zip(channels) {
            *quad = u32::from_ne_bytes([*a, *b, *c, *d]) ^ mask;
        }
    }
}

/// Quads of the channels of one group of an image.
#[derive(Clone, Copy)]
pub(super) struct Quads<'a> {
    pub(super) geometry: &'a Geometry,
    /// The group's quads, and quads after them.
    pub(super) image: &'a [u32],
    /// Quad around the image.
    pub(super) border: u32,
}

impl Quads<'_> {
    /// Returns the panel of the windows of these outputs, at most [`PANEL`]: `width` columns. It may be in the
    /// workspace.
    pub(super) fn panel<'a>(&'a self, pixels: Range<usize>, width: usize, workspace: &'a mut [u32]) -> Panel<'a> {
        if self.geometry.is_pointwise() {
            let (quads, plane) = (self.geometry.channels / self.geometry.group / CHANNELS, self.geometry.plane());
            let length = (quads - 1) * plane + width;
            let bytes = bytemuck::cast_slice(&self.image[pixels.start..][..length]);
            return Panel { bytes, stride: plane * CHANNELS, width };
        }
        vectorised(Pack { quads: self, pixels, width, panel: workspace });
        Panel::dense(bytemuck::cast_slice(workspace), width)
    }
}

/// Loop that copies windows.
struct Pack<'a> {
    quads: &'a Quads<'a>,
    pixels: Range<usize>,
    width: usize,
    panel: &'a mut [u32],
}

impl Loop for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { quads: Quads { geometry, image, border }, pixels, width, panel } = self;
        let (plane, stride) = (geometry.plane(), geometry.steps.strides[1]);
        let channels = geometry.group_channels() / CHANNELS;
        let mut found = [Run::default(); PANEL];
        for (tap, rows) in panel.chunks_exact_mut(channels * width).enumerate() {
            let count = runs(geometry, tap, &pixels, &mut found);
            let runs = &found[..count];
            let covered = runs.iter().map(|run| run.length).sum::<usize>() == pixels.len();
            for (row, channel) in rows.chunks_exact_mut(width).zip(0..) {
                if !covered {
                    row.fill(*border);
                }
                for run in runs {
                    let to = &mut row[run.column..][..run.length];
                    let from = &image[channel * plane + run.from..];
                    match stride {
                        1 => copy::<I>(&from[..run.length], to),
                        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, x)| *to = *x),
                    }
                }
            }
        }
    }
}

/// Copies a few quads, without a call whose length is known only at run time.
#[inline(always)]
fn copy<I: Isa>(from: &[u32], to: &mut [u32]) {
    // Vectors of floats carry any bits.
    let (from, to): (&[f32], &mut [f32]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
    let ((whole, rest), (whole_to, rest_to)) = (from.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
    whole.iter().zip(whole_to).for_each(|(from, to)| I::store(I::load(from), to));
    if !rest.is_empty() {
        I::store_part(I::load_part(rest, I::splat(0.0)), rest_to);
    }
}
