//! Reads a broadcast operand under another shape of the result.
//!
//! Class: exact bits. Equal elements are read.

use anabranch_kernels::Shape;

/// Returns the shape under which an operand must be read to give equal elements in equal order when the result's shape
/// changes.
///
/// The operand is read as `operand` when it is broadcast to `from`; the returned shape is broadcast to `to`, which has
/// as many elements as `from`.
///
/// Returns `None` if there is no such shape. O(rank).
pub(super) fn reread(operand: &Shape, from: &Shape, to: &Shape) -> Option<Shape> {
    if from == to {
        return Some(operand.clone());
    }
    if from.elements() != to.elements() || from.elements() == 0 {
        return None;
    }
    let lead = from.rank().checked_sub(operand.rank())?;
    let aligned: Vec<usize> = std::iter::repeat_n(1, lead).chain(operand.dims().iter().copied()).collect();
    let mut dims = Vec::with_capacity(to.rank());
    let (mut i, mut j) = (0, 0);
    while i < from.rank() || j < to.rank() {
        let (next_i, next_j) = block(&from.dims()[i..], &to.dims()[j..])?;
        let (source, target) = (&from.dims()[i..i + next_i], &to.dims()[j..j + next_j]);
        dims.extend(reread_block(&aligned[i..i + next_i], source, target)?);
        (i, j) = (i + next_i, j + next_j);
    }
    Shape::new(dims).ok()
}

/// Numbers of leading dimensions of both, at least one in total, whose products are equal; as few as possible.
fn block(from: &[usize], to: &[usize]) -> Option<(usize, usize)> {
    match (from.first(), to.first()) {
        (Some(1), _) => return Some((1, 0)),
        (_, Some(1)) => return Some((0, 1)),
        _ => {}
    }
    let (mut i, mut j, mut source, mut target) = (1, 1, *from.first()?, *to.first()?);
    while source != target {
        if source < target {
            source *= from.get(i)?;
            i += 1;
        } else {
            target *= to.get(j)?;
            j += 1;
        }
    }
    Some((i, j))
}

/// Converts one block: repeated throughout, present throughout, or divided equally on both sides.
fn reread_block(operand: &[usize], from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    if operand.iter().all(|dim| *dim == 1) {
        Some(vec![1; to.len()])
    } else if operand == from {
        Some(to.to_vec())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read_anew_where_blocks_allow() {
        type Case = (&'static [usize], &'static [usize], &'static [usize], Option<&'static [usize]>);
        let cases: [Case; 10] = [
            (&[5], &[2, 3, 5], &[6, 5], Some(&[1, 5])),
            (&[2, 3, 5], &[2, 3, 5], &[6, 5], Some(&[6, 5])),
            (&[3, 5], &[2, 3, 5], &[6, 5], None),
            (&[2, 1, 1], &[2, 3, 5], &[2, 15], Some(&[2, 1])),
            (&[8, 1], &[4, 8, 9], &[4, 8, 1, 9], Some(&[1, 8, 1, 1])),
            (&[8, 1, 1], &[1, 8, 3, 3], &[2, 4, 9], Some(&[2, 4, 1])),
            (&[8, 1, 1], &[1, 8, 3, 3], &[24, 3], None),
            (&[], &[4, 6], &[24], Some(&[1])),
            (&[1], &[1], &[], Some(&[])),
            (&[4, 1], &[4, 1], &[1, 4], Some(&[1, 4])),
        ];
        let shape = |dims: &[usize]| Shape::new(dims).expect("small");
        for (operand, from, to, want) in cases {
            let got = reread(&shape(operand), &shape(from), &shape(to));
            assert_eq!(got, want.map(shape), "{operand:?} of {from:?} under {to:?}");
        }
    }

    /// Element indices that an operand contributes to a broadcast result.
    fn contributed(operand: &Shape, result: &Shape) -> Vec<usize> {
        let strides = operand.broadcast_strides(result).expect("the operand broadcasts");
        let own = result.strides();
        let coordinate = |element: usize, axis: usize| element / own[axis] % result.dims()[axis];
        let index = |element| (0..result.rank()).map(|axis| coordinate(element, axis) * strides[axis]).sum();
        (0..result.elements()).map(index).collect()
    }

    #[test]
    fn what_is_read_anew_gives_the_same_elements() {
        arbtest::arbtest(|u| {
            let rank = u.int_in_range(1..=4)?;
            let from: Vec<usize> = (0..rank).map(|_| u.int_in_range(1..=4)).collect::<Result<_, _>>()?;
            let operand: Vec<usize> = from
                .iter()
                .map(|dim| Ok(if u.arbitrary()? { *dim } else { 1 }))
                .collect::<Result<_, arbtest::arbitrary::Error>>()?;
            // Another shape of as many elements: join some neighbours, add some ones.
            let mut to = vec![1];
            for dim in &from {
                if u.arbitrary()? {
                    to.push(*dim);
                } else if let Some(last) = to.last_mut() {
                    *last *= dim;
                }
            }
            let shape = |dims: Vec<usize>| Shape::new(dims).expect("small");
            let (operand, from, to) = (shape(operand), shape(from), shape(to));
            if let Some(again) = reread(&operand, &from, &to) {
                assert_eq!(contributed(&operand, &from), contributed(&again, &to), "{operand} of {from} under {to}");
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
