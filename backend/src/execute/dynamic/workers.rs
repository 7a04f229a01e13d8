//! The workers of a dynamic executor: a thread for each CPU device, several for each GPU, and the memory that they share.

use super::Setup;
use super::gpu::GpuLayout;
use super::memory::{Buffers, Wiring};
use super::messages::{CpuTask, DeviceInbox, Reply, Reporter, Threads};
use crate::execute::cpu::slow::Slow;
use crate::execute::device::{ComputeDevice, CpuTeam};
use crate::execute::error::{ExecError, Failure, Place};
use crate::execute::exchange::Halt;
use crate::execute::ledger::Ledger;
use crate::plan::{HOST, Needs};
use crate::program::{NodeId, ValueId};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{Call, CpuKernel, Team};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use crossbeam_channel::{Receiver, unbounded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// All threads, and the memory that they share.
pub(super) struct Workers {
    /// By device. Declared before the threads, which end when nobody can give them work any more.
    pub(super) inboxes: Vec<DeviceInbox>,
    /// By device: which memory it computes in.
    pub(super) memory_of: Vec<usize>,
    pub(super) replies: Receiver<Reply>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) buffers: Buffers,
    pub(super) wiring: Wiring,
    /// The constants that kernels on the host read as they are, or the caller receives.
    pub(super) constants: BTreeMap<ValueId, Arc<Buffer>>,
    threads: Threads,
}

impl Workers {
    /// Prepares all kernels, takes what stays taken, and starts the threads.
    pub(super) fn new(setup: &Setup) -> Result<Self, ExecError> {
        let (replies, inbox) = unbounded();
        let ledger = Arc::new(setup.pool.ledger());
        let (resident, constants) = setup.resident(&ledger)?;
        let cpus = || setup.devices.iter().filter(|device| device.kind == DeviceKind::Cpu);
        let limit = cpus().try_fold(0u64, |sum, device| Some(sum.saturating_add(device.limit?)));
        let limit = limit.unwrap_or(u64::MAX);
        let mut workers = Self {
            inboxes: Vec::new(),
            memory_of: Vec::new(),
            replies: inbox,
            buffers: Buffers::new(Arc::clone(&ledger), limit.saturating_sub(resident), limit),
            ledger: Arc::clone(&ledger),
            wiring: Wiring::of(setup.kernels.program()),
            constants,
            threads: Threads::default(),
        };
        let mut memories = 1;
        for (at, (device, planned)) in setup.pool.devices().iter().zip(&setup.devices).enumerate() {
            let reporter = Reporter {
                device: DeviceId(at as u32),
                replies: replies.clone(),
                stop: Arc::clone(&workers.threads.stop),
            };
            let (inboxes, memory) = match device {
                ComputeDevice::Cpu(team) => (workers.start_cpu(setup, team, reporter)?, 0),
                ComputeDevice::Gpu(_) => {
                    let layout = GpuLayout::of(setup, reporter.device, planned.limit.unwrap_or(u64::MAX));
                    let inboxes = layout.start(setup, &ledger, &mut workers.threads, reporter)?;
                    memories += 1;
                    (DeviceInbox::Gpu(inboxes), memories - 1)
                }
            };
            workers.inboxes.push(inboxes);
            workers.memory_of.push(memory);
        }
        Ok(workers)
    }

    /// The number of memories.
    pub(super) fn memories(&self) -> usize {
        self.memory_of.iter().max().map_or(1, |most| most + 1)
    }

    fn start_cpu(&mut self, setup: &Setup, team: &CpuTeam, reporter: Reporter) -> Result<DeviceInbox, ExecError> {
        let program = Arc::clone(setup.kernels.program());
        let kernels = program.node_ids().map(|node| setup.kernels.cpu(node)).collect::<Result<Vec<_>, _>>()?;
        let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0);
        self.ledger.take(reporter.device, scratch);
        let slowdown = Some(team.slowdown).filter(|times| *times > 1.0);
        let (pin, team, name) = (setup.pool.pinning(team), setup.pool.team(reporter.device, team), team.name.clone());
        let (sender, inbox) = unbounded::<CpuTask>();
        let short = || ExecError::Memory { device: name.clone() };
        let mut scratch = Buffer::try_zeroed(scratch).ok_or_else(short)?;
        self.threads.start(&name, move || {
            pin(0);
            reporter.serve(
                &inbox,
                |task| Place::Node(task.node),
                |task| {
                    let spec = &program.node(task.node).spec;
                    let started = slowdown.map(Slow::start);
                    let (node, start, outputs) = compute(task, spec, &kernels, (&mut scratch, &team))?;
                    if let Some(started) = started {
                        started.finish();
                    }
                    let span = (start, Instant::now());
                    reporter.report(Reply::Computed { device: reporter.device, node, outputs, span });
                    Ok(())
                },
            );
        })?;
        Ok(DeviceInbox::Cpu(sender))
    }
}

/// Runs one node: when it started, and what it made. What it read is let go before anybody hears of it.
fn compute(
    task: CpuTask,
    spec: &anabranch_kernels::op::NodeSpec,
    kernels: &[Arc<dyn CpuKernel>],
    (scratch, team): (&mut Buffer, &Team),
) -> Result<(NodeId, Instant, Vec<Buffer>), Halt> {
    let CpuTask { node, inputs, mut outputs } = task;
    let started = Instant::now();
    // Of a constant that the kernel keeps packed there is nothing.
    let read: Vec<&[u8]> = inputs
        .iter()
        .zip(&spec.inputs)
        .map(|(buffer, spec)| buffer.bytes().get(..spec.bytes()).unwrap_or(&[]))
        .collect();
    let mut written: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    let rows = 0..spec.row_plan().map_or(1, |plan| plan.rows);
    let call = Call { inputs: &read, outputs: &mut written, rows, scratch: scratch.bytes_mut(), team };
    kernels[node.index()].run(call).map_err(|error| Failure::at(Place::Node(node), error))?;
    drop(inputs);
    Ok((node, started, outputs))
}

impl Setup {
    /// Readies and counts what stays on the host: constants as they are, which it returns, packed ones, and tables.
    fn resident(&self, ledger: &Ledger) -> Result<(u64, BTreeMap<ValueId, Arc<Buffer>>), ExecError> {
        let program = self.kernels.program();
        let nodes: Vec<NodeId> =
            program.node_ids().filter(|node| self.kernels.needs(*node, DeviceKind::Cpu).is_ok()).collect();
        let mut values: Vec<ValueId> = program.outputs.iter().map(|output| output.value).collect();
        for node in &nodes {
            let reads = self.kernels.needs(*node, DeviceKind::Cpu).map(|needs| needs.reads).unwrap_or_default();
            let read = program.node(*node).inputs.iter().zip(reads).filter(|(_, read)| *read);
            values.extend(read.map(|(value, _)| *value));
        }
        values.retain(|value| program.constant(*value).is_some());
        values.sort_unstable();
        values.dedup();
        let buffers = self.kernels.ready(&nodes, &values)?;
        let packed = nodes.iter().flat_map(|node| self.kernels.packed(*node));
        let mut counted = BTreeSet::new();
        let packed = packed.filter(|buffer| counted.insert(Arc::as_ptr(buffer))).map(|buffer| buffer.len());
        let tables = nodes.iter().filter_map(|node| self.kernels.cpu(*node).ok()).map(|kernel| kernel.resident_bytes());
        let bytes: usize = packed.chain(tables).chain(buffers.iter().map(|buffer| buffer.len())).sum();
        ledger.take(HOST, bytes);
        Ok((bytes as u64, values.into_iter().zip(buffers).collect()))
    }
}
