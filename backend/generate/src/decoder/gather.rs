//! Rows of several tensors in one, each at one end of an axis, with zeros at the other.

use anabranch_kernels::{Buffer, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// The end of the axis at which elements lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

/// A row of a tensor, of whose axis the first or last elements count.
pub(super) struct Piece {
    pub(super) tensor: Tensor,
    pub(super) row: usize,
    /// Number of elements along the axis that count.
    pub(super) kept: usize,
}

/// Returns a tensor of these rows, whose axis has `size` elements. `None` if there is no memory, or the rows differ in
/// type or other sizes. O(bytes).
pub(super) fn gathered(pieces: &[Piece], axis: usize, size: usize, end: End) -> Option<Tensor> {
    let first = &pieces.first()?.tensor;
    let mut dims = first.shape().dims().to_vec();
    let fits = |dims: &[usize], piece: &Piece| {
        let own = piece.tensor.shape().dims();
        let mut same = own.iter().zip(dims).enumerate().filter(|(at, _)| ![0, axis].contains(at));
        own.len() == dims.len()
            && same.all(|(_, (own, dim))| own == dim)
            && piece.tensor.dtype() == first.dtype()
            && piece.row < own[0]
            && piece.kept <= own[axis].min(size)
    };
    if axis == 0 || axis >= dims.len() || !pieces.iter().all(|piece| fits(&dims, piece)) {
        return None;
    }
    (dims[0], dims[axis]) = (pieces.len(), size);
    let inner = dims[axis + 1..].iter().product::<usize>() * first.dtype().size();
    let spec = TensorSpec::new(first.dtype(), Shape::new(dims).ok()?);
    let mut buffer = Buffer::try_zeroed(spec.bytes())?;
    let wide = spec.bytes() / pieces.len();
    for (piece, target) in pieces.iter().zip(buffer.bytes_mut().chunks_exact_mut(wide.max(1))) {
        let dims = piece.tensor.shape().dims();
        let (long, count) = (dims[axis] * inner, piece.kept * inner);
        let own = piece.tensor.bytes().len() / dims[0];
        let source = &piece.tensor.bytes()[piece.row * own..][..own];
        let (from, to) = if end == End::Back { (long - count, size * inner - count) } else { (0, 0) };
        let parts = target.chunks_exact_mut((size * inner).max(1)).zip(source.chunks_exact(long.max(1)));
        parts.for_each(|(target, source)| target[to..][..count].copy_from_slice(&source[from..][..count]));
    }
    Tensor::new(spec, Arc::new(buffer)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_at_one_end_and_zeros_at_the_other() {
        let tensor = |dims: [usize; 3], values: &[i64]| {
            Tensor::from_elements(Shape::new(dims).expect("small"), values).expect("as many")
        };
        // Two rows of 2 × 2, and one of 2 × 3.
        let (two, one) = (tensor([2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]), tensor([1, 2, 3], &[11, 12, 13, 14, 15, 16]));
        let piece = |tensor: &Tensor, row, kept| Piece { tensor: tensor.clone(), row, kept };
        let made = |pieces: &[Piece], size, end| {
            gathered(pieces, 2, size, end).map(|made| made.elements::<i64>().expect("integers").to_vec())
        };
        let both = [piece(&two, 1, 2), piece(&one, 0, 3)];
        assert_eq!(made(&both, 3, End::Back), Some(vec![0, 5, 6, 0, 7, 8, 11, 12, 13, 14, 15, 16]));
        assert_eq!(made(&both, 4, End::Front).map(|made| made[..8].to_vec()), Some(vec![5, 6, 0, 0, 7, 8, 0, 0]));
        assert_eq!(made(&[piece(&one, 0, 1)], 1, End::Back), Some(vec![13, 16]));
        assert_eq!(made(&[piece(&one, 0, 2)], 2, End::Front), Some(vec![11, 12, 14, 15]));
        for wrong in [piece(&two, 2, 1), piece(&one, 0, 4), piece(&tensor([1, 3, 1], &[1, 2, 3]), 0, 1)] {
            assert!(made(&[piece(&one, 0, 1), wrong], 4, End::Back).is_none());
        }
    }
}
