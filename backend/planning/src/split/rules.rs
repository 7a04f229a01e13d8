//! Rules of the operators: where the rows of a batch are in a node's outputs, given where they are in its inputs.
//!
//! A rule says for each axis of an input to which axis of the result it corresponds: the result at a position of that
//! axis reads only this position of the input. Axes without such an axis are summed, searched or moved. If the batch is
//! along an axis that corresponds to none, rows depend on each other, and the node is refused.

use super::layout::{Axis, Layout};
use anabranch_kernels::op::{NodeSpec, Op};

/// Reading of a node, if it computes rows from rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowRule {
    /// For each input, where the rows are that a row of the outputs reads; `None` if each row reads the whole input.
    pub(super) reads: Vec<Option<Layout>>,
    /// For each output, where its rows are.
    pub(super) outputs: Vec<Layout>,
}

/// Correspondence between the axes of an input and of a result.
struct Axes {
    /// Dimensions of the result as the rule counts them.
    result: Vec<usize>,
    /// For each axis of the input, the axis of the result.
    to: Vec<Option<usize>>,
    /// Whether each row must read the whole input.
    whole: bool,
}

impl Axes {
    fn new(result: &[usize], to: Vec<Option<usize>>) -> Self {
        Self { result: result.to_vec(), to, whole: false }
    }

    /// Creates the correspondence of an operand that is broadcast to the result.
    fn broadcast(operand: &[usize], result: &[usize]) -> Self {
        let lead = result.len().saturating_sub(operand.len());
        Self::new(result, (0..operand.len()).map(|axis| Some(lead + axis)).collect())
    }

    /// Creates the correspondence of an input whose axes are those of the result, except some.
    fn same(rank: usize, result: &[usize], keeps: impl Fn(usize) -> bool) -> Self {
        Self::new(result, (0..rank).map(|axis| keeps(axis).then_some(axis)).collect())
    }

    /// Creates the correspondence of an input of which each row reads everything.
    fn none(rank: usize, result: &[usize]) -> Self {
        Self { whole: true, ..Self::new(result, vec![None; rank]) }
    }
}

/// Returns the rule of a node with rows at `given` in its inputs, at least one of them. O(inputs × rank).
///
/// # Errors
/// The reason that rows of the outputs depend on several rows, or that this is unknown.
pub(super) fn rule(node: &NodeSpec, given: &[Option<Layout>], batch: usize) -> Result<RowRule, String> {
    if let Op::Recurrent(_) = &node.op {
        return recurrent(node, given, batch);
    }
    let axes = correspondence(node)?;
    let dims = |input: usize| node.inputs[input].shape.dims();
    let mut rows = None;
    for (input, layout) in given.iter().enumerate() {
        let Some(layout) = layout else { continue };
        if axes[input].whole && axes[input].to.iter().any(Option::is_some) {
            return Err(format!("its input {input} has rows of the batch, but must be the same for all rows"));
        }
        let axis = layout.axis(dims(input), batch).ok_or_else(|| split_apart(input))?;
        let to = axes[input].to[axis.number].ok_or_else(|| mixed(node, axis.number, input))?;
        let result = &axes[input].result;
        if result.get(to) != Some(&dims(input)[axis.number]) {
            return Err(mixed(node, axis.number, input));
        }
        let found = Layout::along(result, Axis { number: to, ..axis });
        if *rows.get_or_insert(found) != found {
            return Err(format!("its input {input} has the rows of the batch at another place than the others"));
        }
    }
    let rows = rows.ok_or("it reads no row of the batch")?;
    let whole = |(input, axes): (usize, &Axes)| match given[input] {
        Some(layout) => Ok(Some(layout)),
        None => rows_of(dims(input), axes, rows, batch)
            .map_err(|()| format!("its input {input} is the same in all rows, but has no elements of one row")),
    };
    let reads = axes.iter().enumerate().map(whole).collect::<Result<_, _>>()?;
    let outputs: Vec<_> = node.outputs.iter().map(|_| rows).collect();
    found_again(node, &outputs, batch)?;
    Ok(RowRule { reads, outputs })
}

/// Returns where the elements for each row are in an input that is no row of the batch; `None` if each row reads all.
fn rows_of(dims: &[usize], axes: &Axes, rows: Layout, batch: usize) -> Result<Option<Layout>, ()> {
    if axes.to.iter().all(Option::is_none) {
        return Ok(None);
    }
    let target = rows.axis(&axes.result, batch).ok_or(())?;
    let Some(number) = axes.to.iter().position(|to| *to == Some(target.number)) else { return Ok(None) };
    match dims[number] {
        1 => Ok(None),
        size if size == axes.result[target.number] && !axes.whole => {
            Ok(Some(Layout::along(dims, Axis { number, ..target })))
        }
        _ => Err(()),
    }
}

