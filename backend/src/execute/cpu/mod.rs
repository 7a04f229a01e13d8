//! The worker of a CPU device: one thread that follows its script and computes with its team.
//!
//! Buffers are owned by the thread that writes them ([`Cell`]). A value that others read is lent as a clone of its [`Arc`]; the script
//! says who gives it back, and only then does the slot's next value come, for which the buffer is unique again. So no lock
//! guards a tensor, and nothing here is unsafe.

mod cell;
mod compute;
pub(super) mod slow;
mod stream;

use super::actor::{Actor, Desk};
use super::error::{Failure, Place};
use super::event::{Activity, Event, Lane};
use super::gates::Gates;
use super::message::{Halt, Message, Run};
use super::ring::Ring;
use super::script::{After, DeviceScript, Work};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{CpuKernel, Team};
use anabranch_placement::platform::DeviceId;
use cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// The state of a CPU device between and during runs.
pub(super) struct CpuWorker {
    device: DeviceId,
    script: Arc<DeviceScript>,
    desk: Desk,
    /// By node of the script.
    kernels: Vec<Arc<dyn CpuKernel>>,
    team: Team,
    /// How many times longer than it needs each node takes, if more than once.
    slowdown: Option<f64>,
    cells: Vec<Cell>,
    gates: Gates,
    scratch: Buffer,
    /// Chunks that have come, by queue.
    queues: Vec<VecDeque<Arc<Buffer>>>,
    /// Free buffers for chunks that it makes, by the number of the output.
    rings: Vec<Ring>,
    /// The chunks that the node at work reads.
    taken: Vec<Arc<Buffer>>,
    /// Buffers for the chunks that it makes.
    made: Vec<Cell>,
    /// Output buffers of the node at work.
    held: Vec<Cell>,
    outputs: Vec<(u32, Arc<Buffer>)>,
}

