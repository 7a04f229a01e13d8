//! Scaled dot-product attention as one operator, decomposed into products, a softmax and element-wise steps.

use super::matmul::multiplied;
use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, PadMode, Unary};

pub(super) const TABLE: &[Entry] = &[("Attention", attention)];

/// Queries `[b, h, s, d]`, keys `[b, g, t, d]` and values `[b, g, t, e]`; each of the `g` key heads serves `h / g`
/// consecutive query heads.
struct Heads {
    queries: View,
    keys: View,
    values: View,
    /// Keys and values that come from earlier calls.
    past: usize,
}

fn attention(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    refuse_rarities(operator)?;
    let heads = Heads::read(operator, builder)?;
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
    let scores = scaled(operator, builder, &scores, depth)?;
    let scores = masked(operator, builder, &scores, heads.past)?;
    let mut weights = normalized(builder, &scores, 3, false)?;
    if operator.optional(3).is_some() {
        weights = zero_where_nothing(builder, &weights)?;
    }
    let weights = weights.reshaped(shared(sharing, [length, total]))?;
    let result = multiplied(builder, &weights, &values)?.reshaped(vec![batch, query_heads, length, value_depth])?;
    let result = if operator.input(0)?.rank() == 3 {
        let moved = builder.transposed(&result, &[0, 2, 1, 3])?;
        moved.reshaped(vec![batch, length, query_heads.saturating_mul(value_depth)])?
    } else {
        result
    };
    Ok(vec![result, heads.keys, heads.values])
}

fn refuse_rarities(operator: &Operator<'_>) -> Result<(), Fault> {
    operator.only_outputs(3, "qk_matmul_output")?;
    if operator.optional(6).is_some() {
        return Err(Fault::unsupported("lengths of keys without padding"));
    }
    if operator.int("left_window_size", -1)? >= 0 || operator.int("right_window_size", -1)? >= 0 {
        return Err(Fault::unsupported("a sliding window"));
    }
    Ok(())
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
            keys = continued(builder, old_keys, &keys)?;
            values = continued(builder, old_values, &values)?;
        }
        let (q, k, v) = (queries.dims(), keys.dims(), values.dims());
        let fits = q[0] == k[0] && k[..3] == v[..3] && q[3] == k[3] && k[1] > 0 && q[1].is_multiple_of(k[1]);
        if !fits {
            let (q, k, v) = (queries.shape(), keys.shape(), values.shape());
            return Err(Fault::invalid(format!("queries of {q}, keys of {k} and values of {v} do not go together")));
        }
        Ok(Self { queries, keys, values, past })
    }
}

/// `[b, t, heads · d]` as `[b, heads, t, d]`; four dimensions as they are.
fn by_head(builder: &mut Builder, x: &View, heads: usize) -> Result<View, Fault> {
    match *x.dims() {
        [_, _, _, _] => Ok(x.clone()),
        [batch, length, width] if heads > 0 && width.is_multiple_of(heads) => {
            builder.transposed(&x.reshaped(vec![batch, length, heads, width / heads])?, &[0, 2, 1, 3])
        }
        _ => Err(Fault::invalid(format!("an input of shape {} does not divide into {heads} heads", x.shape()))),
    }
}

/// `new` after `old`, along time.
fn continued(builder: &mut Builder, old: &View, new: &View) -> Result<View, Fault> {
    let fits = old.rank() == 4 && [0, 1, 3].iter().all(|axis| old.dims()[*axis] == new.dims()[*axis]);
    if !fits {
        return Err(Fault::invalid(format!("{} cannot follow {}", new.shape(), old.shape())));
    }
    builder.concatenated(&[old.clone(), new.clone()], 2)
}

/// The scores times the scale, bent towards the cap if there is one.
fn scaled(operator: &Operator<'_>, builder: &mut Builder, scores: &View, depth: usize) -> Result<View, Fault> {
    let scale = operator.node.float("scale")?.map_or(1.0 / (depth as f64).sqrt(), f64::from);
    let cap = f64::from(operator.float("softcap", 0.0)?);
    builder.map(domain_of(scores.dtype()), [scores], scores.dtype(), |[score]| {
        let scaled = score * scale;
        if cap > 0.0 { (scaled / cap).apply(Unary::Tanh) * cap } else { scaled }
    })
}

/// The scores with the mask added, and with what comes later than the query left out if the attention is causal.
fn masked(operator: &Operator<'_>, builder: &mut Builder, scores: &View, past: usize) -> Result<View, Fault> {
    let (total, domain) = (scores.dims()[3], domain_of(scores.dtype()));
    let mut result = scores.clone();
    if operator.optional(3).is_some() {
        let mask = full_mask(operator, builder, total)?;
        mask.shape().broadcast_strides(scores.shape())?;
        result = builder.map(domain, [&result, &mask], scores.dtype(), |[score, seen]| match mask.dtype() {
            DType::Bool => seen.select(score, f64::NEG_INFINITY),
            _ => score + seen,
        })?;
    }
    if operator.flag("is_causal", false)? {
        let queries = builder.indices(DType::F32, scores.dims()[2], 2, 4)?;
        let keys = builder.indices(DType::F32, total, 3, 4)?;
        result = builder.map(domain, [&result, &queries, &keys], scores.dtype(), |[score, query, key]| {
            key.with(Binary::LessOrEqual, query + past as f64).select(score, f64::NEG_INFINITY)
        })?;
    }
    Ok(result)
}

/// The mask over all keys; those that a shorter one does not name are left out.
fn full_mask(operator: &Operator<'_>, builder: &mut Builder, total: usize) -> Result<View, Fault> {
    let mask = operator.ranked(3, 1)?;
    let own = mask.dims()[mask.rank() - 1];
    if own >= total || own == 1 {
        return Ok(mask.clone());
    }
    let fill = if mask.dtype() == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let mut dims = mask.dims().to_vec();
    dims[mask.rank() - 1] = total;
    builder.padded(mask, PadMode::Constant(fill), vec![0; mask.rank()], dims)
}

/// A query that may look at no key has weights of 0 rather than 0/0.
fn zero_where_nothing(builder: &mut Builder, weights: &View) -> Result<View, Fault> {
    builder.map(domain_of(weights.dtype()), [weights], weights.dtype(), |[x]| x.apply(Unary::IsNan).select(0.0, x))
}
