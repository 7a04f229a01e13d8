//! Rows of pieces by masked loads: one generic function for the instruction sets of `x86`.

use super::{LANES, Piece};

/// Maximum pieces of a vector that are read without a loop: any sixteen pixels of rows of fifteen or more are two
/// pieces.
const PIECES: usize = 2;

/// Columns of a panel of three vectors.
const WIDE: usize = 3 * LANES;

/// Registers and their masked loads. Everything is `#[inline(always)]`, for use inside functions that enable the set.
///
/// # Safety
/// For all functions, the processor has the instruction set. Functions that take a pointer read or write elements
/// there, which must be valid for that.
pub(super) trait Masked {
    /// Vector of [`LANES`] numbers.
    type Vector: Copy;
    /// Lanes, in the form that loads with this stride need.
    type Mask: Copy;

    unsafe fn zeros() -> Self::Vector;

    unsafe fn load(from: *const f32) -> Self::Vector;

    /// Returns the lanes of a piece.
    unsafe fn mask<const STRIDE: usize>(piece: &Piece) -> Self::Mask;

    /// Returns `values`, which must be zero there, with every `STRIDE`-th element from `from` on in the lanes of
    /// `mask`. No other elements are read.
    unsafe fn with<const STRIDE: usize>(values: Self::Vector, mask: Self::Mask, from: *const f32) -> Self::Vector;

    unsafe fn store(to: &mut [f32; LANES], vector: Self::Vector);

    /// Stores the first lanes, as many as fit.
    unsafe fn store_part(to: &mut [f32], vector: Self::Vector);
}

/// Sources and lanes of the pieces of each vector, in the first channel.
struct Few<S: Masked, const VECTORS: usize> {
    parts: [[(*const f32, S::Mask); PIECES]; VECTORS],
    counts: [usize; VECTORS],
    /// Whether the vector is one piece of neighbours, as most are if rows are long.
    whole: [bool; VECTORS],
}

impl<S: Masked, const VECTORS: usize> Few<S, VECTORS> {
    /// Sorts the pieces by vector, unless a vector has more pieces than fit.
    ///
    /// # Safety
    /// The promises of [`Masked`].
    #[inline(always)]
    unsafe fn new<const STRIDE: usize>(pieces: &[Piece], source: &[f32]) -> Option<Self> {
        // SAFETY: the caller's promise.
        let nothing = unsafe { S::mask::<STRIDE>(&Piece::default()) };
        let parts = [[(source.as_ptr(), nothing); PIECES]; VECTORS];
        let mut few = Self { parts, counts: [0; VECTORS], whole: [false; VECTORS] };
        for piece in pieces {
            let count = &mut few.counts[piece.vector];
            // SAFETY: as above.
            let mask = unsafe { S::mask::<STRIDE>(piece) };
            *few.parts[piece.vector].get_mut(*count)? = (origin(piece, source, STRIDE), mask);
            *count += 1;
            few.whole[piece.vector] = STRIDE == 1 && (piece.first, piece.end) == (0, LANES);
        }
        Some(few)
    }
}

/// Writes each channel's row of `width` columns.
///
/// # Safety
/// The processor has the instruction set; the elements of all pieces lie in the source, for every channel, and in the
/// rows.
#[inline(always)]
pub(super) unsafe fn write<S: Masked, const STRIDE: usize>(
    pieces: &[Piece],
    source: &[f32],
    plane: usize,
    rows: &mut [f32],
    width: usize,
) {
    // Widths of panels of narrow and of wide vectors.
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            LANES => write_vectors::<S, STRIDE, 1>(pieces, source, plane, rows),
            WIDE => write_vectors::<S, STRIDE, 3>(pieces, source, plane, rows),
            _ => write_many::<S, STRIDE>(pieces, source, plane, rows, width),
        }
    }
}

/// # Safety
/// The promises of [`write`]; rows have `VECTORS` whole vectors.
#[inline(always)]
unsafe fn write_vectors<S: Masked, const STRIDE: usize, const VECTORS: usize>(
    pieces: &[Piece],
    source: &[f32],
    plane: usize,
    rows: &mut [f32],
) {
    // SAFETY: the caller's promise.
    let Some(few) = (unsafe { Few::<S, VECTORS>::new::<STRIDE>(pieces, source) }) else {
        // SAFETY: as above.
        return unsafe { write_many::<S, STRIDE>(pieces, source, plane, rows, VECTORS * LANES) };
    };
    for (channel, row) in rows.chunks_exact_mut(VECTORS * LANES).enumerate() {
        for (v, to) in row.as_chunks_mut().0.iter_mut().enumerate() {
            let parts = &few.parts[v];
            // SAFETY: as above.
            unsafe {
                if few.whole[v] {
                    S::store(to, S::load(parts[0].0.wrapping_add(channel * plane)));
                    continue;
                }
                let mut values = S::zeros();
                for (from, mask) in &parts[..few.counts[v]] {
                    values = S::with::<STRIDE>(values, *mask, from.wrapping_add(channel * plane));
                }
                S::store(to, values);
            }
        }
    }
}

/// # Safety
/// The promises of [`write`].
#[inline(always)]
unsafe fn write_many<S: Masked, const STRIDE: usize>(
    pieces: &[Piece],
    source: &[f32],
    plane: usize,
    rows: &mut [f32],
    width: usize,
) {
    for (channel, row) in rows.chunks_exact_mut(width).enumerate() {
        let mut pieces = pieces.iter().peekable();
        for (vector, to) in row.chunks_mut(LANES).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let mut values = S::zeros();
                while let Some(piece) = pieces.next_if(|piece| piece.vector == vector) {
                    let from = origin(piece, source, STRIDE).wrapping_add(channel * plane);
                    values = S::with::<STRIDE>(values, S::mask::<STRIDE>(piece), from);
                }
                S::store_part(to, values);
            }
        }
    }
}

/// Returns the source of lane 0 of the piece's vector in the first channel; it may lie outside.
#[inline(always)]
fn origin(piece: &Piece, source: &[f32], stride: usize) -> *const f32 {
    source.as_ptr().wrapping_add(piece.origin.wrapping_add(piece.vector * LANES * stride))
}