impl CpuWorker {
    /// A worker with all its buffers. To be made on the thread that will run it: that touches the memory first.
    pub(super) fn new(
        device: DeviceId,
        desk: Desk,
        script: Arc<DeviceScript>,
        kernels: Vec<Arc<dyn CpuKernel>>,
        (team, slowdown): (Team, f64),
    ) -> Self {
        let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0);
        let constants = script.cells.constants.iter();
        let counted: usize = constants.filter(|constant| constant.counted).map(|constant| constant.bytes).sum();
        let tables: usize = kernels.iter().map(|kernel| kernel.resident_bytes()).sum();
        let slots: usize = script.cells.slots.iter().map(|slot| slot.bytes as usize).sum();
        let rings: usize = script.rings.iter().map(|ring| ring.total() as usize).sum();
        desk.shared.ledger.take(device, scratch + counted + tables + slots + rings);
        let mut worker = Self {
            device,
            desk,
            gates: Gates::new(&script.gates),
            cells: (0..script.cells.count()).map(|_| Cell::Empty).collect(),
            queues: script.queues.iter().map(|chunks| VecDeque::with_capacity(*chunks)).collect(),
            rings: script.rings.iter().map(|ring| Ring::new(ring.bytes, ring.depth)).collect(),
            taken: Vec::with_capacity(8),
            made: Vec::with_capacity(8),
            script,
            kernels,
            team,
            slowdown: Some(slowdown).filter(|times| *times > 1.0),
            scratch: Buffer::zeroed(scratch),
            held: Vec::with_capacity(8),
            outputs: Vec::new(),
        };
        worker.restore();
        worker
    }

    /// Gives each output a buffer that no caller has, and links the slots that are free from the start.
    fn begin(&mut self, script: &DeviceScript) -> Result<(), Halt> {
        self.desk.expect_events(script.nodes.len());
        for (slot, cell) in script.cells.slots.iter().zip(&mut self.cells) {
            if slot.handed_out && !cell.is_free() {
                *cell = Cell::zeroed(slot.bytes, slot.lent);
            }
        }
        for landing in 0..script.landings.len() {
            if self.gates.is_open(script.steps.len() + landing) {
                self.hand_over(landing)?;
            }
        }
        Ok(())
    }

    /// Hands a slot to the link that fills it.
    fn hand_over(&mut self, landing: usize) -> Result<(), Failure> {
        let landing = self.script.landings[landing];
        let buffer = self.cells[landing.cell as usize].hand_over();
        let buffer = buffer.ok_or_else(|| Failure::internal("a slot to land in is away"))?;
        self.desk.mail.post(landing.gate.worker, Message::Landing { gate: landing.gate.index, buffer });
        Ok(())
    }

    /// Takes messages until a gate is open.
    fn until_open(&mut self, gate: usize) -> Result<(), Halt> {
        while !self.gates.is_open(gate) {
            let message = self.desk.mail.wait(gate as u32)?;
            self.receive(message)?;
        }
        Ok(())
    }

    /// Takes the messages that are there.
    fn drain(&mut self) -> Result<(), Failure> {
        while let Ok(message) = self.desk.mail.inbox.try_recv() {
            self.receive(message)?;
        }
        Ok(())
    }

    fn count_down(&mut self, gate: u32) -> Result<(), Failure> {
        let open = self.gates.count_down(gate)?;
        match (gate as usize).checked_sub(self.script.steps.len()) {
            Some(landing) if open => self.hand_over(landing),
            _ => Ok(()),
        }
    }

    /// Tells others what a step has done.
    fn go_on(&mut self, script: &DeviceScript, after: &[After], now: u64) -> Result<(), Failure> {
        for after in after {
            match *after {
                After::Open(gate) => self.desk.mail.open(gate),
                After::Landing(landing) => self.count_down(script.steps.len() as u32 + landing)?,
                After::Forget(cell) => self.cells[cell as usize] = Cell::Empty,
                After::Share { cell, gate, there, transfer } => {
                    let buffer = self.cells[cell as usize].lend();
                    let buffer = buffer.ok_or_else(|| Failure::internal("a value to share is away"))?;
                    self.desk.mail.post(gate.worker, Message::Value { gate: gate.index, cell: there, buffer });
                    if let Some(transfer) = transfer {
                        let planned = self.desk.shared.plan.transfer(transfer);
                        let lane = Lane::Link { from: planned.from, to: planned.to };
                        let (what, bytes) = (Activity::Transfer(transfer), planned.bytes);
                        self.desk.note(Event { what, lane, ready: now, start: now, end: now, waited: 0, bytes });
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the buffers that are missing: all at first, and after a failed run those that were under way.
    fn restore(&mut self) {
        let script = Arc::clone(&self.script);
        for (slot, cell) in script.cells.slots.iter().zip(&mut self.cells) {
            // A clone that a caller, a link or a lost message still has makes the buffer unusable.
            if !cell.is_free() {
                *cell = Cell::zeroed(slot.bytes, slot.lent);
            }
        }
        let first = script.cells.first_constant();
        for (constant, cell) in script.cells.constants.iter().zip(&mut self.cells[first..]) {
            *cell = Cell::Shared(Arc::clone(&constant.buffer));
        }
    }
}

impl Actor for CpuWorker {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn follow(&mut self, run: &Run) -> Result<(), Halt> {
        let script = Arc::clone(&self.script);
        self.begin(&script)?;
        let eager = !script.landings.is_empty();
        let mut now = run.now();
        for (index, step) in script.steps.iter().enumerate() {
            self.desk.mail.stopped()?;
            let ready = now;
            if !self.gates.is_open(index) {
                self.until_open(index)?;
                now = run.now();
            }
            match step.work {
                Work::Node(at) => now = self.run_node(&script, at, run, (ready, now))?,
                Work::Input { index, cell } => {
                    let given = run.inputs.get(index as usize);
                    self.cells[cell as usize] = given.map_or(Cell::Empty, |buffer| Cell::Shared(Arc::clone(buffer)));
                }
                Work::Output { index, cell } => {
                    let value = self.cells[cell as usize].lend();
                    let value = value.ok_or_else(|| Failure::internal("an output is not there"))?;
                    self.outputs.push((index, value));
                }
            }
            if !step.after.is_empty() {
                self.go_on(&script, script.after(&step.after), now)?;
            }
            if eager && !self.desk.mail.inbox.is_empty() {
                self.drain()?;
            }
        }
        self.desk.at = Place::Nowhere;
        Ok(())
    }

    fn receive(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Open(gate) => self.count_down(gate),
            Message::Value { gate, cell, buffer } => {
                self.cells[cell as usize] = Cell::Shared(buffer);
                self.count_down(gate)
            }
            Message::Chunk { queue, buffer } => {
                self.queues[queue as usize].extend(buffer);
                Ok(())
            }
            Message::Credit { ring, buffer } => self.rings[ring as usize].give(buffer),
            Message::Wake | Message::Quit | Message::Clear | Message::Start(_) => Ok(()),
            Message::Landing { .. } => Err(Failure::internal("a device got a link's message")),
        }
    }

    fn forget(&mut self, failed: bool) {
        self.gates.reset();
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.taken.clear();
        self.made.clear();
        self.held.clear();
        let (slots, constants) = (self.script.cells.slots.len(), self.script.cells.first_constant());
        self.cells[slots..constants].fill_with(Cell::default);
        if failed {
            self.rings.iter_mut().for_each(Ring::renew);
            self.restore();
        }
    }

    fn outputs(&mut self) -> Vec<(u32, Arc<Buffer>)> {
        std::mem::take(&mut self.outputs)
    }
}
