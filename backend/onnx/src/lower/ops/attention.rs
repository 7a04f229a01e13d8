//! Scaled dot-product attention as one operator, decomposed into products, a softmax and element-wise steps.

use super::cached::{Lengths, attended, is_cached, judged};
use super::matmul::multiplied;
use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Attention, Binary, Domain, PadMode, ReduceKind, Unary};

pub(super) const TABLE: &[Entry] = &[("Attention", attention)];

/// Queries `[b, h, s, d]`, keys `[b, g, t, d]` and values `[b, g, t, e]`; each of the `g` key heads serves `h / g`
/// consecutive query heads.
struct Heads {
    queries: View,
    keys: View,
    values: View,
    /// Number of keys and values from earlier calls.
    past: usize,
}

fn attention(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let heads = Heads::read(operator, builder)?;
    let cached = heads.past > 0 || operator.optional(6).is_some();
    if cached && is_cached(heads.queries.dtype()) && !operator.wants(3) {
        return over_cache(operator, builder, heads);
    }
    let &[batch, query_heads, length, depth] = heads.queries.dims() else { return Err(Fault::missing(0)) };
    let &[_, key_heads, total, _] = heads.keys.dims() else { return Err(Fault::missing(1)) };
    let value_depth = heads.values.dims()[3];
    let sharing = query_heads / key_heads.max(1);

    // With an axis for the query heads that share a key head, if several do.
    let shared = |own: usize, matrix: [usize; 2]| match sharing {
        1 => [&[batch, key_heads][..], &matrix].concat(),
        _ => [&[batch, key_heads, own][..], &matrix].concat(),
    };
    let queries = heads.queries.reshaped(shared(sharing, [length, depth]))?;
    let keys = builder.transposed(&heads.keys, &[0, 1, 3, 2])?.reshaped(shared(1, [depth, total]))?;
    let values = heads.values.reshaped(shared(1, [total, value_depth]))?;

    let scores = multiplied(builder, &queries, &keys)?.reshaped(vec![batch, query_heads, length, total])?;
    let options = ScoreOptions::read(operator, depth)?;
    let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
    let scaled = builder.map(domain, [&scores], dtype, |[score]| score * options.scale)?;
    let capped = capped(builder, &scaled, options.cap)?;
    let (masked, bias) = masked(operator, builder, &capped, heads.past)?;
    let mut weights = normalized(builder, &masked, 3, false)?;
    if let Some(bias) = bias {
        weights = zero_where_nothing(builder, &weights, &bias)?;
    }
    let shown = [scaled, capped, masked, weights.clone()];
    let mode = operator.size("qk_matmul_output_mode", 0, 0)?;
    let shown = shown.into_iter().nth(mode).ok_or_else(|| Fault::attribute("qk_matmul_output_mode", mode, "0 to 3"))?;
    let weights = weights.reshaped(shared(sharing, [length, total]))?;
    let result = multiplied(builder, &weights, &values)?.reshaped(vec![batch, query_heads, length, value_depth])?;
    let result = if operator.input(0)?.rank() == 3 {
        let moved = builder.transposed(&result, &[0, 2, 1, 3])?;
        moved.reshaped(vec![batch, length, query_heads.saturating_mul(value_depth)])?
    } else {
        result
    };
    Ok(vec![result, heads.keys, heads.values, shown])
}

