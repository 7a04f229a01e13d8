//! A GPU of a dynamic executor: a buffer for every value that it may hold, and its four threads.

use super::Setup;
use super::messages::{Fetch, GpuInbox, Lift, Reply, Reporter, Threads};
use crate::execute::error::{ExecError, Failure, Place};
use crate::execute::exchange::Halt;
use crate::execute::gpu::{BATCH, Extra, GpuSide, wait_for};
use crate::execute::ledger::Ledger;
use crate::execute::link::{Download, Pieces, Upload};
use crate::execute::script::{Cells, ConstantCell, DeviceScript, NO_CELL, NodeScript, Operand, SlotScript};
use crate::execute::worker::Site;
use crate::plan::{HOST, KernelNeeds, Needs};
use crate::program::{NodeId, ValueId};
use anabranch_kernels::KernelError;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Most bytes of a staging buffer, and staging buffers of each direction: as planned links have them.
const STAGING: Pieces = Pieces { bytes: 4 << 20, depth: 3 };

/// Nodes that were submitted together.
struct Watched {
    nodes: Vec<NodeId>,
    submission: wgpu::SubmissionIndex,
    done: Arc<AtomicBool>,
    since: Instant,
}

/// Which nodes fit a GPU, and where their tensors are.
pub(super) struct GpuLayout {
    nodes: Vec<(NodeId, KernelNeeds)>,
    slots: BTreeMap<ValueId, u32>,
    constants: BTreeMap<ValueId, u32>,
    scratch: u64,
    kernels: u64,
    bytes: u64,
}

impl GpuLayout {
    /// Takes nodes, in the program's order, as long as all that they read, make and keep fits `limit` bytes.
    pub(super) fn of(setup: &Setup, device: DeviceId, limit: u64) -> Self {
        let mut layout = Self {
            nodes: Vec::new(),
            slots: BTreeMap::new(),
            constants: BTreeMap::new(),
            scratch: 0,
            kernels: 0,
            bytes: 0,
        };
        for node in setup.kernels.program().node_ids() {
            let allowed = setup.forecast.nodes[node.index()][device.index()].is_some();
            if let Some(needs) = setup.kernels.needs(node, DeviceKind::Gpu).ok().filter(|_| allowed) {
                layout.add(setup, node, needs, limit);
            }
        }
        layout
    }

    fn add(&mut self, setup: &Setup, node: NodeId, needs: KernelNeeds, limit: u64) {
        let program = setup.kernels.program();
        let (mut slots, mut constants) = (Vec::new(), Vec::new());
        let inputs = program.node(node).inputs.iter().enumerate();
        let read = inputs.filter(|(at, _)| needs.reads.get(*at).copied().unwrap_or(true)).map(|(_, value)| *value);
        for value in read.chain(program.node(node).outputs.iter().copied()) {
            let list = if program.constant(value).is_some() { &mut constants } else { &mut slots };
            if !self.slots.contains_key(&value) && !self.constants.contains_key(&value) && !list.contains(&value) {
                list.push(value);
            }
        }
        let tensors: u64 = slots.iter().chain(&constants).map(|value| padded(program.value(*value).spec.bytes())).sum();
        let scratch = self.scratch.max(needs.scratch);
        let bytes = self.bytes + tensors + needs.resident + (scratch - self.scratch);
        if bytes > limit {
            return;
        }
        (self.bytes, self.scratch) = (bytes, scratch);
        self.kernels += needs.resident;
        for value in slots {
            let at = self.slots.len() as u32;
            self.slots.insert(value, at);
        }
        for value in constants {
            let at = self.constants.len() as u32;
            self.constants.insert(value, at);
        }
        self.nodes.push((node, needs));
    }

