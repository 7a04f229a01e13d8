//! Cuts a product with constant weights into one product for each range of columns that is read. Queries, keys and
//! values of an attention are often computed together and then separated; they become three products without a
//! separation.
//!
//! Class: order of sums. A product of fewer columns may add its terms in another order.

use super::graph::Graph;
use super::maps::{both, folded, operands_of, reading};
use super::operands::Operand;
use crate::lower::fold::Folding;
use anabranch_ir::constant::{Constant, ConstantError};
use anabranch_ir::program::{Node, ValueId};
use anabranch_kernels::op::{Op, Slice};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::ops::Range;

/// Fewest columns of a range: narrower products would cost more than they save.
const FEWEST_COLUMNS: usize = 64;

/// Cuts products whose result is read only by slices of whole columns.
pub(super) fn cut_columns(graph: &mut Graph, folding: &mut Folding) {
    for position in 0..graph.end() {
        let Some(readers) = column_readers(graph, position) else { continue };
        for (reader, columns) in readers {
            let Some(node) = cut(graph, position, reader, &columns, folding) else { break };
            graph.replace(reader, node);
        }
    }
}

/// Slices that read the product at `position`, each with its columns; `None` unless there are several, they are the
/// only readers, and their columns do not overlap.
fn column_readers(graph: &Graph, position: usize) -> Option<Vec<(usize, Range<usize>)>> {
    let node = graph.node(position)?;
    let Op::MatMul(op) = &node.spec.op else { return None };
    let plain = !op.transpose_a && node.spec.inputs[1].shape.rank() == 2;
    let made = node.outputs[0];
    if !plain || graph.is_received(made) || graph.constant(node.inputs[1]).is_none() {
        return None;
    }
    let width = *node.spec.outputs[0].shape.dims().last()?;
    let mut readers = Vec::new();
    for reader in graph.readers(made) {
        readers.push((reader, taken_columns(graph.node(reader)?, width)?));
    }
    let mut ranges: Vec<_> = readers.iter().map(|(_, columns)| columns.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    let apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
    let wide = ranges.iter().all(|range| range.len() >= FEWEST_COLUMNS);
    (readers.len() > 1 && apart && wide).then_some(readers)
}

/// Columns that a slice takes of a matrix of `width` columns, if it takes all rows of them in order.
fn taken_columns(node: &Node, width: usize) -> Option<Range<usize>> {
    let Op::Slice(Slice { starts, steps }) = &node.spec.op else { return None };
    let (read, made) = (node.spec.inputs[0].shape.dims(), node.spec.outputs[0].shape.dims());
    // These axes together form one row of the matrix.
    let mut first = read.len();
    let mut columns = 1;
    while columns < width {
        first = first.checked_sub(1)?;
        columns *= read[first];
    }
    let mut cut = (0..read.len()).filter(|axis| read[*axis] != made[*axis]);
    let axis = cut.next().filter(|axis| columns == width && *axis >= first)?;
    let forward = steps[axis] == 1 || made[axis] == 1;
    // An axis of the row before the cut axis would split the columns into several ranges.
    if cut.next().is_some() || !forward || read[first..axis].iter().any(|dim| *dim != 1) {
        return None;
    }
    let below: usize = read[axis + 1..].iter().product();
    Some(starts[axis] * below..(starts[axis] + made[axis]) * below)
}

/// Replaces the slice at `reader` by the product of only `columns`.
fn cut(
    graph: &mut Graph,
    position: usize,
    reader: usize,
    columns: &Range<usize>,
    folding: &mut Folding,
) -> Option<Node> {
    let node = graph.node(position)?.clone();
    let slice = graph.node(reader)?.clone();
    let Op::MatMul(op) = &node.spec.op else { return None };
    let made = &node.spec.outputs[0].shape;
    let axis = usize::from(!op.transpose_b);
    let weights = folding.noted(part(graph.constant_input(&node, 1)?, axis, columns)?)?;
    let mut parts = vec![(1, weights)];
    for index in 2..node.inputs.len() {
        let spec = &node.spec.inputs[index];
        match spec.shape.dims().last() {
            None | Some(1) => {}
            Some(_) => {
                let cut = part(graph.constant_input(&node, index)?, spec.shape.rank() - 1, columns)?;
                parts.push((index, folding.noted(cut)?));
            }
        }
    }
    let bytes = parts.iter().map(|(_, part)| part.bytes()).fold(0, usize::saturating_add);
    if !folding.take(bytes) {
        return None;
    }
    let mut operands: Vec<Operand> = operands_of(&node);
    for (index, tensor) in parts {
        let spec = tensor.spec().clone();
        let value: ValueId = graph.add_constant(format!("{}:columns", slice.name), tensor);
        operands[index] = (value, spec);
    }
    let mut dims = made.dims().to_vec();
    *dims.last_mut()? = columns.len();
    let output = TensorSpec::new(DType::F32, Shape::new(dims).ok()?);
    let operators = both(&node.operators, &folded(&slice.operators));
    Some(Node { operators, ..reading(&slice, node.spec.op.clone(), operands, output) })
}

/// Takes the indices `range` along one axis of an `f32` tensor.
fn part(whole: Constant, axis: usize, range: &Range<usize>) -> Option<Result<Constant, ConstantError>> {
    let mut dims = whole.shape().dims().to_vec();
    let inner: usize = dims[axis + 1..].iter().product();
    let row = dims[axis] * inner;
    dims[axis] = range.len();
    let spec = TensorSpec::new(whole.dtype(), Shape::new(dims).ok()?);
    if spec.dtype != DType::F32 || range.end * inner > row {
        return None;
    }
    let (shape, taken) = (spec.shape.clone(), range.start * inner..range.end * inner);
    let make = move |inputs: &[Tensor]| {
        let elements = inputs[0].elements::<f32>().ok_or("its whole is of another type")?;
        let rows: Vec<&[f32]> = elements.chunks_exact(row.max(1)).map(|row| &row[taken.clone()]).collect();
        Tensor::from_elements(shape.clone(), &rows.concat()).map_err(|error| error.to_string())
    };
    Some(Constant::made(spec, format!("{range:?} along {axis} of {}", whole.spec()), vec![whole], make))
}
