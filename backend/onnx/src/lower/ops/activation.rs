//! Activation functions, written out as formulas over the op set's elementary functions.

use super::{Builder, Entry, Fault, Operator, Term, View, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Unary};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

pub(super) const TABLE: &[Entry] = &[
    ("LeakyRelu", leaky_relu),
    ("PRelu", parametric_relu),
    ("Elu", elu),
    ("Selu", selu),
    ("Celu", celu),
    ("ThresholdedRelu", thresholded_relu),
    ("HardSigmoid", hard_sigmoid),
    ("HardSwish", |o, b| apply(o, b, |x| x * clamped_line(x, 1.0 / 6.0, 0.5))),
    ("Softplus", |o, b| apply(o, b, log_one_plus_exponential)),
    ("Softsign", |o, b| apply(o, b, |x| x / (x.apply(Unary::Abs) + 1.0))),
    ("Mish", |o, b| apply(o, b, |x| x * log_one_plus_exponential(x).apply(Unary::Tanh))),
    ("Gelu", gelu),
    ("Swish", swish),
    ("SwiGLU", gated_swish),
    ("Shrink", shrink),
];

pub(super) fn apply(
    operator: &Operator<'_>,
    builder: &mut Builder,
    formula: impl FnOnce(Term<'_>) -> Term<'_>,
) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    Ok(vec![builder.map(domain_of(x.dtype()), [x], x.dtype(), |[x]| formula(x))?])
}

fn number(operator: &Operator<'_>, name: &str, default: f32) -> Result<f64, Fault> {
    Ok(operator.float(name, default)?.into())
}

/// `x < 0 ? slope · x : x`.
fn leaky_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let slope = number(operator, "alpha", 0.01)?;
    apply(operator, builder, |x| x.with(Binary::Less, 0.0).select(x * slope, x))
}

/// Lowers PRelu: as [`leaky_relu`], with a slope per element or channel.
fn parametric_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, slope) = operator.pair()?;
    // Before version 7 the slopes belong to the channels.
    let by_channel = operator.opset < 7 && slope.rank() == 1 && slope.elements() > 1;
    let behind = if by_channel { x.rank().saturating_sub(2) } else { 0 };
    let slope = &slope.reshaped([slope.dims(), &vec![1; behind]].concat())?;
    slope.shape().broadcast_strides(x.shape())?;
    let domain = domain_of(x.dtype());
    let choice =
        builder.map(domain, [x, slope], x.dtype(), |[x, slope]| x.with(Binary::Less, 0.0).select(x * slope, x))?;
    Ok(vec![choice])
}

/// `x < 0 ? α (eˣ − 1) : x`.
fn elu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = number(operator, "alpha", 1.0)?;
    apply(operator, builder, |x| x.with(Binary::Less, 0.0).select(exponential_minus_one(x, alpha), x))
}

/// `γ · (x ≤ 0 ? α (eˣ − 1) : x)`.
fn selu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    // The first version rounds these constants to four digits.
    let [alpha, gamma] = if operator.opset < 6 { [1.6732, 1.0507] } else { [1.673_263_2, 1.050_701] };
    let (alpha, gamma) = (number(operator, "alpha", alpha)?, number(operator, "gamma", gamma)?);
    apply(operator, builder, |x| x.with(Binary::LessOrEqual, 0.0).select(exponential_minus_one(x, alpha), x) * gamma)
}

/// `max(0, x) + min(0, α (e^(x/α) − 1))`.
fn celu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = number(operator, "alpha", 1.0)?;
    if alpha == 0.0 {
        return Err(Fault::attribute("alpha", alpha, "other than 0"));
    }
    apply(operator, builder, |x| {
        let below = exponential_minus_one(x / alpha, alpha).with(Binary::Min, 0.0);
        x.with(Binary::Max, 0.0) + below
    })
}

/// `x > α ? x : 0`.
fn thresholded_relu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = number(operator, "alpha", 1.0)?;
    apply(operator, builder, |x| x.with(Binary::Greater, alpha).select(x, 0.0))
}

/// `max(0, min(1, α x + β))`.
fn hard_sigmoid(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (alpha, beta) = (number(operator, "alpha", 0.2)?, number(operator, "beta", 0.5)?);
    apply(operator, builder, |x| clamped_line(x, alpha, beta))
}

fn gelu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let tanh = match operator.string("approximate", "none")? {
        "none" => false,
        "tanh" => true,
        other => return Err(Fault::attribute("approximate", other, "none or tanh")),
    };
    apply(operator, builder, |x| gaussian_gate(x, tanh))
}

/// Returns `½ x (1 + erf(x / √2))`, or its approximation by a hyperbolic tangent.
pub(super) fn gaussian_gate(x: Term<'_>, tanh: bool) -> Term<'_> {
    let curve = match tanh {
        true => (x * (x * x * 0.044_715 + 1.0) * FRAC_2_PI.sqrt()).apply(Unary::Tanh),
        false => (x * FRAC_1_SQRT_2).apply(Unary::Erf),
    };
    let gate = curve + 1.0;
    x * 0.5 * gate
}

/// `x · sigmoid(α x)`.
fn swish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = number(operator, "alpha", 1.0)?;
    apply(operator, builder, |x| x * (x * alpha).apply(Unary::Sigmoid))
}

