//! A plan turned into one script for each worker: tables that the worker follows without asking anybody.
//!
//! All waits of a run but those for chunks are countdowns at [`Gate`]s, whose numbers are known here. A gate belongs to a step
//! of a device or to a transfer of a link; only steps that wait for somebody have one.

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

/// The gate of a step that waits for nobody.
pub(super) const NO_GATE: u32 = u32::MAX;

/// The cell of an operand that has none: it is not read, or passes chunk by chunk.
pub(super) const NO_CELL: u32 = u32::MAX;

/// A countdown at which a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gate {
    pub(super) worker: u32,
    /// Which of the worker's gates.
    pub(super) index: u32,
}

/// All scripts of a plan. Workers are the devices, by their ids, and then the links, by their order in the plan.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) devices: Vec<DeviceScript>,
    pub(super) links: Vec<LinkScript>,
    /// What passes between the workers, by worker.
    pub(super) ports: Vec<PortScript>,
}

/// What others give a worker, and where it waits for it.
#[derive(Debug, Default)]
pub(super) struct PortScript {
    pub(super) gates: Vec<GateScript>,
    /// What it waits for inside its steps.
    pub(super) channels: Vec<Channel>,
    /// For each stream that it reads, the chunks that may wait here.
    pub(super) queues: Vec<usize>,
    /// The rings of the chunks that it makes: of a device by the number of a node's output, of a link one.
    pub(super) rings: Vec<Ring>,
}

/// One gate.
#[derive(Clone, Debug, Default)]
pub(super) struct GateScript {
    /// The step that waits.
    pub(super) step: u32,
    /// The workers that open it, one entry for each time that they do.
    pub(super) openers: Vec<u32>,
    /// How long the plan expects the worker to wait.
    pub(super) expected: Duration,
}

/// What a device does in a run.
#[derive(Debug, Default)]
pub(super) struct DeviceScript {
    pub(super) steps: Vec<DeviceStep>,
    pub(super) after: Vec<After>,
    pub(super) nodes: Vec<NodeScript>,
    pub(super) operands: Vec<Operand>,
    pub(super) cells: Cells,
    /// The slots whose buffers the caller receives.
    pub(super) handed_out: Vec<HandedOut>,
    /// The slots that links fill first: handed to them when the run begins.
    pub(super) first_landings: Vec<HandOver>,
}

/// Where a device keeps buffers: slots, then what is shared with it for a while, then constants.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) slots: Vec<SlotScript>,
    /// Values of other CPU devices, and the caller's.
    pub(super) guests: usize,
    pub(super) constants: Vec<ConstantCell>,
}

/// A buffer of the device's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotScript {
    pub(super) bytes: u64,
    /// The caller receives the buffer itself, so each run needs another.
    pub(super) handed_out: bool,
    /// Others read it, or fill it.
    pub(super) lent: bool,
}

/// A constant that the device's kernels read.
#[derive(Clone, Debug)]
pub(super) struct ConstantCell {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    /// The elements, on a CPU device once the script is readied.
    pub(super) buffer: Arc<Buffer>,
    /// Whether it counts on this device.
    pub(super) counted: bool,
}

/// One step of a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceStep {
    pub(super) work: Work,
    /// Where it waits; [`NO_GATE`] if it does not.
    pub(super) gate: u32,
    /// What follows it, in [`DeviceScript::after`].
    pub(super) after: Range<u32>,
    /// Whether a link waits for what it made: a GPU submits at once.
    pub(super) urgent: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Puts the caller's tensor into a cell. Tensors are numbered among those of the host, or among those of GPUs.
    Input { index: u32, cell: u32 },
    /// Runs a node of [`DeviceScript::nodes`].
    Node(u32),
    /// Sets a cell's value aside for the caller.
    Output { index: u32, cell: u32 },
}

/// What follows a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    /// Counts down at another worker's gate.
    Open(Gate),
    /// Hands a slot whose last value is done with to the link that fills it next.
    HandOver(HandOver),
    /// Gives a value to a link, or to another CPU device into a cell. `transfer` only if nothing else records it.
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

/// A slot for a link to land a value in, and the link's gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOver {
    pub(super) cell: u32,
    pub(super) gate: Gate,
}

/// A tensor of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) cell: u32,
    /// Bytes; 0 for what the kernel does not read.
    pub(super) bytes: usize,
    /// Bytes of a row, if only the rows at hand are given.
    pub(super) row: Option<usize>,
}

