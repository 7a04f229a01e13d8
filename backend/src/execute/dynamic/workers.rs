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
use crate::plan::HOST;
use crate::program::{NodeId, Origin};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::{Call, CpuKernel, Team};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use crossbeam_channel::{Receiver, unbounded};
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
    threads: Threads,
}

impl Workers {
    /// Prepares all kernels, takes what stays taken, and starts the threads.
    pub(super) fn new(setup: &Setup) -> Result<Self, ExecError> {
        let (replies, inbox) = unbounded();
        let ledger = Arc::new(setup.pool.ledger());
        let resident = setup.resident(&ledger);
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
        let kernel = |node: NodeId| {
            let refused = |source| ExecError::Kernel {
                node: program.node(node).name.clone(),
                device: team.name.clone(),
                source: Box::new(source),
            };
            setup.kernels.cpu(node).map_err(refused)
        };
        let kernels = program.node_ids().map(kernel).collect::<Result<Vec<_>, _>>()?;
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
    let read: Vec<&[u8]> =
        inputs.iter().zip(&spec.inputs).map(|(buffer, spec)| &buffer.bytes()[..spec.bytes()]).collect();
    let mut written: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    let rows = 0..spec.row_plan().map_or(1, |plan| plan.rows);
    let call = Call { inputs: &read, outputs: &mut written, rows, scratch: scratch.bytes_mut(), team };
    kernels[node.index()].run(call).map_err(|error| Failure::at(Place::Node(node), error))?;
    drop(inputs);
    Ok((node, started, outputs))
}

impl Setup {
    /// Counts what stays on the host: constants and packed weights. Returns the bytes.
    fn resident(&self, ledger: &Ledger) -> u64 {
        let program = self.kernels.program();
        let constants = program.values.iter().map(|value| match &value.origin {
            Origin::Constant(tensor) => tensor.bytes().len(),
            Origin::Input | Origin::Node(_) => 0,
        });
        let kernels = program.node_ids().filter_map(|node| self.kernels.cpu(node).ok());
        let bytes: usize = constants.sum::<usize>() + kernels.map(|kernel| kernel.resident_bytes()).sum::<usize>();
        ledger.take(HOST, bytes);
        bytes as u64
    }
}
