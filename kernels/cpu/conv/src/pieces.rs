//! Rows of a panel that are composed of pieces of an image.

#[cfg(target_arch = "x86_64")]
mod masked;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Columns of one vector.
pub(super) const LANES: usize = 16;

/// Part of one vector of a panel's row, whose elements come from equally spaced elements of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Number of the vector in the row.
    pub(super) vector: usize,
    /// First lane of the vector that belongs to the piece.
    pub(super) first: usize,
    /// Lane after the last.
    pub(super) end: usize,
    /// Column `j` of the panel comes from element `origin + j · stride` of the channel, modulo 2⁶⁴.
    pub(super) origin: usize,
}

/// Writes consecutive channels to consecutive `rows` of `width` columns. Each row is the pieces, which are in the order
/// of their vectors, and zeros elsewhere. A channel is `distances.0` elements, and neighbouring columns are
/// `distances.1` apart.
///
/// # Panics
/// If a piece lies outside of its row or of the source, or does not follow the piece before it.
pub(super) fn write_rows(pieces: &[Piece], source: &[f32], distances: (usize, usize), rows: &mut [f32], width: usize) {
    let (plane, stride) = distances;
    let channels = rows.len() / width;
    assert_eq!(rows.len(), channels * width, "whole rows");
    if channels == 0 {
        return;
    }
    let mut before = 0;
    for Piece { vector, first, end, origin } in pieces {
        assert!(vector * LANES + first >= before, "pieces in order");
        before = vector * LANES + end;
        assert!(first < end && *end <= LANES && vector * LANES + end <= width, "a piece outside of its row");
        let element = |lane: usize| origin.wrapping_add((vector * LANES + lane).wrapping_mul(stride));
        let (first, last) = (element(*first), element(end - 1));
        let greatest = last.checked_add((channels - 1) * plane);
        assert!(first <= last && greatest.is_some_and(|last| last < source.len()), "a piece outside of the image");
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(write) = x86::ways(stride).next() {
        // SAFETY: the processor has the instruction set. The checks above show that every element of every piece lies
        // in the row. They also show that it lies in the source for the first and the last channel, and hence for all.
        return unsafe { write(pieces, source, plane, rows, width) };
    }
    plain(pieces, source, distances, rows, width);
}

/// Writes like [`write_rows`], element by element.
fn plain(pieces: &[Piece], source: &[f32], (plane, stride): (usize, usize), rows: &mut [f32], width: usize) {
    for (channel, row) in rows.chunks_exact_mut(width).enumerate() {
        row.fill(0.0);
        for Piece { vector, first, end, origin } in pieces {
            let columns = vector * LANES + first..vector * LANES + end;
            let first = origin.wrapping_add(columns.start.wrapping_mul(stride)) + channel * plane;
            let row = &mut row[columns];
            match stride {
                1 => row.copy_from_slice(&source[first..first + row.len()]),
                _ => row.iter_mut().zip(source[first..].iter().step_by(stride)).for_each(|(to, from)| *to = *from),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methods_agree() {
        let source: Vec<f32> = (1..=300).map(|i| i as f32).collect();
        let piece = |vector, lanes: std::ops::Range<usize>, origin| Piece {
            vector,
            first: lanes.start,
            end: lanes.end,
            origin,
        };
        let pieces =
            [piece(0, 2..9, 3), piece(0, 9..16, 7), piece(2, 0..1, 0), piece(2, 15..16, 9usize.wrapping_sub(11))];
        for (width, stride) in [(48, 1), (48, 2), (40, 1), (16, 1), (16, 2), (8, 1), (16, 3)] {
            let pieces: Vec<_> = pieces.iter().filter(|p| p.vector * LANES + p.end <= width).copied().collect();
            let mut want = vec![-1.0; 3 * width];
            plain(&pieces, &source, (90, stride), &mut want, width);
            let mut found = vec![-1.0; 3 * width];
            write_rows(&pieces, &source, (90, stride), &mut found, width);
            assert_eq!(found, want, "width {width}, stride {stride}");
            #[cfg(target_arch = "x86_64")]
            for (way, write) in x86::ways(stride).enumerate() {
                let mut found = vec![-1.0; 3 * width];
                // SAFETY: the processor has the instruction set, and `write_rows` has checked the pieces.
                unsafe { write(&pieces, &source, 90, &mut found, width) };
                assert_eq!(found, want, "way {way}, width {width}, stride {stride}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside of the image")]
    fn a_piece_beyond_the_last_channel_is_refused() {
        let piece = Piece { vector: 0, first: 0, end: 4, origin: 2 };
        write_rows(&[piece], &[0.0; 15], (10, 1), &mut [0.0; 32], 16);
    }
}
