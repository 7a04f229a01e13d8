//! Which transfers are streamed, and in chunks of which size.
//!
//! A value that only one node of the target reads, and that node row by row, need not be there whole before the node
//! starts: chunks of rows arrive through a bounded ring and are computed one by one. Either the value's producer makes the
//! chunks at the same time, as a member of the reader's gang (`gang.rs`), or the value is whole before, and it is its way
//! over a link that is cut into chunks. Of the second kind a node has one at most, and all else that it reads is there before
//! the first chunk: two chunks under way suffice.
//!
//! On a CPU the chunks pass through a ring of buffers, and the whole value never exists there. On a GPU they land where they
//! belong in the whole value, because kernels for rows read them there.

use super::PlanOptions;
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::{NodeSpec, Op, RowPlan};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a chunk unless told otherwise: large enough that a hop of some microseconds does not count, small enough that
/// the chunks under way stay in cache.
const AUTO_BYTES: usize = 1 << 20;

/// Bytes to which copies between host and GPU are aligned.
const COPY_ALIGNMENT: usize = 4;

/// What is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamMode {
    /// Nothing: every tensor is whole before it is read.
    Off,
    /// What is predicted to gain time.
    #[default]
    Auto,
    /// Whatever can be.
    Always,
}

/// How large the chunks of a stream are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkRule {
    /// About a mebibyte.
    #[default]
    Auto,
    /// As many rows as fit these bytes, at least one.
    Bytes(usize),
    /// This many rows.
    Rows(usize),
}

/// A streamed transfer. Chunk `i` holds the rows from `i × chunk_rows` on; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The node that reads it.
    pub node: NodeId,
    /// Which of the node's inputs it is.
    pub input: usize,
    /// The node that makes the chunks at the same time; none if the value is whole before it travels.
    pub producer: Option<NodeId>,
    /// Rows in all: a divisor of the rows into which the nodes at both ends divide.
    pub rows: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// Chunks under way at most, where they pass through a ring: in the memory of a CPU.
    pub capacity: u32,
}

impl Stream {
    /// The number of chunks.
    pub fn chunks(&self) -> usize {
        self.rows.div_ceil(self.chunk_rows)
    }

    /// The rows of a chunk.
    pub fn rows_of(&self, chunk: usize) -> std::ops::Range<usize> {
        let start = chunk * self.chunk_rows;
        start..(start + self.chunk_rows).min(self.rows)
    }

    /// Bytes of the largest chunk.
    pub fn chunk_bytes(&self) -> u64 {
        (self.chunk_rows.min(self.rows) * self.row_bytes) as u64
    }
}

/// Nodes that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gang {
    /// On pairwise different devices, each behind those that it reads from.
    pub(super) members: Vec<NodeId>,
    /// What passes between them.
    pub(super) streams: Vec<(ValueId, Stream)>,
    /// Seconds by which a chunk is late at the next member.
    pub(super) hop: f64,
}

impl Gang {
    /// Chunks of each stream.
    pub(super) fn chunks(&self) -> usize {
        self.streams.first().map_or(1, |(_, stream)| stream.chunks())
    }
}

/// For each node, whether streaming into it is worthwhile: whether its device is idle when it starts, by the schedule.
/// Elsewhere the whole value had better travel while the device is busy.
pub(super) fn worthwhile(program: &Program, schedule: &Schedule, options: &PlanOptions) -> Vec<bool> {
    let mut waits = vec![true; program.nodes.len()];
    if options.streaming == StreamMode::Always {
        return waits;
    }
    let mut free: BTreeMap<DeviceId, f64> = BTreeMap::new();
    for task in &schedule.order {
        let Some(span) = schedule.tasks.get(task.index()) else { continue };
        let free = free.entry(span.device).or_default();
        if let Some(waits) = waits.get_mut(task.index()) {
            *waits = span.start > *free;
        }
        *free = free.max(span.end);
    }
    waits
}

