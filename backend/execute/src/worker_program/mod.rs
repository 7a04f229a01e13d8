//! Turns a plan into one worker program per worker: tables that the worker follows without further decisions.
//!
//! All waits of a run, except those for chunks, are countdowns at [`Gate`]s, whose numbers are known here. A gate
//! belongs to a step of a device or to a transfer of a link; only steps that wait have a gate.

mod build;
mod cells;
mod release;
mod streams;
#[cfg(test)]
mod tests;

use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::Buffer;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, KernelNeeds, Plan, Ring, Stream, TransferId};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
pub(super) use streams::{Awaited, Channel};

/// Gate of a step that does not wait.
pub(super) const NO_GATE: u32 = u32::MAX;

/// Cell of an operand without a cell: it is not read, or passes chunk by chunk.
pub(super) const NO_CELL: u32 = u32::MAX;

/// A countdown at which a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gate {
    pub(super) worker: u32,
    /// Index among the worker's gates.
    pub(super) index: u32,
}

/// All worker programs of a plan. Workers are the devices, by their ids, and then the links, by their order in the
/// plan.
#[derive(Debug)]
pub(super) struct WorkerPrograms {
    pub(super) devices: Vec<DeviceProgram>,
    pub(super) links: Vec<LinkProgram>,
    /// Gates, queues and rings of each worker.
    pub(super) ports: Vec<PortSpec>,
}

/// Everything that other workers give a worker, and the places at which it waits for that.
#[derive(Debug, Default)]
pub(super) struct PortSpec {
    pub(super) gates: Vec<GateSpec>,
    /// Channels for which the worker waits inside its steps.
    pub(super) channels: Vec<Channel>,
    /// Most waiting chunks of each stream that the worker reads.
    pub(super) queues: Vec<usize>,
    /// Rings of the chunks that the worker makes: for a device, by the number of a node's output; for a link, one ring.
    pub(super) rings: Vec<Ring>,
}

/// One gate.
#[derive(Clone, Debug, Default)]
pub(super) struct GateSpec {
    /// Step that waits at the gate.
    pub(super) step: u32,
    /// Workers that open the gate, with one entry for each opening.
    pub(super) openers: Vec<u32>,
    /// Time that the plan expects the worker to wait.
    pub(super) expected: Duration,
}

/// Work of a device in a run.
#[derive(Debug, Default)]
pub(super) struct DeviceProgram {
    pub(super) steps: Vec<DeviceStep>,
    pub(super) after: Vec<After>,
    pub(super) nodes: Vec<NodeCall>,
    pub(super) operands: Vec<Operand>,
    pub(super) cells: Cells,
    /// Slots whose buffers the caller receives: on a GPU, those that also held an input of its.
    pub(super) handed_out: Vec<HandedOut>,
    /// Slots that links fill first; they are handed to the links when the run starts.
    pub(super) first_landings: Vec<HandOver>,
}

/// Buffers of a device: slots, then buffers that are shared with it temporarily, then constants.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) slots: Vec<SlotSpec>,
    /// Number of values of other CPU devices and of the caller.
    pub(super) guests: usize,
    pub(super) constants: Vec<ConstantCell>,
}

/// A buffer of the device itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotSpec {
    pub(super) bytes: u64,
    /// Whether the caller receives the buffer itself, so that each run needs another buffer.
    pub(super) handed_out: bool,
    /// Whether other workers read or fill the buffer.
    pub(super) shared: bool,
    /// GPU with which a link exchanges large values of a CPU device's slot, in memory that is pinned for it.
    pub(super) pinned: Option<DeviceId>,
}

/// A constant that the device's kernels read.
#[derive(Clone, Debug)]
pub(super) struct ConstantCell {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    /// Elements, on a CPU device once the worker program is prepared.
    pub(super) buffer: Arc<Buffer>,
    /// Whether the constant counts on this device.
    pub(super) counted: bool,
}

/// One step of a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceStep {
    pub(super) work: Work,
    /// Gate at which the step waits; [`NO_GATE`] if it does not wait.
    pub(super) gate: u32,
    /// Actions after the step, in [`DeviceProgram::after`].
    pub(super) after: Range<u32>,
    /// Whether a link waits for the result, so that a GPU submits at once.
    pub(super) urgent: bool,
}