    /// The nodes and cells as a script, of which no step is followed.
    fn script(&self, setup: &Setup) -> Result<DeviceScript, ExecError> {
        let program = setup.kernels.program();
        let mut script = DeviceScript { cells: self.cells(setup), ..DeviceScript::default() };
        for (id, needs) in &self.nodes {
            let node = program.node(*id);
            let first = script.operands.len() as u32;
            for (at, (value, spec)) in node.inputs.iter().zip(&node.spec.inputs).enumerate() {
                let read = needs.reads.get(at).copied().unwrap_or(true);
                script.operands.push(match read {
                    true => Operand { cell: self.cell(*value)?, bytes: spec.bytes(), row: None },
                    false => Operand { cell: NO_CELL, bytes: 0, row: None },
                });
            }
            let middle = script.operands.len() as u32;
            for (value, spec) in node.outputs.iter().zip(&node.spec.outputs) {
                script.operands.push(Operand { cell: self.cell(*value)?, bytes: spec.bytes(), row: None });
            }
            script.nodes.push(NodeScript {
                node: *id,
                inputs: first..middle,
                outputs: middle..script.operands.len() as u32,
                rows: node.spec.row_plan().map_or(1, |plan| plan.rows),
                made: node.spec.outputs.iter().map(|spec| spec.bytes() as u64).sum(),
                streaming: None,
            });
        }
        Ok(script)
    }

    fn cells(&self, setup: &Setup) -> Cells {
        let program = setup.kernels.program();
        let mut slots = vec![SlotScript { bytes: 0, handed_out: false, lent: false }; self.slots.len()];
        for (value, at) in &self.slots {
            slots[*at as usize].bytes = padded(program.value(*value).spec.bytes());
        }
        let mut constants: Vec<_> = self.constants.iter().collect();
        constants.sort_by_key(|(_, at)| **at);
        let cell = |(value, _): (&ValueId, &u32)| {
            let bytes = program.constant(*value)?.bytes();
            Some(ConstantCell { value: *value, bytes, buffer: Arc::default(), counted: true })
        };
        Cells { slots, guests: 0, constants: constants.into_iter().filter_map(cell).collect() }
    }

    /// The cell of a value.
    fn cell(&self, value: ValueId) -> Result<u32, ExecError> {
        let constant = || self.constants.get(&value).map(|at| self.slots.len() as u32 + at);
        let cell = self.slots.get(&value).copied().or_else(constant);
        cell.ok_or(ExecError::Internal("a node reads or makes a value that has no memory"))
    }

    /// Makes all buffers, compiles all kernels and starts the threads.
    pub(super) fn start(
        self,
        setup: &Setup,
        ledger: &Ledger,
        threads: &mut Threads,
        reporter: Reporter,
    ) -> Result<GpuInbox, ExecError> {
        let (device, name) = (reporter.device, setup.pool.devices()[reporter.device.index()].name());
        let extra = Extra { ledger, scratch: self.scratch, kernels: self.kernels };
        let script = self.script(setup)?;
        let side = GpuSide::new(setup.pool.gpu(device)?, name, device, &script, &setup.kernels, &extra)?;
        let refused = |source: KernelError| ExecError::Device { device: name.to_owned(), source: Box::new(source) };
        let upload = Upload::new(Arc::clone(&side), STAGING).map_err(refused)?;
        let download = Download::new(Arc::clone(&side), STAGING).map_err(refused)?;
        ledger.take(HOST, (2 * STAGING.bytes * STAGING.depth) as usize);
        let mut runs = vec![false; setup.kernels.program().nodes.len()];
        self.nodes.iter().for_each(|(node, _)| runs[node.index()] = true);
        let places: BTreeMap<NodeId, usize> =
            self.nodes.iter().enumerate().map(|(at, (node, _))| (*node, at)).collect();
        let slots = Arc::new(self.slots);
        let part = |what: &str| format!("{name} {what}");

        let ((nodes, node_inbox), (watched, watch_inbox)) = (unbounded(), unbounded());
        let encoder = Encoder { side: Arc::clone(&side), reporter: reporter.clone(), places, watched };
        threads.start(name, move || encoder.serve(&node_inbox))?;
        let (watcher, watcher_side) = (reporter.clone(), Arc::clone(&side));
        threads.start(&part("end"), move || watch(&watcher, &watcher_side, &watch_inbox))?;

        let (lifts, lift_inbox) = unbounded();
        let (lifter, lift_slots) = (reporter.clone(), Arc::clone(&slots));
        threads.start(&part("in"), move || lift(&lifter, upload, &lift_slots, &lift_inbox))?;
        let (fetches, fetch_inbox) = unbounded();
        threads.start(&part("out"), move || fetch(&reporter, download, &slots, &fetch_inbox))?;
        Ok(GpuInbox { nodes, lifts, fetches, runs })
    }
}

