//! Attention whose scores and weights pass through graphs of the model: `g(softmax(f(scale · Q Kᵀ))) V`.

use super::Lowering;
use super::builder::Builder;
use super::control::Lowered;
use super::error::LowerError;
use super::expression::domain_of;
use super::operator::Operator;
use super::ops::{element_of, multiplied, normalized};
use super::view::View;
use crate::control::Wrong;
use crate::host_operators::Fault;
use crate::import::Node;
use anabranch_kernels::DType;

/// The operator that this file lowers, of the domain `ai.onnx.preview`.
pub(super) const FLEXIBLE: &str = "FlexAttention";

/// Whether a node is this operator.
pub(super) fn is_flexible(node: &Node) -> bool {
    node.domain == "ai.onnx.preview" && node.op_type == FLEXIBLE
}

/// Queries, keys and values with an axis for the query heads that share a key head.
struct Heads {
    /// Shapes `[b, g, h / g, s, d]`, `[b, g, 1, d, t]` and `[b, g, 1, t, e]`.
    queries: View,
    keys: View,
    values: View,
    /// Shape `[b, h, s, t]` of the scores.
    scores: [usize; 4],
    /// Type of scores and weights.
    precision: DType,
}

impl<'a> Lowering<'a> {
    /// Lowers such an operator and returns its outputs.
    pub(super) fn flexible(&mut self, node: &'a Node, operator: &Operator<'a>) -> Lowered {
        let heads = Heads::read(operator, &mut self.builder)?;
        let scores = heads.scored(operator, &mut self.builder)?;
        let scores = self.through(node, "score_mod", scores)?;
        let weights = normalized(&mut self.builder, &scores, 3, false)?;
        let weights = self.through(node, "prob_mod", weights)?;
        let result = heads.weighted(&mut self.builder, &weights)?;
        Ok(vec![self.builder.cast(&result, operator.input(0)?.dtype())?])
    }

    /// Passes a view through an attribute's graph, which keeps type and shape; returns the view itself without a graph.
    fn through(&mut self, node: &'a Node, name: &str, view: View) -> Result<View, Wrong<LowerError>> {
        if node.attribute(name).is_none() {
            return Ok(view);
        }
        let spec = view.spec.clone();
        let views = self.graph(node.graph(name)?, vec![view])?;
        match &views[..] {
            [made] if made.spec == spec => Ok(made.clone()),
            [made] => Err(Fault::invalid(format!("its {name} returns {} for {spec}", made.spec)).into()),
            _ => Err(Fault::invalid(format!("its {name} has {} outputs, but must have one", views.len())).into()),
        }
    }
}

impl Heads {
    fn read(operator: &Operator<'_>, builder: &mut Builder) -> Result<Self, Fault> {
        let dtype = operator.float_input(0)?.dtype();
        let (q, k, v) = (operator.input(0)?, operator.typed(1, dtype)?, operator.typed(2, dtype)?);
        let wrong = || {
            let (q, k, v) = (q.shape(), k.shape(), v.shape());
            Fault::invalid(format!("queries of {q}, keys of {k} and values of {v} do not match"))
        };
        let (&[batch, heads, length, depth], &[_, key_heads, total, _]) = (q.dims(), k.dims()) else {
            return Err(wrong());
        };
        let &[_, _, _, width] = v.dims() else { return Err(wrong()) };
        let fits = k.dims() == [batch, key_heads, total, depth] && v.dims()[..3] == k.dims()[..3];
        if !fits || key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return Err(wrong());
        }
        let precision = match operator.node.int("softmax_precision")? {
            Some(code) => element_of(code)?,
            None if dtype == DType::F64 => DType::F64,
            None => DType::F32,
        };
        if !precision.is_float() {
            return Err(Fault::attribute("softmax_precision", precision, "a floating-point type"));
        }
        let (queries, keys, values) = (builder.as_working(q)?, builder.as_working(k)?, builder.as_working(v)?);
        let keys = builder.transposed(&keys, &[0, 1, 3, 2])?;
        Ok(Self {
            queries: queries.reshaped(vec![batch, key_heads, heads / key_heads, length, depth])?,
            keys: keys.reshaped(vec![batch, key_heads, 1, depth, total])?,
            values: values.reshaped(vec![batch, key_heads, 1, total, width])?,
            scores: [batch, heads, length, total],
            precision,
        })
    }

    /// Returns `scale · Q Kᵀ`.
    fn scored(&self, operator: &Operator<'_>, builder: &mut Builder) -> Result<View, Fault> {
        let depth = self.keys.dims()[3];
        let scale = operator.node.float("scale")?.map_or(1.0 / (depth as f64).sqrt(), f64::from);
        let scores = multiplied(builder, &self.queries, &self.keys)?.reshaped(self.scores)?;
        let double = [scores.dtype(), self.precision].contains(&DType::F64);
        let work = if double { DType::F64 } else { DType::F32 };
        builder.map(domain_of(work), [&scores], self.precision, |[score]| score * scale)
    }

    /// Returns the weights times the values.
    fn weighted(&self, builder: &mut Builder, weights: &View) -> Result<View, Fault> {
        let [batch, heads, length, total] = self.scores;
        let (key_heads, width) = (self.values.dims()[1], self.values.dims()[4]);
        let weights = builder.cast(weights, self.values.dtype())?;
        let weights = weights.reshaped(vec![batch, key_heads, heads / key_heads, length, total])?;
        multiplied(builder, &weights, &self.values)?.reshaped(vec![batch, heads, length, width])
    }
}
