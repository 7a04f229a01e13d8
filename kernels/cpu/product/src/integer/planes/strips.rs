//! Writes planes of quads: rows of channels are copied to strips with the border around them, and four strips are
//! interleaved.

use super::super::panels::copy;
use super::{Plane, Planes, QUAD};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::vector::{Isa, LANES, Loop};
use std::ops::Range;

/// Loop that writes planes.
pub(super) struct Write<'a> {
    pub(super) planes: &'a Planes,
    pub(super) images: &'a [u8],
    /// Groups, numbered through all images.
    pub(super) groups: Range<usize>,
    /// Planes of each group.
    pub(super) numbers: Range<usize>,
    /// Rows of the planes.
    pub(super) rows: Range<usize>,
    /// Memory for the strips of a plane.
    pub(super) strips: &'a mut [u8],
    /// These planes of the first group, then those of the next. The rows are the first of a plane.
    pub(super) quads: &'a mut [u32],
}

impl Loop for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { planes: of, images, groups, numbers, rows, strips, quads } = self;
        let length = of.geometry.group_channels() * of.geometry.plane();
        let flip = u32::from_ne_bytes([of.mask; QUAD]);
        let positions = rows.len() * of.pitch;
        for (at, number) in numbers.clone().enumerate() {
            let plane = &of.planes[number];
            let lines = rows.len() + plane.below();
            let strip = lines * of.pitch;
            if of.geometry.is_pointwise() {
                // An image is one row without a border.
                let starts = plane.sources.map(|[strip, _]| plane.strips[strip][0] * positions);
                for group in groups.clone() {
                    let quads = &mut quads[((group - groups.start) * numbers.len() + at) * of.size()..][..positions];
                    interleave(&images[group * length..], starts, flip, plane.present, quads);
                }
                continue;
            }
            // The border is the same in all groups.
            strips[..plane.strips.len() * strip].fill(of.border);
            let starts = plane.sources.map(|[number, row]| number * strip + row * of.pitch);
            for group in groups.clone() {
                for ([channel, first], strip) in plane.strips.iter().zip(strips.chunks_exact_mut(strip.max(1))) {
                    let image = &images[group * length + channel * of.geometry.plane()..][..of.geometry.plane()];
                    of.copy(image, plane, *first, rows.start..rows.start + lines, strip);
                }
                let quads = &mut quads[((group - groups.start) * numbers.len() + at) * of.size()..][..positions];
                interleave(strips, starts, flip, plane.present, quads);
            }
        }
    }
}

impl Planes {
    /// Copies rows of a channel to a strip: those from `first` on, a stride apart, of these numbers. Rows and columns
    /// outside the image stay as they are.
    #[inline(always)]
    fn copy(&self, image: &[u8], plane: &Plane, first: usize, rows: Range<usize>, strip: &mut [u8]) {
        let Geometry { size, steps, .. } = self.geometry;
        let (inside, column) = self.inside(plane);
        if inside.is_empty() {
            return;
        }
        for (row, line) in rows.zip(strip.chunks_exact_mut(self.pitch)) {
            let row = (row * steps.strides[0] + first).wrapping_sub(steps.pads[0]);
            if row >= size[0] {
                continue;
            }
            let (from, to) = (&image[row * size[1]..][column..size[1]], &mut line[inside.clone()]);
            match steps.strides[1] {
                1 => copy(&from[..to.len()], to),
                2 => copy_pairs(from, to),
                stride => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, number)| *to = *number),
            }
        }
    }
}

/// Copies the first number of each pair.
#[inline(always)]
fn copy_pairs(from: &[u8], to: &mut [u8]) {
    let count = to.len();
    // The last pair may have one number.
    if count <= LANES {
        to.iter_mut().zip(from.iter().step_by(2)).for_each(|(to, number)| *to = *number);
        return;
    }
    for at in (0..count - 1).step_by(LANES) {
        // The last numbers are written together with some before them.
        let at = at.min(count - 1 - LANES);
        let mut made = [0; LANES];
        for (to, pair) in made.iter_mut().zip(from[2 * at..][..2 * LANES].as_chunks::<2>().0) {
            *to = u16::from_le_bytes(*pair) as u8;
        }
        to[at..][..LANES].copy_from_slice(&made);
    }
    to[count - 1] = from[2 * (count - 1)];
}

/// Writes quads of the numbers that follow these starts.
#[inline(always)]
fn interleave(numbers: &[u8], [a, b, c, d]: [usize; QUAD], flip: u32, present: u32, quads: &mut [u32]) {
    let quad = |a: u8, b: u8, c: u8, d: u8| (u32::from_ne_bytes([a, b, c, d]) ^ flip) & present;
    let count = quads.len();
    if count < LANES {
        for (i, to) in quads.iter_mut().enumerate() {
            *to = quad(numbers[a + i], numbers[b + i], numbers[c + i], numbers[d + i]);
        }
        return;
    }
    let (a, b) = (&numbers[a..][..count], &numbers[b..][..count]);
    let (c, d) = (&numbers[c..][..count], &numbers[d..][..count]);
    for at in (0..count).step_by(LANES) {
        // The last quads are written together with some before them.
        let at = at.min(count - LANES);
        let (a, b, c, d) = (part(a, at), part(b, at), part(c, at), part(d, at));
        let mut made = [0; LANES];
        for (i, made) in made.iter_mut().enumerate() {
            *made = quad(a[i], b[i], c[i], d[i]);
        }
        quads[at..][..LANES].copy_from_slice(&made);
    }
}

/// Returns the numbers at and after a position.
#[inline(always)]
fn part(numbers: &[u8], at: usize) -> [u8; LANES] {
    let mut part = [0; LANES];
    part.copy_from_slice(&numbers[at..][..LANES]);
    part
}
