//! Copies slices of a tensor along an axis, and puts tensors side by side, for the host operators.

use super::work::{PART, Work};
use crate::Fault;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Returns `count` slices of `tensor` along `axis`, each from the position that `place` gives, all of which must be in
/// the tensor. O(bytes of the result).
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
    let (first, run) = (if count > 0 { place(0) } else { 0 }, count * inner);
    let whole = run == along * inner || run == spec.bytes();
    if (1..count).all(|at| place(at) == first + at) && (whole || run <= PART) && spec.bytes() > 0 {
        let bytes = &bytes[first * inner..];
        match whole {
            true => work.pieces(made.bytes_mut(), PART, |piece, target| {
                target.copy_from_slice(&bytes[piece * PART..][..target.len()]);
            })?,
            false => work.pieces(made.bytes_mut(), PART / run * run, |piece, target| {
                let stacks = bytes[piece * (PART / run) * along * inner..].chunks(along * inner);
                stacks.zip(target.chunks_exact_mut(run)).for_each(|(stack, target)| copy_run(&stack[..run], target));
            })?,
        }
        return Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"));
    }
    // Slices of 0 bytes need no copies.
    if let Some(together) = PART.checked_div(inner).map(|slices| slices.max(1)) {
        work.pieces(made.bytes_mut(), together * inner, |piece, mut target| {
            let mut row = piece * together;
            while !target.is_empty() {
                let (outer, at) = (row / count, row % count);
                let rows = (count - at).min(target.len() / inner);
                let source = &bytes[outer * along * inner..][..along * inner];
                let (own, rest) = target.split_at_mut(rows * inner);
                let places = (at..at + rows).map(&place);
                match inner {
                    1 => copy::<1>(source, own, places),
                    2 => copy::<2>(source, own, places),
                    4 => copy::<4>(source, own, places),
                    8 => copy::<8>(source, own, places),
                    _ => copy_runs(source, own, inner, places),
                }
                (target, row) = (rest, row + rows);
            }
        })?;
    }
    Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"))
}

/// Copies elements of `SIZE` bytes, which the compiler knows.
fn copy<const SIZE: usize>(bytes: &[u8], target: &mut [u8], rows: impl Iterator<Item = usize>) {
    let (from, to) = (bytes.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
    to.iter_mut().zip(rows).for_each(|(to, row)| *to = from[row]);
}

/// Copies slices of `inner` bytes; runs that are consecutive in both are copied at once.
fn copy_runs(bytes: &[u8], mut target: &mut [u8], inner: usize, mut places: impl Iterator<Item = usize>) {
    let mut next = places.next();
    while let Some(first) = next {
        let mut end = first;
        while next == Some(end) {
            end += 1;
            next = places.next();
        }
        let (run, rest) = target.split_at_mut((end - first) * inner);
        let source = &bytes[first * inner..end * inner];
        copy_run(source, run);
        target = rest;
    }
}

/// Copies a run of consecutive bytes: a call takes longer than a short copy.
fn copy_run(source: &[u8], target: &mut [u8]) {
    match target.len() {
        4 => copy::<4>(source, target, 0..1),
        8 => copy::<8>(source, target, 0..1),
        12 => copy::<12>(source, target, 0..1),
        16 => copy::<16>(source, target, 0..1),
        24 => copy::<24>(source, target, 0..1),
        32 => copy::<32>(source, target, 0..1),
        64 => copy::<64>(source, target, 0..1),
        _ => target.copy_from_slice(source),
    }
}

/// Joins tensors along an axis, which is a `new` axis or one of theirs. O(bytes).
pub fn side_by_side(work: &Work<'_>, tensors: &[Tensor], axis: usize, new: bool) -> Result<Tensor, Fault> {
    let first = tensors.first().ok_or_else(|| Fault::invalid("there is nothing to concatenate"))?;
    let (mut all, mut along) = (first.shape().dims().to_vec(), 0usize);
    for tensor in tensors {
        let own = tensor.shape().dims();
        let fits = own.len() == all.len()
            && (0..own.len()).all(|other| (other == axis && !new) || own[other] == all[other])
            && tensor.dtype() == first.dtype();
        if !fits {
            let (own, first) = (tensor.spec(), first.spec());
            return Err(Fault::invalid(format!("{own} and {first} cannot be concatenated along axis {axis}")));
        }
        let sum = along.checked_add(if new { 1 } else { own[axis] });
        along = sum.ok_or_else(|| Fault::invalid("there are too many parts"))?;
    }
    match new {
        true => all.insert(axis, along),
        false => all[axis] = along,
    }
    let outer: usize = all[..axis].iter().product();
    let spec = TensorSpec::new(first.dtype(), Shape::new(all)?);
    let mut made = work.buffer(spec.bytes())?;
    // Each tensor here has at least a byte for each row, so that there are no more copies than bytes.
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
