//! Merges a constant factor and offset per channel of a convolution's result into its weights and bias: the form of a
//! batch normalisation after training.
//!
//! Class: exact within bounds of constants. A sum of scaled products is rounded differently from a scaled sum. If
//! rounding to integers follows, as behind fake quantisation, values next to a half may become another integer. The
//! bounds are those of [`FACTORS`]. Each new weight must be a normal number, or 0 because one of its factors is 0, and
//! each new offset must be finite. Sums that overflow before they are scaled, and not after it, become finite.

use super::graph::{Graph, as_map};
use super::maps::{both, folded};
use crate::lower::fold::Folding;
use anabranch_ir::constant::{Constant, ConstantError};
use anabranch_ir::program::Node;
use anabranch_kernels::op::{Binary, Expression, Literal, NodeSpec, Op, Register, Step};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::ops::Range;

/// Magnitudes of factors for weights: beyond them the scaled sum is hardly useful, and may lose digits.
const FACTORS: Range<f64> = 5e-20..2e19;

/// Folds scaling expressions into the convolutions before them, as long as `folding` allows the new weights.
pub(super) fn fold_scales(graph: &mut Graph, folding: &mut Folding) {
    for position in 0..graph.end() {
        let Some((conv, weights, bias)) = scaled(graph, position, folding) else { continue };
        if !folding.take(weights.spec().bytes() + 4 * bias.len()) {
            return;
        }
        replace(graph, position, conv, weights, &bias);
    }
}

/// The line `x · factor + offset`, a pair for each channel, in `f64` until they are stored.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    factor: Vec<f64>,
    offset: Vec<f64>,
}

/// Returns a convolution merged with the expression at `position` after it, with the new weights and bias.
fn scaled(graph: &Graph, position: usize, folding: &Folding) -> Option<(Node, Constant, Vec<f32>)> {
    let node = graph.node(position)?;
    as_map(&node.spec)?;
    let single = |spec: &TensorSpec| spec.dtype == DType::F32;
    if !node.spec.inputs.iter().chain(&node.spec.outputs).all(single) {
        return None;
    }
    (0..node.inputs.len()).find_map(|at| {
        let (_, conv) = graph.sole_maker(node.inputs[at], position)?;
        let made = &conv.spec.outputs[0].shape;
        let output = &node.spec.outputs[0].shape;
        let channels = *made.dims().get(1)?;
        if output.elements() != made.elements() || output.rank() < 3 || output.dims()[..2] != made.dims()[..2] {
            return None;
        }
        let weights = graph.constant_input(conv, 1)?;
        // The weights must suffice for all channels, because the value may have any number of channels.
        if weights.shape().elements() < channels {
            return None;
        }
        let mut line = line_of(graph, node, at, channels, folding)?;
        let bounded = |factor: &f64| *factor == 0.0 || FACTORS.contains(&factor.abs());
        if !line.factor.iter().all(bounded) {
            return None;
        }
        let factors = weight_factors(&conv.spec, weights.shape(), &line.factor)?;
        let old_bias = constant_bias(graph, conv, channels, folding)?;
        let bias = line.offset.iter_mut().zip(&line.factor).zip(&old_bias);
        let bias =
            bias.map(|((offset, factor), bias)| (*offset + factor * f64::from(*bias)) as f32).collect::<Vec<f32>>();
        if !bias.iter().all(|bias| bias.is_finite()) {
            return None;
        }
        if !keeps_digits(&folding.loaded(&weights)?, &factors) {
            return None;
        }
        let weights = folding.noted(multiplied(weights, &factors)?)?;
        let mut conv = conv.clone();
        conv.name = node.name.clone();
        conv.operators = both(&conv.operators, &folded(&node.operators));
        conv.outputs = node.outputs.clone();
        Some((conv, weights, bias))
    })
}

/// Returns the expression as a line in its input `at`, if its other operands are constants per channel.
fn line_of(graph: &Graph, node: &Node, at: usize, channels: usize, folding: &Folding) -> Option<Line> {
    let map = as_map(&node.spec)?;
    let mut registers: Vec<Number> = Vec::with_capacity(map.expression.registers());
    for input in 0..node.inputs.len() {
        registers.push(if input == at {
            Number::Line(Line { factor: vec![1.0; channels], offset: vec![0.0; channels] })
        } else {
            Number::Constant(by_channel(&graph.constant_input(node, input)?, node, channels, folding)?)
        });
    }
    for step in map.expression.steps() {
        let register = |register: &Register| registers.get(usize::from(register.0));
        let number = match step {
            Step::Constant(Literal::Float(value)) => Number::Constant(vec![*value; channels]),
            Step::Binary(function, a, b) => combined(*function, register(a)?, register(b)?)?,
            _ => return None,
        };
        registers.push(number);
    }
    match registers.pop()? {
        Number::Line(line) => Some(line),
        Number::Constant(_) => None,
    }
}

/// Content of a register: a number per channel, or a line in the convolution's result.
enum Number {
    Constant(Vec<f64>),
    Line(Line),
}

fn combined(function: Binary, a: &Number, b: &Number) -> Option<Number> {
    let each = |a: &[f64], b: &[f64], f: fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect();
    let moved = |line: &Line, by: &[f64], f: fn(f64, f64) -> f64| {
        Number::Line(Line { factor: line.factor.clone(), offset: each(&line.offset, by, f) })
    };
    let stretched = |line: &Line, by: &[f64], f: fn(f64, f64) -> f64| {
        Number::Line(Line { factor: each(&line.factor, by, f), offset: each(&line.offset, by, f) })
    };
    Some(match (function, a, b) {
        (Binary::Add, Number::Line(line), Number::Constant(c))
        | (Binary::Add, Number::Constant(c), Number::Line(line)) => moved(line, c, |a, b| a + b),
        (Binary::Subtract, Number::Line(line), Number::Constant(c)) => moved(line, c, |a, b| a - b),
        (Binary::Multiply, Number::Line(line), Number::Constant(c))
        | (Binary::Multiply, Number::Constant(c), Number::Line(line)) => stretched(line, c, |a, b| a * b),
        (Binary::Divide, Number::Line(line), Number::Constant(c)) => stretched(line, c, |a, b| a / b),
        _ => return None,
    })
}

