//! Reductions that take their input window by window, as it becomes available.
//!
//! The input is a stream of bytes, cut into parts of a fixed length. Each part is folded separately, and the folds are
//! joined after the last part. Windows may end anywhere, and threads that share a window may cut it into pieces
//! anywhere. If a part lies in several windows or pieces, its elements are staged until it is complete. The bits of the
//! result therefore do not depend on cuts.
//!
//! The scratch memory holds the folds of all parts, then slots of one part each. Between calls the first slot holds the
//! elements of the part that the last call left unfinished.

use anabranch_cpu_base::{CpuKernel, Team};
use anabranch_op::tensor::ALIGNMENT;

/// Reduction as folds of parts of its input.
pub trait Streamed: CpuKernel {
    /// Returns the bytes of each part except the last, which may be shorter.
    fn part_bytes(&self) -> usize;

    /// Returns the bytes of the whole input, more than 0.
    fn input_bytes(&self) -> usize;

    /// Returns the bytes of the fold of a part.
    fn fold_bytes(&self) -> usize;

    /// Folds each of these whole parts.
    fn fold(&self, parts: &[u8], folds: &mut [u8]);

    /// Joins the folds of all parts, and overwrites them.
    fn finish(&self, folds: &mut [u8], output: &mut [u8]);
}

/// Returns the bytes of the folds of all parts, with which the scratch memory begins.
fn folds_bytes(reduction: &dyn Streamed) -> usize {
    (reduction.input_bytes().div_ceil(reduction.part_bytes()) * reduction.fold_bytes()).next_multiple_of(ALIGNMENT)
}

/// Returns the bytes of scratch memory for windows in which at most `boundaries` boundaries of pieces, ends included,
/// lie inside parts.
pub fn scratch_bytes(reduction: &dyn Streamed, boundaries: usize) -> usize {
    folds_bytes(reduction) + boundaries * reduction.part_bytes()
}

/// Piece of a window, which one thread takes from its first byte to its last.
pub struct Piece<'a> {
    reduction: &'a dyn Streamed,
    /// Folds of parts that lie completely in the piece.
    folds: &'a mut [u8],
    /// Memory for the elements of other parts: those before the first whole part, then those after the last.
    staged: &'a mut [u8],
    /// Bytes that are still missing of the part in which the piece begins.
    head: usize,
    /// Bytes that wait for the rest of their part.
    held: usize,
}

/// Returns the pieces of a window that is cut at `bounds`: its first byte in the stream, the ends of pieces, and its
/// last byte. Only a window of one piece may begin and end in the same part.
pub fn cut<'a>(reduction: &'a dyn Streamed, bounds: &[usize], scratch: &'a mut [u8]) -> Vec<Piece<'a>> {
    let part = reduction.part_bytes();
    let (folds, mut slots) = scratch.split_at_mut(folds_bytes(reduction));
    let first = bounds.first().map_or(0, |first| first.div_ceil(part));
    let mut folds = &mut folds[first * reduction.fold_bytes()..];
    if let Some(first) = bounds.first() {
        slots = &mut slots[first % part..];
    }
    let piece = |pair: &[usize]| {
        let (begin, end) = (pair[0], pair[1]);
        let head = begin.next_multiple_of(part) - begin;
        let whole = (end / part).saturating_sub(begin.div_ceil(part));
        let (own, rest) = std::mem::take(&mut folds).split_at_mut(whole * reduction.fold_bytes());
        // The part in which the piece ends belongs to no piece: its elements are staged.
        let shared = if end % part > 0 { reduction.fold_bytes().min(rest.len()) } else { 0 };
        folds = &mut rest[shared..];
        let (staged, rest) = std::mem::take(&mut slots).split_at_mut(head + end % part);
        slots = rest;
        Piece { reduction, folds: own, staged, head, held: 0 }
    };
    bounds.windows(2).map(piece).collect()
}

impl Piece<'_> {
    /// Takes the next bytes of the piece. `pending` can hold a part and is the same at every call.
    pub fn take(&mut self, mut input: &[u8], pending: &mut [u8]) {
        let part = self.reduction.part_bytes();
        if self.head > 0 {
            let head = self.stage(&input[..self.head.min(input.len())]);
            self.head -= head;
            input = &input[head..];
        }
        if self.held > 0 {
            let more = (part - self.held).min(input.len());
            pending[self.held..self.held + more].copy_from_slice(&input[..more]);
            self.held += more;
            input = &input[more..];
            if self.held < part {
                return;
            }
            self.fold(&pending[..part]);
        }
        let whole = input.len() / part * part;
        self.fold(&input[..whole]);
        let rest = &input[whole..];
        pending[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    /// Ends the piece after its last byte.
    pub fn end(mut self, pending: &[u8]) {
        self.stage(&pending[..self.held]);
    }

    fn stage(&mut self, bytes: &[u8]) -> usize {
        let (here, rest) = std::mem::take(&mut self.staged).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.staged = rest;
        bytes.len()
    }

    fn fold(&mut self, parts: &[u8]) {
        let count = parts.len() / self.reduction.part_bytes();
        let (here, rest) = std::mem::take(&mut self.folds).split_at_mut(count * self.reduction.fold_bytes());
        self.reduction.fold(parts, here);
        self.folds = rest;
    }
}

/// Folds the parts that several pieces of the window share, and keeps the unfinished rest of the window for the next.
/// After the last window it writes the result.
pub fn close(reduction: &dyn Streamed, bounds: &[usize], scratch: &mut [u8], output: &mut [u8]) {
    let (part, fold, input) = (reduction.part_bytes(), reduction.fold_bytes(), reduction.input_bytes());
    let (folds, slots) = scratch.split_at_mut(folds_bytes(reduction));
    let end = bounds.last().copied().unwrap_or(0);
    let (mut slot, mut before) = (0, None);
    for bound in bounds.iter().filter(|bound| **bound % part > 0) {
        let (number, start) = (bound / part, slot * part);
        slot += 1;
        if before.replace(number) == Some(number) {
            // The window ends in the part in which it began, whose elements are all in the first slot.
            continue;
        }
        let part_end = input.min((number + 1) * part);
        if part_end <= end {
            let elements = &slots[start..start + part_end - number * part];
            reduction.fold(elements, &mut folds[number * fold..(number + 1) * fold]);
        } else if *bound == end {
            slots.copy_within(start..start + end % part, 0);
        }
    }
    if end == input {
        reduction.finish(folds, output);
    }
}

/// Takes the whole input at once, in pieces of `piece_parts` parts; no part is staged.
pub(super) fn take_all(
    reduction: &dyn Streamed,
    input: &[u8],
    piece_parts: usize,
    scratch: &mut [u8],
    output: &mut [u8],
    team: &Team,
) {
    let (part, fold) = (reduction.part_bytes(), reduction.fold_bytes());
    let (step, folds) = (piece_parts.max(1) * part, &mut scratch[..input.len().div_ceil(part) * fold]);
    team.run_pieces(folds, piece_parts.max(1) * fold, &|piece, folds| {
        reduction.fold(&input[piece * step..input.len().min((piece + 1) * step)], folds);
    });
    reduction.finish(folds, output);
}
