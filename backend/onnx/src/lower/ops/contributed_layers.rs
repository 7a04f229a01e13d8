//! Layers of the domain `com.microsoft`: normalised sums, embeddings, rotary embedding.

use super::gather::chosen;
use super::normalize::rows_normalized;
use super::rotary::turned;
use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use anabranch_kernels::op::{Domain, ReduceKind};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("SkipLayerNormalization", |o, b| skip(o, b, true)),
    ("SkipSimplifiedLayerNormalization", |o, b| skip(o, b, false)),
    ("EmbedLayerNormalization", embed),
    ("RotaryEmbedding", rotary),
];

/// Normalises the sum of two inputs and a bias along its last axis; the sum is the fourth output.
fn skip(operator: &Operator<'_>, builder: &mut Builder, center: bool) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    operator.ranked(0, 1)?;
    if operator.wants(1) || operator.wants(2) {
        return Err(Fault::unsupported("reading its outputs of statistics"));
    }
    let (beta, bias) = if center { (Some(3), 4) } else { (None, 3) };
    let domain = domain_of(x.dtype());
    let mut sum = builder.map(domain, [x, operator.typed(1, x.dtype())?], x.dtype(), |[x, skip]| x + skip)?;
    if sum.shape() != x.shape() {
        return Err(Fault::invalid(format!(
            "{} cannot be added to {} as a skip connection",
            operator.input(1)?.shape(),
            x.shape()
        )));
    }
    if operator.optional(bias).is_some() {
        let bias = operator.typed(bias, x.dtype())?;
        sum = builder.map(domain, [&sum, bias], x.dtype(), |[sum, bias]| sum + bias)?;
    }
    let y = along_last(operator, builder, &sum, [Some(2), beta], center, 1e-12)?;
    // Unused values stand in for the statistics.
    Ok(vec![y.clone(), y.clone(), y, sum])
}

/// Normalises along the last axis, times and plus the inputs of these indices.
fn along_last(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    parameters: [Option<usize>; 2],
    center: bool,
    epsilon: f32,
) -> Result<View, Fault> {
    let width = x.dims().last().copied().unwrap_or(1);
    let mut operands = Vec::new();
    for index in parameters.into_iter().flatten().filter(|index| operator.optional(*index).is_some()) {
        let parameter = operator.float_input(index)?;
        if *parameter.dims() != [width] {
            return Err(Fault::invalid(format!("a parameter of shape {} for {width} features", parameter.shape())));
        }
        operands.push(builder.cast(parameter, working(x.dtype()))?);
    }
    let rows = x.elements().checked_div(width).unwrap_or(0);
    rows_normalized(builder, x, operator.float("epsilon", epsilon)?, [rows, width], center, operands)
}

/// Normalises the sum of the embeddings of words, positions and segments. Also returns the number of words of each row,
/// and the sum.
fn embed(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let words = operator.typed(0, DType::I32)?;
    let &[batch, length] = words.dims() else {
        return Err(Fault::invalid(format!("word ids of shape {}, but two dimensions are needed", words.shape())));
    };
    for index in [2, 3, 4] {
        if operator.optional(index).is_some_and(|table| table.rank() != 2) {
            return Err(Fault::invalid(format!("input {index} is not a table of embeddings")));
        }
    }
    let table = operator.float_input(2)?;
    let width = table.dims().last().copied().unwrap_or(0);
    let dims = vec![batch, length, width];
    let domain = domain_of(table.dtype());
    let mut sum = chosen(builder, table, words, 0, dims.clone())?;
    let positions = operator.typed(3, table.dtype())?;
    let positions = match operator.optional(8) {
        Some(_) => {
            let places = operator.typed(8, DType::I32)?;
            if *places.dims() != [1, length] && *places.dims() != [batch, length] {
                return Err(Fault::invalid(format!("positions of shape {} for {}", places.shape(), words.shape())));
            }
            chosen(builder, positions, places, 0, [places.dims(), &[width]].concat())?
        }
        None => builder.part(positions, 0, 0, length.min(positions.dims()[0]))?,
    };
    sum = builder.map(domain, [&sum, &positions], table.dtype(), |[a, b]| a + b)?;
    if operator.optional(1).is_some() {
        let segments = chosen(builder, operator.typed(4, table.dtype())?, operator.typed(1, DType::I32)?, 0, dims)?;
        sum = builder.map(domain, [&sum, &segments], table.dtype(), |[a, b]| a + b)?;
    }
    let y = along_last(operator, builder, &sum, [Some(5), Some(6)], true, 1e-12)?;
    let counts = match operator.optional(7) {
        Some(_) => builder.reduced(operator.typed(7, DType::I32)?, ReduceKind::Sum, &[1])?.reshaped(vec![batch])?,
        None => builder.filled(TensorSpec::new(DType::I32, Shape::new(vec![batch])?), 0.0)?,
    };
    Ok(vec![y, counts, sum])
}

/// Lowers the standard's operator with its inputs in another order, and positions that may be one number to count from.
fn rotary(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.float("scale", 1.0)? != 1.0 || operator.flag("is_packed_batching", false)? {
        return Err(Fault::unsupported("a scale, or packed batches"));
    }
    let x = operator.float_input(0)?;
    let heads = operator.size("num_heads", 0, 0)?;
    let cosines = operator.float_input(2)?;
    let half = cosines.dims().last().copied().unwrap_or(0);
    let width = operator.size("rotary_embedding_dim", 0, 0)?;
    // Without a number of heads, each head has twice as many features as angles.
    let (batch, length, heads) = match *x.dims() {
        [batch, _, length, _] => (batch, length, heads),
        [batch, length, features] if heads == 0 && half > 0 => (batch, length, features / (2 * half)),
        [batch, length, _] => (batch, length, heads),
        _ => return Err(Fault::invalid(format!("an input of shape {}", x.shape()))),
    };
    let given = operator.typed(1, DType::I64)?;
    let positions = if given.elements() == 1 {
        let steps = builder.indices(DType::I64, length, 1, 2)?;
        let first = given.reshaped(vec![])?;
        let row = builder.map(Domain::I64, [&steps, &first], DType::I64, |[step, first]| step + first)?;
        builder.expanded(&row, Shape::new(vec![batch, length])?)?
    } else {
        given.clone()
    };
    let angles = [cosines, operator.float_input(3)?];
    Ok(vec![turned(builder, x, angles, Some(&positions), heads, width, operator.flag("interleaved", false)?)?])
}
