//! The worker of a CPU device: follows its worker program and computes with its team.
//!
//! A buffer belongs to the worker that writes it ([`Cell`]). A value with other readers is shared as a clone of its
//! [`Arc`]. The worker program says which step gives the clone back; the slot's next value comes only after that, when
//! the buffer is unique again. Tensors therefore need no locks and no unsafe code.

mod cell;
mod compute;
mod slow;
mod stream;

use super::error::{Failure, FailureSite};
use super::event::{Activity, Event, Lane};
use super::memory_accounting::MemoryAccounting;
use super::run_channels::{Delivery, Halt};
use super::worker::{Log, Run, Worker};
use super::worker_program::{After, DeviceProgram, HandOver, HandedOut, SlotSpec, Work};
use anabranch_base::error_kind::ErrorKind;
use anabranch_device::CpuTeam;
use anabranch_kernels::cpu::{CpuKernel, Team};
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::{Buffer, Recycler};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, Plan, TransferId};
use cell::Cell;
pub(super) use compute::perform;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size in bytes from which the memory of an output is the caller's alone after a run, and comes back when the caller
/// drops it. A smaller output stays in its slot, and is replaced in the next run if the caller still holds it: giving
/// it away and back would take longer than a small run.
const GIVEN_AWAY: u64 = if cfg!(test) { 64 } else { 16 << 10 };

/// The state of a CPU device between and during runs.
pub(super) struct CpuWorker {
    device: DeviceId,
    program: Arc<DeviceProgram>,
    plan: Arc<Plan>,
    log: Log,
    /// Kernel of each node of the worker program.
    kernels: Vec<Arc<dyn CpuKernel>>,
    team: Arc<Team>,
    /// Factor by which nodes are slowed down, if above 1.
    slowdown: Option<f64>,
    cells: Vec<Cell>,
    /// Slots of large outputs.
    given_away: Vec<usize>,
    /// Memory of large outputs that callers have dropped.
    dropped: Arc<Recycler>,
    /// GPUs for which slots are pinned.
    gpus: BTreeMap<DeviceId, Arc<Gpu>>,
    scratch: Buffer,
    /// Chunks that the running node reads.
    taken: Vec<Arc<Buffer>>,
    /// Buffers for the chunks that the node makes.
    made: Vec<Cell>,
    /// Output buffers of a node with many outputs.
    held: Vec<Cell>,
    /// Buffers set aside for the caller, with the numbers of the outputs.
    pub(super) outputs: Vec<(u32, Arc<Buffer>)>,
}

/// Whether a slot's memory is the caller's after a run.
fn is_given_away(slot: &SlotSpec) -> bool {
    slot.handed_out && slot.bytes >= GIVEN_AWAY
}

/// Returns a buffer for a slot, pinned if it should be and can be; `None` if memory is short.
fn fresh(slot: &SlotSpec, dropped: &Arc<Recycler>, gpus: &BTreeMap<DeviceId, Arc<Gpu>>) -> Option<Cell> {
    let gpu = slot.pinned.and_then(|gpu| gpus.get(&gpu));
    if let Some(pinned) = gpu.and_then(|gpu| gpu.pinned(slot.bytes as usize)) {
        return Some(Cell::Shared(Arc::new(pinned)));
    }
    match is_given_away(slot) {
        true => Some(Cell::Shared(Arc::new(dropped.buffer(slot.bytes as usize)?))),
        false => Cell::zeroed(slot.bytes, slot.shared),
    }
}

