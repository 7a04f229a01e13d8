//! Cells of recurrent layers: their gates and activation functions.

use super::activation::{clamped_line, exponential_minus_one, log_one_plus_exponential};
use super::{Fault, Operator, Term};
use anabranch_kernels::op::{Binary, RecurrentKind, Unary};

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm,
}

impl Kind {
    /// Returns the numbers of gates, and of states that pass from step to step.
    pub(super) const fn sizes(self) -> [usize; 2] {
        match self {
            Self::Rnn => [1, 1],
            Self::Gru { .. } => [3, 1],
            Self::Lstm => [4, 2],
        }
    }

    /// Returns the kind of the op that computes a layer of these cells.
    pub(super) const fn op(self) -> RecurrentKind {
        match self {
            Self::Rnn => RecurrentKind::Rnn,
            Self::Gru { linear_before_reset } => RecurrentKind::Gru { linear_before_reset },
            Self::Lstm => RecurrentKind::Lstm,
        }
    }

    /// Returns the default functions f, g and h, as many as the kind has.
    pub(super) fn usual(self) -> &'static [Activation] {
        match self {
            Self::Rnn => &[Activation::Tanh],
            Self::Gru { .. } => &[Activation::Sigmoid, Activation::Tanh],
            Self::Lstm => &[Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        }
    }
}

/// A function of a gate, with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    Softsign,
    Softplus,
    Affine { scale: f64, offset: f64 },
    LeakyRelu { slope: f64 },
    ThresholdedRelu { threshold: f64 },
    ScaledTanh { height: f64, scale: f64 },
    HardSigmoid { slope: f64, offset: f64 },
    Elu { scale: f64 },
}

impl Activation {
    /// Reads the functions of all directions, direction by direction.
    ///
    /// # Errors
    /// If the model names another number of functions or an unknown function.
    pub(super) fn read(operator: &Operator<'_>, kind: Kind, directions: usize) -> Result<Vec<Self>, Fault> {
        let usual = kind.usual();
        let named = operator.node.strings("activations")?.filter(|names| !names.is_empty());
        let Some(names) = named else { return Ok(usual.repeat(directions)) };
        let count = usual.len() * directions;
        if names.len() != count {
            return Err(Fault::attribute("activations", names.len(), format!("{count} functions")));
        }
        let constants = |name: &str| Ok::<_, Fault>(operator.node.floats(name)?.unwrap_or_default().iter().copied());
        let (mut first, mut second) = (constants("activation_alpha")?, constants("activation_beta")?);
        // Functions take constants from the lists in turn; functions without constants take none.
        names.iter().map(|name| Self::named(name, &mut first, &mut second)).collect()
    }

    /// Returns a function by its name in any case; it takes its constants from the two lists.
    fn named(
        name: &str,
        first: &mut impl Iterator<Item = f32>,
        second: &mut impl Iterator<Item = f32>,
    ) -> Result<Self, Fault> {
        let mut alpha = |default: f32| f64::from(first.next().unwrap_or(default));
        Ok(match &name.to_ascii_lowercase()[..] {
            "relu" => Self::Relu,
            "tanh" => Self::Tanh,
            "sigmoid" => Self::Sigmoid,
            "softsign" => Self::Softsign,
            "softplus" => Self::Softplus,
            "leakyrelu" => Self::LeakyRelu { slope: alpha(0.01) },
            "thresholdedrelu" => Self::ThresholdedRelu { threshold: alpha(1.0) },
            "hardsigmoid" => Self::HardSigmoid { slope: alpha(0.2), offset: second.next().map_or(0.5, f64::from) },
            "elu" => Self::Elu { scale: alpha(1.0) },
            // The standard has no default constants for these functions.
            known @ ("affine" | "scaledtanh") => match (first.next().map(f64::from), second.next().map(f64::from)) {
                (Some(scale), Some(offset)) if known == "affine" => Self::Affine { scale, offset },
                (Some(height), Some(scale)) => Self::ScaledTanh { height, scale },
                _ => {
                    let lists = "a function with constants in `activation_alpha` and `activation_beta`";
                    return Err(Fault::attribute("activations", name, lists));
                }
            },
            _ => return Err(Fault::attribute("activations", name, "a function of the ONNX specification")),
        })
    }

    /// Applies the function to `x`, as the standard's operator RNN defines it.
    pub(super) fn of(self, x: Term<'_>) -> Term<'_> {
        match self {
            Self::Relu => x.apply(Unary::Relu),
            Self::Tanh => x.apply(Unary::Tanh),
            Self::Sigmoid => x.apply(Unary::Sigmoid),
            Self::Softsign => x / (x.apply(Unary::Abs) + 1.0),
            Self::Softplus => log_one_plus_exponential(x),
            Self::Affine { scale, offset } => x * scale + offset,
            Self::LeakyRelu { slope } => x.with(Binary::Less, 0.0).select(x * slope, x),
            Self::ThresholdedRelu { threshold } => x.with(Binary::Less, threshold).select(0.0, x),
            Self::ScaledTanh { height, scale } => (x * scale).apply(Unary::Tanh) * height,
            Self::HardSigmoid { slope, offset } => clamped_line(x, slope, offset),
            Self::Elu { scale } => x.with(Binary::Less, 0.0).select(exponential_minus_one(x, scale), x),
        }
    }
}