/// Work of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Puts the caller's tensor into a cell. Tensors are numbered among those of the host, or among those of GPUs.
    Input { index: u32, cell: u32 },
    /// Runs a node of [`DeviceProgram::nodes`].
    Node(u32),
    /// Sets a cell's value aside for the caller.
    Output { index: u32, cell: u32 },
}

/// Action after a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    /// Counts down at another worker's gate.
    Open(Gate),
    /// Hands a slot whose last value is no longer needed to the link that fills it next.
    HandOver(HandOver),
    /// Gives a value to a link, or into a cell of another CPU device. `transfer` is set only if nothing else records
    /// the transfer.
    Share { cell: u32, gate: Gate, there: u32, transfer: Option<TransferId> },
    /// Forgets a value of another device.
    Forget(u32),
}

/// A slot that holds an output.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandedOut {
    pub(super) output: u32,
    pub(super) cell: u32,
}

/// A slot into which a link writes a value, and the link's gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOver {
    pub(super) cell: u32,
    pub(super) gate: Gate,
}

/// A tensor of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) cell: u32,
    /// Size in bytes; 0 if the kernel does not read the operand.
    pub(super) bytes: usize,
    /// Bytes of a row, if only the present rows are given.
    pub(super) row: Option<usize>,
}

/// A node as its device sees it.
#[derive(Clone, Debug)]
pub(super) struct NodeCall {
    pub(super) node: NodeId,
    pub(super) inputs: Range<u32>,
    pub(super) outputs: Range<u32>,
    /// Number of rows, if the node divides into rows.
    pub(super) rows: usize,
    /// Sum of the outputs' bytes.
    pub(super) made: u64,
    pub(super) streaming: Option<Box<Streaming>>,
}

/// Streams that a node reads and makes chunk by chunk.
#[derive(Clone, Debug)]
pub(super) struct Streaming {
    /// One of the streams: all have equally many rows and chunks.
    pub(super) cut: Stream,
    pub(super) ins: Vec<StreamIn>,
    /// Output streams.
    pub(super) outs: Vec<StreamOut>,
}

/// An input that arrives in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamIn {
    pub(super) input: usize,
    /// Bytes per row of `cut`.
    pub(super) row_bytes: usize,
    pub(super) feed: Feed,
}

/// A worker's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RingAt {
    pub(super) worker: u32,
    pub(super) ring: u32,
}

/// A worker's queue of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueAt {
    pub(super) worker: u32,
    pub(super) queue: u32,
}

/// An output that is passed on in chunks.
#[derive(Clone, Debug)]
pub(super) struct StreamOut {
    /// Index of the output, which is also the index of the device's ring.
    pub(super) output: u32,
    /// Bytes per row of `cut`.
    pub(super) row_bytes: usize,
    /// Number of the channel that waits for a buffer.
    pub(super) wait: u32,
    pub(super) to: Vec<Onward>,
}

/// A reader of chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    pub(super) to: QueueAt,
    /// Transfer to record, if no link records it.
    pub(super) transfer: Option<TransferId>,
}

/// Work of a link in a run.
#[derive(Debug)]
pub(super) struct LinkProgram {
    pub(super) from: DeviceId,
    pub(super) to: DeviceId,
    pub(super) steps: Vec<LinkStep>,
    /// Staging buffers of each GPU end.
    pub(super) staging: Ring,
}

/// One transfer of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkStep {
    pub(super) transfer: TransferId,
    pub(super) bytes: usize,
    /// Gate at which the step waits; [`NO_GATE`] if it does not wait.
    pub(super) gate: u32,
    /// Slot of the source, on a GPU.
    pub(super) source: Option<u32>,
    /// Constant to send, if the value is constant; `None` until the worker program is prepared.
    pub(super) constant: Option<Arc<Buffer>>,
    /// Slot of the target, if the value arrives whole.
    pub(super) target: Option<u32>,
    /// Gate that waits for the arrival. A stream's reader is informed of each chunk instead.
    pub(super) arrival: Option<Gate>,
    /// Gates that wait for the source to be read.
    pub(super) after: Vec<Gate>,
    /// Feed of a value that arrives in chunks while it is made.
    pub(super) feed: Option<Feed>,
    /// Queue of the reader of the chunks.
    pub(super) reader: Option<QueueAt>,
    /// Number of the channel that waits for an empty buffer of the link's ring.
    pub(super) buffer_channel: u32,
    /// Whether the slot on the CPU end may be memory that is pinned for the GPU at the other end.
    pub(super) pinned: bool,
}

