//! The workers of a dynamic executor: a thread for each CPU device, several for each GPU, and the memory that they
//! share.

use super::Setup;
#[cfg(feature = "gpu")]
use super::gpu::GpuLayout;
use super::memory::Buffers;
use super::messages::{Move, Reply, Reporter, Task, Threads};
use crate::cpu::perform;
use crate::error::{Failure, FailureSite};
use crate::memory_accounting::MemoryAccounting;
use crate::run_channels::Halt;
use anabranch_device::{ComputeDevice, CpuTeam};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{Call, CpuKernel, Team};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{ExecError, HOST, Needs, STAGING};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// All threads, and the memory that they share.
pub(super) struct Workers {
    /// Inbox of each device. Declared before the threads, which end when their inboxes are dropped.
    pub(super) nodes: Vec<Sender<Task>>,
    /// Inboxes of each GPU: for values to it, and from it.
    pub(super) links: Vec<Option<[Sender<Move>; 2]>>,
    /// Predicted seconds of each node on each device; `None` if the node cannot run there.
    pub(super) lengths: Vec<Vec<Option<f64>>>,
    pub(super) replies: Receiver<Reply>,
    pub(super) accounting: Arc<MemoryAccounting>,
    pub(super) buffers: Buffers,
    /// Constants that kernels on the host read unpacked, or that the caller receives.
    pub(super) constants: BTreeMap<ValueId, Arc<Buffer>>,
    threads: Threads,
}

impl Workers {
    /// Prepares all kernels, allocates permanent memory, and starts the threads.
    pub(super) fn new(setup: &Setup) -> Result<Self, ExecError> {
        let (replies, inbox) = unbounded();
        let accounting = Arc::new(setup.pool.accounting());
        let (resident, constants) = setup.resident(&accounting)?;
        let cpus = || setup.devices.iter().filter(|device| device.kind == DeviceKind::Cpu);
        let limit = cpus().fold(0u64, |sum, device| sum.saturating_add(device.limit.or_all()));
        let mut workers = Self {
            nodes: Vec::new(),
            links: Vec::new(),
            lengths: setup.forecast.nodes.clone(),
            replies: inbox,
            buffers: Buffers::new(Arc::clone(&accounting), limit.saturating_sub(resident), limit),
            accounting: Arc::clone(&accounting),
            constants,
            threads: Threads::default(),
        };
        let host = setup.pool.devices()[HOST.index()].name();
        let inputs = setup.kernels.program().inputs.iter();
        let given = inputs.map(|value| setup.kernels.program().value(*value).spec.bytes() as u64);
        workers.buffers.reserve(given.fold(0, u64::saturating_add), host)?;
        for (at, (device, planned)) in setup.pool.devices().iter().zip(&setup.devices).enumerate() {
            let stop = Arc::clone(&workers.threads.stop);
            let reporter = Reporter { device: DeviceId(at as u32), replies: replies.clone(), stop };
            let (nodes, links) = match device {
                ComputeDevice::Cpu(team) => (workers.start_cpu(setup, team, reporter)?, None),
                #[cfg(not(feature = "gpu"))]
                ComputeDevice::Gpu(_) => match *setup.pool.gpu(reporter.device)? {},
                #[cfg(feature = "gpu")]
                ComputeDevice::Gpu(_) => {
                    workers.buffers.reserve(2 * STAGING.total(), host)?;
                    let left = planned.limit.or_all().saturating_sub(STAGING.total());
                    let layout = GpuLayout::of(setup, reporter.device, left);
                    let lengths = workers.lengths.iter_mut().zip(setup.kernels.program().node_ids());
                    let unfit = lengths.filter(|(_, node)| !layout.nodes.contains_key(node));
                    unfit.for_each(|(lengths, _)| lengths[at] = None);
                    let (nodes, links) = layout.start(setup, &accounting, &mut workers.threads, reporter)?;
                    (nodes, Some(links))
                }
            };
            workers.nodes.push(nodes);
            workers.links.push(links);
        }
        Ok(workers)
    }

