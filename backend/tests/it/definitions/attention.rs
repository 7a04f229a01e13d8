//! Attention over a cache, of the standard and of `com.microsoft`, against one definition; each draws all its options.

use super::{Given, answers, int, near};
use anabranch::Tensor;
use anabranch::import::proto::{AttributeProto, NodeProto, TensorProto, data_type};
use arbtest::arbitrary::{Result, Unstructured};

/// Features of a query and a key, and of a value.
const DEPTH: usize = 4;
const WIDTH: usize = 3;

/// Attention by its definition: `[b, h, s, d]` queries, keys and values `[b, g, t, …]`.
#[derive(Debug)]
struct Definition {
    batch: usize,
    heads: usize,
    shared: usize,
    length: usize,
    scale: f64,
    cap: f64,
    before: Option<i64>,
    after: Option<i64>,
    /// The position of each row's first query, and the number of its keys.
    first: Vec<i64>,
    filled: Vec<usize>,
}

impl Definition {
    /// Returns `[b, s, h, e]`; summands of scores are −∞ for keys that are left out.
    fn values(
        &self,
        width: usize,
        query: impl Fn(&[usize]) -> f64,
        key: impl Fn(&[usize]) -> f64,
        value: impl Fn(&[usize]) -> f64,
        summand: impl Fn(&[usize]) -> f64,
    ) -> Vec<f64> {
        let mut values = Vec::new();
        for place in super::places(&[self.batch, self.length, self.heads]) {
            let &[item, at, head] = &place[..] else { unreachable!("three axes") };
            let of_group = head / (self.heads / self.shared);
            let keys: Vec<usize> = (0..self.filled[item])
                .filter(|key| {
                    let apart = *key as i64 - self.first[item] - at as i64;
                    self.before.is_none_or(|before| -apart <= before) && self.after.is_none_or(|after| apart <= after)
                })
                .filter(|key| summand(&[item, head, at, *key]) != f64::NEG_INFINITY)
                .collect();
            let score = |number: &usize| {
                let product: f64 =
                    (0..DEPTH).map(|d| query(&[item, head, at, d]) * key(&[item, of_group, *number, d])).sum();
                let scaled = product * self.scale;
                let bent = if self.cap > 0.0 { (scaled / self.cap).tanh() * self.cap } else { scaled };
                bent + summand(&[item, head, at, *number])
            };
            let scores: Vec<f64> = keys.iter().map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for feature in 0..width {
                let of_key = |(key, weight): (&usize, &f64)| weight * value(&[item, of_group, *key, feature]);
                let mean: f64 = keys.iter().zip(&weights).map(of_key).sum();
                values.push(if keys.is_empty() { 0.0 } else { mean / sum });
            }
        }
        values
    }
}

fn elements(tensor: &Tensor) -> Vec<f32> {
    tensor.elements::<f32>().expect("f32").to_vec()
}

/// An element of a tensor that broadcasts.
fn broadcast(given: &Given, place: &[usize]) -> f64 {
    let place = &place[place.len() - given.dims.len()..];
    given.at(&place.iter().zip(&given.dims).map(|(at, dim)| if *dim == 1 { 0 } else { *at }).collect::<Vec<_>>())
}

#[test]
fn attention_of_the_standard_follows_its_definition() {
    arbtest::arbtest(standard).budget_ms(1000);
}

