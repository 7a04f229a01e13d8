//! Rules for streams, and for the ranges of the total order in which they flow.

use super::Violation;
use crate::{Plan, Route, Step, Stream, Transfer};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::op::{NodeSpec, Op, RowPlan};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) fn judge(program: &Program, plan: &Plan, found: &mut Vec<Violation>) {
    let mut gang_at: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, gang) in plan.gangs().iter().enumerate() {
        let sorted = number == 0 || plan.gangs()[number - 1].end <= gang.start;
        let fresh = sorted && gang.clone().all(|place| gang_at.insert(place, number).is_none());
        if !fresh || gang.end > plan.steps().len() || !sound(program, plan, gang) {
            found.push(Violation::Gang(gang.start));
        }
    }
    let steps = plan.steps().iter().enumerate();
    let node_at: BTreeMap<NodeId, usize> = steps.filter_map(|(place, step)| Some((step.node()?, place))).collect();
    for (place, step) in plan.steps().iter().enumerate() {
        let Step::Transfer(id) = step else { continue };
        let transfer = plan.transfer(*id);
        let Some(stream) = transfer.stream() else { continue };
        // The reader, and the producer if it runs at the same time, are in the stream's own gang.
        let gang = gang_at.get(&place);
        let together = |node: &NodeId| gang.is_some() && node_at.get(node).and_then(|at| gang_at.get(at)) == gang;
        let made_by = match program.value(transfer.value).origin {
            Origin::Node(node) => Some(node).filter(together),
            Origin::Input | Origin::Constant(_) => None,
        };
        let both = together(&stream.node) && stream.producer == made_by;
        if !both || !fits(program, plan, transfer, stream) {
            found.push(Violation::Stream(*id));
        }
    }
}