    fn start_cpu(&mut self, setup: &Setup, cpu: &CpuTeam, reporter: Reporter) -> Result<Sender<Task>, ExecError> {
        let program = Arc::clone(setup.kernels.program());
        let kernels = program.node_ids().map(|node| setup.kernels.cpu(node)).collect::<Result<Vec<_>, _>>()?;
        let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0);
        self.buffers.reserve(scratch as u64, &cpu.name)?;
        self.accounting.take(reporter.device, scratch);
        let mut scratch = Buffer::try_zeroed(scratch).ok_or_else(|| ExecError::memory(&cpu.name))?;
        let (pin, slowdown) = (setup.pool.pinning(cpu), cpu.slowdown());
        let team = setup.pool.team(reporter.device, cpu);
        let (sender, inbox) = unbounded::<Task>();
        self.threads.start(&cpu.name, move || {
            pin(0);
            reporter.serve(
                &inbox,
                |task| FailureSite::Node(task.node),
                |task| {
                    let (node, start) = (task.node, Instant::now());
                    let outputs = compute(task, &program, &*kernels[node.index()], slowdown, (&mut scratch, &team))?;
                    let span = (start, Instant::now());
                    reporter.report(Reply::Computed { device: reporter.device, node, outputs, span });
                    Ok(())
                },
            );
        })?;
        Ok(sender)
    }
}

/// Runs one node and returns its outputs. The inputs are dropped before the result is reported.
fn compute(
    task: Task,
    program: &Program,
    kernel: &dyn CpuKernel,
    slowdown: Option<f64>,
    (scratch, team): (&mut Buffer, &Team),
) -> Result<Vec<Buffer>, Halt> {
    let Task { node, inputs, mut outputs } = task;
    let spec = &program.node(node).spec;
    // If the kernel keeps a constant packed, its tensor is empty here.
    let given = inputs.iter().zip(&spec.inputs);
    let read: Vec<&[u8]> = given.map(|(buffer, spec)| buffer.bytes().get(..spec.bytes()).unwrap_or(&[])).collect();
    let mut written: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    let rows = 0..spec.row_plan().map_or(1, |plan| plan.rows);
    let call = Call { inputs: &read, outputs: &mut written, rows, scratch: scratch.bytes_mut(), team };
    perform(kernel, slowdown, call, &|| false).map_err(|error| Failure::at(FailureSite::Node(node), error))?;
    Ok(outputs)
}

impl Setup {
    /// Prepares and counts the constants on the host: unpacked constants, which it returns, packed constants, and
    /// tables.
    fn resident(&self, accounting: &MemoryAccounting) -> Result<(u64, BTreeMap<ValueId, Arc<Buffer>>), ExecError> {
        let program = self.kernels.program();
        let mut values: BTreeSet<ValueId> = program.outputs.iter().map(|output| output.value).collect();
        let mut nodes: Vec<NodeId> = Vec::new();
        for node in program.node_ids() {
            let Ok(needs) = self.kernels.needs(node, DeviceKind::Cpu) else { continue };
            let inputs = program.node(node).inputs.iter().enumerate();
            values.extend(inputs.filter(|(at, _)| needs.is_read(*at)).map(|(_, value)| *value));
            nodes.push(node);
        }
        values.retain(|value| program.constant(*value).is_some());
        let values: Vec<ValueId> = values.into_iter().collect();
        let buffers = self.kernels.ready(&nodes, &values)?;
        let packed = nodes.iter().flat_map(|node| self.kernels.packed(*node));
        let mut counted = BTreeSet::new();
        let packed = packed.filter(|buffer| counted.insert(Arc::as_ptr(buffer))).map(|buffer| buffer.len());
        let tables = nodes.iter().filter_map(|node| self.kernels.cpu(*node).ok()).map(|kernel| kernel.resident_bytes());
        let bytes: usize = packed.chain(tables).chain(buffers.iter().map(|buffer| buffer.len())).sum();
        accounting.take(HOST, bytes);
        Ok((bytes as u64, values.into_iter().zip(buffers).collect()))
    }
}
