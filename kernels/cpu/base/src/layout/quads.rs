//! Matrices of 8-bit integers in panels of [`PANEL`] columns, four steps of a column next to each other.

/// Columns of a panel.
pub const PANEL: usize = 48;

/// Returns the bytes of a panel.
#[inline]
pub fn panel_bytes(depth: usize) -> usize {
    depth.next_multiple_of(4) * PANEL
}

/// Packs whole rows of a matrix of `depth × columns` numbers; the first is row `step`. 128 is added to all numbers if
/// `flip`. Bytes that no row fills stay unchanged. O(bytes).
pub fn pack(raw: &[u8], step: usize, [depth, columns]: [usize; 2], flip: bool, packed: &mut [u8]) {
    let mask = if flip { 0x80 } else { 0 };
    for (row, step) in raw.chunks_exact(columns).zip(step..) {
        for (part, panel) in row.chunks(PANEL).zip(packed.chunks_exact_mut(panel_bytes(depth))) {
            let quads = &mut panel[step / 4 * 4 * PANEL..][..4 * PANEL];
            for (x, quad) in part.iter().zip(quads.as_chunks_mut::<4>().0) {
                quad[step % 4] = x ^ mask;
            }
        }
    }
}
