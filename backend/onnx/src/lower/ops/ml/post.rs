//! The attribute `post_transform`: functions that scores pass through in the end.

use super::super::{Builder, Fault, Operator, Term, View, domain_of, normalized};
use super::constant;
use anabranch_kernels::op::{Binary, ReduceKind, Unary};

/// A function of the scores of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

impl Transform {
    /// Returns the function of the attribute's name.
    pub(super) fn named(operator: &Operator<'_>) -> Result<Self, Fault> {
        Ok(match operator.string("post_transform", "NONE")? {
            "NONE" => Self::None,
            "SOFTMAX" => Self::Softmax,
            "LOGISTIC" => Self::Logistic,
            "SOFTMAX_ZERO" => Self::SoftmaxZero,
            "PROBIT" => Self::Probit,
            other => {
                let known = "NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT";
                return Err(Fault::attribute("post_transform", other, known));
            }
        })
    }

    /// Returns the function of the attribute's number.
    pub(super) fn numbered(operator: &Operator<'_>) -> Result<Self, Fault> {
        Ok(match operator.int("post_transform", 0)? {
            0 => Self::None,
            1 => Self::Softmax,
            2 => Self::Logistic,
            3 => Self::SoftmaxZero,
            4 => Self::Probit,
            other => return Err(Fault::attribute("post_transform", other, "one of 0 to 4")),
        })
    }

    /// Applies the function to scores `[rows, count]`.
    pub(super) fn of_scores(self, builder: &mut Builder, scores: &View) -> Result<View, Fault> {
        if scores.dims()[1] == 1 && !matches!(self, Self::None | Self::Probit) {
            let text = "a post_transform of a single score, which ONNX Runtime does not apply, unlike ONNX";
            return Err(Fault::unsupported(text));
        }
        let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
        match self {
            Self::None => Ok(scores.clone()),
            Self::Softmax => normalized(builder, scores, 1, false),
            Self::Logistic => builder.map(domain, [scores], dtype, |[x]| x.apply(Unary::Sigmoid)),
            Self::SoftmaxZero => softmax_zero(builder, scores),
            Self::Probit => builder.map(domain, [scores], dtype, |[x]| probit(x)),
        }
    }
}

/// Applies a softmax in which scores of about zero stay about zero and do not count in the sum.
fn softmax_zero(builder: &mut Builder, scores: &View) -> Result<View, Fault> {
    let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
    let greatest = builder.reduced(scores, ReduceKind::Max, &[1])?;
    let counted = builder.map(domain, [scores, &greatest], dtype, |[x, greatest]| {
        counts(x).select((x - greatest).apply(Unary::Exp), 0.0)
    })?;
    let sum = builder.reduced(&counted, ReduceKind::Sum, &[1])?;
    builder.map(domain, [scores, &greatest, &counted, &sum], dtype, |[x, greatest, counted, sum]| {
        let small = x * greatest.apply(Unary::Negate).apply(Unary::Exp);
        counts(x).select(counted, small) / sum
    })
}

/// Whether a score exceeds about zero.
fn counts(x: Term<'_>) -> Term<'_> {
    x.apply(Unary::Abs).with(Binary::Greater, f64::from(1e-7f32))
}

/// Returns `√2 · erf⁻¹(2x − 1)`, by Winitzki's formula with ONNX Runtime's constants.
#[allow(clippy::approx_constant, reason = "the constants are those that results are compared with")]
fn probit(x: Term<'_>) -> Term<'_> {
    let x = x * 2.0 - 1.0;
    let log = (x * -1.0 + 1.0) * (x + 1.0);
    let log = log.apply(Unary::Log);
    let half = log * 0.5 + 2.0 / (3.14159 * 0.147);
    let root = (half * half - log * (1.0 / 0.147)).apply(Unary::Sqrt);
    let erf = (root - half).apply(Unary::Sqrt);
    x.with(Binary::Less, 0.0).select(erf * -1.0, erf) * f64::from(1.414_213_5_f32)
}

/// Returns both scores of a binary decision from the known score, `[rows, 1]`: `first + sign · s` of both.
pub(super) fn paired(builder: &mut Builder, score: &View, first: f32) -> Result<View, Fault> {
    let sign = constant(builder, &[2], &[-1f32, 1.0])?;
    let first = constant(builder, &[2], &[first, 0.0])?;
    let (domain, dtype) = (domain_of(score.dtype()), score.dtype());
    builder.map(domain, [score, &sign, &first], dtype, |[s, sign, first]| s * sign + first)
}
