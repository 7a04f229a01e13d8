//! Operators of the domain `com.microsoft` whose inputs and outputs are numbers on grids of 8-bit integers: a standard
//! operator in `f32` between the grids.

use super::integer::{eight_bits, product_of, scales_of_product};
use super::quantize::{along, dequantize, quantize};
use super::recurrent::lstm_on_grids;
use super::{Builder, Entry, Fault, Operator, View, lowering};
use anabranch_kernels::DType;
use anabranch_kernels::op::Domain;

pub(super) const TABLE: &[Entry] = &[
    ("QLinearAdd", |o, b| between(o, b, "Add", 2)),
    ("QLinearMul", |o, b| between(o, b, "Mul", 2)),
    ("QLinearSigmoid", |o, b| between(o, b, "Sigmoid", 1)),
    ("QLinearLeakyRelu", |o, b| between(o, b, "LeakyRelu", 1)),
    ("QLinearSoftmax", |o, b| between(o, b, "Softmax", 1)),
    ("QLinearAveragePool", |o, b| between(o, b, "AveragePool", 1)),
    ("QLinearGlobalAveragePool", |o, b| between(o, b, "GlobalAveragePool", 1)),
    ("QLinearConcat", concat),
    ("QLinearWhere", choose),
    ("QGemm", gemm),
    ("MatMulIntegerToFloat", product),
    ("DynamicQuantizeMatMul", product_of_range),
    ("QAttention", attention),
    ("DynamicQuantizeLSTM", lstm),
];

/// Version of a standard operator for an operator without the attribute `opset`.
const VERSION: i64 = 13;

/// Lowers a standard operator of `count` inputs, each with its scale and zero point, before those of the output.
fn between(operator: &Operator<'_>, builder: &mut Builder, standard: &str, count: usize) -> Result<Vec<View>, Fault> {
    if operator.flag("channels_last", false)? {
        return Err(Fault::unsupported("channels as the last axis"));
    }
    let inputs = (0..count).map(|index| real(operator, builder, 3 * index)).collect::<Result<_, _>>()?;
    on_grid(operator, builder, standard, inputs, [3 * count, 0])
}

/// Lowers a concatenation. Scale and zero point of the output come first, then three inputs for each part.
fn concat(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let parts =
        (2..operator.count()).step_by(3).map(|index| real(operator, builder, index)).collect::<Result<_, _>>()?;
    on_grid(operator, builder, "Concat", parts, [0, 2])
}

/// Selects the elements of one of two tensors by a condition.
fn choose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let condition = operator.typed(0, DType::Bool)?.clone();
    let inputs = vec![condition, real(operator, builder, 1)?, real(operator, builder, 4)?];
    on_grid(operator, builder, "Where", inputs, [7, 1])
}

/// Returns `α A B + C`, where C is on the grid of the products and B may have a scale per column. Without a scale of
/// its own the output is `f32`.
fn gemm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let a = real(operator, builder, 0)?;
    let axis = usize::from(!operator.flag("transB", false)?);
    let weights = operator.ranked(3, 2)?;
    let scale = spread(operator.float_input(4)?, axis, weights.rank())?;
    let b = match operator.optional(5) {
        None => builder.map(Domain::F32, [weights, &scale], DType::F32, |[x, scale]| x * scale)?,
        Some(_) => {
            let zero = spread(operator.typed(5, weights.dtype())?, axis, weights.rank())?;
            builder.map(Domain::F32, [weights, &zero, &scale], DType::F32, |[x, zero, scale]| (x - zero) * scale)?
        }
    };
    builder.remember_grid(weights, (operator.float_input(4)?, operator.optional(5)), axis, &b);
    let mut inputs = vec![a, b];
    if operator.optional(6).is_some() {
        let (bias, alpha) = (operator.typed(6, DType::I32)?, f64::from(operator.float("alpha", 1.0)?));
        let scales = [operator.float_input(1)?, operator.float_input(4)?];
        let terms = [bias, scales[0], scales[1]];
        inputs.push(builder.map(Domain::F64, terms, DType::F32, |[bias, a, b]| bias * (a * b * alpha))?);
    }
    if operator.optional(7).is_some() {
        return on_grid(operator, builder, "Gemm", inputs, [7, 0]);
    }
    applied(operator, builder, "Gemm", inputs)
}

/// Returns `A B` of matrices on grids, in the type of A's scale, plus an optional bias. Each matrix has a scale and an
/// optional zero point.
fn product(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let sum = product_of(operator, builder, [0, 4], [1, 5])?;
    let dtype = operator.float_input(2)?.dtype();
    operator.typed(3, dtype)?;
    let [a, b] = scales_of_product(operator, [0, 2], [1, 3])?;
    let scale = builder.map(Domain::F32, [&a, &b], DType::F32, |[a, b]| a * b)?;
    let made = builder.map(Domain::F32, [&sum, &scale], DType::F32, |[sum, scale]| sum * scale)?;
    let made = match operator.optional(6) {
        None => made,
        Some(bias) => {
            bias.shape().broadcast_strides(made.shape())?;
            builder.map(Domain::F32, [&made, bias], DType::F32, |[x, bias]| x + bias)?
        }
    };
    Ok(vec![builder.cast(&made, dtype)?])
}

