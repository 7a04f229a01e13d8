//! Narrow numbers in panels: for each step, or each group of steps that share bytes, the bytes of [`PANEL`] columns.

/// Columns of a panel: four vectors, so that a row's sums do not wait for each other. The number does not depend on the
/// instruction set, so that packed weights are the same on all processors.
pub const PANEL: usize = 64;

/// Returns the bytes of a panel.
#[inline]
pub fn panel_bytes(depth: usize, bits: usize) -> usize {
    (depth * bits).div_ceil(8).next_multiple_of((bits / 8).max(1)) * PANEL
}

/// Lines whose bytes are packed together: those of a cache line.
const TOGETHER: usize = 64;

/// Packs a piece of a matrix of `depth × columns` numbers of `bits` bits, which begins at byte `start` of the matrix.
/// The piece is whole panels of columns that are `stride` bytes each. Without a stride, it is whole rows, one after the
/// other. O(bytes).
pub fn pack(raw: &[u8], start: usize, [depth, columns, bits]: [usize; 3], stride: Option<usize>, packed: &mut [u8]) {
    let (size, panel) = ((bits / 8).max(1), panel_bytes(depth, bits));
    let Some(stride) = stride else {
        for (row, step) in raw.chunks_exact(columns * size).zip(start / (columns * size)..) {
            for (part, panel) in row.chunks(PANEL * size).zip(packed.chunks_exact_mut(panel)) {
                let to = &mut panel[step * PANEL * size..][..PANEL * size];
                to[..part.len()].copy_from_slice(part);
                to[part.len()..].fill(0);
            }
        }
        return;
    };
    let panels = packed.chunks_exact_mut(panel).skip(start / (PANEL * stride));
    for (lines, panel) in raw.chunks(PANEL * stride).zip(panels) {
        let count = lines.len() / stride;
        let steps = panel.len() / (PANEL * size);
        for first in (0..steps).step_by(TOGETHER / size) {
            for step in first..steps.min(first + TOGETHER / size) {
                let to = &mut panel[step * PANEL * size..][..PANEL * size];
                for (line, to) in to.chunks_exact_mut(size).take(count).enumerate() {
                    to.copy_from_slice(&lines[line * stride + step * size..][..size]);
                }
                to[count * size..].fill(0);
            }
        }
    }
}
