//! Memory that one thread writes in a call of a [block](super): consecutive rows of the outputs.
//!
//! If the block ends in a reduction, the thread also has a piece of the stream of elements that the reduction folds.

use anabranch_cpu_data::reduce::Piece;
use std::ops::Range;

/// Consecutive rows of a call, for one thread.
pub(super) struct Stripe<'a> {
    pub(super) rows: Range<usize>,
    /// These rows of each windowed output.
    pub(super) outputs: Vec<&'a mut [u8]>,
    pub(super) piece: Option<Piece<'a>>,
}

/// Cuts the outputs, which have `output_rows` bytes per row, at the rows `bounds`.
pub(super) fn cut<'a>(
    bounds: &[usize],
    outputs: &'a mut [&mut [u8]],
    output_rows: &[usize],
    pieces: Vec<Piece<'a>>,
) -> Vec<Stripe<'a>> {
    let mut pieces = pieces.into_iter();
    let mut rest: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut **output).collect();
    let stripe = |pair: &[usize]| {
        let rows = pair[0]..pair[1];
        let own = |(rest, row): (&mut &'a mut [u8], &usize)| {
            let (own, after) = std::mem::take(rest).split_at_mut(row * rows.len());
            *rest = after;
            own
        };
        let outputs = rest.iter_mut().zip(output_rows).map(own).collect();
        Stripe { rows, outputs, piece: pieces.next() }
    };
    bounds.windows(2).map(stripe).collect()
}