/// Checks that each output has an axis that contains its rows.
fn found_again(node: &NodeSpec, outputs: &[Layout], batch: usize) -> Result<(), String> {
    let lost = node.outputs.iter().zip(outputs).position(|(spec, rows)| rows.axis(spec.shape.dims(), batch).is_none());
    lost.map_or(Ok(()), |output| Err(format!("its output {output} has no axis with all rows of the batch")))
}

fn mixed(node: &NodeSpec, axis: usize, input: usize) -> String {
    let name = node.op.name();
    format!("each result of its {name} depends on several rows: axis {axis} of input {input} contains the batch")
}

fn split_apart(input: usize) -> String {
    format!("it reads input {input} under a shape that has no axis with all rows of the batch")
}

/// Returns the correspondence for each input of a node.
///
/// # Errors
/// If there is no rule for the op.
fn correspondence(node: &NodeSpec) -> Result<Vec<Axes>, String> {
    let dims = |input: usize| node.inputs[input].shape.dims();
    let rank = |input: usize| dims(input).len();
    let count = node.inputs.len();
    let out = node.outputs[0].shape.dims();
    // Operands of an epilogue are broadcast to the output.
    let with_epilogue = |mut own: Vec<Axes>| {
        own.extend((own.len()..count).map(|input| Axes::broadcast(dims(input), out)));
        own
    };
    // Each row reads the first input's axis 0, and all of the other inputs.
    let first_axis = || Axes::same(rank(0), out, |axis| axis == 0);
    let whole = |from: usize, to: usize| (from..to).map(|input| Axes::none(rank(input), out));
    let copied = |axes: Vec<bool>| vec![Axes::same(rank(0), out, |axis| axes[axis])];
    Ok(match &node.op {
        Op::Map(_) => with_epilogue(Vec::new()),
        Op::MatMul(op) => with_epilogue(product(node, op.transpose_a, op.transpose_b)),
        Op::IntegerMatMul(_) => {
            let mut axes = product(node, false, false);
            // Summands and zero points follow the matrices of B, which must then be the same for all rows.
            axes[1].whole = true;
            axes.extend(whole(2, count));
            axes
        }
        Op::NarrowMatMul(op) => with_epilogue([first_axis()].into_iter().chain(whole(1, op.operands())).collect()),
        Op::Conv(_) | Op::ConvTranspose(_) => with_epilogue([first_axis()].into_iter().chain(whole(1, 2)).collect()),
        Op::IntegerConv(_) | Op::Pool(_) | Op::Fourier(_) | Op::Trees(_) => {
            [first_axis()].into_iter().chain(whole(1, count)).collect()
        }
        Op::Reduce(op) => {
            let kept: Vec<_> = (0..rank(0)).filter(|axis| !op.axes.contains(axis)).collect();
            let result: Vec<_> = kept.iter().map(|axis| dims(0)[*axis]).collect();
            vec![Axes::new(&result, (0..rank(0)).map(|axis| kept.iter().position(|kept| *kept == axis)).collect())]
        }
        Op::ArgReduce(op) => {
            let result: Vec<_> = [&dims(0)[..op.axis], &dims(0)[op.axis + 1..]].concat();
            let to = (0..rank(0)).map(|axis| (axis != op.axis).then(|| axis - usize::from(axis > op.axis)));
            vec![Axes::new(&result, to.collect())]
        }
        Op::TopK(op) => vec![Axes::same(rank(0), out, |axis| axis != op.axis)],
        Op::Running(op) => vec![Axes::same(rank(0), dims(0), |axis| axis != op.axis)],
        Op::Softmax(op) => vec![Axes::same(rank(0), dims(0), |axis| axis != op.axis)],
        Op::Normalize(op) => with_epilogue(vec![Axes::same(rank(0), dims(0), |axis| axis < op.axis)]),
        Op::Resize(_) => vec![Axes::same(rank(0), out, |axis| axis + 2 < rank(0))],
        Op::Length(_) => vec![Axes::same(rank(0), out, |_| true)],
        Op::Transpose(op) => {
            vec![Axes::new(
                out,
                (0..rank(0)).map(|axis| op.permutation.iter().position(|from| *from == axis)).collect(),
            )]
        }
        Op::Concat(op) => (0..count).map(|input| Axes::same(rank(input), out, |axis| axis != op.axis)).collect(),
        Op::Slice(op) => {
            let whole = |axis: usize| op.starts[axis] == 0 && op.steps[axis] == 1 && dims(0)[axis] == out[axis];
            copied((0..rank(0)).map(whole).collect())
        }
        Op::Pad(op) => copied((0..rank(0)).map(|axis| op.before[axis] == 0 && dims(0)[axis] == out[axis]).collect()),
        Op::Gather(op) if op.elementwise => {
            let data = Axes::same(rank(0), dims(1), |axis| axis != op.axis);
            vec![data, Axes::same(rank(1), dims(1), |_| true)]
        }
        Op::Gather(op) => {
            let result = [&dims(0)[..op.axis], dims(1), &dims(0)[op.axis + 1..]].concat();
            let to = |axis: usize| match axis.cmp(&op.axis) {
                std::cmp::Ordering::Less => Some(axis),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some(axis - 1 + rank(1)),
            };
            let indices = (0..rank(1)).map(|axis| Some(op.axis + axis)).collect();
            vec![Axes::new(&result, (0..rank(0)).map(to).collect()), Axes::new(&result, indices)]
        }
        Op::Attention(_) => cached(node, &[0, 1, 2, 3, 4, 5], &[])?,
        Op::Append(_) => cached(node, &[0, 1, 2], &[])?,
        Op::Rotary(_) => cached(node, &[0, 3], &[1, 2])?,
        Op::Scatter(_) => return Err("its indices may name any row of the batch".into()),
        Op::Block(_) => return Err("it is a streaming block".into()),
        Op::Recurrent(_) => return Err("it has a rule of its own".into()),
    })
}

