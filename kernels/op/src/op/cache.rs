//! Operations of models that keep keys and values from call to call: lengths are data, shapes are capacities.
//!
//! A cache is a tensor `[batch, heads, capacity, depth]`. Each row of the batch has a length, the number of its valid
//! positions. Lengths are data: no shape, and so no plan, depends on them.

use super::{NodeSpec, Op};
use crate::dtype::DType;
use crate::error::KernelError;
use serde::{Deserialize, Serialize};

/// Attention of queries over a cache (Vaswani et al. 2017, section 3.2.1), with heads of queries that share heads of
/// keys and values.
///
/// Inputs: queries `[b, h, s, d]` `f32`; keys `[b, g, c, d]` and values `[b, g, c, e]`, both `f32`, `f16` or `bf16`,
/// where `g` divides `h`; for each row of the batch the position of its first query among the keys, which may be
/// negative, and the number of its keys, `0..=c`, both `i64`; with `bias` summands of the scores
/// `[b or 1, h or 1, s or 1, t]` `f32`, where keys from `t` on are left out unless `t` is 1. A key whose summand is −∞
/// is left out, also if its score is NaN; its value must be finite. Output: `[b, s, h, e]` `f32`; zeros for a query
/// that sees no key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f32,
    /// Bound towards which scores are bent by the hyperbolic tangent; 0 for none.
    pub cap: f32,
    /// Number of keys before its own position that a query sees; all if `None`.
    pub before: Option<usize>,
    /// Number of keys after its own position that a query sees; all if `None`, and none (causal attention) if 0.
    pub after: Option<usize>,
    /// Whether scores have summands.
    pub bias: bool,
    /// Number of keys that costs count: a run may have any other up to the capacity.
    pub expected: usize,
}

/// New positions written into a cache.
///
/// Inputs: the cache `[b, n, c, d]`; new positions `[b, n, s, d]`; for each row of the batch the position at which its
/// new ones begin, `i64`. Output: `[b, n, c', d]` with `c' ≥ c`, zeros beyond the cache. All of one type, but new
/// positions in `f32` are rounded to a cache in `f16` or `bf16`: to the nearest, with ties to even. The output may lie
/// in the cache's memory ([`NodeSpec::in_place`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Append {
    /// Positions beyond the end continue at the beginning; otherwise they are refused when the node runs.
    pub circular: bool,
}

/// Rotary position embedding (Su et al. 2021, section 3.2): pairs of features turned by angles that grow with the
/// position.
///
/// Inputs: X `[b, h, s, d]`, or `[b, s, h, d]` unless `by_head`; cosines and sines `[positions, r]` with `2 · r ≤ d`,
/// all `f32`; positions, `i64`: `b · s`, or `b` first ones, which the others follow. Output: `[b, h, s, d]`. Features
/// from `2 · r` on stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotary {
    /// Pairs are neighbours; otherwise they stand `r` features apart.
    pub interleaved: bool,
    /// Heads come before positions in X.
    pub by_head: bool,
}

/// Lengths that a model states for the rows of a batch, and that a run must judge before it believes them.
///
/// Input: any number of `i64`. Output: the same. The node fails if one is not in `least..=most`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    /// The model's name for the lengths.
    pub name: String,
    /// The least length.
    pub least: i64,
    /// The greatest length.
    pub most: i64,
}

/// Sizes of an [`Attention`].
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct AttentionSizes {
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub shared: usize,
    pub queries: usize,
    pub capacity: usize,
    /// Features of a query and of a key.
    pub depth: usize,
    /// Features of a value.
    pub width: usize,
}

impl NodeSpec {
    /// The input whose memory an output may take, and that output: the kernel is then given no bytes of the input.
    pub const fn in_place(&self) -> Option<(usize, usize)> {
        if matches!(self.op, Op::Append(_)) { Some((0, 0)) } else { None }
    }

    /// Returns the sizes of an [`Attention`], or `None` if its operands have other ranks.
    #[doc(hidden)]
    pub fn attention_sizes(&self) -> Option<AttentionSizes> {
        let dims = |input: usize| <[usize; 4]>::try_from(self.inputs.get(input)?.shape.dims()).ok();
        let ([batch, heads, queries, depth], [_, shared, capacity, _]) = (dims(0)?, dims(1)?);
        let [.., width] = dims(2)?;
        Some(AttentionSizes { batch, heads, shared, queries, capacity, depth, width })
    }

    pub(super) fn check_attention(&self, op: &Attention) -> Result<(), KernelError> {
        let Some(sizes) = self.attention_sizes() else {
            return Err(self.invalid("required: its queries, keys and values have four dimensions"));
        };
        let AttentionSizes { batch, heads, shared, queries, capacity, depth, width } = sizes;
        let (keys, values) = (&self.inputs[1], &self.inputs[2]);
        let cached = *keys.shape.dims() == [batch, shared, capacity, depth]
            && *values.shape.dims() == [batch, shared, capacity, width];
        self.require(cached, "its keys and values have a batch and heads in common")?;
        self.require(shared > 0 && heads % shared == 0, "its heads of keys divide those of queries")?;
        let stored = matches!(keys.dtype, DType::F32 | DType::F16 | DType::BF16) && keys.dtype == values.dtype;
        let floats = self.inputs[0].dtype == DType::F32 && self.outputs[0].dtype == DType::F32;
        self.require(stored && floats, "its keys and values are f32, f16 or bf16, all else f32")?;
        self.require(self.inputs[3..5].iter().all(|of| is_list(of, batch)), "each row has a position and a length")?;
        if let Some(bias) = self.inputs.get(5) {
            let fits = |dims: &[usize]| {
                dims.len() == 4 && dims.iter().zip([batch, heads, queries]).all(|(own, all)| *own == 1 || *own == all)
            };
            let sound = bias.dtype == DType::F32 && fits(bias.shape.dims());
            self.require(sound, "its summands are f32 and broadcast over its scores")?;
        }
        let sound = op.scale.is_finite() && op.cap.is_finite() && op.cap >= 0.0;
        self.require(sound, "its scale and cap are finite")?;
        let made = [queries, heads, width].iter().try_fold(batch, |product, size| product.checked_mul(*size));
        self.require(made == Some(self.outputs[0].shape.elements()), "its output has each query's values")
    }