fn standard(u: &mut Unstructured<'_>) -> Result<()> {
    let [batch, shared, group, length] = [(); 4].map(|()| u.int_in_range(1..=2));
    let (batch, shared, heads, length) = (batch?, shared?, group?, length?);
    let (heads, new) = (heads * shared, u.int_in_range(1..=4usize)?);
    let past = if u.arbitrary()? { u.int_in_range(1..=3usize)? } else { 0 };
    let total = past + new;
    let reach = |u: &mut Unstructured<'_>| Ok(if u.arbitrary()? { Some(u.int_in_range(0..=2)?) } else { None });
    let (before, right, causal): (Option<i64>, Option<i64>, bool) = (reach(u)?, reach(u)?, u.arbitrary()?);
    // Causal queries are the last of their keys.
    let least = if causal { length } else { 0 };
    let padded = past == 0 && least <= total && u.ratio(1, 3)?;
    let filled: Vec<usize> =
        (0..batch).map(|_| if padded { u.int_in_range(least..=total) } else { Ok(total) }).collect::<Result<_>>()?;
    let first = |filled: &usize| if padded { *filled as i64 - length as i64 } else { past as i64 };
    let scale = *u.choose(&[None, Some(0.3f32), Some(0.0), Some(-0.5)])?;
    let cap = *u.choose(&[None, Some(0.0), Some(1.5f32), Some(-1.0)])?;
    let after = if causal { Some(right.map_or(0, |right| right.min(0))) } else { right };
    let definition = Definition {
        batch,
        heads,
        shared,
        length,
        scale: scale.map_or(1.0 / (DEPTH as f64).sqrt(), f64::from),
        cap: cap.map_or(0.0, f64::from),
        before,
        after,
        first: filled.iter().map(first).collect(),
        filled,
    };

    let mut q = Given::of("q", &[batch, heads, length, DEPTH]);
    let [k, v] = [("k", DEPTH), ("v", WIDTH)].map(|(name, size)| Given::of(name, &[batch, shared, new, size]));
    let [pk, pv] = [("pk", DEPTH), ("pv", WIDTH)].map(|(name, size)| Given::of(name, &[batch, shared, past, size]));
    // 0: no mask, 1: numbers, 2: truths.
    let kind = u.int_in_range(0..=2)?;
    let axis = |u: &mut Unstructured<'_>, size: usize| Ok(if u.arbitrary()? { size } else { 1 });
    let dims = [axis(u, batch)?, axis(u, heads)?, axis(u, length)?, u.int_in_range(1..=total)?];
    let mut mask = Given::of("m", &dims[u.int_in_range(0..=2)?..]);
    for row in mask.elements.chunks_mut(dims[3]) {
        let all: bool = u.ratio(1, 4)?;
        for seen in row {
            let seen_here = !all && u.arbitrary()?;
            *seen = match (seen_here, kind) {
                (false, _) => f32::NEG_INFINITY,
                (true, 2) => 0.0,
                (true, _) => *seen,
            };
        }
    }
    let summand = |place: &[usize]| match kind {
        0 => 0.0,
        _ if place[3] >= dims[3] => f64::NEG_INFINITY,
        // The last axis is padded, and never broadcast.
        _ => broadcast(&mask, place),
    };
    // Queries that see no key may be anything.
    let lost =
        |item: usize, head: usize, at: usize| (0..total).all(|key| summand(&[item, head, at, key]).is_infinite());
    for place in super::places(&[batch, heads, length]) {
        if lost(place[0], place[1], place[2]) {
            q.elements[((place[0] * heads + place[1]) * length + place[2]) * DEPTH] = f32::INFINITY;
        }
    }
    let cached = |past_part: &Given, part: &Given, place: &[usize]| match place[2].checked_sub(past) {
        None => past_part.at(place),
        Some(at) => part.at(&[place[0], place[1], at, place[3]]),
    };
    let wanted = definition.values(
        WIDTH,
        |place| q.at(place),
        |place| cached(&pk, &k, place),
        |place| cached(&pv, &v, place),
        summand,
    );

    let mut names = vec!["q", "k", "v", if kind > 0 { "m" } else { "" }];
    let mut inputs = vec![q.message(), k.message(), v.message()];
    if kind == 1 {
        inputs.push(mask.message());
    } else if kind == 2 {
        let dims: Vec<i64> = mask.dims.iter().map(|dim| *dim as i64).collect();
        let seen = mask.elements.iter().map(|summand| u8::from(*summand == 0.0)).collect();
        inputs.push(TensorProto::raw("m", data_type::BOOL, &dims, seen));
    }
    if past > 0 {
        names.extend(["pk", "pv"]);
        inputs.extend([pk.message(), pv.message()]);
    } else if padded {
        names.extend(["", "", "n"]);
        let filled: Vec<i64> = definition.filled.iter().map(|filled| *filled as i64).collect();
        inputs.push(TensorProto::i64s("n", &[batch as i64], &filled));
    }
    let mut node = NodeProto::of("Attention", &names, &["y"]).with(int("is_causal", causal.into()));
    for (name, reach) in [("left_window_size", before), ("right_window_size", right)] {
        node = node.with(int(name, reach.unwrap_or(-1)));
    }
    for (name, number) in [("scale", scale), ("softcap", cap)] {
        node = number.into_iter().fold(node, |node, number| node.with(AttributeProto::float(name, number)));
    }
    let what = format!("{definition:?}, {past} + {new} keys, mask {kind} of {:?}", mask.dims);
    let made = answers(node, inputs).unwrap_or_else(|error| panic!("{what}: {error}"));
    // `[b, h, s, e]` as `[b, s, h, e]`.
    let made = elements(&made[0]);
    let places = super::places(&[batch, length, heads, WIDTH]);
    let by_query = places.iter().map(|at| made[((at[0] * heads + at[2]) * length + at[1]) * WIDTH + at[3]]);
    near(&by_query.collect::<Vec<_>>(), &wanted, &what);
    Ok(())
}