/// The size of a buffer for so many bytes.
fn padded(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(4)
}

/// Encodes and submits what is there.
struct Encoder {
    side: Arc<GpuSide>,
    reporter: Reporter,
    places: BTreeMap<NodeId, usize>,
    watched: Sender<Watched>,
}

impl Encoder {
    fn serve(&self, inbox: &Receiver<NodeId>) {
        self.reporter.serve(inbox, |node| Place::Node(*node), |node| self.submit(node, inbox));
    }

    fn submit(&self, first: NodeId, inbox: &Receiver<NodeId>) -> Result<(), Halt> {
        let at = Place::Node(first);
        let nodes: Vec<NodeId> = std::iter::once(first).chain(inbox.try_iter().take(BATCH - 1)).collect();
        self.side.healthy(at)?;
        let gpu = &self.side.gpu;
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for node in &nodes {
                let kernel = self.places.get(node).and_then(|place| self.side.nodes[*place].whole.as_ref());
                kernel.ok_or_else(|| Failure::internal("a node has no kernel"))?.encode(&mut pass);
            }
        }
        let since = Instant::now();
        let submission = gpu.queue().submit([encoder.finish()]);
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        gpu.queue().on_submitted_work_done(move || seen.store(true, Ordering::Release));
        self.side.healthy(at)?;
        for node in &nodes {
            self.reporter.report(Reply::Submitted { device: self.reporter.device, node: *node });
        }
        // The watcher listens as long as this thread lives.
        let _ = self.watched.send(Watched { nodes, submission, done, since });
        Ok(())
    }
}

/// Waits for each submission's end. Nodes that were submitted together share their time evenly.
fn watch(reporter: &Reporter, side: &GpuSide, inbox: &Receiver<Watched>) {
    let mut before = None;
    let place = |watched: &Watched| watched.nodes.first().map_or(Place::Nowhere, |node| Place::Node(*node));
    reporter.serve(inbox, place, |watched| {
        let at = place(&watched);
        wait_for(&side.gpu, &watched.submission, Site { stop: &reporter.stop, place: at }, || {
            watched.done.load(Ordering::Acquire)
        })?;
        side.healthy(at)?;
        let end = Instant::now();
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

fn slot(slots: &BTreeMap<ValueId, u32>, value: ValueId) -> Result<u32, Failure> {
    slots.get(&value).copied().ok_or_else(|| Failure::internal("a value has no place on a GPU"))
}

/// Copies values to the GPU.
fn lift(reporter: &Reporter, mut upload: Upload, slots: &BTreeMap<ValueId, u32>, inbox: &Receiver<Lift>) {
    reporter.serve(
        inbox,
        |_| Place::Nowhere,
        |Lift { value, bytes, buffer }| {
            let start = Instant::now();
            let (slot, piece) = (slot(slots, value)?, STAGING.bytes as usize);
            for (number, part) in buffer.bytes()[..bytes].chunks(piece).enumerate() {
                reporter.stop.check()?;
                upload.write(slot, number * piece, part, Site { stop: &reporter.stop, place: Place::Nowhere })?;
            }
            drop(buffer);
            reporter.report(Reply::Lifted { device: reporter.device, value, span: (start, Instant::now()) });
            Ok(())
        },
    );
}

/// Copies values from the GPU.
fn fetch(reporter: &Reporter, mut download: Download, slots: &BTreeMap<ValueId, u32>, inbox: &Receiver<Fetch>) {
    reporter.serve(
        inbox,
        |_| Place::Nowhere,
        |Fetch { value, bytes, mut buffer }| {
            let start = Instant::now();
            let target = buffer.bytes_mut();
            let cut = (bytes, STAGING.bytes as usize);
            download.read(
                slot(slots, value)?,
                cut,
                Site { stop: &reporter.stop, place: Place::Nowhere },
                &mut |offset: usize, part: &[u8]| {
                    target[offset..offset + part.len()].copy_from_slice(part);
                    Ok(())
                },
            )?;
            reporter.report(Reply::Fetched { device: reporter.device, value, buffer, span: (start, Instant::now()) });
            Ok(())
        },
    );
}
