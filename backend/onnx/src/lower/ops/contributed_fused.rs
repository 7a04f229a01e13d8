//! Convolutions and products of the domain `com.microsoft` that end with an addend and an activation.

use super::{Builder, Entry, Fault, Operator, Term, View, domain_of, lowering};
use anabranch_kernels::op::{Binary, Unary};

pub(super) const TABLE: &[Entry] = &[
    ("FusedConv", |operator, builder| ended(operator, builder, "Conv")),
    ("FusedGemm", |operator, builder| ended(operator, builder, "Gemm")),
];

/// Version of the standard operators that defines these operators.
const VERSION: i64 = 13;

/// Lowers the standard operator of the first three inputs, plus the fourth, through the activation.
fn ended(operator: &Operator<'_>, builder: &mut Builder, name: &str) -> Result<Vec<View>, Fault> {
    let inputs = (0..3).map(|index| operator.optional(index).cloned()).collect();
    let mut result = lowering("", name)?(&Operator::new(operator.node, VERSION, inputs), builder)?.swap_remove(0);
    let (domain, dtype) = (domain_of(result.dtype()), result.dtype());
    if operator.optional(3).is_some() {
        let addend = operator.typed(3, dtype)?;
        if addend.shape() != result.shape() {
            return Err(Fault::invalid(format!("{} cannot be added to {}", addend.shape(), result.shape())));
        }
        result = builder.map(domain, [&result, addend], dtype, |[x, addend]| x + addend)?;
    }
    let kind = operator.string("activation", "")?;
    let numbers = operator.node.floats("activation_params")?.unwrap_or(&[]);
    // These are the defaults of the standard operators; the bounds of Clip are required.
    let defaults = match kind {
        "Clip" => [None; 2],
        "HardSigmoid" => [Some(0.2), Some(0.5)],
        _ => [Some(0.01), Some(0.0)],
    };
    // The products have their parameters as separate attributes.
    let number = |at: usize, attribute: &str| {
        let given =
            numbers.get(at).copied().map_or_else(|| operator.node.float(attribute), |number| Ok(Some(number)))?;
        let missing = || Fault::invalid(format!("the activation {kind} has no number {at} in `activation_params`"));
        given.or(defaults[at]).map(f64::from).ok_or_else(missing)
    };
    let (first, second) = (number(0, "activation_alpha")?, number(1, "activation_beta")?);
    let formula: fn(Term<'_>, f64, f64) -> Term<'_> = match kind {
        "" => return Ok(vec![result]),
        "Relu" => |x, _, _| x.with(Binary::Max, 0.0),
        "Tanh" => |x, _, _| x.apply(Unary::Tanh),
        "Sigmoid" => |x, _, _| x.apply(Unary::Sigmoid),
        "LeakyRelu" => |x, slope, _| x.with(Binary::Less, 0.0).select(x * slope, x),
        "Clip" => |x, low, high| x.with(Binary::Max, low).with(Binary::Min, high),
        "HardSigmoid" => |x, slope, middle| (x * slope + middle).with(Binary::Max, 0.0).with(Binary::Min, 1.0),
        other => return Err(Fault::unsupported(format!("the activation {other}"))),
    };
    Ok(vec![builder.map(domain, [&result], dtype, |[x]| formula(x, first, second))?])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{contributed, lowered};
    use crate::import::proto::{AttributeProto, NodeProto, TensorProto};

    #[test]
    fn activations_without_parameters_have_those_of_onnx() {
        let ended = |kind: &str, numbers: Option<&[f32]>| {
            let constants =
                vec![TensorProto::f32s("x", &[1, 1, 2], &[1.0, -2.0]), TensorProto::f32s("w", &[1, 1, 1], &[1.0])];
            let node = NodeProto::of("FusedConv", &["x", "w"], &["y"]).with(AttributeProto::string("activation", kind));
            let node = match numbers {
                Some(numbers) => node.with(AttributeProto::floats("activation_params", numbers)),
                None => node,
            };
            let program = lowered(contributed(node), Vec::new(), constants).map_err(|error| error.to_string())?;
            let made = program.constant(program.outputs[0].value).expect("folded").load().expect("in memory");
            Ok::<_, String>(made.elements::<f32>().expect("f32").to_vec())
        };
        let near = |made: Result<Vec<f32>, String>, want: [f32; 2]| {
            let made = made.expect("folds");
            assert!(made.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-6), "{made:?} rather than {want:?}");
        };
        near(ended("HardSigmoid", None), [0.7, 0.1]);
        near(ended("LeakyRelu", None), [1.0, -0.02]);
        near(ended("Clip", Some(&[-1.0, 0.5])), [0.5, -1.0]);
        for numbers in [None, Some(&[-1.0][..])] {
            assert!(ended("Clip", numbers).expect_err("no bounds").contains("activation_params"));
        }
    }
}
