//! Expressions as WGSL functions whose steps are computed exactly as written.
//!
//! A compiler of WGSL may reassociate and contract arithmetic, and may assume that no value is NaN or infinite. Each
//! step's value therefore passes through an integer operation that changes nothing, which only the run knows, so that
//! each step is computed separately. `docs/accuracy.md` says what that promises.

use anabranch_op::dtype::DType;
use anabranch_op::narrowing::Narrowing;
use anabranch_op::op::{Binary, Expression, Step, Unary};
use std::fmt::Write;

/// Returns a WGSL function `name(r0: f32, …) -> f32` that computes `expression`. The value of register `i` is hidden
/// from the compiler's algebra under the number `first + i` ([`opaque`]); within one shader no number is used twice.
pub(crate) fn function(name: &str, expression: &Expression, first: usize) -> String {
    let inputs: Vec<_> = (0..expression.inputs()).map(|i| format!("r{i}: f32")).collect();
    let mut text = format!("fn {name}({}) -> f32 {{\n", inputs.join(", "));
    for (register, step) in (expression.inputs()..).zip(expression.steps()) {
        let value = step_text(expression, step, first + register);
        // The result is stored, or hidden by the code that computes with it.
        let value = if is_hidden(expression, register, step) { opaque(&value, first + register) } else { value };
        let _ = writeln!(text, "    let r{register} = {value};");
    }
    let _ = write!(text, "    return r{};\n}}\n", expression.result().0);
    text
}

/// Returns the WGSL value `opaque(value, number)`. Compilers may combine sums and products that feed each other, such
/// as `(x + c) − c` to `x`, and lose the overflow or the rounding in between. They know nothing about an opaque value.
pub(crate) fn opaque(value: &str, number: usize) -> String {
    format!("opaque({value}, {number}u)")
}

/// Returns a number as WGSL, made of bits that no compiler knows: WGSL has no literals for NaN and infinities, and
/// compilers drop `x + 0` and `x · 0`.
pub(crate) fn number(value: f32, number: usize) -> String {
    format!("number({:#x}u, {number}u)", value.to_bits())
}

/// Whether a step's value must be hidden: that of every step that another step may read, except constants, which are
/// hidden already.
fn is_hidden(expression: &Expression, register: usize, step: &Step) -> bool {
    register != usize::from(expression.result().0) && !matches!(step, Step::Constant(_))
}

fn step_text(expression: &Expression, step: &Step, own: usize) -> String {
    match *step {
        Step::Constant(literal) => number(literal.as_f32(), own),
        Step::Unary(unary, a) => unary_text(unary, &format!("r{}", a.0)),
        Step::Binary(Binary::Power, a, b) => power_text(expression, a.0, b.0),
        // `x − x` is not 0 for every x.
        Step::Binary(binary, a, b) if a == b => {
            let a = format!("r{}", a.0);
            binary_text(binary, &a, &opaque(&a, own))
        }
        Step::Binary(binary, a, b) => binary_text(binary, &format!("r{}", a.0), &format!("r{}", b.0)),
        Step::Select(condition, a, b) => format!("select(r{}, r{}, holds(r{}))", b.0, a.0, condition.0),
    }
}

/// Returns a power. The usual constant exponents become multiplications, which are also more accurate. Other exponents
/// stay constants, for which the compiler selects the case of `power`.
fn power_text(expression: &Expression, base: u16, exponent: u16) -> String {
    let step = usize::from(exponent).checked_sub(expression.inputs()).and_then(|i| expression.steps().get(i));
    let constant = match step {
        Some(Step::Constant(literal)) => literal.as_f32(),
        _ => f32::NAN,
    };
    match constant {
        2.0 => format!("r{base} * r{base}"),
        3.0 => format!("r{base} * r{base} * r{base}"),
        0.5 => format!("power_of_half(r{base})"),
        y if y.is_normal() => format!("power(r{base}, f32({y:?}))"),
        _ => format!("power(r{base}, r{exponent})"),
    }
}

fn unary_text(function: Unary, a: &str) -> String {
    let call = match function {
        Unary::Negate => return format!("-{a}"),
        Unary::Reciprocal => return format!("1.0 / {a}"),
        Unary::Not => return format!("truth(!holds({a}))"),
        Unary::IsNan => return format!("truth(is_nan({a}))"),
        Unary::IsInfinite => return format!("truth(is_infinite({a}))"),
        Unary::Abs => "abs",
        Unary::Sign => "sign_of",
        Unary::Sqrt => "sqrt",
        Unary::Exp => "exponential",
        Unary::Log => "logarithm",
        Unary::Sin => "sine",
        Unary::Cos => "cosine",
        Unary::Tan => "tangent",
        Unary::Asin => "arc_sine",
        Unary::Acos => "arc_cosine",
        Unary::Atan => "arc_tangent",
        Unary::Sinh => "sinh_of",
        Unary::Cosh => "cosh_of",
        Unary::Asinh => "asinh_of",
        Unary::Acosh => "acosh_of",
        Unary::Atanh => "atanh_of",
        Unary::Tanh => "tanh_of",
        Unary::Sigmoid => "sigmoid",
        Unary::Erf => "error_function",
        Unary::Relu => "relu",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "round",
        Unary::Truncate => "trunc",
        Unary::Narrowed(dtype) => return narrowed_text(dtype, a),
    };
    format!("{call}({a})")
}