    pub(super) fn check_append(&self) -> Result<(), KernelError> {
        let dims = |tensor: &crate::TensorSpec| <[usize; 4]>::try_from(tensor.shape.dims()).ok();
        let [cache, new, starts] = &self.inputs[..] else { return Err(self.invalid("required: it has three inputs")) };
        let (Some([b, n, c, d]), Some([rows, lists, s, run]), Some(made)) =
            (dims(cache), dims(new), dims(&self.outputs[0]))
        else {
            return Err(self.invalid("required: its tensors have four dimensions"));
        };
        let is_rounded = new.dtype == DType::F32 && matches!(cache.dtype, DType::F16 | DType::BF16);
        let same = (new.dtype == cache.dtype || is_rounded) && self.outputs[0].dtype == cache.dtype;
        self.require(same, "its tensors are of one type, or f32 is appended to f16 or bf16")?;
        let fits = [rows, lists, run] == [b, n, d] && [made[0], made[1], made[3]] == [b, n, d] && made[2] >= c.max(s);
        self.require(fits, "its new positions fit into the output")?;
        self.require(is_list(starts, b), "each row has a position")
    }

    pub(super) fn check_rotary(&self) -> Result<(), KernelError> {
        let (x, angles) = (self.inputs[0].shape.dims(), self.inputs[1].shape.dims());
        let (&[batch, .., depth], &[_, pairs]) = (x, angles) else {
            return Err(self.invalid("required: it turns four dimensions by angles of two"));
        };
        let sound =
            x.len() == 4 && self.inputs[1] == self.inputs[2] && pairs.checked_mul(2).is_some_and(|of| of <= depth);
        self.require(sound, "its cosines and sines are as many, and at most half the features")?;
        let floats = self.inputs[..3].iter().chain(&self.outputs).all(|of| of.dtype == DType::F32);
        self.require(floats, "all but its positions are f32")?;
        let all = batch.saturating_mul(self.rotary_length());
        let positions = &self.inputs[3];
        self.require(is_list(positions, batch) || is_list(positions, all), "each row has a position")?;
        self.require(self.outputs[0].shape.elements() == self.inputs[0].shape.elements(), "its output has X's elements")
    }

    pub(super) fn check_length(&self) -> Result<(), KernelError> {
        let sound = self.inputs[0].dtype == DType::I64 && self.inputs[0] == self.outputs[0];
        self.require(sound, "it judges i64")
    }

    /// Positions of each row of the batch of a [`Rotary`].
    #[doc(hidden)]
    pub fn rotary_length(&self) -> usize {
        let by_head = matches!(&self.op, Op::Rotary(op) if op.by_head);
        self.inputs.first().and_then(|x| x.shape.dims().get(if by_head { 2 } else { 1 })).copied().unwrap_or(0)
    }

    /// Operations of an [`Attention`] over as many keys as it expects.
    pub(super) fn attention_flops(&self) -> f64 {
        let (Op::Attention(op), Some(sizes)) = (&self.op, self.attention_sizes()) else { return 0.0 };
        let scores = (sizes.batch * sizes.heads * sizes.queries) as f64 * self.seen(op, &sizes);
        scores * (2.0 * (sizes.depth + sizes.width) as f64 + 5.0)
    }

    /// Bytes of keys and values that an [`Attention`] over as many keys as it expects reads.
    pub(super) fn attention_bytes(&self) -> f64 {
        let (Op::Attention(op), Some(sizes)) = (&self.op, self.attention_sizes()) else { return 0.0 };
        let reach = op.before.map_or(f64::INFINITY, |before| (before + sizes.queries) as f64);
        let keys = (op.expected as f64).min(reach);
        let size = self.inputs[1].dtype.size() as f64;
        (sizes.batch * sizes.shared) as f64 * keys * (sizes.depth + sizes.width) as f64 * size
    }

    /// Keys that a query sees on average.
    fn seen(&self, op: &Attention, sizes: &AttentionSizes) -> f64 {
        let all = op.expected as f64;
        let causal = if op.after == Some(0) { all - (sizes.queries.saturating_sub(1)) as f64 / 2.0 } else { all };
        causal.min(op.before.map_or(f64::INFINITY, |before| (before + 1) as f64)).max(0.0)
    }
}

/// Whether a tensor has so many positions or lengths.
fn is_list(tensor: &crate::TensorSpec, count: usize) -> bool {
    tensor.dtype == DType::I64 && tensor.shape.elements() == count
}
