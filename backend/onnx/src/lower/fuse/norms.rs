//! Finds normalisations that a model spells out in elementary operators, and makes each one node.
//!
//! Exporters before version 17 of the operators write layer norms like this, and most exporters write root-mean-square
//! norms like this.
//!
//! Class: a few roundings, within bounds of inputs. The single node adds in another order and multiplies by the root's
//! reciprocal. If the mean of squares overflows or is below the normal numbers, the node computes in `f64`: its result
//! is that of real numbers, while the elementary operators divide by infinity, or by 0.

use super::graph::{Graph, as_map};
use super::maps::{both, operands_of, reading, with_map};
use super::rebuild::{Rebuilt, Source, rebuild};
use anabranch_ir::program::{ModelOperator, Node, ValueId};
use anabranch_kernels::op::{
    Binary, Domain, Expression, Literal, Map, Normalize, Op, Reduce, ReduceKind, Register, Step, Unary,
};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Makes one node of each `v / √(mean(v²) + ε)` over trailing axes, and of `v = x − mean(x)` with it. The rest of the
/// expression stays an expression, which reads the normalisation.
pub(super) fn recognise_norms(graph: &mut Graph) {
    for position in 0..graph.end() {
        let Some((at, norm, rest)) = recognised(graph, position) else { continue };
        graph.replace(at, norm);
        graph.replace(position, rest);
    }
}

/// Returns the normalisation, its position (that of the maker of the root, which only the quotient reads), and the
/// expression with the normalisation in place of the quotient.
fn recognised(graph: &Graph, position: usize) -> Option<(usize, Node, Node)> {
    let node = graph.node(position)?;
    let map = as_map(&node.spec).filter(|map| map.domain == Domain::F32)?;
    let inputs = node.inputs.len();
    let input = |register: Register| Some(usize::from(register.0)).filter(|input| *input < inputs);
    let uses = |input: usize| {
        let read = map.expression.steps().iter().flat_map(Step::operands);
        read.filter(|register| usize::from(register.0) == input).count()
    };
    map.expression.steps().iter().enumerate().find_map(|(index, step)| {
        let (sides, reciprocal) = match *step {
            Step::Binary(Binary::Divide, a, b) => (vec![(a, b)], false),
            Step::Binary(Binary::Multiply, a, b) => (vec![(a, b), (b, a)], true),
            _ => return None,
        };
        sides.into_iter().find_map(|(value, root)| {
            let (value, root) = (input(value)?, input(root)?);
            let once = [value, root].iter().all(|input| uses(*input) == 1);
            let (at, norm) = norm_of(graph, position, value, root, reciprocal).filter(|_| once)?;
            let Rebuilt { expression, used } = without(map, index, value)?;
            let own = operands_of(node);
            let operand = |input: &u16| match usize::from(*input) {
                input if input == value => (norm.outputs[0], norm.spec.outputs[0].clone()),
                input => own[input].clone(),
            };
            let operands = used.iter().map(operand).collect();
            let rest = with_map(node, Map { domain: Domain::F32, expression }, operands);
            Some((at, norm, rest))
        })
    })
}

/// Returns the normalisation for the quotient of inputs `value` and `root` of the node at `position` (their product if
/// the root is `reciprocal`), and the position of the root.
fn norm_of(graph: &Graph, position: usize, value: usize, root: usize, reciprocal: bool) -> Option<(usize, Node)> {
    let node = graph.node(position)?;
    let read = &node.spec.inputs[value];
    let (at, root_node) = graph.sole_maker(node.inputs[root], position)?;
    let epsilon = epsilon_of(as_map(&root_node.spec)?, reciprocal)?;
    let (first, mean) = mean_of(graph, root_node.inputs[0])?;
    let square = graph.node(graph.maker(mean.inputs[0])?)?;
    let source = square_source(square)?;
    let shape = &read.shape;
    let sound = read.dtype == DType::F32
        && source == node.inputs[value]
        && mean.spec.inputs[0].shape == *shape
        && node.spec.outputs[0].shape == *shape
        && is_one_a_row(&node.spec.inputs[root].shape, shape, first);
    if !sound {
        return None;
    }
    let operators = both(&both(&square.operators, &mean.operators), &root_node.operators);
    let (source, operators, center) = match centered_source(graph, source, shape, first) {
        Some((source, earlier)) => (source, both(&earlier, &operators), true),
        None => (source, operators, false),
    };
    let dims = shape.dims();
    let rows = vec![dims[..first].iter().product(), dims[first..].iter().product::<usize>()];
    let operand = (source, TensorSpec::new(DType::F32, Shape::new(rows).ok()?));
    let op = Op::Normalize(Normalize { axis: 1, epsilon, center, epilogue: None });
    let norm = reading(root_node, op, vec![operand], TensorSpec::new(DType::F32, shape.clone()));
    Some((at, Node { operators, ..norm }))
}

