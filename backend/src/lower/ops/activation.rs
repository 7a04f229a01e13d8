//! Activation functions, written out as expressions over the op set's elementary functions.

use super::{Builder, Entry, ExpressionBuilder, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, Register, Unary};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    ("LeakyRelu", leaky_relu),
    ("PRelu", parametric_relu),
    ("Elu", elu),
    ("Selu", selu),
    ("Celu", celu),
    ("ThresholdedRelu", thresholded_relu),
    ("HardSigmoid", hard_sigmoid),
    ("HardSwish", hard_swish),
    ("Softplus", softplus),
    ("Softsign", softsign),
    ("Mish", mish),
    ("Gelu", gelu),
    ("Swish", swish),
    ("SwiGLU", gated_swish),
    ("Shrink", shrink),
];

const X: Register = Register(0);

/// A function of one floating-point number, as `write` puts it into a expression of one input.
fn apply(
    operator: &Operator<'_>,
    builder: &mut Builder,
    write: impl FnOnce(&mut ExpressionBuilder),
) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 1);
    write(&mut expression);
    Ok(vec![builder.map(expression, from_ref(x), x.dtype())?])
}

/// `x < 0 ? slope · x : x`.
fn leaky_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let slope = operator.float("alpha", 0.01)?;
    apply(operator, builder, |f| {
        let negative = f.with(Binary::Less, X, 0.0);
        let scaled = f.with(Binary::Multiply, X, slope.into());
        f.select(negative, scaled, X);
    })
}

/// As [`leaky_relu`], with a slope per element or channel.
fn parametric_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, slope) = operator.pair()?;
    slope.shape().broadcast_strides(x.shape())?;
    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 2);
    let negative = expression.with(Binary::Less, X, 0.0);
    let scaled = expression.binary(Binary::Multiply, X, Register(1));
    expression.select(negative, scaled, X);
    Ok(vec![builder.map(expression, &[x.clone(), slope.clone()], x.dtype())?])
}

/// `x < 0 ? α (eˣ − 1) : x`.
fn elu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 1.0)?;
    apply(operator, builder, |f| {
        let negative = f.with(Binary::Less, X, 0.0);
        let curve = exponential_minus_one(f, X, alpha.into());
        f.select(negative, curve, X);
    })
}

/// `γ · (x ≤ 0 ? α (eˣ − 1) : x)`.
fn selu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 1.673_263_2)?;
    let gamma = operator.float("gamma", 1.050_701)?;
    apply(operator, builder, |f| {
        let negative = f.with(Binary::LessOrEqual, X, 0.0);
        let curve = exponential_minus_one(f, X, alpha.into());
        let value = f.select(negative, curve, X);
        f.with(Binary::Multiply, value, gamma.into());
    })
}

/// `max(0, x) + min(0, α (e^(x/α) − 1))`.
fn celu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 1.0)?;
    if alpha == 0.0 {
        return Err(Fault::attribute("alpha", alpha, "other than 0"));
    }
    apply(operator, builder, |f| {
        let scaled = f.with(Binary::Divide, X, alpha.into());
        let curve = exponential_minus_one(f, scaled, alpha.into());
        let below = f.with(Binary::Min, curve, 0.0);
        let above = f.with(Binary::Max, X, 0.0);
        f.binary(Binary::Add, above, below);
    })
}

/// `x > α ? x : 0`.
fn thresholded_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 1.0)?;
    apply(operator, builder, |f| {
        let above = f.with(Binary::Greater, X, alpha.into());
        let zero = f.literal(0.0);
        f.select(above, X, zero);
    })
}

/// `max(0, min(1, α x + β))`.
fn hard_sigmoid(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 0.2)?;
    let beta = operator.float("beta", 0.5)?;
    apply(operator, builder, |f| {
        clamped_line(f, alpha.into(), beta.into());
    })
}

/// `x · max(0, min(1, x / 6 + ½))`.
fn hard_swish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    apply(operator, builder, |f| {
        let gate = clamped_line(f, 1.0 / 6.0, 0.5);
        f.binary(Binary::Multiply, X, gate);
    })
}

fn softplus(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    apply(operator, builder, |f| {
        log_one_plus_exponential(f, X);
    })
}

/// `x / (1 + |x|)`.
fn softsign(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    apply(operator, builder, |f| {
        let magnitude = f.unary(Unary::Abs, X);
        let divisor = f.with(Binary::Add, magnitude, 1.0);
        f.binary(Binary::Divide, X, divisor);
    })
}

