//! Attention against its definition in `f64`, over lengths, groups, windows and capacities.

use crate::testing::{node, numbers, run, run_all_ways, tensor};
use anabranch_op::op::{Attention, Op};
use anabranch_op::{DType, Tensor};
use arbtest::arbitrary::Unstructured;
use std::iter::zip;

/// A case: its sizes, and each row's first position and length.
#[derive(Debug)]
struct Case {
    op: Attention,
    /// Batch, heads of queries and of keys, queries, capacity, features of keys and of values.
    sizes: [usize; 7],
    dtype: DType,
    bias: Option<[usize; 4]>,
    /// Whether some summands are −∞, and queries that see no key for that reason infinite.
    leaves_out: bool,
    first: Vec<i64>,
    filled: Vec<i64>,
}

/// Numbers between −2 and 2 that look random.
fn value(seed: usize) -> impl Fn(usize) -> f64 {
    move |i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 252.0 - 2.0
}

impl Case {
    fn any(u: &mut Unstructured<'_>) -> arbtest::arbitrary::Result<Self> {
        let group = *u.choose(&[1, 2, 3])?;
        let [batch, shared, queries] = [u.int_in_range(1..=3)?, u.int_in_range(1..=3)?, *u.choose(&[1, 1, 2, 5, 37])?];
        let (depth, width) = (*u.choose(&[8, 16, 5, 64, 80])?, *u.choose(&[16, 8, 7, 64, 100])?);
        let capacity: usize = u.int_in_range(1..=300)?;
        let reach = |u: &mut Unstructured<'_>| Ok(if u.arbitrary()? { Some(u.int_in_range(0..=90)?) } else { None });
        let (before, after) = (reach(u)?, if u.arbitrary()? { Some(0) } else { reach(u)? });
        let bias = match u.int_in_range(0..=2)? {
            0 => None,
            1 => Some([1, 1, 1, 1]),
            _ => Some([batch, 1, queries, u.int_in_range(1..=capacity)?]),
        };
        let leaves_out = bias.is_some() && u.arbitrary()?;
        let cap = if u.arbitrary()? { 3.0 } else { 0.0 };
        let op = Attention { scale: 0.4, cap, before, after, bias: bias.is_some(), expected: capacity };
        let filled = (0..batch).map(|_| u.int_in_range(0..=capacity as i64)).collect::<Result<Vec<_>, _>>()?;
        let first = filled.iter().map(|filled| filled - queries as i64).collect();
        let dtype = *u.choose(&[DType::F32, DType::F16, DType::BF16])?;
        Ok(Self {
            op,
            sizes: [batch, group * shared, shared, queries, capacity, depth, width],
            dtype,
            bias,
            leaves_out,
            first,
            filled,
        })
    }

    fn inputs(&self) -> Vec<Tensor> {
        let [batch, heads, shared, queries, capacity, depth, width] = self.sizes;
        let query = |at: usize| {
            let (item, query) = (at / (heads * queries * depth), at / depth % queries);
            let lost = at.is_multiple_of(depth) && self.leaves_all_out(item, query);
            if lost { f64::INFINITY } else { value(1)(at) }
        };
        let mut inputs = vec![
            tensor(DType::F32, &[batch, heads, queries, depth], query),
            tensor(self.dtype, &[batch, shared, capacity, depth], value(2)),
            tensor(self.dtype, &[batch, shared, capacity, width], value(3)),
            Tensor::from_i64s(&self.first),
            Tensor::from_i64s(&self.filled),
        ];
        inputs.extend(self.bias.map(|dims| {
            let left_out = |at: usize| self.leaves_out && ((at / dims[3]).is_multiple_of(3) || at.is_multiple_of(5));
            tensor(DType::F32, &dims, |at| if left_out(at) { f64::NEG_INFINITY } else { value(4)(at) })
        }));
        inputs
    }

    /// Whether the summands leave out all keys of a query.
    fn leaves_all_out(&self, item: usize, query: usize) -> bool {
        let row = |[batch, _, queries, _]: [usize; 4]| if batch * queries == 1 { 0 } else { item * queries + query };
        self.leaves_out && self.bias.is_some_and(|dims| row(dims).is_multiple_of(3))
    }

    fn made(&self, inputs: &[Tensor]) -> Vec<f64> {
        let [batch, heads, _, queries, .., width] = self.sizes;
        let node = node(Op::Attention(self.op.clone()), inputs, DType::F32, &[batch, queries, heads, width]);
        numbers(&run_all_ways(&node, inputs).remove(0))
    }

    /// Returns the result by the definition.
    fn wanted(&self, inputs: &[Tensor]) -> Vec<f64> {
        let [batch, heads, shared, queries, capacity, depth, width] = self.sizes;
        let given: Vec<Vec<f64>> = inputs.iter().map(numbers).collect();
        let mut want = Vec::new();
        for (item, query, head) in places([batch, queries, heads]) {
            let position = self.first[item] + query as i64;
            let list = item * shared + head / (heads / shared);
            let cached = |of: usize, key: usize, size: usize| &given[of][(list * capacity + key) * size..][..size];
            let x = &given[0][((item * heads + head) * queries + query) * depth..][..depth];
            let summand = |key: usize| {
                self.bias.map_or(0.0, |dims| {
                    let at = zip([item, head, query, key], dims).map(|(at, dim)| if dim == 1 { 0 } else { at });
                    given[5][zip(at, dims).fold(0, |place, (at, dim)| place * dim + at)]
                })
            };
            let seen = |key: &usize| {
                let apart = *key as i64 - position;
                let near = self.op.before.is_none_or(|before| -apart <= before as i64)
                    && self.op.after.is_none_or(|after| apart <= after as i64);
                near && self.bias.is_none_or(|dims| dims[3] == 1 || *key < dims[3]) && summand(*key).is_finite()
            };
            let score = |key: usize| {
                let score: f64 = zip(x, cached(1, key, depth)).map(|(x, k)| x * k).sum();
                let (scaled, cap) = (score * f64::from(self.op.scale), f64::from(self.op.cap));
                let bent = if cap > 0.0 { (scaled / cap).tanh() * cap } else { scaled };
                bent + summand(key)
            };
            let keys: Vec<usize> = (0..self.filled[item] as usize).filter(seen).collect();
            let scores: Vec<f64> = keys.iter().map(|key| score(*key)).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            let mean =
                |at: usize| zip(&keys, &weights).map(|(key, w)| w * cached(2, *key, width)[at]).sum::<f64>() / sum;
            want.extend((0..width).map(mean));
        }
        want
    }
}