/// Whether `shape` has one element for each row of `full`; a row consists of all axes from `first` on.
fn is_one_a_row(shape: &Shape, full: &Shape, first: usize) -> bool {
    let Some(lead) = full.rank().checked_sub(shape.rank()) else { return false };
    full.dims().iter().enumerate().all(|(axis, dim)| {
        let own = axis.checked_sub(lead).map_or(1, |own| shape.dims()[own]);
        own == if axis < first { *dim } else { 1 }
    })
}

/// Returns ε if the expression is `√(x + ε)` or (`reciprocal`) `1 / √(x + ε)`. The root may be written as a power: for
/// a mean of squares both are equal.
fn epsilon_of(map: &Map, reciprocal: bool) -> Option<f32> {
    let expression = &map.expression;
    let step = |register: Register| expression.steps().get(usize::from(register.0).checked_sub(expression.inputs())?);
    let literal = |register: Register| match step(register) {
        Some(Step::Constant(Literal::Float(value))) => Some(*value),
        _ => None,
    };
    let root = match step(expression.result())? {
        Step::Unary(Unary::Reciprocal, root) if reciprocal => *root,
        Step::Binary(Binary::Divide, one, root) if reciprocal && literal(*one) == Some(1.0) => *root,
        _ if reciprocal => return None,
        _ => expression.result(),
    };
    let shifted = match step(root)? {
        Step::Unary(Unary::Sqrt, shifted) => *shifted,
        Step::Binary(Binary::Power, shifted, half) if literal(*half) == Some(0.5) => *shifted,
        _ => return None,
    };
    let Step::Binary(Binary::Add, a, b) = step(shifted)? else { return None };
    let (x, epsilon) = if let Some(epsilon) = literal(*b) { (*a, epsilon) } else { (*b, literal(*a)?) };
    let sound = x == Register(0) && map.domain == Domain::F32 && expression.inputs() == 1;
    sound.then_some(epsilon as f32)
}

/// Returns the node that makes the value as a mean over trailing axes, with the first of these axes.
fn mean_of(graph: &Graph, value: ValueId) -> Option<(usize, &Node)> {
    let node = graph.node(graph.maker(value)?)?;
    let Op::Reduce(Reduce { kind: ReduceKind::Mean, axes }) = &node.spec.op else { return None };
    let (first, read) = (*axes.first()?, &node.spec.inputs[0]);
    let trailing = axes.iter().copied().eq(first..read.shape.rank());
    (trailing && read.dtype == DType::F32).then_some((first, node))
}

/// Returns the value whose square the node makes.
fn square_source(node: &Node) -> Option<ValueId> {
    let map = as_map(&node.spec).filter(|map| map.domain == Domain::F32)?;
    let square = [Step::Binary(Binary::Multiply, Register(0), Register(0))];
    (map.expression.steps() == square && node.inputs.len() == 1).then(|| node.inputs[0])
}

/// Returns the value from which `value` was made by subtracting the mean of each row, with the operators that did it.
fn centered_source(
    graph: &Graph,
    value: ValueId,
    shape: &Shape,
    first: usize,
) -> Option<(ValueId, Vec<ModelOperator>)> {
    let node = graph.node(graph.maker(value)?)?;
    let map = as_map(&node.spec).filter(|map| map.domain == Domain::F32)?;
    let &[source, mean] = &node.inputs[..] else { return None };
    let (first_of_mean, means) = mean_of(graph, mean)?;
    let sound = map.expression == Expression::binary(Binary::Subtract)
        && (means.inputs[0], first_of_mean) == (source, first)
        && [&node.spec.inputs[0], &node.spec.outputs[0], &means.spec.inputs[0]].iter().all(|spec| spec.shape == *shape)
        && is_one_a_row(&node.spec.inputs[1].shape, shape, first);
    sound.then(|| (source, both(&means.operators, &node.operators)))
}

/// Returns the expression with `value` in place of the step at `index`.
fn without(map: &Map, index: usize, value: usize) -> Option<Rebuilt> {
    let inputs = map.expression.inputs();
    let (stand_in, quotient) = (Register(u16::try_from(value).ok()?), inputs + index);
    if quotient == usize::from(map.expression.result().0) {
        return Some(Rebuilt { expression: Expression::identity(), used: vec![stand_in.0] });
    }
    let rename = |register: Register| if usize::from(register.0) == quotient { stand_in } else { register };
    let steps = map.expression.steps().iter().map(|step| step.renamed(rename)).collect();
    let sources: Vec<_> = (0..u16::try_from(inputs).ok()?).map(Source::Input).collect();
    rebuild(&Expression::new(inputs, steps).ok()?, map.domain, &sources)
}