/// Returns the rounding to a narrower float type, or the value itself for a type that is not narrower.
fn narrowed_text(dtype: DType, a: &str) -> String {
    let Some(narrowing) = Narrowing::of(dtype) else { return a.to_owned() };
    let Narrowing { dropped, least, greatest, beyond, kept_of_nan, nan, negative_zero } = narrowing;
    let bits = [least, greatest, beyond, kept_of_nan, nan, negative_zero].map(|bits| format!("{bits:#x}u"));
    format!("narrowed({a}, {dropped}u, {})", bits.join(", "))
}

fn binary_text(function: Binary, a: &str, b: &str) -> String {
    match function {
        Binary::Add => format!("{a} + {b}"),
        Binary::Subtract => format!("{a} - {b}"),
        Binary::Multiply => format!("{a} * {b}"),
        Binary::Divide => format!("quotient({a}, {b})"),
        Binary::Min => format!("minimum({a}, {b})"),
        Binary::Max => format!("maximum({a}, {b})"),
        Binary::Power => format!("power({a}, {b})"),
        Binary::FloorModulo => format!("floor_modulo({a}, {b})"),
        Binary::TruncatedModulo => format!("truncated_modulo({a}, {b})"),
        Binary::Equal => format!("truth({a} == {b})"),
        Binary::Less => format!("truth({a} < {b})"),
        Binary::LessOrEqual => format!("truth({a} <= {b})"),
        Binary::Greater => format!("truth({a} > {b})"),
        Binary::GreaterOrEqual => format!("truth({a} >= {b})"),
        Binary::And => format!("truth(holds({a}) && holds({b}))"),
        Binary::Or => format!("truth(holds({a}) || holds({b}))"),
        Binary::Xor => format!("truth(holds({a}) != holds({b}))"),
        // These operate on integers, which no GPU kernel computes: [`NodeSpec::check`] rejects them for floats.
        Binary::BitAnd | Binary::BitOr | Binary::BitXor | Binary::ShiftLeft | Binary::ShiftRight => a.to_owned(),
    }
}

