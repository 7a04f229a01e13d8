//! Distinct elements, or distinct slices along an axis: sorted by keys with their positions, so that equal items become
//! neighbours and the first of them stays first.

use super::select::{flat, places};
use super::work::{PART, Work};
use super::{Call, Item, slices};
use crate::{Fault, axis_of};
use anabranch_kernels::cpu::order::keys;
use anabranch_kernels::cpu::sorted::Ranked;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Positions of elements in the order of their groups.
struct Groups {
    sorted: Vec<usize>,
    /// Start of each group in the list.
    starts: Vec<usize>,
}

/// Returns the distinct slices along an axis, or elements without an axis.
///
/// Further outputs are the first position of each, the index of each input item among them, and the number of its
/// occurrences. The order is ascending, or that of their first positions. O(n log n) comparisons of slices.
pub(super) fn unique(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (x, work) = (call.tensor(0)?, call.work);
    let (data, axis) = match call.node.int("axis")? {
        Some(axis) => (x.clone(), axis_of(axis, x.shape().rank())?),
        None => (flat(x)?, 0),
    };
    let count = data.shape().dims()[axis];
    let groups = match data.shape().elements() == count {
        true if data.dtype().size() <= 4 && u32::try_from(count).is_ok() => of_elements::<u64>(work, &data)?,
        true => of_elements::<u128>(work, &data)?,
        false => of_slices(work, &data, axis)?,
    };
    let order = groups.order(work, call.node.int("sorted")?.unwrap_or(1) != 0)?;
    let first = |group: usize| groups.sorted[groups.starts[order[group]]];
    let mut items = vec![Item::Tensor(slices(work, &data, axis, order.len(), first)?)];
    let is_wanted = |at: usize| call.node.outputs.get(at).is_some_and(Option::is_some);
    let length = |at: usize, length: usize| if is_wanted(at) { length } else { 0 };
    items.push(indices(work, length(1, order.len()), |all| {
        work.pieces(all, PART, |part, all| {
            all.iter_mut().zip(part * PART..).for_each(|(index, group)| *index = (first(group) as i64).to_ne_bytes());
        })
    })?);
    items.push(indices(work, length(2, count), |all| groups.numbers(work, &order, all))?);
    items.push(indices(work, length(3, order.len()), |all| {
        work.pieces(all, PART, |part, all| {
            let counts = all.iter_mut().zip(&order[part * PART..]);
            counts.for_each(|(count, group)| *count = (groups.range(*group).len() as i64).to_ne_bytes());
        })
    })?);
    Ok(items)
}

/// Returns a list of indices as stored in memory.
fn indices(
    work: &Work<'_>,
    count: usize,
    write: impl FnOnce(&mut [[u8; 8]]) -> Result<(), Fault>,
) -> Result<Item, Fault> {
    let spec = TensorSpec::new(DType::I64, Shape::new(vec![count])?);
    let mut made = work.buffer(spec.bytes())?;
    write(made.bytes_mut().as_chunks_mut().0)?;
    Ok(Item::Tensor(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size")))
}

impl Groups {
    /// Collects groups of equal neighbours in a sorted list.
    fn of<T: Copy + Sync>(
        work: &Work<'_>,
        sorted: &[T],
        position: impl Fn(&T) -> usize + Sync,
        is_same: impl Fn(&T, &T) -> bool + Sync,
    ) -> Result<Self, Fault> {
        let starts = places(work, sorted.len(), |start, block| {
            for (at, is) in (start..).zip(block) {
                *is = u8::from(at == 0 || !is_same(&sorted[at - 1], &sorted[at]));
            }
        })?;
        let mut positions = work.filled(0, sorted.len())?;
        work.pieces(&mut positions, PART, |part, positions| {
            positions.iter_mut().zip(&sorted[part * PART..]).for_each(|(to, item)| *to = position(item));
        })?;
        Ok(Self { sorted: positions, starts })
    }

    /// Returns the range of a group in the sorted list.
    fn range(&self, group: usize) -> std::ops::Range<usize> {
        self.starts[group]..self.starts.get(group + 1).copied().unwrap_or(self.sorted.len())
    }

    /// Returns the groups in the requested order: ascending, or by their first positions.
    fn order(&self, work: &Work<'_>, ascending: bool) -> Result<Vec<usize>, Fault> {
        let mut order = work.list(self.starts.len())?;
        order.extend(0..self.starts.len());
        if !ascending {
            work.sort(&mut order, PART, |a, b| self.sorted[self.starts[*a]].cmp(&self.sorted[self.starts[*b]]))?;
        }
        Ok(order)
    }

    /// Writes for each position the index of its group in the order; writes nothing if `all` is empty.
    fn numbers(&self, work: &Work<'_>, order: &[usize], all: &mut [[u8; 8]]) -> Result<(), Fault> {
        let (order, mut unseen) = (if all.is_empty() { &[] } else { order }, 0);
        for (number, group) in order.iter().enumerate() {
            for part in self.sorted[self.range(*group)].chunks(PART) {
                part.iter().for_each(|position| all[*position] = (number as i64).to_ne_bytes());
                unseen += part.len();
                if unseen >= PART {
                    work.look()?;
                    unseen = 0;
                }
            }
        }
        Ok(())
    }
}

fn of_elements<R: Ranked>(work: &Work<'_>, x: &Tensor) -> Result<Groups, Fault> {
    let size = x.dtype().size();
    let mut all = work.filled(R::LAST, x.shape().elements())?;
    work.pieces(&mut all, PART, |part, all| {
        let start = part * PART;
        let bytes = &x.bytes()[start * size..][..all.len() * size];
        keys(x.dtype(), bytes, all, |at, key| R::new(key, start + at));
    })?;
    work.sort(&mut all, PART, R::cmp)?;
    Groups::of(work, &all, |item| item.position(), |a, b| a.key() == b.key())
}

fn of_slices(work: &Work<'_>, x: &Tensor, axis: usize) -> Result<Groups, Fault> {
    let (dims, size) = (x.shape().dims(), x.dtype().size());
    let (count, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let outer: usize = dims[..axis].iter().product();
    let width = outer * inner;
    // The keys of a slice are adjacent.
    let mut rows = work.filled(0u64, count * width)?;
    let together = (PART / width.max(1)).max(1);
    work.pieces(&mut rows, together * width, |part, rows| {
        for (place, row) in (part * together..).zip(rows.chunks_exact_mut(width)) {
            for (at, target) in row.chunks_exact_mut(inner).enumerate() {
                let bytes = &x.bytes()[(at * count + place) * inner * size..][..inner * size];
                keys(x.dtype(), bytes, target, |_, key| key);
            }
        }
    })?;
    let row = |place: usize| &rows[place * width..][..width];
    let mut all = work.list(count)?;
    all.extend((0..count).map(|place| (row(place).first().copied(), place)));
    work.sort(&mut all, together, |a, b| {
        a.0.cmp(&b.0).then_with(|| row(a.1).cmp(row(b.1))).then_with(|| a.1.cmp(&b.1))
    })?;
    Groups::of(work, &all, |item| item.1, |a, b| row(a.1) == row(b.1))
}
