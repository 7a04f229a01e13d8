//! A GPU of a dynamic executor: a buffer for every value that it may hold, and its four threads.

use super::Setup;
use super::messages::{Move, Reply, Reporter, Task, Threads};
use crate::error::{Failure, FailureSite};
use crate::gpu::{GpuSide, wait_for};
use crate::link::{End, Staging, copy};
use crate::memory_accounting::MemoryAccounting;
use crate::run_channels::Halt;
use crate::worker_program::{Cells, ConstantCell, DeviceProgram, SlotSpec};
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_kernels::KernelError;
use anabranch_kernels::cpu::Team;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{DeviceMemory, ExecError, GPU_BATCH, HOST, KernelNeeds, Needs, STAGING};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Nodes that were submitted together.
struct Watched {
    nodes: Vec<NodeId>,
    submission: wgpu::SubmissionIndex,
    done: Arc<AtomicBool>,
    since: Instant,
    /// Copy of the status words, if one of the nodes has a word.
    status: Option<Staging>,
}

/// Nodes that fit a GPU, and the memory that is kept there for them.
#[derive(Default)]
pub(super) struct GpuLayout {
    pub(super) nodes: BTreeMap<NodeId, KernelNeeds>,
    /// Values that these nodes read and make.
    values: BTreeSet<ValueId>,
    memory: DeviceMemory,
    bytes: u64,
}

impl GpuLayout {
    /// Accepts nodes, in the program's order, as long as all that they read, make and keep fits `limit` bytes.
    pub(super) fn of(setup: &Setup, device: DeviceId, limit: u64) -> Self {
        let mut layout = Self::default();
        for node in setup.kernels.program().node_ids() {
            let allowed = setup.forecast.nodes[node.index()][device.index()].is_some();
            if let Some(needs) = setup.kernels.needs(node, DeviceKind::Gpu).ok().filter(|_| allowed) {
                layout.add(setup, node, needs, limit);
            }
        }
        layout
    }

    fn add(&mut self, setup: &Setup, id: NodeId, needs: KernelNeeds, limit: u64) {
        let program = setup.kernels.program();
        let node = program.node(id);
        let is_read = |at: usize, value: ValueId| needs.is_read(at) || program.constant(value).is_none();
        let read = node.inputs.iter().enumerate().filter(|(at, value)| is_read(*at, **value)).map(|(_, value)| value);
        let fresh = read.chain(&node.outputs).copied().filter(|value| !self.values.contains(value));
        let fresh: BTreeSet<ValueId> = fresh.collect();
        let tensors: u64 = fresh.iter().map(|value| padded(program.value(*value).spec.bytes())).sum();
        let scratch = needs.scratch.saturating_sub(self.memory.scratch);
        let bytes = self.bytes + tensors + needs.resident + scratch;
        if bytes <= limit {
            self.bytes = bytes;
            self.memory.scratch += scratch;
            self.memory.kernels += needs.resident;
            self.values.extend(fresh);
            self.nodes.insert(id, needs);
        }
    }

    /// Returns the nodes and cells as a worker program whose steps are not followed, and the cell of each value.
    fn worker_program(&self, setup: &Setup) -> (DeviceProgram, BTreeMap<ValueId, u32>) {
        let program = setup.kernels.program();
        let (constants, slots): (Vec<ValueId>, Vec<ValueId>) =
            self.values.iter().partition(|value| program.constant(**value).is_some());
        let bytes = |value: ValueId| program.value(value).spec.bytes();
        let slot =
            |value: &ValueId| SlotSpec { bytes: padded(bytes(*value)), handed_out: false, shared: false, pinned: None };
        let constant = |value: &ValueId| ConstantCell {
            value: *value,
            bytes: bytes(*value),
            buffer: Arc::default(),
            counted: true,
        };
        let cells = Cells {
            slots: slots.iter().map(slot).collect(),
            guests: 0,
            constants: constants.iter().map(constant).collect(),
        };
        let of: BTreeMap<ValueId, u32> = slots.into_iter().chain(constants).zip(0..).collect();
        let mut worker_program = DeviceProgram { cells, ..DeviceProgram::default() };
        for (node, needs) in &self.nodes {
            worker_program.push_node(program, *node, needs, |value| of.get(&value).copied());
        }
        (worker_program, of)
    }

