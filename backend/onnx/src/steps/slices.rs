//! Slices of tensors.

use super::work::{PART, Work};
use crate::lower::Fault;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// `count` slices of `tensor` along `axis`, each from the place that `place` says, all of which are in it. O(bytes of the result).
pub fn slices(
    work: &Work<'_>,
    tensor: &Tensor,
    axis: usize,
    count: usize,
    place: impl Fn(usize) -> usize + Sync,
) -> Result<Tensor, Fault> {
    let dims = tensor.shape().dims();
    let inner = dims[axis + 1..].iter().product::<usize>() * tensor.dtype().size();
    let mut wanted = dims.to_vec();
    wanted[axis] = count;
    let spec = TensorSpec::new(tensor.dtype(), Shape::new(wanted)?);
    let mut made = work.buffer(spec.bytes())?;
    let (bytes, along) = (tensor.bytes(), dims[axis]);
    // Slices of no bytes make nothing.
    if let Some(together) = PART.checked_div(inner).map(|slices| slices.max(1)) {
        work.pieces(made.bytes_mut(), together * inner, |piece, target| {
            let first = piece * together;
            let mut rows = (first..first + target.len() / inner).map(|row| row / count * along + place(row % count));
            match inner {
                1 => copy::<1>(bytes, target, rows),
                2 => copy::<2>(bytes, target, rows),
                4 => copy::<4>(bytes, target, rows),
                8 => copy::<8>(bytes, target, rows),
                _ => {
                    let targets = target.chunks_exact_mut(inner).zip(&mut rows);
                    targets.for_each(|(target, row)| target.copy_from_slice(&bytes[row * inner..][..inner]));
                }
            }
        })?;
    }
    Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"))
}

/// Copies elements of `SIZE` bytes: the compiler knows how many.
fn copy<const SIZE: usize>(bytes: &[u8], target: &mut [u8], rows: impl Iterator<Item = usize>) {
    let (from, to) = (bytes.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
    to.iter_mut().zip(rows).for_each(|(to, row)| *to = from[row]);
}

/// Tensors side by side along an axis, which is a `new` one or theirs. O(bytes).
pub fn side_by_side(work: &Work<'_>, tensors: &[Tensor], axis: usize, new: bool) -> Result<Tensor, Fault> {
    let first = tensors.first().ok_or_else(|| Fault::invalid("there is nothing to put side by side"))?;
    let (mut all, mut along) = (first.shape().dims().to_vec(), 0usize);
    for tensor in tensors {
        let own = tensor.shape().dims();
        let fits = own.len() == all.len()
            && (0..own.len()).all(|other| (other == axis && !new) || own[other] == all[other])
            && tensor.dtype() == first.dtype();
        if !fits {
            let (own, first) = (tensor.spec(), first.spec());
            return Err(Fault::invalid(format!("{own} and {first} do not go side by side along axis {axis}")));
        }
        let sum = along.checked_add(if new { 1 } else { own[axis] });
        along = sum.ok_or_else(|| Fault::invalid("the parts are too many"))?;
    }
    match new {
        true => all.insert(axis, along),
        false => all[axis] = along,
    }
    let outer: usize = all[..axis].iter().product();
    let spec = TensorSpec::new(first.dtype(), Shape::new(all)?);
    let mut made = work.buffer(spec.bytes())?;
    // Each tensor here has a byte for each row, so there are no more copies than bytes.
    let mut parts = work.list(tensors.len())?;
    parts.extend(tensors.iter().map(Tensor::bytes).filter(|bytes| !bytes.is_empty()));
    let (mut rest, mut unseen) = (made.bytes_mut(), 0);
    let rows = if parts.is_empty() { 0 } else { outer };
    for (row, bytes) in (0..rows).flat_map(|row| parts.iter().map(move |bytes| (row, bytes))) {
        let length = bytes.len() / outer;
        let (target, after) = rest.split_at_mut(length);
        target.copy_from_slice(&bytes[row * length..][..length]);
        rest = after;
        unseen += length + 1;
        if unseen >= PART {
            work.look()?;
            unseen = 0;
        }
    }
    Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"))
}
