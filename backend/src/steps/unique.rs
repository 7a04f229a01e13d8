//! Different elements, or different slices along an axis.

use super::select::flat;
use super::{Call, Item, slices};
use crate::lower::{Fault, axis_of, integers, numbers};
use anabranch_kernels::Tensor;
use std::cmp::Ordering;

/// The different slices along an axis, or elements where none is given: they themselves, where each is first, which of them each of the
/// input is, and how often each is there. Ascending, or in the order in which they come. O(n log n) comparisons of slices.
pub(super) fn unique(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let x = call.tensor(0)?;
    let (data, axis) = match call.node.int("axis")? {
        Some(axis) => (x.clone(), axis_of(axis, x.shape().rank())?),
        None => (flat(x)?, 0),
    };
    let compare = comparison(&data, axis)?;
    let count = data.shape().dims()[axis];
    let mut order: Vec<usize> = (0..count).collect();
    // Stable: the first of equal ones stays the first.
    order.sort_by(|a, b| compare(*a, *b));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for place in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], place) == Ordering::Equal => group.push(place),
            _ => groups.push(vec![place]),
        }
    }
    if call.node.int("sorted")?.unwrap_or(1) == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let mut which = vec![0i64; count];
    for (number, group) in (0..).zip(&groups) {
        group.iter().for_each(|place| which[*place] = number);
    }
    let first: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let places: Vec<i64> = first.iter().map(|place| *place as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let lists = [&places, &which, &counts].map(|list| Item::Tensor(Tensor::from_i64s(list)));
    Ok([vec![Item::Tensor(slices(&data, axis, &first)?)], lists.to_vec()].concat())
}

/// How slices along an axis compare, element by element.
fn comparison(data: &Tensor, axis: usize) -> Result<Box<dyn Fn(usize, usize) -> Ordering>, Fault> {
    let dims = data.shape().dims();
    let (count, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let outer: usize = dims[..axis].iter().product();
    let elements = move |place: usize| {
        (0..outer).flat_map(move |row| (0..inner).map(move |at| (row * count + place) * inner + at))
    };
    if data.dtype().is_float() {
        let all = numbers(data).ok_or_else(|| Fault::unsupported("its element type"))?;
        let one = move |a: usize, b: usize| match all[a].partial_cmp(&all[b]) {
            Some(order) => order,
            // What is not a number comes last.
            None => all[a].is_nan().cmp(&all[b].is_nan()),
        };
        return Ok(Box::new(move |a, b| ordered(elements(a).zip(elements(b)), &one)));
    }
    let wide = |all: Vec<i64>| all.into_iter().map(i128::from).collect::<Vec<_>>();
    let all = match data.elements::<u64>() {
        Some(all) => all.iter().copied().map(i128::from).collect(),
        None => wide(integers(data).ok_or_else(|| Fault::unsupported("its element type"))?),
    };
    let one = move |a: usize, b: usize| all[a].cmp(&all[b]);
    Ok(Box::new(move |a, b| ordered(elements(a).zip(elements(b)), &one)))
}

fn ordered(mut pairs: impl Iterator<Item = (usize, usize)>, one: impl Fn(usize, usize) -> Ordering) -> Ordering {
    pairs.find_map(|(a, b)| Some(one(a, b)).filter(|order| order.is_ne())).unwrap_or(Ordering::Equal)
}
