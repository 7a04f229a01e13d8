//! Finds normalisations that a model spells out in elementary operators, as exporters before version 17 of the operators
//! write layer norms and most write root-mean-square norms, and makes each one node.

use super::graph::{Graph, as_map};
use super::maps::{both, operands_of, with_map};
use super::rebuild::{Rebuilt, Source, rebuild};
use crate::program::{ModelOperator, Node, ValueId};
use anabranch_kernels::op::{
    Binary, Domain, Expression, Literal, Map, NodeSpec, Normalize, Op, Reduce, ReduceKind, Register, Step, Unary,
};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Makes one node of each `v / √(mean(v²) + ε)` over trailing axes, and of `v = x − mean(x)` with it. What else the
/// expression computes stays an expression, which reads the normalisation.
pub(super) fn recognise_norms(graph: &mut Graph) {
    for position in 0..graph.end() {
        let Some(norm) = recognised(graph, position) else { continue };
        graph.replace(norm.position, norm.node);
        graph.replace(position, norm.rest);
    }
}

/// A normalisation that was found.
struct Norm {
    /// Where the node stands that made the root, which only the quotient reads: the normalisation takes its place.
    position: usize,
    /// The normalisation.
    node: Node,
    /// The expression with the normalisation in place of the quotient.
    rest: Node,
}

fn recognised(graph: &Graph, position: usize) -> Option<Norm> {
    let node = graph.node(position)?;
    let map = as_map(&node.spec).filter(|map| map.domain == Domain::F32)?;
    let inputs = node.inputs.len();
    let input = |register: Register| Some(usize::from(register.0)).filter(|input| *input < inputs);
    map.expression.steps().iter().enumerate().find_map(|(index, step)| {
        let (sides, reciprocal) = match *step {
            Step::Binary(Binary::Divide, a, b) => (vec![(a, b)], false),
            Step::Binary(Binary::Multiply, a, b) => (vec![(a, b), (b, a)], true),
            _ => return None,
        };
        sides.into_iter().find_map(|(value, root)| {
            let (value, root) = (input(value)?, input(root)?);
            let once = [value, root].iter().all(|input| uses(&map.expression, *input) == 1);
            let found = Parts::find(graph, position, value, root, reciprocal).filter(|_| once)?;
            joined(graph, position, found, without(map, index, value)?, value)
        })
    })
}

/// How often an expression reads an input.
fn uses(expression: &Expression, input: usize) -> usize {
    expression.steps().iter().flat_map(Step::operands).filter(|register| usize::from(register.0) == input).count()
}

/// What a normalisation was spelt out in.
struct Parts {
    position: usize,
    source: ValueId,
    /// The shape of the source, and the first of the axes that are normalised together.
    shape: Shape,
    first: usize,
    epsilon: f32,
    center: bool,
    operators: Vec<ModelOperator>,
}

impl Parts {
    /// The parts behind the quotient of inputs `value` and `root` of the node at `position`; their product if the root
    /// is made `reciprocal`.
    fn find(graph: &Graph, position: usize, value: usize, root: usize, reciprocal: bool) -> Option<Self> {
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
        let mut operators = both(&both(&square.operators, &mean.operators), &root_node.operators);
        let centered = centered_source(graph, source, shape, first);
        if let Some((_, earlier)) = &centered {
            operators = both(earlier, &operators);
        }
        let center = centered.is_some();
        let source = centered.map_or(source, |(source, _)| source);
        Some(Self { position: at, source, shape: shape.clone(), first, epsilon, center, operators })
    }
}

/// Whether `shape` has one element for each row of `full`, a row being all axes from `first` on.
fn is_one_a_row(shape: &Shape, full: &Shape, first: usize) -> bool {
    let Some(lead) = full.rank().checked_sub(shape.rank()) else { return false };
    full.dims().iter().enumerate().all(|(axis, dim)| {
        let own = axis.checked_sub(lead).map_or(1, |own| shape.dims()[own]);
        own == if axis < first { *dim } else { 1 }
    })
}

/// ε where the expression is `√(x + ε)` or (`reciprocal`) `1 / √(x + ε)`.
fn epsilon_of(map: &Map, reciprocal: bool) -> Option<f32> {
    let (x, literal, shifted, root) = (Register(0), Register(1), Register(2), Register(3));
    let steps = map.expression.steps();
    let &[Step::Constant(Literal::Float(epsilon)), Step::Binary(Binary::Add, a, b), Step::Unary(Unary::Sqrt, c), ..] =
        steps
    else {
        return None;
    };
    let is_root = ((a, b) == (x, literal) || (a, b) == (literal, x)) && c == shifted;
    let turned = match steps[3..] {
        [] => Some(false),
        [Step::Unary(Unary::Reciprocal, a)] => (a == root).then_some(true),
        [Step::Constant(Literal::Float(1.0)), Step::Binary(Binary::Divide, a, b)] => {
            ((a, b) == (Register(4), root)).then_some(true)
        }
        _ => None,
    };
    let sound = is_root && map.domain == Domain::F32 && map.expression.inputs() == 1 && turned == Some(reciprocal);
    sound.then_some(epsilon as f32)
}

/// The node that makes the value as a mean over trailing axes, with the first of them.
fn mean_of(graph: &Graph, value: ValueId) -> Option<(usize, &Node)> {
    let node = graph.node(graph.maker(value)?)?;
    let Op::Reduce(Reduce { kind: ReduceKind::Mean, axes }) = &node.spec.op else { return None };
    let (first, read) = (*axes.first()?, &node.spec.inputs[0]);
    let trailing = axes.iter().copied().eq(first..read.shape.rank());
    (trailing && read.dtype == DType::F32).then_some((first, node))
}

/// The value whose square the node makes.
fn square_source(node: &Node) -> Option<ValueId> {
    let map = as_map(&node.spec).filter(|map| map.domain == Domain::F32)?;
    let square = [Step::Binary(Binary::Multiply, Register(0), Register(0))];
    (map.expression.steps() == square && node.inputs.len() == 1).then(|| node.inputs[0])
}

/// The value from which `value` was made by subtracting the mean of each row, with the operators that did it.
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

/// The expression with `value` in place of the step at `index`.
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

/// The normalisation, and the expression that reads it where it read `value`.
fn joined(graph: &Graph, position: usize, parts: Parts, rebuilt: Rebuilt, value: usize) -> Option<Norm> {
    let (node, old) = (graph.node(position)?, graph.node(parts.position)?);
    let dims = parts.shape.dims();
    let rows = vec![dims[..parts.first].iter().product(), dims[parts.first..].iter().product::<usize>()];
    let spec = NodeSpec {
        op: Op::Normalize(Normalize { axis: 1, epsilon: parts.epsilon, center: parts.center, epilogue: None }),
        inputs: vec![TensorSpec::new(DType::F32, Shape::new(rows).ok()?)],
        outputs: vec![TensorSpec::new(DType::F32, parts.shape)],
    };
    let own = operands_of(node);
    let operand = |input: &u16| match usize::from(*input) {
        input if input == value => (old.outputs[0], spec.outputs[0].clone()),
        input => own[input].clone(),
    };
    let operands = rebuilt.used.iter().map(operand).collect();
    let mut rest = with_map(node, Map { domain: Domain::F32, expression: rebuilt.expression }, operands);
    rest.operators = node.operators.clone();
    let node = Node { spec, inputs: vec![parts.source], operators: parts.operators, ..old.clone() };
    Some(Norm { position: parts.position, node, rest })
}