    /// Creates all buffers, compiles all kernels and starts the threads. Returns the inboxes for nodes, for values to
    /// the GPU, and for values from it.
    pub(super) fn start(
        self,
        setup: &Setup,
        accounting: &MemoryAccounting,
        threads: &mut Threads,
        reporter: Reporter,
    ) -> Result<(Sender<Task>, [Sender<Move>; 2]), ExecError> {
        let (device, name) = (reporter.device, setup.pool.devices()[reporter.device.index()].name());
        let (worker_program, cells) = self.worker_program(setup);
        let gpu = setup.pool.gpu(device)?;
        let side = GpuSide::new(gpu, name, device, &worker_program, &setup.kernels, accounting, &self.memory)?;
        let refused = |error: KernelError| ExecError::unusable(name, &error);
        let copiers = setup.pool.copiers();
        let mut upload = End::new(Arc::clone(&side), STAGING, wgpu::MapMode::Write).map_err(refused)?;
        let mut download = End::new(Arc::clone(&side), STAGING, wgpu::MapMode::Read).map_err(refused)?;
        accounting.take(HOST, (2 * STAGING.total()) as usize);
        accounting.take(device, STAGING.total() as usize);
        let cells = Arc::new(cells);
        let part = |what: &str| format!("{name} {what}");

        let ((nodes, node_inbox), (watched, watch_inbox)) = (unbounded(), unbounded());
        let places = self.nodes.into_keys().zip(0..).collect();
        let encoder = Encoder { side: Arc::clone(&side), reporter: reporter.clone(), places, watched };
        threads.start(name, move || encoder.serve(&node_inbox))?;
        let watcher = reporter.clone();
        threads.start(&part("end"), move || watch(&watcher, &side, &watch_inbox))?;

        let (lifts, lift_inbox) = unbounded();
        let (lifter, lift_cells, lift_copiers) = (reporter.clone(), Arc::clone(&cells), Arc::clone(&copiers));
        threads.start(&part("in"), move || {
            lifter.serve(
                &lift_inbox,
                |_| FailureSite::Nowhere,
                |lift| carry_in(&lifter, (&mut upload, &lift_copiers), &lift_cells, lift),
            );
        })?;
        let (fetches, fetch_inbox) = unbounded();
        threads.start(&part("out"), move || {
            reporter.serve(
                &fetch_inbox,
                |_| FailureSite::Nowhere,
                |fetch| carry_out(&reporter, (&mut download, &copiers), &cells, fetch),
            );
        })?;
        Ok((nodes, [lifts, fetches]))
    }
}

/// Size of a buffer for this many bytes.
fn padded(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(4)
}

/// Encodes and submits the nodes in its inbox.
struct Encoder {
    side: Arc<GpuSide>,
    reporter: Reporter,
    places: BTreeMap<NodeId, usize>,
    watched: Sender<Watched>,
}

impl Encoder {
    fn serve(&self, inbox: &Receiver<Task>) {
        self.reporter.serve(inbox, |task| FailureSite::Node(task.node), |task| self.submit(task.node, inbox));
    }

    fn submit(&self, first: NodeId, inbox: &Receiver<Task>) -> Result<(), Halt> {
        let at = FailureSite::Node(first);
        let others = inbox.try_iter().take(GPU_BATCH - 1).map(|task| task.node);
        let nodes: Vec<NodeId> = std::iter::once(first).chain(others).collect();
        self.side.healthy(at)?;
        let gpu = &self.side.gpu;
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let status = self.side.status.as_ref().filter(|words| nodes.iter().any(|node| words.word(*node).is_some()));
        if let Some(words) = status {
            words.clear(&mut encoder);
        }
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for node in &nodes {
                let missing = || Failure::internal("a node has no kernel");
                let kernels = self.side.kernels(*self.places.get(node).ok_or_else(missing)?);
                kernels.first().ok_or_else(missing)?.encode(&mut pass);
            }
        }
        let mut copy = status.map(|words| words.staging(gpu)).transpose().map_err(|error| Failure::at(at, error))?;
        if let (Some(words), Some(copy)) = (status, &copy) {
            words.copy(&mut encoder, copy);
        }
        let since = Instant::now();
        let submission = gpu.queue().submit([encoder.finish()]);
        if let (Some(words), Some(copy)) = (status, &mut copy) {
            words.submitted(copy, submission.clone());
        }
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        gpu.queue().on_submitted_work_done(move || seen.store(true, Ordering::Release));
        self.side.healthy(at)?;
        for node in &nodes {
            self.reporter.report(Reply::Submitted { device: self.reporter.device, node: *node });
        }
        // The watcher listens as long as this thread lives.
        let _ = self.watched.send(Watched { nodes, submission, done, since, status: copy });
        Ok(())
    }
}