#[test]
fn grouped_attention_follows_its_definition() {
    arbtest::arbtest(grouped).budget_ms(1000);
}

/// Rows of angles: more than positions are.
const ANGLES: usize = 16;

fn grouped(u: &mut Unstructured<'_>) -> Result<()> {
    let [batch, shared, group, length] = [(); 4].map(|()| u.int_in_range(1..=2));
    let (batch, shared, heads, length) = (batch?, shared?, group?, length?);
    let heads = heads * shared;
    let capacity = if u.arbitrary()? { u.int_in_range(length..=6)? } else { 0 };
    let prompt = capacity == 0 || u.ratio(1, 3)?;
    let filled: Vec<usize> = (0..batch)
        .map(|_| if prompt { Ok(length) } else { u.int_in_range(length..=capacity) })
        .collect::<Result<_>>()?;
    let total = if prompt { length } else { filled.iter().copied().max().unwrap_or(length) };
    let first: Vec<i64> = filled.iter().map(|filled| (*filled - length) as i64).collect();
    let window = if u.arbitrary()? { Some(u.int_in_range(1..=4)?) } else { None };
    let causal = window.is_some() || u.ratio(2, 3)?;
    let (scale, cap) = (*u.choose(&[0.0f32, 0.3])?, *u.choose(&[0.0f32, 1.5, -1.0])?);
    let definition = Definition {
        batch,
        heads,
        shared,
        length,
        scale: if scale == 0.0 { 1.0 / (DEPTH as f64).sqrt() } else { f64::from(scale) },
        cap: f64::from(cap),
        before: window.map(|size| size - 1),
        after: causal.then_some(0),
        first,
        filled,
    };
    let (turns, interleaved, packed): (bool, bool, bool) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
    let own = turns && u.arbitrary()?;
    let mut positions = Vec::new();
    for item in 0..batch {
        let counted = (0..length).map(|at| definition.first[item] + at as i64);
        positions
            .push(counted.map(|at| if own { u.int_in_range(0..=9) } else { Ok(at) }).collect::<Result<Vec<i64>>>()?);
    }
    // In a prompt all rows count on from the first position.
    let origin = positions[0][0];
    let place_of = |item: usize, at: usize| match own && total == length {
        true => origin as usize + at,
        false => positions[item][at] as usize,
    };
    let axis = |u: &mut Unstructured<'_>, size: usize| Ok(if u.arbitrary()? { size } else { 1 });
    let bias = if u.ratio(1, 3)? {
        Some(Given::of("bias", &[axis(u, batch)?, axis(u, heads)?, length, total.max(capacity)]))
    } else {
        None
    };

    let features = |heads: usize| heads * DEPTH;
    let [q, k, v] = [("q", heads), ("k", shared), ("v", shared)].map(|(name, heads)| {
        // One tensor of all heads, or each its own: the numbers are the same.
        Given::of(name, &[batch, length, features(heads)])
    });
    let [pk, pv] = ["pk", "pv"].map(|name| Given::of(name, &[batch, shared, capacity, DEPTH]));
    let angles = [("cos", f64::cos as fn(f64) -> f64), ("sin", f64::sin)].map(|(name, of)| {
        let mut angles = Given::of(name, &[ANGLES, DEPTH / 2]);
        angles.elements.iter_mut().enumerate().for_each(|(at, x)| *x = of(at as f64 * 0.7) as f32);
        angles
    });
    let turned = |x: &Given, item: usize, head: usize, at: usize, feature: usize| {
        let x = |feature: usize| x.at(&[item, at, head * DEPTH + feature]);
        if !turns {
            return x(feature);
        }
        let half = DEPTH / 2;
        let (pair, second) =
            if interleaved { (feature / 2, feature % 2 == 1) } else { (feature % half, feature >= half) };
        let (a, b) = if interleaved { (x(2 * pair), x(2 * pair + 1)) } else { (x(pair), x(pair + half)) };
        let [cosine, sine] = [0, 1].map(|of| angles[of].at(&[place_of(item, at), pair]));
        if second { a * sine + b * cosine } else { a * cosine - b * sine }
    };
    let cached = |past: &Given, new: &dyn Fn(usize, usize, usize, usize) -> f64, place: &[usize]| match usize::try_from(
        place[2] as i64 - definition.first[place[0]],
    ) {
        Ok(at) => new(place[0], place[1], at, place[3]),
        Err(_) => past.at(place),
    };
    let key = |place: &[usize]| cached(&pk, &|item, head, at, feature| turned(&k, item, head, at, feature), place);
    let value =
        |place: &[usize]| cached(&pv, &|item, head, at, feature| v.at(&[item, at, head * DEPTH + feature]), place);
    let query = |place: &[usize]| turned(&q, place[0], place[1], place[2], place[3]);
    let summand = |place: &[usize]| bias.as_ref().map_or(0.0, |bias| broadcast(bias, place));
    let wanted = definition.values(DEPTH, query, key, value, summand);

    let mut names = vec!["q", "k", "v", "", "", "last", "total", "", "", "", ""];
    let last: Vec<u8> = definition.filled.iter().flat_map(|filled| (*filled as i32 - 1).to_le_bytes()).collect();
    let mut inputs = vec![
        TensorProto::raw("last", data_type::INT32, &[batch as i64], last),
        TensorProto::raw("total", data_type::INT32, &[1], (total as i32).to_le_bytes().to_vec()),
    ];
    if packed {
        (names[1], names[2]) = ("", "");
        let rows = 0..batch * length;
        let part = |x: &Given, row: usize| x.elements[row * x.dims[2]..][..x.dims[2]].to_vec();
        let all: Vec<f32> = rows.flat_map(|row| [part(&q, row), part(&k, row), part(&v, row)].concat()).collect();
        let width = features(heads + 2 * shared);
        inputs.push(TensorProto::f32s("q", &[batch, length, width].map(|dim| dim as i64), &all));
    } else {
        inputs.extend([q.message(), k.message(), v.message()]);
    }
    if capacity > 0 {
        (names[3], names[4]) = ("pk", "pv");
        inputs.extend([pk.message(), pv.message()]);
    }
    if turns {
        (names[7], names[8]) = ("cos", "sin");
        inputs.extend(angles.iter().map(Given::message));
    }
    if own {
        names[9] = "positions";
        inputs.push(TensorProto::i64s("positions", &[batch as i64, length as i64], &positions.concat()));
    }
    if let Some(bias) = &bias {
        names[10] = "bias";
        inputs.push(bias.message());
    }
    let node = NodeProto {
        domain: "com.microsoft".into(),
        ..NodeProto::of("GroupQueryAttention", &names, &["y", "pk2", "pv2"])
    };
    let flags = [
        ("num_heads", heads as i64),
        ("kv_num_heads", shared as i64),
        ("causal", causal.into()),
        ("local_window_size", window.unwrap_or(-1)),
        ("do_rotary", turns.into()),
        ("rotary_interleaved", interleaved.into()),
        ("smooth_softmax", u.int_in_range(-1..=0)?),
        ("sliding_window_cache", 0),
    ];
    let node = flags.into_iter().fold(node, |node, (name, value)| node.with(int(name, value)));
    let node = [("scale", scale), ("softcap", cap)]
        .into_iter()
        .fold(node, |node, (name, value)| node.with(AttributeProto::float(name, value)));
    let what = format!(
        "{definition:?}, capacity {capacity}, total {total}, positions {positions:?} ({own}), packed {packed}, bias {:?}",
        bias.as_ref().map(|bias| &bias.dims)
    );
    let made = answers(node, inputs).unwrap_or_else(|error| panic!("{what}: {error}"));
    near(&elements(&made[0]), &wanted, &what);
    let kept = &made[1];
    for place in super::places(&[batch, shared, total, DEPTH]) {
        if place[2] < definition.filled[place[0]] {
            let at = ((place[0] * shared + place[1]) * kept.shape().dims()[2] + place[2]) * DEPTH + place[3];
            assert!((f64::from(elements(kept)[at]) - key(&place)).abs() < 1e-5, "{what}: key {place:?}");
        }
    }
    Ok(())
}

