//! Rows for which the kernels of a part give the bits of the whole batch.
//!
//! Some kernels sum in another order for another number of rows. A part then computes such a node with more rows than
//! it has: as many as needed for the same order, and at most the whole batch, in which its rows keep their places.

use super::divided::Padding;
use super::layout::Layout;
use super::rows::Rows;
use anabranch_ir::program::{Node, Program};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{cpu, gpu};
use anabranch_placement_core::platform::DeviceKind;

/// Most rows beyond those of a part that are tried before the whole batch.
const MOST: usize = 64;

/// Returns for each node that computes rows how many it must compute in a part of so many rows on a device of this
/// kind. The host computes the nodes that do not run there. O(nodes × tried rows).
pub(super) fn paddings(program: &Program, rows: &Rows, part: usize, kind: DeviceKind, runs: &[bool]) -> Vec<Padding> {
    let padding = |(at, node): (usize, &Node)| match &rows.nodes[at] {
        None => Padding::None,
        Some(reads) => padding(program, rows, node, reads, part, if runs[at] { kind } else { DeviceKind::Cpu }),
    };
    program.nodes.iter().enumerate().map(padding).collect()
}

fn padding(
    program: &Program,
    rows: &Rows,
    node: &Node,
    reads: &[Option<Layout>],
    part: usize,
    kind: DeviceKind,
) -> Padding {
    let whole: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
    // A constant that is cut into rows is not constant any more.
    let cut: Vec<_> = whole.iter().zip(reads).map(|(constant, read)| *constant && read.is_none()).collect();
    let Some(wanted) = summation(&node.spec, &whole, kind) else { return Padding::Batch };
    let same = |count: &usize| {
        let spec = of_rows(node, reads, rows, *count);
        spec.and_then(|spec| summation(&spec, &cut, kind)).is_some_and(|key| key == wanted)
    };
    match (part..rows.batch.min(part + MOST)).find(same) {
        Some(count) if count == part => Padding::None,
        Some(count) => Padding::To(count),
        None => Padding::Batch,
    }
}

/// Returns a node's spec for so many rows.
pub(super) fn of_rows(node: &Node, reads: &[Option<Layout>], rows: &Rows, count: usize) -> Option<NodeSpec> {
    let mut spec = node.spec.clone();
    for (read, layout) in spec.inputs.iter_mut().zip(reads) {
        if let Some(layout) = layout {
            *read = layout.part(read, rows.batch, count)?;
        }
    }
    for (made, value) in spec.outputs.iter_mut().zip(&node.outputs) {
        *made = rows.values[value.index()]?.part(made, rows.batch, count)?;
    }
    Some(spec)
}

fn summation(spec: &NodeSpec, constants: &[bool], kind: DeviceKind) -> Option<Vec<usize>> {
    match kind {
        DeviceKind::Cpu => cpu::summation(spec, constants),
        _ => gpu::summation(spec, constants),
    }
}
