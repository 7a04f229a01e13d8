//! Selects elements by bools: counts them part by part, then writes them part by part.

use super::work::{PART, Work};
use super::{Call, Item, slices};
use crate::{Fault, axis_of};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Bools that are made at a time, on the stack. Small in tests, so that a part has several blocks.
const BLOCK: usize = if cfg!(test) { 1 << 3 } else { 1 << 10 };

/// Returns the indices of the elements that are not zero, one row per axis. O(elements + results · rank).
pub(super) fn non_zero(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (x, work) = (call.tensor(0)?, call.work);
    let found = non_zeros(work, x)?;
    let (rank, dims, strides) = (x.shape().rank(), x.shape().dims(), x.shape().strides());
    let spec = TensorSpec::new(DType::I64, Shape::new(vec![rank, found.len()])?);
    let mut made = work.buffer(spec.bytes())?;
    if !found.is_empty() {
        let rows = made.bytes_mut().chunks_exact_mut(found.len() * size_of::<i64>()).enumerate();
        for (axis, row) in rows {
            let row = row.as_chunks_mut().0;
            work.pieces(row, PART, |part, row| {
                coordinates(&found[part * PART..][..row.len()], strides[axis], dims[axis], row);
            })?;
        }
    }
    let tensor = Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size");
    Ok(vec![Item::Tensor(tensor)])
}

/// Writes the coordinates of ascending positions along an axis. Divides only if a position leaves the block of the
/// former position.
fn coordinates(places: &[usize], stride: usize, size: usize, row: &mut [[u8; 8]]) {
    let (mut low, mut first) = (0, 0);
    // This many positions from `low` on are `first`, or `first` and the following ones.
    let length = if stride == 1 { size } else { stride };
    let mut high = 0;
    for (place, target) in places.iter().zip(row) {
        if *place >= high {
            low = place - place % length;
            high = low + length;
            first = low / stride % size;
        }
        let coordinate = if stride == 1 { place - low } else { first };
        *target = (coordinate as i64).to_ne_bytes();
    }
}

/// Returns the slices whose bool is true; without an axis, selects among all elements. O(bytes).
pub(super) fn compress(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (x, truths) = (call.tensor(0)?, call.tensor(1)?);
    if truths.dtype() != DType::Bool {
        return Err(Fault::of_type(1, truths.dtype(), "bool"));
    }
    let (data, axis) = match call.node.int("axis")? {
        Some(axis) => (x.clone(), axis_of(axis, x.shape().rank())?),
        None => (flat(x)?, 0),
    };
    let count = truths.shape().elements();
    if count > data.shape().dims()[axis] {
        return Err(Fault::invalid(format!("{count} bools for {} slices", data.shape().dims()[axis])));
    }
    let places = non_zeros(call.work, truths)?;
    Ok(vec![Item::Tensor(slices(call.work, &data, axis, places.len(), |at| places[at])?)])
}

/// Returns all elements along one axis.
pub(super) fn flat(tensor: &Tensor) -> Result<Tensor, Fault> {
    let flat = Shape::new(vec![tensor.shape().elements()])?;
    Ok(tensor.reshaped(flat).expect("as many elements"))
}

/// Returns the positions below `count` whose bool is 1, ascending. `fill` writes the bools of consecutive positions
/// from a given one on.
pub(super) fn places(
    work: &Work<'_>,
    count: usize,
    fill: impl Fn(usize, &mut [u8]) + Sync,
) -> Result<Vec<usize>, Fault> {
    let blocks = |part: usize, take: &mut dyn FnMut(usize, &[u8])| {
        let (mut block, end) = ([0u8; BLOCK], count.min((part + 1) * PART));
        for start in (part * PART..end).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(end - start)];
            fill(start, block);
            take(start, block);
        }
    };
    let parts = count.div_ceil(PART);
    let mut counts = work.filled(0usize, parts)?;
    work.pieces(&mut counts, 1, |part, counted| {
        blocks(part, &mut |_, block| counted[0] += block.iter().map(|is| usize::from(*is)).sum::<usize>());
    })?;
    let mut all = work.filled(0usize, counts.iter().sum())?;
    let (mut rest, mut targets) = (&mut all[..], work.list(parts)?);
    for counted in &counts {
        let (target, after) = rest.split_at_mut(*counted);
        targets.push(target);
        rest = after;
    }
    work.each(targets, |part, target| {
        let mut at = 0;
        blocks(part, &mut |start, block| {
            for (place, is) in (start..).zip(block) {
                // The entry is overwritten until the bool is 1, so that there is no branch to mispredict.
                target.get_mut(at).into_iter().for_each(|target| *target = place);
                at += usize::from(*is);
            }
        });
    })?;
    Ok(all)
}

/// Returns the positions of the elements that are not zeros of either sign, ascending.
fn non_zeros(work: &Work<'_>, x: &Tensor) -> Result<Vec<usize>, Fault> {
    let (dtype, all, size) = (x.dtype(), x.bytes(), x.dtype().size());
    let is = |byte: u8| dtype.number_of_byte(byte).map_or(byte != 0, |number| number != 0.0);
    let table: [bool; 256] = std::array::from_fn(|byte| is(byte as u8));
    places(work, x.shape().elements(), |start, block| {
        let bytes = &all[start * size..][..block.len() * size];
        match dtype {
            DType::F32 => fill(bytes, block, |bytes| f32::from_ne_bytes(bytes) != 0.0),
            DType::F64 => fill(bytes, block, |bytes| f64::from_ne_bytes(bytes) != 0.0),
            DType::F16 | DType::BF16 => fill(bytes, block, |bytes| u16::from_ne_bytes(bytes) & 0x7FFF != 0),
            _ if size == 8 => fill(bytes, block, |bytes| u64::from_ne_bytes(bytes) != 0),
            _ if size == 4 => fill(bytes, block, |bytes| u32::from_ne_bytes(bytes) != 0),
            _ if size == 2 => fill(bytes, block, |bytes| u16::from_ne_bytes(bytes) != 0),
            dtype if dtype.is_float() => fill(bytes, block, |[byte]| table[usize::from(byte)]),
            _ => fill(bytes, block, |[byte]| byte != 0),
        }
    })
}

/// Writes for each element whether `is` holds.
fn fill<const SIZE: usize>(bytes: &[u8], block: &mut [u8], is: impl Fn([u8; SIZE]) -> bool) {
    let elements = bytes.as_chunks::<SIZE>().0;
    block.iter_mut().zip(elements).for_each(|(target, element)| *target = u8::from(is(*element)));
}