/// A step of grouped attention of one head, whose queries, keys and values have two features.
fn step(query: &[i64], attributes: Vec<AttributeProto>) -> std::result::Result<Vec<Tensor>, String> {
    let x = |name: &'static str| Given::of(name, &query.iter().map(|dim| *dim as usize).collect::<Vec<_>>()).message();
    let node = NodeProto::of("GroupQueryAttention", &["q", "k", "v", "", "", "last", "total"], &["y"]);
    let node =
        NodeProto { domain: "com.microsoft".into(), ..node }.with(int("num_heads", 1)).with(int("kv_num_heads", 1));
    let lengths = |name: &str, value: i32| TensorProto::raw(name, data_type::INT32, &[1], value.to_le_bytes().to_vec());
    let length = query[1].max(1) as i32;
    let inputs = vec![x("q"), x("k"), x("v"), lengths("last", length - 1), lengths("total", length)];
    answers(attributes.into_iter().fold(node, NodeProto::with), inputs)
}

#[test]
fn options_of_grouped_attention_that_are_not_computed_are_refused() {
    let refused = |attribute: AttributeProto, what: &str| {
        let error = step(&[1, 3, 2], vec![attribute]).expect_err(what);
        assert!(error.contains(what), "{error}");
    };
    refused(int("sliding_window_cache", 1), "sliding_window_cache");
    refused(int("local_window_size", 0), "local_window_size");
    refused(int("smooth_softmax", 1), "smooth_softmax");
    refused(int("kv_cache", 1), "kv_cache");
    refused(AttributeProto::string("k_quant_type", "PER_TENSOR"), "k_quant_type");
    let both = vec![int("causal", 0), int("local_window_size", 2)];
    assert!(step(&[1, 3, 2], both).expect_err("both sides").contains("causal"));
    assert!(step(&[1, 3, 2], vec![int("smooth_softmax", -1)]).is_ok());
    assert_eq!(step(&[1, 0, 2], vec![]).expect("no query")[0].shape().dims(), [1, 0, 2]);
}

