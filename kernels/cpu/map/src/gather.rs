//! Loads of an operand's elements: one, consecutive elements, or those of broadcast rows.

use super::layout::Layout;
use super::number::Number;
use super::repeat::{REPEATED, Repeat};
use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::vector::vectorised;
use anabranch_op::dtype::DType;

/// Returns the element at `index`.
#[inline]
pub(crate) fn one<T: Number>(dtype: DType, bytes: &[u8], index: usize) -> T {
    let mut value = [T::zeroed()];
    consecutive(dtype, bytes, index, &mut value);
    value[0]
}

/// Loads the elements from `start` on.
#[inline]
pub(crate) fn consecutive<T: Number>(dtype: DType, bytes: &[u8], start: usize, out: &mut [T]) {
    if T::reads(dtype) {
        out.copy_from_slice(&elements(bytes)[start..][..out.len()]);
    } else {
        T::load(dtype, &bytes[start * dtype.size()..][..out.len() * dtype.size()], out);
    }
}

/// Loads the operand's values for the output's elements from `start` on; `bytes` begin at the operand's element `base`.
pub(crate) fn gather<T: Number>(layout: &Layout, dtype: DType, bytes: &[u8], base: usize, start: usize, out: &mut [T]) {
    let width = layout.row();
    if layout.varies(0) && layout.rows_are_alike() && out.len() > width {
        // An operand of one row has no rows before the call's.
        debug_assert_eq!(base, 0, "equal rows are not windows");
        return repeat_row(dtype, bytes, start % width, width, out);
    }
    if layout.varies(0) {
        let (before, rest) = out.split_at_mut(out.len().min((width - start % width) % width));
        let (whole, after) = rest.split_at_mut(rest.len() / width * width);
        let first = start + before.len();
        runs(layout, dtype, bytes, base, start, before);
        whole_rows(layout, dtype, bytes, base, first, whole);
        return runs(layout, dtype, bytes, base, first + whole.len(), after);
    }
    let beside = layout.consecutive_rows(0);
    // Rows of one value each are written together; the rest of a first row comes before them.
    let head = if beside > 0 { (width - 1 - (start + width - 1) % width).min(out.len()) } else { out.len() };
    runs(layout, dtype, bytes, base, start, &mut out[..head]);
    let (mut row, mut rest) = ((start + head) / width, &mut out[head..]);
    while !rest.is_empty() {
        let count = (beside - row % beside).min(REPEATED).min(rest.len().div_ceil(width));
        let (part, later) = rest.split_at_mut(rest.len().min(count * width));
        let mut values = [T::zeroed(); REPEATED];
        let values = &mut values[..count];
        consecutive(dtype, bytes, layout.offset(0, row) - base, values);
        vectorised(Repeat { values, width, out: part });
        (row, rest) = (row + count, later);
    }
}

/// Loads values like [`gather`], run by run.
fn runs<T: Number>(layout: &Layout, dtype: DType, bytes: &[u8], base: usize, start: usize, out: &mut [T]) {
    let mut rows = layout.rows(0);
    layout.runs(start, out.len(), |row, column, run| {
        let offset = rows.offset(row);
        if layout.varies(0) {
            consecutive(dtype, bytes, offset + column - base, &mut out[run]);
        } else {
            out[run].fill(one(dtype, bytes, offset - base));
        }
    });
}

/// Loads values like [`gather`] for whole rows of an operand that varies along them.
fn whole_rows<T: Number>(layout: &Layout, dtype: DType, bytes: &[u8], base: usize, start: usize, out: &mut [T]) {
    // A call for each short row takes longer than its elements.
    fn short<T: Number, const WIDTH: usize>(layout: &Layout, elements: &[T], base: usize, row: usize, out: &mut [T]) {
        let mut rows = layout.rows(0);
        for (row, out) in (row..).zip(out.as_chunks_mut::<WIDTH>().0) {
            let elements = &elements[rows.offset(row) - base..];
            *out = *elements.first_chunk().expect("the operand has the whole row");
        }
    }
    // The last array of a row overlaps the one before it.
    fn longer<T: Number, const ARRAY: usize>(layout: &Layout, elements: &[T], base: usize, row: usize, out: &mut [T]) {
        let (mut rows, width) = (layout.rows(0), layout.row());
        for (row, out) in (row..).zip(out.chunks_exact_mut(width)) {
            let elements = &elements[rows.offset(row) - base..][..width];
            let arrays = out.as_chunks_mut::<ARRAY>().0.iter_mut().zip(elements.as_chunks::<ARRAY>().0);
            arrays.for_each(|(out, elements)| *out = *elements);
            let last = out.last_chunk_mut::<ARRAY>().zip(elements.last_chunk::<ARRAY>());
            last.into_iter().for_each(|(out, elements)| *out = *elements);
        }
    }
    let (width, row) = (layout.row(), start / layout.row());
    if !T::reads(dtype) {
        return runs(layout, dtype, bytes, base, start, out);
    }
    match width {
        2 => short::<T, 2>(layout, elements(bytes), base, row, out),
        3 => short::<T, 3>(layout, elements(bytes), base, row, out),
        4 => short::<T, 4>(layout, elements(bytes), base, row, out),
        5 => short::<T, 5>(layout, elements(bytes), base, row, out),
        6 => short::<T, 6>(layout, elements(bytes), base, row, out),
        7 => short::<T, 7>(layout, elements(bytes), base, row, out),
        8 => short::<T, 8>(layout, elements(bytes), base, row, out),
        16 => short::<T, 16>(layout, elements(bytes), base, row, out),
        32 => short::<T, 32>(layout, elements(bytes), base, row, out),
        64 => short::<T, 64>(layout, elements(bytes), base, row, out),
        9..16 => longer::<T, 8>(layout, elements(bytes), base, row, out),
        17..32 | 33..64 => longer::<T, 16>(layout, elements(bytes), base, row, out),
        _ => runs(layout, dtype, bytes, base, start, out),
    }
}

/// Loads the row of an operand again and again, from a column of it on.
fn repeat_row<T: Number>(dtype: DType, row: &[u8], column: usize, width: usize, out: &mut [T]) {
    let (mut done, rest) = (width, width - column);
    consecutive(dtype, row, column, &mut out[..rest]);
    consecutive(dtype, row, 0, &mut out[rest..width]);
    while done < out.len() {
        let more = done.min(out.len() - done);
        out.copy_within(..more, done);
        done += more;
    }
}