/// Returns a product as [`product`] does, for a matrix that is first put on a grid of its own range.
fn product_of_range(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let made = applied(operator, builder, "DynamicQuantizeLinear", vec![operator.input(0)?.clone()])?;
    let [numbers, scale, zero] = <[View; 3]>::try_from(made).map_err(|_| Fault::missing(0))?;
    let given = |index: usize| operator.optional(index).cloned();
    let inputs = vec![Some(numbers), given(1), Some(scale), given(2), Some(zero), given(3), given(4)];
    product(&Operator::new(operator.node, operator.opset, inputs), builder)
}

/// Lowers attention whose input and weights are on grids; the weights may have a grid per column.
fn attention(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let given = |index: usize| operator.optional(index).cloned();
    let mut real = |index: usize, scale: usize, zero: usize| {
        operator.input(index)?;
        let grid = vec![given(index), given(scale), given(zero)];
        Ok::<_, Fault>(dequantize(&Operator::new(operator.node, operator.opset, grid), builder)?.swap_remove(0))
    };
    let (x, weights) = (real(0, 3, 6)?, real(1, 4, 7)?);
    let inputs = vec![Some(x), Some(weights), given(2), given(5), given(8)];
    lowering("com.microsoft", "Attention")?(&Operator::new(operator.node, operator.opset, inputs), builder)
}

/// Lowers an LSTM whose weights are on a grid, with rows and columns exchanged. Its input and its states are put on
/// grids of their ranges, as in ONNX Runtime.
fn lstm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let mut inputs: Vec<_> = (0..8).map(|index| operator.optional(index).cloned()).collect();
    for (index, scale) in [(1, 8), (2, 10)] {
        let weights = operator.input(index)?;
        let &[directions, _, _] = weights.dims() else {
            return Err(Fault::invalid(format!(
                "input {index} has shape {}, but needs three dimensions",
                weights.shape()
            )));
        };
        let grid = |parameter: &View| match parameter.elements().checked_div(directions) {
            Some(count) => parameter.reshaped(vec![directions, 1, count]),
            None => Err(Fault::missing(index)),
        };
        let (scale, zero) = (grid(operator.float_input(scale)?)?, grid(operator.typed(scale + 1, weights.dtype())?)?);
        let terms = [weights, &zero, &scale];
        let real = builder.map(Domain::F32, terms, DType::F32, |[x, zero, scale]| (x - zero) * scale)?;
        inputs[index] = Some(builder.transposed(&real, &[0, 2, 1])?);
    }
    lstm_on_grids(&Operator::new(operator.node, VERSION, inputs), builder)
}

/// Returns one number for all elements, or one for each index along an axis.
fn spread(parameter: &View, axis: usize, rank: usize) -> Result<View, Fault> {
    if parameter.elements() == 1 { parameter.reshaped(vec![]) } else { along(parameter, axis, rank) }
}

/// Returns input `index` with its scale and zero point, which follow it, as `f32`.
fn real(operator: &Operator<'_>, builder: &mut Builder, index: usize) -> Result<View, Fault> {
    operator.input(index)?;
    let scaled = with_grid(operator, operator.optional(index).cloned(), index + 1)?;
    Ok(dequantize(&scaled, builder)?.swap_remove(0))
}

/// Rounds a standard operator's result to the grid whose scale is input `scale`. Without a zero point it has the type
/// of input `like`.
fn on_grid(
    operator: &Operator<'_>,
    builder: &mut Builder,
    standard: &str,
    inputs: Vec<View>,
    [scale, like]: [usize; 2],
) -> Result<Vec<View>, Fault> {
    let made = applied(operator, builder, standard, inputs)?.swap_remove(0);
    let grid = with_grid(operator, Some(made), scale)?;
    let mut inputs: Vec<_> = (0..3).map(|index| grid.optional(index).cloned()).collect();
    if inputs[2].is_none() {
        inputs[2] = Some(builder.scalar(eight_bits(operator, like)?.dtype(), 0.0)?);
    }
    quantize(&Operator::new(grid.node, grid.opset, inputs), builder)
}

fn applied(
    operator: &Operator<'_>,
    builder: &mut Builder,
    standard: &str,
    inputs: Vec<View>,
) -> Result<Vec<View>, Fault> {
    let inputs = inputs.into_iter().map(Some).collect();
    lowering("", standard)?(&Operator::new(operator.node, operator.int("opset", VERSION)?, inputs), builder)
}

/// Returns the operator with three inputs: a tensor, and the one scale and zero point from input `scale` on.
fn with_grid<'a>(operator: &Operator<'a>, x: Option<View>, scale: usize) -> Result<Operator<'a>, Fault> {
    if operator.float_input(scale)?.elements() != 1 {
        return Err(Fault::unsupported("more than one scale for a tensor"));
    }
    let grid = [scale, scale + 1].map(|index| operator.optional(index).cloned());
    Ok(Operator::new(operator.node, operator.opset, [vec![x], grid.to_vec()].concat()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{contributed, lowered};
    use crate::import::proto::{NodeProto, TensorProto, data_type};

    #[test]
    fn without_a_zero_point_the_output_has_the_type_of_the_input() {
        let bytes = [-100i8, -5, 5, 100].map(|x| x as u8);
        let constants =
            vec![TensorProto::raw("x", data_type::INT8, &[4], bytes.to_vec()), TensorProto::f32s("s", &[], &[0.5])];
        let node = NodeProto::of("QLinearLeakyRelu", &["x", "s", "", "s", ""], &["y"]);
        let program = lowered(contributed(node), Vec::new(), constants).expect("folds");
        let made = program.constant(program.outputs[0].value).expect("folded").load().expect("in memory");
        assert_eq!(made.elements::<i8>(), Some(&[-1, 0, 5, 100][..]));
    }
}