/// The stream of `value` into `node` on a device of this kind, if the node reads it once and row by row, and there is more
/// than one chunk.
pub(super) fn into_node(program: &Program, node: NodeId, value: ValueId, options: &PlanOptions) -> Option<Stream> {
    let reader = program.node(node);
    let mut places = (0..reader.inputs.len()).filter(|at| reader.inputs[*at] == value);
    let (input, None) = (places.next()?, places.next()) else { return None };
    let rows = parts(&reader.spec)?;
    if !rows.windowed.get(input).copied().unwrap_or(false) {
        return None;
    }
    let row_bytes = |spec: &TensorSpec| spec.bytes().is_multiple_of(rows.rows).then_some(spec.bytes() / rows.rows);
    let own = row_bytes(&reader.spec.inputs[input]).filter(|bytes| *bytes > 0)?;
    let windowed = reader.spec.inputs.iter().zip(&rows.windowed).filter(|(_, windowed)| **windowed);
    let windows = windowed.map(|(spec, _)| spec).chain(&reader.spec.outputs);
    let sizes = windows.map(row_bytes).collect::<Option<Vec<_>>>()?;
    let granule = sizes.iter().map(|bytes| granule(*bytes)).max()?;
    let wanted = match options.chunk {
        ChunkRule::Auto => AUTO_BYTES / own,
        ChunkRule::Bytes(bytes) => bytes / own,
        ChunkRule::Rows(rows) => rows,
    };
    let chunk_rows = wanted.max(1).checked_next_multiple_of(granule)?;
    let capacity = options.capacity.max(2);
    let stream = Stream { node, input, producer: None, rows: rows.rows, row_bytes: own, chunk_rows, capacity };
    (stream.chunk_rows < stream.rows).then_some(stream)
}

/// How a node divides into parts that can be computed one by one. A block that ends in a reduction over everything does not:
/// its output is that of the rows that it is called with.
pub(super) fn parts(spec: &NodeSpec) -> Option<RowPlan> {
    let reduces = matches!(&spec.op, Op::Block(block) if block.ends_in_reduction());
    spec.row_plan().filter(|_| !reduces)
}

/// The least number of rows of `bytes` bytes whose multiples all start at a place where copies may.
pub(super) fn granule(bytes: usize) -> usize {
    COPY_ALIGNMENT >> bytes.trailing_zeros().min(COPY_ALIGNMENT.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::{Maker, Placed, add, relu};

    #[test]
    fn granules_align_every_chunk() {
        for (bytes, want) in [(4, 1), (1, 4), (6, 2), (1024, 1), (3, 4)] {
            assert_eq!(granule(bytes), want, "{bytes} bytes");
        }
    }

    #[test]
    fn chunks_cover_the_rows_and_the_last_is_shorter() {
        let stream =
            Stream { node: NodeId(0), input: 0, producer: None, rows: 10, row_bytes: 8, chunk_rows: 4, capacity: 2 };
        let chunks: Vec<_> = (0..stream.chunks()).map(|chunk| stream.rows_of(chunk)).collect();
        assert_eq!(chunks, [0..4, 4..8, 8..10]);
        assert_eq!(stream.chunk_bytes(), 32);
    }

    #[test]
    fn only_nodes_whose_device_waits_for_them_are_streamed_into() {
        let mut maker = Maker::new();
        let x = maker.input(&[8]);
        let (a, b) = (maker.node(relu(), &[x], &[8]), maker.node(relu(), &[x], &[8]));
        let c = maker.node(add(), &[a, b], &[8]);
        let placed = Placed::new(maker.finish(&[c]), &["cpu", "gpu"], &[1, 1, 0]);
        let worthwhile = |streaming| {
            let options = PlanOptions { streaming, ..PlanOptions::default() };
            super::worthwhile(&placed.program, &placed.schedule, &options)
        };
        // The first to run on the GPU waits for `x`, the other has it by then; the host waits for both.
        let auto = worthwhile(StreamMode::Auto);
        assert!(auto[0] != auto[1] && auto[2], "{auto:?}");
        assert_eq!(worthwhile(StreamMode::Always), [true; 3]);
    }

    #[test]
    fn only_inputs_read_once_and_by_rows_are_streamed() {
        let mut maker = Maker::new();
        let (x, y) = (maker.input(&[64, 100]), maker.input(&[100]));
        let single = maker.node(relu(), &[x], &[64, 100]);
        let twice = maker.node(add(), &[x, x], &[64, 100]);
        let broadcast = maker.node(add(), &[x, y], &[64, 100]);
        let program = maker.finish(&[single, twice, broadcast]);
        let options = PlanOptions { chunk: ChunkRule::Rows(7), ..PlanOptions::default() };
        let stream = |node: u32, value| into_node(&program, NodeId(node), value, &options);
        // Element by element: 6400 rows of 4 bytes.
        assert_eq!(stream(0, x).map(|s| (s.rows, s.chunk_rows)), Some((6400, 7)));
        assert_eq!(stream(1, x), None);
        assert_eq!(stream(2, x).map(|s| (s.rows, s.row_bytes)), Some((64, 400)));
        assert_eq!(stream(2, y), None, "a broadcast operand is needed whole");
        let whole = PlanOptions { chunk: ChunkRule::Bytes(1 << 30), ..PlanOptions::default() };
        assert_eq!(into_node(&program, NodeId(0), x, &whole), None, "one chunk is no stream");
    }
}