/// Path of a value's chunks to a worker: from a CPU in buffers, on a GPU as messages that they are in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feed {
    /// Index of the worker's queue.
    pub(super) queue: u32,
    /// Number of the channel that waits for a chunk.
    pub(super) wait: u32,
    /// Ring to which the buffers return; `None` if chunks arrive in their place.
    pub(super) credit: Option<RingAt>,
}

impl WorkerPrograms {
    /// Builds the worker programs of a plan of this program. O(steps · log).
    ///
    /// # Errors
    /// If the plan contradicts itself, which [`check`](anabranch_plan::check()) would have found.
    pub(super) fn of(plan: &Plan, program: &Program) -> Result<Self, ExecError> {
        build::Builder::new(plan, program).finish().map_err(ExecError::internal)
    }
}

impl LinkStep {
    /// Whether the value is sent whole, and not chunk by chunk.
    pub(super) fn is_whole(&self) -> bool {
        self.feed.is_none() && self.reader.is_none()
    }
}

impl NodeCall {
    /// Converts a range of a stream's rows into rows of the node.
    pub(super) fn own_rows(&self, cut: &Stream, rows: &Range<usize>) -> Range<usize> {
        let factor = self.rows / cut.rows;
        rows.start * factor..rows.end * factor
    }
}

impl Streaming {
    /// Returns an output that is passed on in chunks.
    pub(super) fn out(&self, output: usize) -> Option<&StreamOut> {
        self.outs.iter().find(|out| out.output as usize == output)
    }

    /// Returns the index of an input among those that arrive in chunks.
    pub(super) fn place_of(&self, input: usize) -> Option<usize> {
        self.ins.iter().position(|stream| stream.input == input)
    }
}

impl DeviceProgram {
    /// Adds a node whose values are in the cells that `cell` finds.
    pub(super) fn push_node(
        &mut self,
        program: &Program,
        id: NodeId,
        needs: &KernelNeeds,
        cell: impl Fn(ValueId) -> Option<u32>,
    ) {
        let node = program.node(id);
        let plan = node.spec.row_plan();
        let rows = plan.as_ref().map_or(1, |plan| plan.rows);
        let first = self.operands.len() as u32;
        for (index, (value, spec)) in node.inputs.iter().zip(&node.spec.inputs).enumerate() {
            let read = needs.is_read(index) || program.constant(*value).is_none();
            let bytes = if read { spec.bytes() } else { 0 };
            let windowed = plan.as_ref().is_some_and(|plan| plan.windowed.get(index).copied().unwrap_or(false));
            let cell = cell(*value).filter(|_| read).unwrap_or(NO_CELL);
            self.operands.push(Operand { cell, bytes, row: windowed.then_some(bytes / rows) });
        }
        let middle = self.operands.len() as u32;
        for (value, spec) in node.outputs.iter().zip(&node.spec.outputs) {
            let row = plan.is_some().then_some(spec.bytes() / rows);
            self.operands.push(Operand { cell: cell(*value).unwrap_or(NO_CELL), bytes: spec.bytes(), row });
        }
        let (inputs, outputs) = (first..middle, middle..self.operands.len() as u32);
        let made = node.spec.outputs.iter().map(|spec| spec.bytes() as u64).sum();
        self.nodes.push(NodeCall { node: id, inputs, outputs, rows, made, streaming: None });
    }

    /// Returns the first node that writes or reads a cell.
    #[cfg(feature = "gpu")]
    pub(super) fn user(&self, cell: u32) -> Option<NodeId> {
        let uses = |range: &Range<u32>| self.operands(range).iter().any(|operand| operand.cell == cell);
        let user = self.nodes.iter().find(|node| uses(&node.outputs) || uses(&node.inputs));
        user.map(|node| node.node)
    }

    /// Returns the operands in `range`.
    pub(super) fn operands(&self, range: &Range<u32>) -> &[Operand] {
        &self.operands[range.start as usize..range.end as usize]
    }

    /// Returns the actions after a step.
    pub(super) fn after(&self, range: &Range<u32>) -> &[After] {
        &self.after[range.start as usize..range.end as usize]
    }
}

impl Cells {
    /// Returns the number of cells.
    pub(super) fn count(&self) -> usize {
        self.slots.len() + self.guests + self.constants.len()
    }

    /// Returns the first cell of a constant.
    pub(super) fn first_constant(&self) -> usize {
        self.slots.len() + self.guests
    }
}