#[test]
fn packed_queries_divide_into_heads() {
    let node = NodeProto::of("GroupQueryAttention", &["q", "", "", "", "", "last", "total"], &["y"]);
    let node =
        NodeProto { domain: "com.microsoft".into(), ..node }.with(int("num_heads", 1)).with(int("kv_num_heads", 1));
    let lengths = |name: &str, value: i32| TensorProto::raw(name, data_type::INT32, &[1], value.to_le_bytes().to_vec());
    let inputs = vec![Given::of("q", &[1, 2, 10]).message(), lengths("last", 1), lengths("total", 2)];
    assert!(answers(node, inputs).expect_err("ten of three").contains("cannot be divided"));
}

#[test]
fn positions_count_from_the_front() {
    for (domain, order) in [("", ["x", "cos", "sin", "at"]), ("com.microsoft", ["x", "at", "cos", "sin"])] {
        let node = NodeProto { domain: domain.into(), ..NodeProto::of("RotaryEmbedding", &order, &["y"]) };
        let turned = |at: i64| {
            let positions = TensorProto::i64s("at", &[1, 2], &[0, at]);
            let angles = ["cos", "sin"].map(|name| Given::of(name, &[6, 2]).message());
            answers(node.clone(), [&angles[..], &[positions, Given::of("x", &[1, 3, 2, 4]).message()]].concat())
        };
        assert!(turned(5).is_ok());
        for outside in [-1, -6, 6, i64::MIN] {
            turned(outside).expect_err("no such position");
        }
    }
}

#[test]
fn a_mask_of_one_key_leaves_the_others_out() {
    let past = [Given::of("pk", &[1, 1, 3, DEPTH]), Given::of("pv", &[1, 1, 3, DEPTH])];
    let new = ["q", "k", "v"].map(|name| Given::of(name, &[1, 1, 1, DEPTH]));
    let mask = TensorProto::f32s("m", &[1, 1], &[0.0]);
    let inputs = new.iter().chain(&past).map(Given::message).chain([mask]).collect();
    let made = answers(NodeProto::of("Attention", &["q", "k", "v", "m", "pk", "pv"], &["y"]), inputs).expect("sound");
    let first: Vec<f64> = (0..DEPTH).map(|feature| past[1].at(&[0, 0, 0, feature])).collect();
    near(&elements(&made[0]), &first, "the first value");
}