/// Waits for the end of each submission. Nodes of one submission share its time evenly.
fn watch(reporter: &Reporter, side: &GpuSide, inbox: &Receiver<Watched>) {
    let mut before = None;
    let place = |watched: &Watched| watched.nodes.first().map_or(FailureSite::Nowhere, |node| FailureSite::Node(*node));
    reporter.serve(inbox, place, |watched| {
        let site = reporter.site(place(&watched));
        wait_for(&side.gpu, &watched.submission, site, || watched.done.load(Ordering::Acquire))?;
        side.healthy(site.place)?;
        let end = Instant::now();
        if let (Some(words), Some(copy)) = (&side.status, &watched.status) {
            words.check(&side.gpu, copy, site)?;
        }
        let start = before.map_or(watched.since, |before: Instant| before.max(watched.since));
        before = Some(end);
        let share = end.saturating_duration_since(start) / watched.nodes.len().max(1) as u32;
        for (number, node) in watched.nodes.iter().enumerate() {
            let span = (start + share * number as u32, start + share * (number + 1) as u32);
            reporter.report(Reply::Finished { device: reporter.device, node: *node, span });
        }
        Ok(())
    });
}

fn cell_of(cells: &BTreeMap<ValueId, u32>, value: ValueId) -> Result<u32, Failure> {
    cells.get(&value).copied().ok_or_else(|| Failure::internal("a value has no place on a GPU"))
}

/// Copies a value to the GPU.
fn carry_in(
    reporter: &Reporter,
    (end, copiers): (&mut End, &Team),
    cells: &BTreeMap<ValueId, u32>,
    lift: Move,
) -> Result<(), Halt> {
    let Move { value, bytes, buffer, .. } = lift;
    let (start, cell, piece) = (Instant::now(), cell_of(cells, value)?, STAGING.bytes as usize);
    for (number, part) in buffer.bytes()[..bytes].chunks(piece).enumerate() {
        reporter.stop.check()?;
        let site = reporter.site(FailureSite::Nowhere);
        end.wait(site)?;
        end.write(copiers, cell, number * piece, part, site)?;
        end.send(site)?;
    }
    drop(buffer);
    let span = (start, Instant::now());
    reporter.report(Reply::Moved { value, from: HOST, to: reporter.device, buffer: None, span });
    Ok(())
}

/// Copies a value from the GPU.
fn carry_out(
    reporter: &Reporter,
    (end, copiers): (&mut End, &Team),
    cells: &BTreeMap<ValueId, u32>,
    fetch: Move,
) -> Result<(), Halt> {
    let Move { value, bytes, mut buffer, profile } = fetch;
    let (start, cell) = (Cell::new(Instant::now()), cell_of(cells, value)?);
    let target = Arc::get_mut(&mut buffer).ok_or_else(|| Failure::internal("a buffer to fill is still read"))?;
    let take = |offset: usize, part: &[u8]| {
        copy(copiers, part, &mut target.bytes_mut()[offset..offset + part.len()]);
        Ok(())
    };
    let begins: &dyn Fn() = &|| start.set(Instant::now());
    let begins = profile.then_some(begins);
    end.read(cell, (bytes, STAGING.bytes as usize), reporter.site(FailureSite::Nowhere), |_| Ok(true), begins, take)?;
    let span = (start.get(), Instant::now());
    reporter.report(Reply::Moved { value, from: reporter.device, to: HOST, buffer: Some(buffer), span });
    Ok(())
}