impl CpuWorker {
    /// Creates a worker with all its buffers; slots are pinned for those of these GPUs that can. The thread that first
    /// writes a fresh page is the first to touch it.
    ///
    /// # Errors
    /// If memory is short.
    pub(super) fn new(
        (device, cpu): (DeviceId, &CpuTeam),
        program: DeviceProgram,
        kernels: Vec<Arc<dyn CpuKernel>>,
        team: Arc<Team>,
        plan: &Arc<Plan>,
        accounting: &MemoryAccounting,
        gpus: BTreeMap<DeviceId, Arc<Gpu>>,
    ) -> Result<Self, ExecError> {
        let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0);
        let constants = program.cells.constants.iter();
        let counted: usize = constants.filter(|constant| constant.counted).map(|constant| constant.bytes).sum();
        let tables: usize = kernels.iter().map(|kernel| kernel.resident_bytes()).sum();
        let slots: usize = program.cells.slots.iter().map(|slot| slot.bytes as usize).sum();
        accounting.take(device, scratch + counted + tables + slots);
        let short = || ExecError::memory(&cpu.name);
        let mut worker = Self {
            device,
            plan: Arc::clone(plan),
            log: Log::default(),
            cells: (0..program.cells.count()).map(|_| Cell::Empty).collect(),
            given_away: Vec::new(),
            dropped: Arc::default(),
            gpus,
            taken: Vec::with_capacity(8),
            made: Vec::with_capacity(8),
            held: Vec::with_capacity(8),
            program: Arc::new(program),
            kernels,
            team,
            slowdown: cpu.slowdown(),
            scratch: Buffer::try_zeroed(scratch).ok_or_else(short)?,
            outputs: Vec::new(),
        };
        let slots = worker.program.cells.slots.iter().enumerate();
        worker.given_away = slots.filter(|(_, slot)| is_given_away(slot)).map(|(at, _)| at).collect();
        if worker.restore() { Ok(worker) } else { Err(short()) }
    }

    /// Takes over buffers of former outputs, by output, for slots whose own buffers the caller still holds, and buffers
    /// in the caller's memory.
    pub(super) fn adopt(&mut self, spare: &mut [Option<Arc<Buffer>>]) {
        for HandedOut { output, cell } in &self.program.handed_out {
            let Some(mut buffer) = spare.get_mut(*output as usize).and_then(Option::take) else { continue };
            let slot = &self.program.cells.slots[*cell as usize];
            let cell = &mut self.cells[*cell as usize];
            let fits = buffer.len() as u64 == slot.bytes && Arc::get_mut(&mut buffer).is_some();
            if fits && (buffer.is_borrowed() || !cell.is_free()) {
                *cell = Cell::Shared(buffer);
            }
        }
    }

    /// Takes a buffer of a former output whose content the next run goes on with in place. Gives it back if something
    /// else holds it, or its memory is a caller's.
    pub(super) fn go_on_with(&mut self, output: u32, mut buffer: Arc<Buffer>) -> Result<(), Arc<Buffer>> {
        let place = self.program.handed_out.iter().find(|handed_out| handed_out.output == output);
        let Some(HandedOut { cell, .. }) = place else { return Err(buffer) };
        let (slot, cell) = (&self.program.cells.slots[*cell as usize], &mut self.cells[*cell as usize]);
        if slot.bytes != buffer.len() as u64 {
            return Err(buffer);
        }
        if matches!(cell, Cell::Shared(own) if Arc::ptr_eq(own, &buffer)) {
            *cell = Cell::Empty;
        }
        if buffer.is_borrowed() || Arc::get_mut(&mut buffer).is_none() {
            return Err(buffer);
        }
        *cell = Cell::Shared(buffer);
        Ok(())
    }

    /// Keeps no hold of large outputs after a successful run.
    pub(super) fn give_away(&mut self) {
        for slot in &self.given_away {
            self.cells[*slot] = Cell::Empty;
            self.dropped.expect(self.program.cells.slots[*slot].bytes as usize);
        }
    }

    /// Takes the buffer of an output, as a run that failed has left it.
    pub(super) fn left(&mut self, output: u32) -> Option<Arc<Buffer>> {
        let place = self.program.handed_out.iter().find(|handed_out| handed_out.output == output)?;
        self.cells[place.cell as usize].hand_over()
    }

    /// Gives each output a buffer that no caller has, and hands over the slots that links fill first.
    fn begin(&mut self, program: &DeviceProgram, run: &Run<'_>) -> Result<(), Halt> {
        if run.terms.profile {
            self.log.events.reserve(program.nodes.len());
        }
        for (slot, cell) in program.cells.slots.iter().zip(&mut self.cells) {
            if slot.handed_out && !cell.is_free() {
                let text = || format!("out of memory for an output of {} bytes; release former outputs", slot.bytes);
                let short = || ExecError::new(ErrorKind::Memory, text());
                *cell = fresh(slot, &self.dropped, &self.gpus).ok_or_else(short)?;
            }
        }
        if !self.given_away.is_empty() {
            // All slots have their memory, so that more than is spare would be beyond what the plan counts.
            self.dropped.fill();
        }
        for landing in &program.first_landings {
            self.hand_over(*landing, run)?;
        }
        Ok(())
    }

    fn follow_steps(&mut self, program: &DeviceProgram, run: &Run<'_>) -> Result<(), Halt> {
        let mut now = run.now();
        for step in &program.steps {
            run.check()?;
            let ready = now;
            if step.gate != super::worker_program::NO_GATE {
                run.pass(step.gate, |Delivery { cell, buffer }| self.cells[cell as usize] = Cell::Shared(buffer))?;
                now = run.now();
            }
            match step.work {
                Work::Node(at) => {
                    let node = &program.nodes[at as usize];
                    self.log.at = FailureSite::Node(node.node);
                    let (mut start, mut waited) = (now, 0);
                    match &node.streaming {
                        None => self.compute(program, node, at, None, run)?,
                        Some(streaming) => (start, waited) = self.run_chunks(program, at, streaming, run)?,
                    }
                    if run.terms.profile {
                        now = run.now();
                        let (what, lane) = (Activity::Node(node.node), Lane::Device(self.device));
                        self.log.events.push(Event { what, lane, ready, start, end: now, waited, bytes: node.made });
                    }
                }
                Work::Input { index, cell } => {
                    let given = run.inputs.get(index as usize);
                    let given = given.ok_or_else(|| Failure::internal("an input was not given"))?;
                    self.cells[cell as usize] = Cell::Shared(Arc::clone(given.buffer()));
                }
                Work::Output { index, cell } => {
                    let value = self.cells[cell as usize].share();
                    let value = value.ok_or_else(|| Failure::internal("an output is not there"))?;
                    self.outputs.push((index, value));
                }
            }
            for after in program.after(&step.after) {
                self.tell(after, run, now)?;
            }
        }
        Ok(())
    }

    /// Informs other workers of a step's end.
    fn tell(&mut self, after: &After, run: &Run<'_>, now: u64) -> Result<(), Failure> {
        match *after {
            After::Open(gate) => run.channels.open(gate),
            After::HandOver(landing) => self.hand_over(landing, run),
            After::Forget(cell) => {
                self.cells[cell as usize] = Cell::Empty;
                Ok(())
            }
            After::Share { cell, gate, there, transfer } => {
                let buffer = self.cells[cell as usize].share();
                let buffer = buffer.ok_or_else(|| Failure::internal("a value to share is away"))?;
                if let Some(transfer) = transfer.filter(|_| run.terms.profile) {
                    self.note_transfer(transfer, now, now);
                }
                run.channels.deliver(gate, Delivery { cell: there, buffer })
            }
        }
    }

    /// Hands a slot to the link that fills it next.
    fn hand_over(&mut self, landing: HandOver, run: &Run<'_>) -> Result<(), Failure> {
        let buffer = self.cells[landing.cell as usize].hand_over();
        let buffer = buffer.ok_or_else(|| Failure::internal("a slot to land in is away"))?;
        run.channels.deliver(landing.gate, Delivery { cell: landing.cell, buffer })
    }

    /// Records a transfer between CPU devices, which no link records.
    fn note_transfer(&mut self, transfer: TransferId, start: u64, end: u64) {
        let planned = self.plan.transfer(transfer);
        let lane = Lane::Link { from: planned.from, to: planned.to };
        let (what, bytes) = (Activity::Transfer(transfer), planned.bytes);
        self.log.events.push(Event { what, lane, ready: start, start, end, waited: end - start, bytes });
    }

    /// Drops the inputs, and slots in the caller's memory, which may be gone after a run.
    fn forget_callers(&mut self) {
        let (slots, constants) = (self.program.cells.slots.len(), self.program.cells.first_constant());
        self.cells[slots..constants].fill_with(Cell::default);
        for handed_out in &self.program.handed_out {
            let cell = &mut self.cells[handed_out.cell as usize];
            if cell.is_borrowed() {
                *cell = Cell::default();
            }
        }
    }
}

