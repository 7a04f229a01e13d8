//! What becomes of a product's elements once their sums are complete.

use super::block::{Change, Term};
use crate::cpu::team::Tile;

/// Called with a tile of C.
pub(crate) type Then<'a> = &'a dyn Fn(&mut Tile<'_, f32>);

/// How a product ends.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    Nothing,
    /// Every element is changed while it is in a register; then the function is called.
    Affine(Affine<'a>, Option<Then<'a>>),
    /// Called with runs of consecutive elements of C: row and column of the first, and the elements, which may be those of several rows.
    Runs(&'a dyn Fn(usize, usize, &mut [f32])),
}

/// `min(max((before + x) · scale + after, least), greatest)`: the sums begin with `before`, each other operation is rounded by itself; NaN
/// stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine<'a> {
    pub(crate) before: Option<Summand<'a>>,
    pub(crate) scale: f32,
    /// Columns do not share it.
    pub(crate) after: Option<Summand<'a>>,
    pub(crate) least: f32,
    pub(crate) greatest: f32,
}

/// A matrix that is added to C, which may repeat a column or a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summand<'a> {
    /// Element (i, j) is at `i · row + j`, or at `i · row` if all columns share it.
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) shared: bool,
}

impl Affine<'_> {
    /// What the sums of a block at this place of C, of this size, begin with.
    pub(super) fn initial(&self, place: [usize; 2], size: [usize; 2]) -> Option<Term> {
        self.before.map(|before| before.term(place, size))
    }

    /// What becomes of them.
    pub(super) fn change(&self, place: [usize; 2], size: [usize; 2]) -> Change {
        let summand = self.after.map(|after| after.term(place, size));
        assert!(summand.is_none_or(|summand| !summand.shared), "columns share what is added to sums");
        Change { scale: self.scale, summand, least: self.least, greatest: self.greatest }
    }
}

impl Summand<'_> {
    /// The part beside a block, all of which is there.
    fn term(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> Term {
        let Self { row: distance, shared, .. } = *self;
        let across = |column| if shared { 0 } else { column };
        let data = &self.data[row * distance + across(column)..];
        assert!((rows - 1) * distance + across(columns - 1) < data.len(), "a block beyond what is added to it");
        Term { data: data.as_ptr(), row: distance, shared }
    }
}
