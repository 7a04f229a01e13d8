//! Number of chunks that the channels of a gang hold.
//!
//! The gang is a canonical task graph (De Matteis 2023, section 3) whose elements are chunks. Members and links are
//! tasks; each reads a chunk of every input and writes a chunk to every output. The channels get sizes with which no
//! element waits (equation 5 there, [`BufferSizes`]), and a simulation proves that they cannot deadlock. The chunks
//! that are being written and read also need buffers.

use super::stream::Stream;
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_placement_core::streaming::{
    Blocks, BufferSizes, CanonicalGraphBuilder, EdgeId, Node, NodeId as Task, StreamingSchedule,
};
use std::collections::BTreeMap;

/// Buffers besides those that wait in the channel: one is written, one is read.
const AT_WORK: u64 = 2;

/// Most chunks that are simulated. All members work at one rate, so that everything repeats after the first few chunks.
const SIMULATED: usize = 1 << 10;

/// Sets every stream's capacity to the proven size, at least `least`. `through` says which streams go over a link.
/// Returns `None` if nothing could be proven.
pub(super) fn size(
    members: &[NodeId],
    streams: &mut [(ValueId, Stream)],
    least: u32,
    through: impl Fn(&Stream) -> bool,
) -> Option<()> {
    let chunks = streams.first().map_or(0, |(_, stream)| stream.chunks()).min(SIMULATED) as u64;
    let mut builder = CanonicalGraphBuilder::new();
    let tasks: BTreeMap<NodeId, Task> =
        members.iter().map(|node| (*node, builder.node(Node::task(node.to_string(), chunks, chunks)))).collect();
    // A task has one edge to another task for all values between them; a stream over a link has two.
    let mut edges: BTreeMap<(Task, Task), EdgeId> = BTreeMap::new();
    let mut edge = |builder: &mut CanonicalGraphBuilder, ends: (Task, Task)| {
        let next = EdgeId(edges.len() as u32);
        *edges.entry(ends).or_insert_with(|| {
            builder.edge(ends.0, ends.1);
            next
        })
    };
    let mut first_edges = Vec::new();
    for (at, (_, stream)) in streams.iter().enumerate() {
        let (from, to) = (*tasks.get(&stream.producer?)?, *tasks.get(&stream.node)?);
        first_edges.push(if through(stream) {
            let link = builder.node(Node::task(format!("link {at}"), chunks, chunks));
            let first = edge(&mut builder, (from, link));
            (first, Some(edge(&mut builder, (link, to))))
        } else {
            (edge(&mut builder, (from, to)), None)
        });
    }
    let graph = builder.build().ok()?;
    let schedule = StreamingSchedule::new(&graph, Blocks::one(&graph));
    let (sizes, _) = BufferSizes::proven(&graph, &schedule, graph.work()).ok()?;
    let mut of_value: BTreeMap<ValueId, u64> = BTreeMap::new();
    for ((value, _), (one, other)) in streams.iter().zip(first_edges) {
        let held = sizes.of(one).max(other.map_or(0, |other| sizes.of(other))) + AT_WORK;
        let known = of_value.entry(*value).or_default();
        *known = held.max(u64::from(least)).max(*known);
    }
    for (value, stream) in streams {
        stream.capacity = u32::try_from(of_value[value].min(stream.chunks() as u64)).ok()?;
    }
    Some(())
}