/// Returns a constant operand as a number per channel, if it does not vary along other axes.
fn by_channel(constant: &Constant, node: &Node, channels: usize, folding: &Folding) -> Option<Vec<f64>> {
    let own = constant.shape();
    if own.elements() != 1 && own.elements() != channels {
        return None;
    }
    let tensor = folding.loaded(constant)?;
    let numbers: Vec<f64> = tensor.elements::<f32>()?.iter().map(|number| f64::from(*number)).collect();
    let rank = node.spec.outputs[0].shape.rank();
    let along_channels = own.rank() + 1 == rank || own.rank() == rank;
    match numbers.len() {
        1 => Some(vec![numbers[0]; channels]),
        count if count == channels && along_channels && own.dims()[own.rank() + 1 - rank] == channels => Some(numbers),
        _ => None,
    }
}

/// Returns the convolution's bias, zeros if it has none; `None` if its epilogue is more than a constant bias.
fn constant_bias(graph: &Graph, conv: &Node, channels: usize, folding: &Folding) -> Option<Vec<f32>> {
    match conv.spec.op.epilogue() {
        None => Some(vec![0.0; channels]),
        Some(epilogue) if *epilogue == Expression::binary(Binary::Add) => {
            let bias = folding.loaded(&graph.constant_input(conv, 2)?)?;
            let along = *bias.shape().dims() == [channels, 1, 1];
            bias.elements::<f32>().filter(|_| along).map(<[f32]>::to_vec)
        }
        Some(_) => None,
    }
}

/// Returns a factor for each of the equal slices of the weights, from the factors of the result's channels: for
/// `weights[i]`, or `weights[i, j]` of a transposed convolution.
fn weight_factors(spec: &NodeSpec, weights: &Shape, factors: &[f64]) -> Option<Vec<f64>> {
    let (rows, columns) = (*weights.dims().first()?, *weights.dims().get(1)?);
    match &spec.op {
        Op::Conv(_) => (rows == factors.len()).then(|| factors.to_vec()),
        // The rows of one group of input channels lead to one group of output channels.
        Op::ConvTranspose(op) => {
            let each = (0..rows).map(|row| factors.get(row / (rows / op.group).max(1) * columns..)?.get(..columns));
            Some(each.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}

/// Whether each weight times its factor is a normal number, or 0 because weight or factor is 0.
fn keeps_digits(weights: &Tensor, factors: &[f64]) -> bool {
    let Some(elements) = weights.elements::<f32>() else { return false };
    let mut slices = elements.chunks((elements.len() / factors.len().max(1)).max(1)).zip(factors);
    slices.all(|(weights, factor)| {
        // A slice at a time without branches: this reads all weights of a model.
        let sound = |weight: &f32| {
            let product = f64::from(*weight) * factor;
            (product as f32).is_normal() | (product == 0.0) & ((*weight == 0.0) | (*factor == 0.0))
        };
        weights.iter().fold(true, |all, weight| all & sound(weight))
    })
}

/// Multiplies each of the equal slices of the weights by its factor.
fn multiplied(weights: Constant, factors: &[f64]) -> Option<Result<Constant, ConstantError>> {
    let slice = weights.shape().elements().checked_div(factors.len())?.max(1);
    let factors = Tensor::from_elements(Shape::new([factors.len()]).ok()?, factors).ok()?;
    let make = move |inputs: &[Tensor]| {
        let (weights, factors) = (inputs[0].elements::<f32>(), inputs[1].elements::<f64>());
        let (Some(weights), Some(factors)) = (weights, factors) else { return Err("its parts are not floats".into()) };
        let mut scaled = Tensor::zeroed(inputs[0].spec().clone());
        let slices = scaled.elements_mut::<f32>().ok_or("it is not of its own")?.chunks_mut(slice);
        for ((scaled, weights), factor) in slices.zip(weights.chunks(slice)).zip(factors) {
            scaled.iter_mut().zip(weights).for_each(|(scaled, weight)| *scaled = (f64::from(*weight) * factor) as f32);
        }
        Ok(scaled)
    };
    let (spec, inputs) = (weights.spec().clone(), vec![weights, factors.into()]);
    (spec.dtype == DType::F32).then(|| Constant::made(spec, "multiplied".into(), inputs, make))
}

/// Replaces the expression by the scaled convolution.
fn replace(graph: &mut Graph, position: usize, mut conv: Node, weights: Constant, bias: &[f32]) {
    conv.inputs.truncate(2);
    conv.spec.inputs.truncate(2);
    conv.spec.inputs[1] = weights.spec().clone();
    conv.inputs[1] = graph.add_constant(format!("{}:weights", conv.name), weights);
    let any = bias.iter().any(|bias| *bias != 0.0);
    if let Some(epilogue) = conv.spec.op.epilogue_mut() {
        *epilogue = any.then(|| Expression::binary(Binary::Add));
    }
    if any {
        let shape = Shape::new(vec![bias.len(), 1, 1]).expect("as many elements as a vector that exists");
        let bias = Tensor::from_elements(shape, bias).expect("one element for each channel");
        conv.spec.inputs.push(bias.spec().clone());
        conv.inputs.push(graph.add_constant(format!("{}:bias", conv.name), bias));
    }
    graph.replace(position, conv);
}