/// `x · tanh(ln(1 + eˣ))`.
fn mish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    apply(operator, builder, |f| {
        let softplus = log_one_plus_exponential(f, X);
        let gate = f.unary(Unary::Tanh, softplus);
        f.binary(Binary::Multiply, X, gate);
    })
}

/// `½ x (1 + erf(x / √2))`, or with a hyperbolic tangent in place of the error function.
fn gelu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let tanh = match operator.string("approximate", "none")? {
        "none" => false,
        "tanh" => true,
        other => return Err(Fault::attribute("approximate", other, "none or tanh")),
    };
    apply(operator, builder, |f| {
        let curve = if tanh {
            let square = f.binary(Binary::Multiply, X, X);
            let cubic = f.with(Binary::Multiply, square, 0.044_715);
            let factor = f.with(Binary::Add, cubic, 1.0);
            let inner = f.binary(Binary::Multiply, X, factor);
            let scaled = f.with(Binary::Multiply, inner, FRAC_2_PI.sqrt());
            f.unary(Unary::Tanh, scaled)
        } else {
            let scaled = f.with(Binary::Multiply, X, FRAC_1_SQRT_2);
            f.unary(Unary::Erf, scaled)
        };
        let gate = f.with(Binary::Add, curve, 1.0);
        let half = f.with(Binary::Multiply, X, 0.5);
        f.binary(Binary::Multiply, half, gate);
    })
}

/// `x · sigmoid(α x)`.
fn swish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = operator.float("alpha", 1.0)?;
    apply(operator, builder, |f| {
        let scaled = f.with(Binary::Multiply, X, alpha.into());
        let gate = f.unary(Unary::Sigmoid, scaled);
        f.binary(Binary::Multiply, X, gate);
    })
}

/// `a · sigmoid(α a) · b`.
fn gated_swish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let (a, b) = operator.pair()?;
    let mut expression = ExpressionBuilder::new(domain_of(a.dtype()), 2);
    let scaled = expression.with(Binary::Multiply, X, operator.float("alpha", 1.0)?.into());
    let gate = expression.unary(Unary::Sigmoid, scaled);
    let swish = expression.binary(Binary::Multiply, X, gate);
    expression.binary(Binary::Multiply, swish, Register(1));
    Ok(vec![builder.map(expression, &[a.clone(), b.clone()], a.dtype())?])
}

/// `x < −λ ? x + bias : x > λ ? x − bias : 0`.
fn shrink(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let bias = f64::from(operator.float("bias", 0.0)?);
    let threshold = f64::from(operator.float("lambd", 0.5)?);
    let x = operator.number(0)?;
    let mut f = ExpressionBuilder::new(domain_of(x.dtype()), 1);
    let below = f.with(Binary::Less, X, -threshold);
    let above = f.with(Binary::Greater, X, threshold);
    let raised = f.with(Binary::Add, X, bias);
    let lowered = f.with(Binary::Subtract, X, bias);
    let zero = f.literal(0.0);
    let not_below = f.select(above, lowered, zero);
    f.select(below, raised, not_below);
    Ok(vec![builder.map(f, from_ref(x), x.dtype())?])
}

/// `α (eˣ − 1)`.
fn exponential_minus_one(f: &mut ExpressionBuilder, x: Register, alpha: f64) -> Register {
    let exponential = f.unary(Unary::Exp, x);
    let curve = f.with(Binary::Subtract, exponential, 1.0);
    f.with(Binary::Multiply, curve, alpha)
}

/// `max(0, min(1, α x + β))`.
fn clamped_line(f: &mut ExpressionBuilder, alpha: f64, beta: f64) -> Register {
    let scaled = f.with(Binary::Multiply, X, alpha);
    let line = f.with(Binary::Add, scaled, beta);
    let low = f.with(Binary::Min, line, 1.0);
    f.with(Binary::Max, low, 0.0)
}

/// `ln(1 + eˣ)` as `max(x, 0) + ln(1 + e^−|x|)`, which cannot overflow.
fn log_one_plus_exponential(f: &mut ExpressionBuilder, x: Register) -> Register {
    let magnitude = f.unary(Unary::Abs, x);
    let negated = f.unary(Unary::Negate, magnitude);
    let exponential = f.unary(Unary::Exp, negated);
    let one_more = f.with(Binary::Add, exponential, 1.0);
    let logarithm = f.unary(Unary::Log, one_more);
    let positive = f.unary(Unary::Relu, x);
    f.binary(Binary::Add, positive, logarithm)
}