/// `a · sigmoid(α a) · b`.
fn gated_swish(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let (a, b) = operator.pair()?;
    let alpha = number(operator, "alpha", 1.0)?;
    let domain = domain_of(a.dtype());
    Ok(vec![builder.map(domain, [a, b], a.dtype(), |[a, b]| a * (a * alpha).apply(Unary::Sigmoid) * b)?])
}

/// `x < −λ ? x + bias : x > λ ? x − bias : 0`. If the bias is whole, integers are computed as integers, else in `f64`.
fn shrink(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (bias, threshold) = (number(operator, "bias", 0.0)?, number(operator, "lambd", 0.5)?);
    let x = operator.number(0)?;
    let unsigned = matches!(x.dtype(), DType::U64 | DType::U32 | DType::U16 | DType::U8);
    let domain = match domain_of(x.dtype()) {
        domain if domain.is_integer() && (bias.fract() != 0.0 || threshold < 0.0) => Domain::F64,
        domain => domain,
    };
    let shrunk = builder.map(domain, [x], x.dtype(), |[x]| {
        let above = x.with(Binary::Greater, threshold);
        if unsigned && domain.is_integer() {
            return above.select(x - bias, 0.0);
        }
        let below = x.with(Binary::Less, -threshold);
        let (raised, lowered) = (x + bias, x - bias);
        below.select(raised, above.select(lowered, 0.0))
    })?;
    Ok(vec![shrunk])
}

/// `α (eˣ − 1)`.
pub(super) fn exponential_minus_one(x: Term<'_>, alpha: f64) -> Term<'_> {
    let power = x.apply(Unary::Exp);
    let distance = power - 1.0;
    if !x.is_double() {
        return distance * alpha;
    }
    // Near 0 the difference and the power's logarithm lose the same digits, so that their quotient is exact (Higham
    // 2002, section 1.14.1).
    let exact = distance * x / power.apply(Unary::Log);
    let near = distance.with(Binary::Equal, 0.0).select(x, exact);
    x.apply(Unary::Abs).with(Binary::Less, 1.0).select(near, distance) * alpha
}

/// `max(0, min(1, α x + β))`.
pub(super) fn clamped_line(x: Term<'_>, alpha: f64, beta: f64) -> Term<'_> {
    (x * alpha + beta).with(Binary::Min, 1.0).with(Binary::Max, 0.0)
}

/// `ln(1 + eˣ)` as `max(x, 0) + ln(1 + e^−|x|)`, which cannot overflow.
pub(super) fn log_one_plus_exponential(x: Term<'_>) -> Term<'_> {
    let small = x.apply(Unary::Abs).apply(Unary::Negate).apply(Unary::Exp);
    let sum = small + 1.0;
    let logarithm = sum.apply(Unary::Log);
    // The sum and its distance from 1 have lost the same digits of the small number (Higham 2002, problem 1.5).
    let distance = sum - 1.0;
    let exact = logarithm * small / distance;
    x.apply(Unary::Relu) + distance.with(Binary::Equal, 0.0).select(small, exact)
}

#[cfg(test)]
mod tests {
    use super::super::testing::lowered;
    use crate::import::proto::{NodeProto, TensorProto, data_type};

    /// The expected 64-bit floats were computed with 120 digits and rounded.
    #[test]
    fn doubles_keep_their_digits_near_zero_and_far_from_it() {
        for (operator, x, want) in [
            ("Softplus", -800.0, 0.0),
            ("Softplus", -700.0, 9.85967654375977e-305),
            ("Softplus", -40.0, 4.248354255291589e-18),
            ("Softplus", -1e-12, 0.6931471805594454),
            ("Softplus", 0.5, 0.9740769841801067),
            ("Softplus", 35.0, 35.0),
            ("Softplus", 800.0, 800.0),
            ("Elu", -800.0, -1.0),
            ("Elu", -3.0, -0.950212931632136),
            ("Elu", -0.5, -0.3934693402873666),
            ("Elu", -1e-12, -9.999999999995e-13),
            ("Elu", -1e-300, -1e-300),
            ("Elu", 1e300, 1e300),
            ("Celu", 800.0, 800.0),
            ("Celu", -1e-12, -9.999999999995e-13),
            ("Gelu", -0.5, -0.15426876936299344),
            ("Gelu", 1e-200, 5e-201),
            ("Gelu", 7.0, 6.999999999991041),
            ("Mish", -30.0, -2.807286890651921e-12),
            ("Mish", 1e-12, 6.0000000000032e-13),
            ("Mish", 3.0, 2.9865350049679575),
        ] {
            let input = TensorProto::raw("x", data_type::DOUBLE, &[], f64::to_le_bytes(x).to_vec());
            let program = lowered(NodeProto::of(operator, &["x"], &["y"]), Vec::new(), vec![input]).expect("lowers");
            let made = program.constant(program.outputs[0].value).expect("folded").load().expect("in memory");
            let found = made.elements::<f64>().expect("f64")[0];
            let bound = 8.0 * f64::EPSILON * f64::abs(want);
            assert!((found - want).abs() <= bound, "{operator} of {x}: {found} rather than {want}");
        }
    }
}
