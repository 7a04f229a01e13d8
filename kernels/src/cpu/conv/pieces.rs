//! Rows of a panel put together from pieces of an image.

/// Columns of one vector.
pub(super) const LANES: usize = 16;

/// Part of one vector of a panel's row, whose elements come from equally spaced elements of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// The vector's number in the row.
    pub(super) vector: usize,
    /// The first lane of the vector that is part of the piece.
    pub(super) first: usize,
    /// The lane after the last.
    pub(super) end: usize,
    /// Column `j` of the panel comes from element `origin + j · stride` of the channel, modulo 2⁶⁴.
    pub(super) origin: usize,
}

/// Writes consecutive channels to consecutive `rows` of `width` columns: each row is the pieces, which are in the order of
/// their vectors, and zeros elsewhere. A channel is `distances.0` elements, neighbouring columns are `distances.1` apart.
///
/// # Panics
/// If a piece lies outside of its row or of the source.
pub(super) fn write_rows(pieces: &[Piece], source: &[f32], distances: (usize, usize), rows: &mut [f32], width: usize) {
    let (plane, stride) = distances;
    let channels = rows.len() / width;
    assert_eq!(rows.len(), channels * width, "whole rows");
    if channels == 0 {
        return;
    }
    for Piece { vector, first, end, origin } in pieces {
        assert!(first < end && *end <= LANES && vector * LANES + end <= width, "a piece outside of its row");
        let element = |lane: usize| origin.wrapping_add((vector * LANES + lane).wrapping_mul(stride));
        let (first, last) = (element(*first), element(end - 1));
        let greatest = last.checked_add((channels - 1) * plane);
        assert!(first <= last && greatest.is_some_and(|last| last < source.len()), "a piece outside of the image");
    }
    #[cfg(target_arch = "x86_64")]
    if stride <= 2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2") {
        // SAFETY: AVX-512F and BMI2 are there; every element of every piece was shown above to lie in the source, for the first
        // channel and the last and hence for all, and in the row.
        return unsafe { avx512::write_rows(pieces, source, distances, rows, width) };
    }
    plain(pieces, source, distances, rows, width);
}

