//! Finishing of a product's elements once their sums are complete.

use super::block::{Change, Term};
use crate::team::Tile;

/// Function that is called with a tile of C.
pub type Then<'a> = &'a dyn Fn(&mut Tile<'_, f32>);

/// End of a product.
#[derive(Clone, Copy)]
pub enum Finish<'a> {
    /// The sums are the result.
    Nothing,
    /// Each element is changed while it is in a register; then the function is called.
    Affine(Affine<'a>, Option<Then<'a>>),
    /// The function is called with runs of consecutive elements of C: row and column of the first, and the elements. A
    /// run may span several rows.
    Runs(&'a dyn Fn(usize, usize, &mut [f32])),
}

/// Function `min(max((before + x) · scale + after, least), greatest)`. The sums begin with `before`; each further
/// operation is rounded by itself. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// Initial value of the sums.
    pub before: Option<Summand<'a>>,
    /// Factor of the sums.
    pub scale: f32,
    /// Summand after scaling; columns do not share it.
    pub after: Option<Summand<'a>>,
    /// Lower bound of the result.
    pub least: f32,
    /// Upper bound of the result.
    pub greatest: f32,
}

/// Matrix that is added to C; it may repeat a column or a row.
#[derive(Clone, Copy, Debug)]
pub struct Summand<'a> {
    /// Element (i, j) is at `i · row + j`, or at `i · row` if all columns share it.
    pub data: &'a [f32],
    /// Elements from row to row.
    pub row: usize,
    /// Whether all columns share an element.
    pub shared: bool,
}

impl Affine<'_> {
    /// Returns the initial values of the sums of a block at this position of C, of this size.
    pub(super) fn initial(&self, place: [usize; 2], size: [usize; 2]) -> Option<Term> {
        self.before.map(|before| before.term(place, size))
    }

    /// Returns the change of the sums of a block.
    pub(super) fn change(&self, place: [usize; 2], size: [usize; 2]) -> Change {
        let summand = self.after.map(|after| after.term(place, size));
        assert!(summand.is_none_or(|summand| !summand.shared), "columns share what is added to sums");
        Change { scale: self.scale, summand, least: self.least, greatest: self.greatest }
    }
}

impl Summand<'_> {
    /// Returns the part for a block at this position; checks that all of it exists.
    fn term(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> Term {
        let Self { row: distance, shared, .. } = *self;
        let across = |column| if shared { 0 } else { column };
        let data = &self.data[row * distance + across(column)..];
        assert!((rows - 1) * distance + across(columns - 1) < data.len(), "a block beyond what is added to it");
        Term { data: data.as_ptr(), row: distance, shared }
    }
}
