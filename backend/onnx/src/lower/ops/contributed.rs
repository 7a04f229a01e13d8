//! Operators of the domain `com.microsoft` by which exporters and optimisers replace a few standard operators:
//! activations with a bias, and products.

use super::activation::{apply, gaussian_gate};
use super::gather::chosen;
use super::matmul::multiplied;
use super::quantize::{dequantize, quantize};
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, Domain, NarrowFormat, NarrowMatMul, Op, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("Gelu", |o, b| apply(o, b, |x| gaussian_gate(x, false))),
    ("BiasGelu", |o, b| biased_gelu(o, b, false)),
    ("FastGelu", |o, b| biased_gelu(o, b, true)),
    ("QuickGelu", quick_gelu),
    ("FusedMatMul", fused_matmul),
    ("TransposeMatMul", fused_matmul),
    ("MatMulNBits", narrow_matmul),
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
];

/// Applies the gate to the sum with an optional bias.
fn biased_gelu(operator: &Operator<'_>, builder: &mut Builder, tanh: bool) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let domain = domain_of(x.dtype());
    let Some(bias) = operator.optional(1) else { return apply(operator, builder, |x| gaussian_gate(x, tanh)) };
    operator.typed(1, x.dtype())?;
    Ok(vec![builder.map(domain, [x, bias], x.dtype(), |[x, bias]| gaussian_gate(x + bias, tanh))?])
}

/// `x · sigmoid(α x)`.
fn quick_gelu(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let alpha = f64::from(operator.float("alpha", 1.702)?);
    apply(operator, builder, |x| x * (x * alpha).apply(Unary::Sigmoid))
}

/// Returns `α A B`, each with its last two axes exchanged if requested.
fn fused_matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    operator.pair()?;
    if operator.flag("transBatchA", false)? || operator.flag("transBatchB", false)? {
        return Err(Fault::unsupported("exchanged batch axes"));
    }
    let mut sides = Vec::with_capacity(2);
    for (index, name) in [(0, "transA"), (1, "transB")] {
        let side = operator.ranked(index, 2)?;
        let mut order: Vec<_> = (0..side.rank()).collect();
        if operator.flag(name, false)? {
            order.swap(side.rank() - 2, side.rank() - 1);
        }
        sides.push(builder.transposed(side, &order)?);
    }
    let product = multiplied(builder, &sides[0], &sides[1])?;
    let alpha = f64::from(operator.float("alpha", 1.0)?);
    if alpha == 1.0 {
        return Ok(vec![product]);
    }
    Ok(vec![builder.map(domain_of(product.dtype()), [&product], product.dtype(), |[x]| x * alpha)?])
}

