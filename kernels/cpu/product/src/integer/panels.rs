//! Positions of windows in panels, and the outputs among them.

use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::LANES;
use std::ops::Range;

/// Neighbouring outputs of a row.
pub(super) struct Run {
    /// Column of the panel of the first.
    pub(super) column: usize,
    /// Column of the tile of the first.
    pub(super) to: usize,
    pub(super) length: usize,
}

/// Neighbouring positions.
pub(super) struct Part {
    pub(super) first: usize,
    /// Number of positions, a multiple of [`LANES`]. The last may be no outputs.
    pub(super) width: usize,
    runs: Range<usize>,
}

/// Panels that have all outputs of a tile.
pub(super) struct Panels {
    pub(super) parts: Vec<Part>,
    runs: Vec<Run>,
}

impl Panels {
    /// Returns the panels of these outputs of rows of `wide` outputs and `pitch` positions. O(panels + rows).
    pub(super) fn new(pixels: &Range<usize>, wide: usize, pitch: usize) -> Self {
        let (mut parts, mut runs) = (Vec::new(), Vec::new());
        if pixels.is_empty() {
            return Self { parts, runs };
        }
        let position = |pixel: usize| pixel / wide * pitch + pixel % wide;
        let (mut first, end) = (position(pixels.start), position(pixels.end - 1) + 1);
        while first < end {
            if first % pitch >= wide {
                first = first.next_multiple_of(pitch);
            }
            let width = match end - first {
                rest @ 0..=PANEL => rest.next_multiple_of(LANES),
                // Two panels alike: a narrow panel takes longer for its columns.
                rest if rest <= 4 * LANES => 2 * LANES,
                _ => PANEL,
            };
            let (mut at, stop, before) = (first, end.min(first + width), runs.len());
            while at < stop {
                let (row, column) = (at / pitch, at % pitch);
                let length = wide.saturating_sub(column).min(stop - at);
                if length > 0 {
                    runs.push(Run { column: at - first, to: row * wide + column - pixels.start, length });
                }
                at += pitch - column;
            }
            parts.push(Part { first, width, runs: before..runs.len() });
            first += width;
        }
        Self { parts, runs }
    }

    /// Returns the outputs of a panel, in order.
    pub(super) fn runs(&self, part: &Part) -> &[Run] {
        &self.runs[part.runs.clone()]
    }
}

/// Copies a row. A call for a few elements would take longer than they do: they are copied from both ends.
#[inline(always)]
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        4..8 => copy_ends::<T, 4>(from, to),
        8..16 => copy_ends::<T, 8>(from, to),
        16..32 => copy_ends::<T, 16>(from, to),
        32..=64 => copy_ends::<T, 32>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `COUNT` elements.
#[inline(always)]
fn copy_ends<T: Copy, const COUNT: usize>(from: &[T], to: &mut [T]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<COUNT>(), from.last_chunk::<COUNT>()) {
        to[..COUNT].copy_from_slice(first);
        to[from.len() - COUNT..].copy_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_have_each_output_once() {
        for (wide, pitch) in [(1, 1), (1, 4), (7, 9), (14, 16), (100, 100), (3, 60), (48, 49), (70, 71)] {
            for (start, end) in [(0, 0), (0, 1), (0, 49), (5, 69), (13, 14), (48, 200), (2, 1000)] {
                let mut found = Vec::new();
                let panels = Panels::new(&(start..end), wide, pitch);
                for part in &panels.parts {
                    assert!(part.width <= PANEL && part.width.is_multiple_of(LANES), "{}", part.width);
                    for &Run { column, to, length } in panels.runs(part) {
                        assert!(column + length <= part.width);
                        for i in 0..length {
                            let pixel = start + to + i;
                            assert_eq!(pixel / wide * pitch + pixel % wide, part.first + column + i);
                            found.push(pixel);
                        }
                    }
                }
                assert!(found.into_iter().eq(start..end), "{wide} of {pitch}, {start} to {end}");
            }
        }
    }
}
