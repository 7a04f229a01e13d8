//! Selects the transfers that are streamed, and the size of their chunks.
//!
//! A value with a single reader on the target, which reads it row by row, need not be whole before the reader starts.
//! Chunks of rows arrive through a bounded ring and are computed one by one. There are two kinds of streams. In the
//! first, the value's producer makes the chunks at the same time, as a member of the reader's gang (`gang.rs`). In the
//! second, the value is whole before, and only its transfer over a link is cut into chunks. A node has at most one
//! stream of the second kind, and all its other inputs are present before the first chunk: two chunks in flight
//! suffice.
//!
//! On a CPU the chunks pass through a ring of buffers, and the whole value never exists there. On a GPU they arrive at
//! their places in the whole value, because kernels for rows read them there.

use super::PlanOptions;
use anabranch_base::bytes::parse_bytes;
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::{NodeSpec, Op, RowPlan};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Default bytes of a chunk: large enough that a delay of some microseconds does not matter, small enough that the
/// chunks in flight stay in cache.
const AUTO_BYTES: usize = 1 << 20;

/// Bytes to which copies between host and GPU are aligned.
const COPY_ALIGNMENT: usize = 4;

/// Mode of streaming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamMode {
    /// Streams nothing: every tensor is whole before it is read.
    Off,
    /// Streams values with a predicted gain.
    #[default]
    Auto,
    /// Streams all values that can be streamed.
    Always,
}

/// Rule for the size of a stream's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkRule {
    /// About 1 MiB.
    #[default]
    Auto,
    /// As many rows as fit into these bytes, at least one.
    Bytes(usize),
    /// This many rows.
    Rows(usize),
}

/// Reads `auto`, a number of bytes such as `256KiB`, or a number of rows such as `7rows`.
impl FromStr for ChunkRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let some =
            |size: usize| if size > 0 { Ok(size) } else { Err("a chunk needs at least one byte or row".to_owned()) };
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(rows) = text.strip_suffix("rows").or_else(|| text.strip_suffix("row")) {
            let rows = rows.trim().parse();
            let rows = rows.map_err(|_| format!("`{text}` is not a number of rows; write one, such as 7rows"))?;
            return some(rows).map(Self::Rows);
        }
        let bytes = parse_bytes(text).map_err(|error| format!("{error}; or write a number of rows, such as 7rows"))?;
        some(usize::try_from(bytes).unwrap_or(usize::MAX)).map(Self::Bytes)
    }
}

/// A streamed transfer. Chunk `i` holds the rows from `i × chunk_rows` on; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Node that reads the stream.
    pub node: NodeId,
    /// Index of the node's input.
    pub input: usize,
    /// Node that makes the chunks at the same time; `None` if the value is whole before its transfer.
    pub producer: Option<NodeId>,
    /// Total number of rows: a divisor of the rows into which the nodes at both ends divide.
    pub rows: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// Most chunks in flight, if they pass through a ring, in the memory of a CPU.
    pub capacity: u32,
}

impl Stream {
    /// Returns the number of chunks.
    pub fn chunks(&self) -> usize {
        self.rows.div_ceil(self.chunk_rows)
    }

    /// Returns the rows of a chunk.
    pub fn rows_of(&self, chunk: usize) -> std::ops::Range<usize> {
        let start = chunk * self.chunk_rows;
        start..(start + self.chunk_rows).min(self.rows)
    }

    /// Returns the bytes of the largest chunk.
    pub fn chunk_bytes(&self) -> u64 {
        (self.chunk_rows.min(self.rows) * self.row_bytes) as u64
    }
}

/// Nodes that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gang {
    /// Nodes on pairwise different devices, each behind the nodes from which it reads.
    pub(super) members: Vec<NodeId>,
    /// Values that pass between the members, with their streams.
    pub(super) streams: Vec<(ValueId, Stream)>,
    /// Seconds of delay of a chunk at the next member.
    pub(super) hop: f64,
}

impl Gang {
    /// Returns the number of chunks of each stream.
    pub(super) fn chunks(&self) -> usize {
        self.streams.first().map_or(1, |(_, stream)| stream.chunks())
    }
}

/// For each node, whether its device is idle when the node starts, by the schedule, so that streaming into it gains
/// time.
///
/// Otherwise the whole value should be transferred while the device is busy.
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

/// Stream of `value` into `node`, if the node reads it once and row by row, and there is more than one chunk.
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

/// Row plan of a node whose parts can be computed one by one. `None` for a block that ends in a reduction over
/// everything, because its output depends on all rows of the call.
pub(super) fn parts(spec: &NodeSpec) -> Option<RowPlan> {
    let reduces = matches!(&spec.op, Op::Block(block) if block.ends_in_reduction());
    spec.row_plan().filter(|_| !reduces)
}

/// Least number of rows of `bytes` bytes whose multiples all start where copies may start.
pub(super) fn granule(bytes: usize) -> usize {
    COPY_ALIGNMENT >> bytes.trailing_zeros().min(COPY_ALIGNMENT.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::{Maker, PlacedProgram, add, relu};

    #[test]
    fn chunks_are_sizes_or_rows() {
        assert_eq!("256KiB".parse(), Ok(ChunkRule::Bytes(256 << 10)));
        assert_eq!("7rows".parse(), Ok(ChunkRule::Rows(7)));
        assert_eq!("1 row".parse(), Ok(ChunkRule::Rows(1)));
        assert_eq!("auto".parse(), Ok(ChunkRule::Auto));
        for wrong in ["", "rows", "0rows", "0", "many", "-1rows"] {
            assert!(wrong.parse::<ChunkRule>().is_err(), "{wrong}");
        }
    }

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
        let placed = PlacedProgram::new(maker.finish(&[c]), &["cpu", "gpu"], &[1, 1, 0]);
        let worthwhile = |streaming| {
            let options = PlanOptions { streaming, ..PlanOptions::default() };
            super::worthwhile(&placed.program, &placed.schedule, &options)
        };
        // The first node on the GPU waits for `x`, which the second then has; the host waits for both.
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
        // The node works element by element: 6400 rows of 4 bytes.
        assert_eq!(stream(0, x).map(|s| (s.rows, s.chunk_rows)), Some((6400, 7)));
        assert_eq!(stream(1, x), None);
        assert_eq!(stream(2, x).map(|s| (s.rows, s.row_bytes)), Some((64, 400)));
        assert_eq!(stream(2, y), None, "a broadcast operand is needed whole");
        let whole = PlanOptions { chunk: ChunkRule::Bytes(1 << 30), ..PlanOptions::default() };
        assert_eq!(into_node(&program, NodeId(0), x, &whole), None, "one chunk is no stream");
    }
}