fn places([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |at| (at / c / b, at / c % b, at % c))
}

#[test]
fn attention_follows_its_definition() {
    arbtest::arbtest(|u| {
        let case = Case::any(u)?;
        let inputs = case.inputs();
        for (at, (made, want)) in zip(case.made(&inputs), case.wanted(&inputs)).enumerate() {
            assert!((made - want).abs() < 2e-5, "{case:?} at {at}: {made} {want}");
        }
        Ok(())
    })
    .budget_ms(1000);
}

fn plain(sizes: [usize; 7], filled: &[i64]) -> Case {
    let op = Attention { scale: 0.5, cap: 0.0, before: None, after: Some(0), bias: false, expected: sizes[4] };
    let first = filled.iter().map(|filled| filled - sizes[3] as i64).collect();
    Case { op, sizes, dtype: DType::F32, bias: None, leaves_out: false, first, filled: filled.to_vec() }
}

#[test]
fn what_lies_beyond_a_length_is_never_seen() {
    let case = plain([2, 4, 2, 3, 70, 16, 16], &[64, 5]);
    let inputs = case.inputs();
    let made = case.made(&inputs);
    for part in [1, 2] {
        let mut spoilt = inputs.clone();
        let sound = numbers(&inputs[part]);
        let beyond = |at: usize| at / 16 % 70 >= case.filled[at / 16 / 70 / 2] as usize;
        spoilt[part] = tensor(DType::F32, &[2, 2, 70, 16], |at| if beyond(at) { f64::NAN } else { sound[at] });
        assert_eq!(case.made(&spoilt), made);
    }
}

#[test]
fn the_number_of_queries_changes_no_bits() {
    let sizes = [(64, 64), (0, 16), (1, 32), (17, 24), (33, 80), (128, 1)];
    for ((depth, width), before) in sizes.into_iter().flat_map(|sizes| [(sizes, None), (sizes, Some(20))]) {
        for dtype in [DType::F32, DType::F16] {
            let of = |queries: usize, filled: i64| {
                let mut case = plain([1, 4, 2, queries, 150, depth, width], &[filled]);
                (case.op.before, case.dtype) = (before, dtype);
                case
            };
            let many = of(33, 140);
            let inputs = many.inputs();
            let made = many.made(&inputs);
            let queries = numbers(&inputs[0]);
            for query in [0, 7, 31, 32] {
                let one = of(1, 140 - 32 + query as i64);
                let mut own = one.inputs();
                let feature = |at: usize| queries[(at / depth * 33 + query) * depth + at % depth];
                own[0] = tensor(DType::F32, &[1, 4, 1, depth], feature);
                let made = &made[query * 4 * width..][..4 * width];
                assert_eq!(one.made(&own), made, "{depth} {width} {before:?} {dtype:?}: {query}");
            }
        }
    }
}

#[test]
fn scores_that_are_no_numbers_and_keys_left_out_by_summands() {
    let mut case = plain([1, 1, 1, 1, 4, 8, 8], &[4]);
    case.op.bias = true;
    case.bias = Some([1, 1, 1, 4]);
    let with = |summand: fn(usize) -> f64| {
        let mut inputs = case.inputs();
        inputs[5] = tensor(DType::F32, &[1, 1, 1, 4], summand);
        case.made(&inputs)
    };
    assert!(with(|_| f64::NEG_INFINITY).iter().all(|x| *x == 0.0));
    assert!(with(|_| f64::NAN).iter().all(|x| x.is_nan()));
    let last = numbers(&case.inputs()[2]);
    let made = with(|key| if key == 3 { 0.0 } else { f64::NEG_INFINITY });
    assert!(zip(made, &last[3 * 8..]).all(|(made, want)| (made - want).abs() < 1e-6));
}

#[test]
fn lengths_outside_are_errors_that_name_them() {
    for bad in [-1, 71, i64::MIN, i64::MAX] {
        let mut case = plain([2, 2, 1, 1, 70, 8, 8], &[3, 4]);
        case.filled[1] = bad;
        let inputs = case.inputs();
        let node = node(Op::Attention(case.op.clone()), &inputs, DType::F32, &[2, 1, 2, 8]);
        let error = run(&node, &inputs).expect_err("outside").to_string();
        assert!(error.contains(&bad.to_string()) && error.contains("capacity of 70 (row 1"), "{error}");
    }
    for first in [i64::MIN, i64::MAX] {
        let mut case = plain([1, 2, 1, 3, 70, 8, 8], &[3]);
        case.first[0] = first;
        assert_eq!(case.made(&case.inputs()).len(), 3 * 2 * 8, "positions are any");
    }
}