/// A node as its device sees it.
#[derive(Clone, Debug)]
pub(super) struct NodeScript {
    pub(super) node: NodeId,
    pub(super) inputs: Range<u32>,
    pub(super) outputs: Range<u32>,
    /// Rows, if it divides.
    pub(super) rows: usize,
    /// Bytes of the outputs.
    pub(super) made: u64,
    pub(super) streaming: Option<Box<Streaming>>,
}

/// What a node reads and makes chunk by chunk.
#[derive(Clone, Debug)]
pub(super) struct Streaming {
    /// One of the streams: all are cut into as many rows and chunks.
    pub(super) cut: Stream,
    pub(super) ins: Vec<StreamIn>,
    /// By output.
    pub(super) outs: Vec<StreamOut>,
}

/// An input that arrives in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamIn {
    pub(super) input: usize,
    /// Bytes of one of the cut's rows.
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
    /// Which, and so which of the device's rings.
    pub(super) output: u32,
    /// Bytes of one of the cut's rows.
    pub(super) row_bytes: usize,
    /// What the wait for a buffer is called.
    pub(super) wait: u32,
    pub(super) to: Vec<Onward>,
}

/// A reader of chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    pub(super) to: QueueAt,
    /// The transfer, if no link notes it.
    pub(super) transfer: Option<TransferId>,
}

/// What a link does in a run.
#[derive(Debug)]
pub(super) struct LinkScript {
    pub(super) from: DeviceId,
    pub(super) to: DeviceId,
    pub(super) steps: Vec<LinkStep>,
    /// The staging buffers of each GPU end.
    pub(super) staging: Ring,
}

/// One transfer of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkStep {
    pub(super) transfer: TransferId,
    pub(super) bytes: usize,
    /// Where it waits; [`NO_GATE`] if it does not.
    pub(super) gate: u32,
    /// Slot of the source, on a GPU.
    pub(super) source: Option<u32>,
    /// What is sent, if it is a constant; `None` until the script is readied.
    pub(super) constant: Option<Arc<Buffer>>,
    /// Slot of the target, if the value lands whole.
    pub(super) target: Option<u32>,
    /// What waits for the arrival. A stream's reader hears of each chunk instead.
    pub(super) arrival: Option<Gate>,
    /// What waits for the source to be read.
    pub(super) after: Vec<Gate>,
    /// If the value comes in chunks while it is made.
    pub(super) feed: Option<Feed>,
    /// Who reads the chunks.
    pub(super) reader: Option<QueueAt>,
    /// What the wait for an empty buffer of the link's ring is called.
    pub(super) room: u32,
}

/// How the chunks of a value come to a worker: from a CPU in buffers, on a GPU as the news that they are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feed {
    /// Which of the worker's queues they come to.
    pub(super) queue: u32,
    /// What the wait for a chunk is called.
    pub(super) wait: u32,
    /// Who gets the buffers back; nobody if chunks land in their place.
    pub(super) credit: Option<RingAt>,
}

impl Scripts {
    /// The scripts of a plan of this program. O(steps · log).
    ///
    /// # Errors
    /// If the plan contradicts itself, which [`check`](anabranch_plan::check()) would have found.
    pub(super) fn of(plan: &Plan, program: &Program) -> Result<Self, ExecError> {
        build::Builder::new(plan, program).finish().map_err(ExecError::internal)
    }
}

impl NodeScript {
    /// The node's own rows of a range of a stream's.
    pub(super) fn own_rows(&self, cut: &Stream, rows: &Range<usize>) -> Range<usize> {
        let factor = self.rows / cut.rows;
        rows.start * factor..rows.end * factor
    }
}

impl Streaming {
    /// An output that is passed on in chunks.
    pub(super) fn out(&self, output: usize) -> Option<&StreamOut> {
        self.outs.iter().find(|out| out.output as usize == output)
    }

    /// An input that arrives in chunks: its place among them.
    pub(super) fn place_of(&self, input: usize) -> Option<usize> {
        self.ins.iter().position(|stream| stream.input == input)
    }
}

impl DeviceScript {
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
        self.nodes.push(NodeScript { node: id, inputs, outputs, rows, made, streaming: None });
    }

    /// The operands in `range`.
    pub(super) fn operands(&self, range: &Range<u32>) -> &[Operand] {
        &self.operands[range.start as usize..range.end as usize]
    }

    /// What follows a step.
    pub(super) fn after(&self, range: &Range<u32>) -> &[After] {
        &self.after[range.start as usize..range.end as usize]
    }
}

impl Cells {
    /// The number of cells.
    pub(super) fn count(&self) -> usize {
        self.slots.len() + self.guests + self.constants.len()
    }

    /// The first cell of a constant.
    pub(super) fn first_constant(&self) -> usize {
        self.slots.len() + self.guests
    }
}