impl Worker for CpuWorker {
    fn follow(&mut self, run: &Run<'_>) -> Result<(), Halt> {
        let (program, team) = (Arc::clone(&self.program), Arc::clone(&self.team));
        let _watched = run.terms.interrupt.as_ref().map(|interrupt| team.watch(Arc::clone(interrupt)));
        team.linger(run.terms.linger);
        self.begin(&program, run)?;
        self.follow_steps(&program, run)?;
        self.log.at = FailureSite::Nowhere;
        self.forget_callers();
        Ok(())
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn let_go(&mut self) {
        self.taken.clear();
        self.made.clear();
        self.held.clear();
        self.outputs.clear();
        self.forget_callers();
    }

    // Creates all buffers at first, and after a failed run those that it has lost.
    fn restore(&mut self) -> bool {
        let program = Arc::clone(&self.program);
        for (slot, cell) in program.cells.slots.iter().zip(&mut self.cells) {
            // A clone that a caller or a link still holds makes the buffer unusable.
            if !cell.is_free() {
                let Some(fresh) = fresh(slot, &self.dropped, &self.gpus) else { return false };
                *cell = fresh;
            }
        }
        let first = program.cells.first_constant();
        for (constant, cell) in program.cells.constants.iter().zip(&mut self.cells[first..]) {
            *cell = Cell::Shared(Arc::clone(&constant.buffer));
        }
        true
    }

    fn cpu(&mut self) -> Option<&mut CpuWorker> {
        Some(self)
    }
}