/// Returns `A Bᵀ + bias` with B in 2, 4 or 8 bits: each row has `blocks` blocks of columns, each with a scale and a
/// zero point.
fn narrow_matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    if operator.flag("weight_prepacked", false)? {
        return Err(Fault::unsupported("weights that are packed for one kernel (weight_prepacked)"));
    }
    let a = operator.ranked(0, 1)?;
    let (rows, depth) = (operator.size("N", 1, 0)?, operator.size("K", 1, 0)?);
    let (bits, block) = (operator.size("bits", 1, 4)?, operator.size("block_size", 1, 0)?);
    if !matches!(bits, 2 | 4 | 8) || rows == 0 || depth == 0 || block == 0 || !block.is_multiple_of(8 / bits) {
        return Err(Fault::unsupported(format!("{rows}×{depth} weights of {bits} bits in blocks of {block}")));
    }
    let blocks = depth.div_ceil(block);
    let line = blocks.saturating_mul(block).saturating_mul(bits) / 8;
    let outer = &a.dims()[..a.rank() - 1];
    let flat = builder.as_f32(a)?.reshaped(vec![outer.iter().product(), depth])?;
    let weights = operator.typed(1, DType::U8)?.reshaped(vec![rows, line])?;
    let scales = builder.as_f32(operator.float_input(2)?)?.reshaped(vec![rows, blocks])?;
    let mut inputs = vec![flat, weights, scales];
    if let Some(zero) = operator.optional(3) {
        let zero = if zero.dtype() == DType::U8 {
            // Zero points are packed like the weights; each row starts with a byte of its own.
            let bytes = blocks.saturating_mul(bits).div_ceil(8);
            let row = spread(builder, &zero.reshaped(vec![rows, bytes])?, bits)?;
            builder.part(&row, 1, 0, blocks)?
        } else {
            zero.reshaped(vec![rows, blocks])?
        };
        inputs.push(builder.as_f32(&zero)?);
    }
    let mut product = match operator.optional(4) {
        Some(_) => {
            let weights = widened(operator, builder, &inputs[1..], bits, depth)?;
            let across = builder.transposed(&weights, &[1, 0])?;
            multiplied(builder, &inputs[0], &across)?
        }
        None => {
            let format = NarrowFormat::Grid { bits, block, zero_points: inputs.len() == 4 };
            // Level 4 allows products of 8-bit integers.
            let allowed = operator.int("accuracy_level", 0)? == 4;
            let fits = block.is_multiple_of(8) && block <= NarrowMatMul::GREATEST_BLOCK && line.is_multiple_of(4);
            let quantize_a = allowed && bits == 4 && fits;
            let op = Op::NarrowMatMul(NarrowMatMul { format, transpose_b: true, quantize_a, epilogue: None });
            let output = TensorSpec::new(DType::F32, Shape::new([inputs[0].dims()[0], rows])?);
            builder.emit_one(op, &inputs, output)?
        }
    };
    if operator.optional(5).is_some() {
        let bias = builder.as_f32(operator.float_input(5)?)?;
        product = builder.map(Domain::F32, [&product, &bias], DType::F32, |[x, bias]| x + bias)?;
    }
    Ok(vec![builder.cast(&product.reshaped([outer, &[rows]].concat())?, a.dtype())?])
}

/// Returns the weights `[rows, depth]` as `f32`, each with the scale and the zero point of its column's group, which
/// input 4 gives.
///
/// ONNX Runtime's CPU kernel takes 8 for packed zero points here; these are used as they are.
fn widened(
    operator: &Operator<'_>,
    builder: &mut Builder,
    grid: &[View],
    bits: usize,
    depth: usize,
) -> Result<View, Fault> {
    let [weights, scales, zeros @ ..] = grid else { return Err(Fault::missing(2)) };
    let groups = operator.typed(4, DType::I32)?;
    if groups.rank() != 1 || groups.elements() < depth {
        return Err(Fault::invalid(format!(
            "input 4 has shape {}, but needs one group for each of {depth}",
            groups.shape()
        )));
    }
    let (rows, blocks) = (scales.dims()[0], scales.dims()[1]);
    let groups = builder.part(groups, 0, 0, depth)?;
    let numbers = spread(builder, weights, bits)?;
    let numbers = builder.part(&numbers, 1, 0, depth)?;
    let zero = match zeros.first() {
        Some(zeros) => zeros.clone(),
        None => builder.filled(TensorSpec::new(DType::F32, Shape::new([rows, blocks])?), f64::from(1 << (bits - 1)))?,
    };
    let mut by_column = |of_group: &View| chosen(builder, of_group, &groups, 1, vec![rows, depth]);
    let (scale, zero) = (by_column(scales)?, by_column(&zero)?);
    builder.map(Domain::F32, [&numbers, &scale, &zero], DType::F32, |[number, scale, zero]| (number - zero) * scale)
}

/// Unpacks bytes into narrow numbers, the lowest bits first, along the last axis; 8-bit numbers stay.
fn spread(builder: &mut Builder, packed: &View, bits: usize) -> Result<View, Fault> {
    let count = 8 / bits;
    if count == 1 {
        return Ok(packed.clone());
    }
    let mut dims = packed.dims().to_vec();
    let single = packed.reshaped([&dims[..], &[1]].concat())?;
    let shape = Shape::new([&dims[..], &[count]].concat())?;
    let place = builder.indices(DType::I64, count, dims.len(), dims.len() + 1)?;
    let output = TensorSpec::new(DType::U8, shape);
    let parts = builder.map_to(Domain::I64, [&single, &place], output, |[byte, place]| {
        let shifted = byte.with(Binary::ShiftRight, place * bits as f64);
        shifted.with(Binary::BitAnd, ((1 << bits) - 1) as f64)
    })?;
    if let Some(last) = dims.last_mut() {
        *last *= count;
    }
    parts.reshaped(dims)
}