/// Attention without an output of scores, in one pass over the keys and values of earlier calls.
fn over_cache(operator: &Operator<'_>, builder: &mut Builder, heads: Heads) -> Result<Vec<View>, Fault> {
    let &[batch, query_heads, length, depth] = heads.queries.dims() else { return Err(Fault::missing(0)) };
    let (total, wide) = (heads.keys.dims()[2], heads.values.dims()[3]);
    let lengths = match operator.optional(6) {
        None => Lengths::known(builder, batch, [heads.past, total])?,
        Some(_) => {
            let filled = nonpad(operator, builder, batch, total)?;
            let first = builder.map(Domain::I64, [&filled], DType::I64, |[filled]| filled - length as f64)?;
            Lengths { first, filled }
        }
    };
    let bias = operator.optional(3).map(|_| summands(builder, operator.ranked(3, 1)?, total)).transpose()?;
    let reach = |name| Ok::<_, Fault>(usize::try_from(operator.int(name, -1)?).ok());
    let causal = operator.flag("is_causal", false)?.then_some(0);
    let options = ScoreOptions::read(operator, depth)?;
    let op = Attention {
        scale: options.scale as f32,
        cap: options.cap as f32,
        before: reach("left_window_size")?,
        after: causal.or(reach("right_window_size")?),
        bias: bias.is_some(),
        expected: total,
    };
    let parts = [&heads.queries, &heads.keys, &heads.values];
    let made = attended(builder, op, parts, &lengths, bias.as_ref())?;
    let result = if operator.input(0)?.rank() == 3 {
        made.reshaped(vec![batch, length, query_heads.saturating_mul(wide)])?
    } else {
        builder.transposed(&made, &[0, 2, 1, 3])?
    };
    Ok(vec![result, heads.keys, heads.values])
}

/// A mask as summands of scores: −∞ for keys that it leaves out. Keys beyond a shorter mask are left out.
fn summands(builder: &mut Builder, mask: &View, total: usize) -> Result<View, Fault> {
    let summands = match mask.dtype() {
        DType::Bool => builder.map(Domain::F32, [mask], DType::F32, |[seen]| seen.select(0.0, f64::NEG_INFINITY))?,
        _ => mask.clone(),
    };
    let mut dims = summands.dims().to_vec();
    match dims.last_mut() {
        // The kernel would broadcast it over all keys.
        Some(keys @ 1) if total > 1 => {
            *keys = 2;
            let mode = PadMode::Constant(f64::NEG_INFINITY.into());
            builder.padded(&summands, mode, vec![0; dims.len()], dims)
        }
        _ => Ok(summands),
    }
}

/// Modifications of the scores.
struct ScoreOptions {
    scale: f64,
    /// Bound towards which scores are bent; 0 for none.
    cap: f64,
}

impl ScoreOptions {
    fn read(operator: &Operator<'_>, depth: usize) -> Result<Self, Fault> {
        let scale = operator.node.float("scale")?.map_or(1.0 / (depth as f64).sqrt(), f64::from);
        Ok(Self { scale, cap: f64::from(operator.float("softcap", 0.0)?.max(0.0)) })
    }
}

impl Heads {
    fn read(operator: &Operator<'_>, builder: &mut Builder) -> Result<Self, Fault> {
        let dtype = operator.float_input(0)?.dtype();
        let query_heads = operator.size("q_num_heads", 1, 0)?;
        let key_heads = operator.size("kv_num_heads", 1, query_heads)?;
        let mut parts = Vec::with_capacity(3);
        for (index, heads) in [(0, query_heads), (1, key_heads), (2, key_heads)] {
            parts.push(by_head(builder, operator.typed(index, dtype)?, heads)?);
        }
        let [queries, mut keys, mut values] = <[View; 3]>::try_from(parts).map_err(|_| Fault::missing(2))?;
        let mut past = 0;
        if operator.optional(4).is_some() || operator.optional(5).is_some() {
            let (old_keys, old_values) = (operator.typed(4, dtype)?, operator.typed(5, dtype)?);
            past = old_keys.dims().get(2).copied().unwrap_or(0);
            keys = concatenated_past(builder, old_keys, &keys)?;
            values = concatenated_past(builder, old_values, &values)?;
        }
        let (q, k, v) = (queries.dims(), keys.dims(), values.dims());
        let fits = q[0] == k[0] && k[..3] == v[..3] && q[3] == k[3] && k[1] > 0 && q[1].is_multiple_of(k[1]);
        if !fits {
            let (q, k, v) = (queries.shape(), keys.shape(), values.shape());
            return Err(Fault::invalid(format!("queries of {q}, keys of {k} and values of {v} do not match")));
        }
        Ok(Self { queries, keys, values, past })
    }
}