/// Whether all members of a gang can proceed at the same time.
///
/// No device or link has two tasks, all members cut into the same chunks, and values made in the gang are read there
/// only chunk by chunk.
fn sound(program: &Program, plan: &Plan, gang: &Range<usize>) -> bool {
    let (mut devices, mut links, mut cuts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut streamed: BTreeSet<(ValueId, NodeId)> = BTreeSet::new();
    let mut nodes = Vec::new();
    let mut alone = true;
    for step in plan.steps().get(gang.clone()).unwrap_or(&[]) {
        match step {
            Step::Node(node) => {
                alone &= devices.insert(plan.device_of(*node));
                nodes.push(*node);
            }
            Step::Transfer(id) => {
                let transfer = plan.transfer(*id);
                let Some(stream) = transfer.stream() else { return false };
                if !between_cpus(plan, transfer) {
                    alone &= links.insert((transfer.from, transfer.to));
                }
                cuts.insert((stream.rows, stream.chunk_rows));
                streamed.insert((transfer.value, stream.node));
            }
            Step::Input(_) | Step::Output(_) => return false,
        }
    }
    let made: BTreeSet<ValueId> = nodes.iter().flat_map(|node| &program.node(*node).outputs).copied().collect();
    let through = nodes.iter().all(|node| {
        let inner = program.node(*node).inputs.iter().filter(|value| made.contains(value));
        inner.into_iter().all(|value| streamed.contains(&(*value, *node)))
    });
    alone && through && cuts.len() == 1
}

fn between_cpus(plan: &Plan, transfer: &Transfer) -> bool {
    [transfer.from, transfer.to].iter().all(|end| plan.device(*end).kind == DeviceKind::Cpu)
}

/// Rows of a node that can be computed a few at a time; `None` for a block that reduces its last member's rows.
fn rows_of(node: &NodeSpec) -> Option<RowPlan> {
    match &node.op {
        Op::Block(block) if block.members.last().is_some_and(|last| last.spec.row_plan().is_none()) => None,
        _ => node.row_plan(),
    }
}

/// Whether a stream covers its value for the only node that reads it there, and passes it on in rows of both ends.
fn fits(program: &Program, plan: &Plan, transfer: &Transfer, stream: &Stream) -> bool {
    let node = program.node(stream.node);
    let readers = |reader: &NodeId| {
        plan.device_of(*reader) == transfer.to && program.node(*reader).inputs.contains(&transfer.value)
    };
    let only = program.node_ids().filter(readers).eq([stream.node]);
    let mut outputs = program.outputs.iter().enumerate();
    let output = outputs.any(|(at, o)| o.value == transfer.value && plan.output_device(at) == transfer.to);
    let once = node.inputs.iter().filter(|value| **value == transfer.value).count() == 1;
    let rows = rows_of(&node.spec)
        .is_some_and(|rows| rows.rows.is_multiple_of(stream.rows) && rows.windowed.get(stream.input) == Some(&true));
    let covers = stream.rows as u64 * stream.row_bytes as u64 == transfer.bytes && stream.chunk_rows > 0;
    let here = node.inputs.get(stream.input) == Some(&transfer.value);
    only && !output && once && rows && covers && here && stream.capacity >= 2 && source(program, plan, transfer, stream)
}

/// Whether the sending end fits the stream.
///
/// Either the value is whole before, and crosses a link; or a node makes the value row by row. If the value passes
/// through a ring, all its readers must be streamed to.
fn source(program: &Program, plan: &Plan, transfer: &Transfer, stream: &Stream) -> bool {
    let Some(producer) = stream.producer else { return !between_cpus(plan, transfer) };
    let makes = matches!(program.value(transfer.value).origin, Origin::Node(node) if node == producer);
    let rows = rows_of(&program.node(producer).spec).is_some_and(|rows| rows.rows.is_multiple_of(stream.rows));
    if plan.device(transfer.from).kind != DeviceKind::Cpu {
        return makes && rows;
    }
    let others = |other: &&Transfer| other.value == transfer.value;
    let streamed = plan.transfers().iter().filter(others).all(|other| matches!(other.route, Route::Streamed(_)));
    let at_home =
        |node: NodeId| plan.device_of(node) == transfer.from && program.node(node).inputs.contains(&transfer.value);
    let whole = program.node_ids().any(at_home)
        || program.outputs.iter().any(|output| output.value == transfer.value)
        || plan.memory().home(transfer.from, transfer.value).is_some();
    makes && rows && streamed && !whole
}

/// Outputs that nodes of CPU devices pass on chunk by chunk, so that they have no memory of their own.
pub(super) fn passed_through(plan: &Plan) -> BTreeSet<(DeviceId, ValueId)> {
    let from_cpu = plan.transfers().iter().filter(|transfer| plan.device(transfer.from).kind == DeviceKind::Cpu);
    let made = from_cpu.filter(|transfer| transfer.stream().is_some_and(|stream| stream.producer.is_some()));
    made.map(|transfer| (transfer.from, transfer.value)).collect()
}

/// First and last position of the steps that happen at the same time as `place`.
pub(super) fn span(plan: &Plan, place: usize) -> (usize, usize) {
    // Gangs are disjoint, and sorted by their beginnings.
    let gang = plan.gangs().get(plan.gangs().partition_point(|gang| gang.end <= place));
    gang.filter(|gang| gang.contains(&place)).map_or((place, place), |gang| (gang.start, gang.end - 1))
}

/// Bytes of the buffers in which chunks lie on a CPU.
///
/// For chunks that arrive: for each sender, the largest chunk times the deepest ring. For chunks that are made there:
/// likewise for each output number of the device's nodes.
pub(super) fn rings(program: &Program, plan: &Plan, device: DeviceId) -> u64 {
    if plan.device(device).kind != DeviceKind::Cpu {
        return 0;
    }
    let mut largest: BTreeMap<(bool, usize), (u64, u64)> = BTreeMap::new();
    for (transfer, stream) in plan.transfers().iter().filter_map(|transfer| Some((transfer, transfer.stream()?))) {
        let mut count = |key: (bool, usize)| {
            let known = largest.entry(key).or_default();
            known.0 = known.0.max(((stream.chunk_rows * stream.row_bytes) as u64).next_multiple_of(4));
            known.1 = known.1.max(u64::from(stream.capacity));
        };
        if transfer.to == device && !between_cpus(plan, transfer) {
            count((false, transfer.from.index()));
        }
        if let Some(producer) = stream.producer
            && transfer.from == device
        {
            let outputs = program.node(producer).outputs.iter();
            count((true, outputs.take_while(|value| **value != transfer.value).count()));
        }
    }
    largest.values().map(|(bytes, depth)| bytes * depth).sum()
}