#[cfg(test)]
mod chains;

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, node, noise, run_on_cpu, tensor};
    use super::*;
    use anabranch_op::DType;
    use anabranch_op::op::{Domain, Map, Op};

    /// Returns a function's values at these points, computed by the device, and in the CPU's 64-bit floats, whose
    /// functions have their own tests.
    fn values(expression: Expression, operands: &[Vec<f32>]) -> (Vec<f32>, Vec<f64>) {
        let dims = [operands[0].len()];
        let inputs: Vec<&[usize]> = operands.iter().map(|_| &dims[..]).collect();
        let map = |domain| Op::Map(Map { domain, expression: expression.clone() });
        let tensors: Vec<_> = operands.iter().map(|values| tensor(&dims, values)).collect();
        let got = Run::new(&node(map(Domain::F32), &inputs, &[&dims])).outputs(&tensors);
        let exact = anabranch_kernel_testing::node(map(Domain::F64), &tensors, DType::F64, &dims);
        let want = run_on_cpu(&exact, &tensors).expect("a sound node").remove(0);
        (got.unwrap_or_else(|error| panic!("{error}")).remove(0), want.elements().expect("f64").to_vec())
    }

    /// Checks relative closeness, or absolute closeness near a zero of the function.
    #[track_caller]
    fn assert_near(got: f32, want: f64, tolerance: f64, what: &str) {
        let narrow = want as f32;
        let equal = got == narrow
            || (got.is_nan() && want.is_nan())
            || (f64::from(got) - want).abs() <= tolerance * want.abs().max(1e-30);
        assert!(equal, "{what} is {got:e}, not {narrow:e}");
    }

    /// Functions, the range over which each is swept, and the allowed relative error.
    pub(super) const UNARY: [(Unary, [f32; 2], f64); 29] = [
        (Unary::Negate, [-1e30, 1e30], 0.0),
        (Unary::Abs, [-1e30, 1e30], 0.0),
        (Unary::Sign, [-3.0, 3.0], 0.0),
        (Unary::Reciprocal, [-1e6, 1e6], 5e-7),
        (Unary::Sqrt, [0.0, 1e30], 5e-7),
        (Unary::Exp, [-87.0, 88.7], 5e-7),
        (Unary::Log, [0.0, 4.0], 5e-7),
        (Unary::Sin, [-100.0, 100.0], 2e-6),
        (Unary::Cos, [-100.0, 100.0], 2e-6),
        (Unary::Tan, [-100.0, 100.0], 3e-6),
        (Unary::Asin, [-1.0, 1.0], 1e-6),
        (Unary::Acos, [-1.0, 1.0], 1e-6),
        (Unary::Atan, [-50.0, 50.0], 1e-6),
        (Unary::Sinh, [-20.0, 20.0], 1e-6),
        (Unary::Cosh, [-20.0, 20.0], 1e-6),
        (Unary::Asinh, [-3000.0, 3000.0], 1e-6),
        (Unary::Acosh, [1.0, 3000.0], 1e-6),
        (Unary::Atanh, [-1.0, 1.0], 1e-6),
        (Unary::Tanh, [-12.0, 12.0], 5e-7),
        (Unary::Sigmoid, [-80.0, 30.0], 5e-7),
        (Unary::Erf, [-5.0, 5.0], 5e-7),
        (Unary::Relu, [-2.0, 2.0], 0.0),
        (Unary::Floor, [-9.0, 9.0], 0.0),
        (Unary::Ceil, [-9.0, 9.0], 0.0),
        (Unary::Round, [-9.0, 9.0], 0.0),
        (Unary::Not, [-1.0, 1.0], 0.0),
        (Unary::IsNan, [-1.0, 1.0], 0.0),
        (Unary::IsInfinite, [-1.0, 1.0], 0.0),
        (Unary::Truncate, [-9.0, 9.0], 0.0),
    ];

    /// Functions and the allowed relative error.
    pub(super) const BINARY: [(Binary, f64); 17] = [
        (Binary::Add, 1e-7),
        (Binary::Subtract, 1e-7),
        (Binary::Multiply, 1e-7),
        (Binary::Divide, 5e-7),
        (Binary::Min, 0.0),
        (Binary::Max, 0.0),
        (Binary::Power, 8e-6),
        (Binary::FloorModulo, 1e-6),
        (Binary::TruncatedModulo, 0.0),
        (Binary::Equal, 0.0),
        (Binary::Less, 0.0),
        (Binary::LessOrEqual, 0.0),
        (Binary::Greater, 0.0),
        (Binary::GreaterOrEqual, 0.0),
        (Binary::And, 0.0),
        (Binary::Or, 0.0),
        (Binary::Xor, 0.0),
    ];

    const SPECIAL: [f32; 21] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        2.0,
        3.0,
        1e-7,
        0.3,
        1e6,
        -1e6,
        1e30,
        -1e30,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];

    #[test]
    fn functions_of_one_operand() {
        for (function, [low, high], tolerance) in UNARY {
            let mut x: Vec<_> = noise(151, 500).iter().map(|v| low + (high - low) * (v + 1.0) / 2.0).collect();
            x.extend(noise(152, 200));
            x.extend(noise(153, 100).iter().map(|v| v * 1e-3));
            x.extend(SPECIAL);
            let (y, want) = values(Expression::unary(function), std::slice::from_ref(&x));
            for ((x, y), want) in x.iter().zip(y).zip(want) {
                // Near their zeros, sine and similar functions are as accurate as the reduction of the angle.
                let near_zero = matches!(function, Unary::Sin | Unary::Cos | Unary::Tan | Unary::Acos | Unary::Log)
                    && (f64::from(y) - want).abs() < 2e-7;
                assert_near(y, if near_zero { f64::from(y) } else { want }, tolerance, &format!("{function:?} {x:e}"));
            }
        }
    }

    #[test]
    fn angles_of_any_size() {
        let x: Vec<_> = noise(154, 400).iter().enumerate().map(|(i, v)| v * 2f32.powi(i as i32 % 120)).collect();
        for function in [Unary::Sin, Unary::Cos] {
            let (y, want) = values(Expression::unary(function), std::slice::from_ref(&x));
            for ((x, y), want) in x.iter().zip(y).zip(want) {
                assert!((f64::from(y) - want).abs() < 3e-7, "{function:?} {x:e} is {y}, not {want}");
            }
        }
    }

    #[test]
    fn functions_of_two_operands() {
        let pairs = SPECIAL.iter().flat_map(|a| SPECIAL.iter().map(move |b| (*a, *b)));
        let (mut a, mut b): (Vec<_>, Vec<_>) = pairs.unzip();
        a.extend(noise(155, 300).iter().map(|v| v * 20.0));
        b.extend(noise(156, 300).iter().map(|v| v * 5.0));
        for (function, tolerance) in BINARY {
            let (y, want) = values(Expression::binary(function), &[a.clone(), b.clone()]);
            for (((a, b), y), want) in a.iter().zip(&b).zip(y).zip(want) {
                // A device may flush subnormal results to zero.
                let flushed = want.abs() < 1.2e-38 && y.abs() < 1.2e-38;
                let want = if flushed { f64::from(y) } else { want };
                assert_near(y, want, tolerance, &format!("{function:?} {a:e} {b:e}"));
            }
        }
    }

    #[test]
    fn powers_of_positive_numbers_by_any_exponent() {
        let x: Vec<_> = noise(157, 500).iter().map(|v| (v * 4.0).exp()).collect();
        let y: Vec<_> = noise(158, 500).iter().map(|v| v * 18.0).collect();
        let (got, want) = values(Expression::binary(Binary::Power), &[x.clone(), y.clone()]);
        for (((x, y), got), want) in x.iter().zip(&y).zip(got).zip(want) {
            assert_near(got, want, 8e-6, &format!("{x}^{y}"));
        }
    }
}