/// Returns `[b, t, heads · d]` as `[b, heads, t, d]`; a view of four dimensions stays unchanged.
pub(super) fn by_head(builder: &mut Builder, x: &View, heads: usize) -> Result<View, Fault> {
    match *x.dims() {
        [_, _, _, _] => Ok(x.clone()),
        [batch, length, width] if heads > 0 && width.is_multiple_of(heads) => {
            builder.transposed(&x.reshaped(vec![batch, length, heads, width / heads])?, &[0, 2, 1, 3])
        }
        _ => Err(Fault::invalid(format!("an input of shape {} cannot be divided into {heads} heads", x.shape()))),
    }
}

/// Appends `new` to `old`, along time.
pub(super) fn concatenated_past(builder: &mut Builder, old: &View, new: &View) -> Result<View, Fault> {
    let fits = old.rank() == 4 && [0, 1, 3].iter().all(|axis| old.dims()[*axis] == new.dims()[*axis]);
    if !fits {
        return Err(Fault::invalid(format!("{} cannot follow {}", new.shape(), old.shape())));
    }
    builder.concatenated(&[old.clone(), new.clone()], 2)
}

/// Limits the scores by the soft cap, if it is not 0.
fn capped(builder: &mut Builder, scores: &View, cap: f64) -> Result<View, Fault> {
    if cap == 0.0 {
        return Ok(scores.clone());
    }
    builder.map(domain_of(scores.dtype()), [scores], scores.dtype(), |[score]| (score / cap).apply(Unary::Tanh) * cap)
}

/// Adds the mask to the scores, and −∞ for keys that a query must not see.
///
/// These are later keys if the attention is causal, keys outside its window, and padding. If a query may be left
/// without keys, also returns the added bias by itself.
fn masked(
    operator: &Operator<'_>,
    builder: &mut Builder,
    scores: &View,
    past: usize,
) -> Result<(View, Option<View>), Fault> {
    let (total, domain, dtype) = (scores.dims()[3], domain_of(scores.dtype()), scores.dtype());
    let windows = [window(operator, "left_window_size")?, window(operator, "right_window_size")?];
    let causal = operator.flag("is_causal", false)?.then_some(0.0);
    let filled = filled_keys(operator, builder, [scores.dims()[0], total])?;
    let mut results = vec![scores.clone()];
    if operator.optional(3).is_some() || filled.is_some() || windows[0].is_some() {
        results.push(builder.scalar(dtype, 0.0)?.reshaped(vec![1; 4])?);
    }
    if operator.optional(3).is_some() {
        let mask = full_mask(operator, builder, total)?;
        mask.shape().broadcast_strides(scores.shape())?;
        for result in &mut results {
            *result = builder.map(domain, [result, &mask], dtype, |[score, seen]| match mask.dtype() {
                DType::Bool => seen.select(score, f64::NEG_INFINITY),
                _ => score + seen,
            })?;
        }
    }
    if filled.is_some() || causal.is_some() || windows != [None; 2] {
        let keys = builder.indices(DType::F32, total, 3, 4)?;
        let queries = positions(builder, scores.dims()[2], filled.as_ref(), past)?;
        for result in &mut results {
            *result = within(builder, result, [&queries, &keys], filled.as_ref(), [windows[0], causal, windows[1]])?;
        }
    }
    let mut results = results.into_iter();
    let scores = results.next().ok_or_else(|| Fault::missing(0))?;
    Ok((scores, results.next()))
}