/// Returns the correspondence of the matrices of a product.
fn product(node: &NodeSpec, transpose_a: bool, transpose_b: bool) -> Vec<Axes> {
    let out = node.outputs[0].shape.dims();
    // An axis that is kept is the rows of A or the columns of B; the other one is summed.
    let operand = |input: usize, kept_is_last: bool, to: usize| {
        let rank = node.inputs[input].shape.rank();
        let kept = if kept_is_last { rank - 1 } else { rank - 2 };
        let batch = |axis: usize| (axis + 2 < rank).then(|| axis + out.len() - rank);
        Axes::new(out, (0..rank).map(|axis| if axis == kept { Some(to) } else { batch(axis) }).collect())
    };
    vec![operand(0, transpose_a, out.len() - 2), operand(1, !transpose_b, out.len() - 1)]
}

/// Returns the correspondence of an op whose inputs `rowed` begin with the axis of the batch, and `shared` do not.
fn cached(node: &NodeSpec, rowed: &[usize], shared: &[usize]) -> Result<Vec<Axes>, String> {
    let batch = node.inputs[0].shape.dims()[0];
    // Only the number of elements of the output is checked.
    let result = [batch, node.outputs[0].shape.elements() / batch.max(1)];
    let axes = |(input, spec): (usize, &anabranch_kernels::TensorSpec)| {
        let dims = spec.shape.dims();
        match dims.first() {
            _ if shared.contains(&input) => Ok(Axes::none(dims.len(), &result)),
            Some(first) if rowed.contains(&input) && (*first == batch || *first == 1 && dims.len() == 4) => {
                Ok(Axes::same(dims.len(), &result, |axis| axis == 0))
            }
            _ => Err(format!("its input {input} does not begin with the axis of the batch")),
        }
    };
    node.inputs.iter().enumerate().map(axes).collect()
}

/// Returns the rule of a recurrent layer: the batch is axis 1 of its inputs and results, and axis 0 of its states.
fn recurrent(node: &NodeSpec, given: &[Option<Layout>], batch: usize) -> Result<RowRule, String> {
    let dims = |input: usize| node.inputs[input].shape.dims();
    let ([steps, _, units], _) = node.recurrent_sizes().ok_or("its sizes are unknown")?;
    let axis = given[0].and_then(|layout| layout.axis(dims(0), batch)).filter(|axis| axis.number == 1);
    let Some(Axis { before, after, .. }) = axis else {
        return Err("the rows of the batch are not axis 1 of its first input".into());
    };
    let state = Layout { outer: before, inner: after * units };
    if given[1].is_some() || given[2].is_some() || given[3..].iter().flatten().any(|layout| *layout != state) {
        return Err("its weights or states have rows of the batch at another place".into());
    }
    let rows = Layout { outer: steps * before, inner: after * units };
    let outputs: Vec<_> = (0..node.outputs.len()).map(|output| if output == 0 { rows } else { state }).collect();
    let mut reads = vec![given[0], None, None];
    reads.resize(node.inputs.len(), Some(state));
    if reads
        .iter()
        .zip(&node.inputs)
        .any(|(read, spec)| read.is_some_and(|rows| rows.axis(spec.shape.dims(), batch).is_none()))
    {
        return Err("its states have no axis with all rows of the batch".into());
    }
    found_again(node, &outputs, batch)?;
    Ok(RowRule { reads, outputs })
}