/// As [`write_rows`], element by element.
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

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, Piece};
    use std::arch::x86_64::*;

    /// Vectors of the widest row that is written at once.
    const VECTORS: usize = 3;

    /// Pieces of each vector that are read without a loop: any sixteen pixels of rows of fifteen or more are two.
    const PIECES: usize = 2;

    /// # Safety
    /// The elements of all pieces lie in the source and in the rows; the stride is 1 or 2.
    pub(super) unsafe fn write_rows(
        pieces: &[Piece],
        source: &[f32],
        distances: (usize, usize),
        rows: &mut [f32],
        width: usize,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match (distances, few(pieces, source, distances.1, width)) {
                ((plane, 1), Some(few)) => write_few::<1>(&few, plane, rows),
                ((plane, 2), Some(few)) => write_few::<2>(&few, plane, rows),
                ((plane, 1), None) => write_many::<1>(pieces, source, plane, rows, width),
                ((plane, _), None) => write_many::<2>(pieces, source, plane, rows, width),
                _ => unreachable!("strides of 1 and 2 only"),
            }
        }
    }

    /// Where the pieces of each vector come from in the first channel, and which lanes they are.
    type Few = [[(*const f32, __mmask16); PIECES]; VECTORS];

    /// The pieces by vector, if the row has this kernel's width and no vector has more than fit.
    fn few(pieces: &[Piece], source: &[f32], stride: usize, width: usize) -> Option<Few> {
        let mut few = [[(source.as_ptr(), 0); PIECES]; VECTORS];
        let mut counts = [0; VECTORS];
        if width != VECTORS * LANES {
            return None;
        }
        for piece in pieces {
            let count = &mut counts[piece.vector];
            *few[piece.vector].get_mut(*count)? = (origin(piece, source, stride), mask_of(piece));
            *count += 1;
        }
        Some(few)
    }

    /// # Safety
    /// In each channel, the elements that the masks select are readable.
    #[target_feature(enable = "avx512f,bmi2")]
    unsafe fn write_few<const STRIDE: usize>(few: &Few, plane: usize, rows: &mut [f32]) {
        let few = *few;
        for (channel, row) in rows.as_chunks_mut::<{ VECTORS * LANES }>().0.iter_mut().enumerate() {
            for (vector, to) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let mut values = _mm512_setzero_ps();
                for (from, mask) in few[vector] {
                    // Most vectors have one piece.
                    if mask != 0 {
                        // SAFETY: passed on to the caller.
                        values = unsafe { replaced::<STRIDE>(values, mask, from.wrapping_add(channel * plane)) };
                    }
                }
                // SAFETY: a vector of the row.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), values) };
            }
        }
    }

    /// # Safety
    /// As [`write_rows`]; the stride is `STRIDE`.
    #[target_feature(enable = "avx512f,bmi2")]
    unsafe fn write_many<const STRIDE: usize>(
        pieces: &[Piece],
        source: &[f32],
        plane: usize,
        rows: &mut [f32],
        width: usize,
    ) {
        for (channel, row) in rows.chunks_exact_mut(width).enumerate() {
            let mut pieces = pieces.iter().peekable();
            for (vector, to) in row.chunks_mut(LANES).enumerate() {
                let mut values = _mm512_setzero_ps();
                while let Some(piece) = pieces.next_if(|piece| piece.vector == vector) {
                    let from = origin(piece, source, STRIDE).wrapping_add(channel * plane);
                    // SAFETY: as the caller promises; only lanes of the piece are read.
                    values = unsafe { replaced::<STRIDE>(values, mask_of(piece), from) };
                }
                let present = if to.len() == LANES { u16::MAX } else { (1 << to.len()) - 1 };
                // SAFETY: the mask selects the elements of `to`.
                unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), present, values) };
            }
        }
    }

    /// Where lane 0 of the piece's vector would come from in the first channel.
    fn origin(piece: &Piece, source: &[f32], stride: usize) -> *const f32 {
        source.as_ptr().wrapping_add(piece.origin.wrapping_add(piece.vector * LANES * stride))
    }

    fn mask_of(piece: &Piece) -> __mmask16 {
        (u16::MAX << piece.first) & (u16::MAX >> (LANES - piece.end))
    }

    /// `values` with the lanes of `mask` replaced by every `STRIDE`-th element from `from` on.
    ///
    /// # Safety
    /// Those elements are readable.
    #[inline]
    #[target_feature(enable = "avx512f,bmi2")]
    unsafe fn replaced<const STRIDE: usize>(values: __m512, mask: __mmask16, from: *const f32) -> __m512 {
        if STRIDE == 1 {
            // SAFETY: passed on to the caller.
            return unsafe { _mm512_mask_loadu_ps(values, mask, from) };
        }
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let spread = _pdep_u32(u32::from(mask), 0x5555_5555);
        let (low, high) = (spread as u16, (spread >> LANES) as u16);
        // SAFETY: bit 2i of the masks is bit i of `mask`, so exactly the elements that the caller speaks of are read.
        let elements = unsafe {
            let low = _mm512_maskz_loadu_ps(low, from);
            let high = _mm512_maskz_loadu_ps(high, from.wrapping_add(LANES));
            _mm512_permutex2var_ps(low, even, high)
        };
        _mm512_mask_mov_ps(values, mask, elements)
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
        for (width, stride) in [(48, 1), (48, 2), (40, 1), (16, 2), (8, 1)] {
            let pieces: Vec<_> = pieces.iter().filter(|p| p.vector * LANES + p.end <= width).copied().collect();
            let mut found = vec![-1.0; 3 * width];
            write_rows(&pieces, &source, (90, stride), &mut found, width);
            let mut want = vec![-1.0; 3 * width];
            plain(&pieces, &source, (90, stride), &mut want, width);
            assert_eq!(found, want, "width {width}, stride {stride}");
        }
    }

    #[test]
    #[should_panic(expected = "outside of the image")]
    fn a_piece_beyond_the_last_channel_is_refused() {
        let piece = Piece { vector: 0, first: 0, end: 4, origin: 2 };
        write_rows(&[piece], &[0.0; 15], (10, 1), &mut [0.0; 32], 16);
    }
}