/// Adds −∞ for padding, and for keys too far from the query by their positions: `before` on the left, the other
/// distance on the right.
pub(super) fn within(
    builder: &mut Builder,
    scores: &View,
    [queries, keys]: [&View; 2],
    filled: Option<&View>,
    [before, causal, after]: [Option<f64>; 3],
) -> Result<View, Fault> {
    let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
    let mut result = scores.clone();
    if let Some(filled) = filled {
        result = builder.map(domain, [&result, keys, filled], dtype, |[score, key, filled]| {
            key.with(Binary::Less, filled).select(score, f64::NEG_INFINITY)
        })?;
    }
    for most in [causal, after].into_iter().flatten() {
        result = builder.map(domain, [&result, queries, keys], dtype, |[score, query, key]| {
            key.with(Binary::LessOrEqual, query + most).select(score, f64::NEG_INFINITY)
        })?;
    }
    if let Some(most) = before {
        result = builder.map(domain, [&result, queries, keys], dtype, |[score, query, key]| {
            query.with(Binary::LessOrEqual, key + most).select(score, f64::NEG_INFINITY)
        })?;
    }
    Ok(result)
}

/// Returns the largest distance of a key from a query on one side.
fn window(operator: &Operator<'_>, name: &'static str) -> Result<Option<f64>, Fault> {
    Ok(Some(operator.int(name, -1)?).filter(|most| *most >= 0).map(|most| most as f64))
}

/// Returns the number of keys without padding for each element of the batch, as `[batch, 1, 1, 1]`.
fn filled_keys(
    operator: &Operator<'_>,
    builder: &mut Builder,
    [batch, total]: [usize; 2],
) -> Result<Option<View>, Fault> {
    if operator.optional(6).is_none() {
        return Ok(None);
    }
    let filled = nonpad(operator, builder, batch, total)?.reshaped(vec![batch, 1, 1, 1])?;
    builder.as_f32(&filled).map(Some)
}

/// Returns the stated number of keys without padding of each row, which the run judges. The queries of a row end with
/// its last key: if they are more than its keys, the first ones stand before all keys, and causal ones see none.
fn nonpad(operator: &Operator<'_>, builder: &mut Builder, batch: usize, total: usize) -> Result<View, Fault> {
    let filled = operator.typed(6, DType::I64)?.reshaped(vec![batch])?;
    judged(builder, &filled, "nonpad_kv_seqlen", 0..=total)
}

/// Returns the positions of the queries among the keys: after past keys, or the last keys without padding.
pub(super) fn positions(
    builder: &mut Builder,
    length: usize,
    filled: Option<&View>,
    past: usize,
) -> Result<View, Fault> {
    let queries = builder.indices(DType::F32, length, 2, 4)?;
    match filled {
        None => builder.map(Domain::F32, [&queries], DType::F32, |[query]| query + past as f64),
        Some(filled) => builder.map(Domain::F32, [&queries, filled], DType::F32, |[query, filled]| {
            let first = filled - length as f64;
            query + first
        }),
    }
}

/// Returns the mask over all keys; keys beyond a shorter mask are left out.
fn full_mask(operator: &Operator<'_>, builder: &mut Builder, total: usize) -> Result<View, Fault> {
    let mask = operator.ranked(3, 1)?;
    let own = mask.dims()[mask.rank() - 1];
    if own >= total {
        return Ok(mask.clone());
    }
    let fill = if mask.dtype() == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let mut dims = mask.dims().to_vec();
    dims[mask.rank() - 1] = total;
    builder.padded(mask, PadMode::Constant(fill.into()), vec![0; mask.rank()], dims)
}

/// Gives weights of 0, instead of 0/0, to a query without keys, to all of whose scores −∞ is added.
fn zero_where_nothing(builder: &mut Builder, weights: &View, bias: &View) -> Result<View, Fault> {
    let most = builder.reduced(bias, ReduceKind::Max, &[3])?;
    builder.map(domain_of(weights.dtype()), [weights, &most], weights.dtype(), |[x, most]| {
        most.with(Binary::Equal, f64::NEG_INFINITY).select(0.0, x)
    })
}
