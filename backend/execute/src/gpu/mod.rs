//! A GPU device: its buffers and kernels, and the worker that encodes and submits them.
//!
//! Consecutive steps go into one command buffer. It is submitted when the next step is not ready, when a link waits for
//! a result, or when it is full ([`gpu_batch`]). Later work in the queue sees the results of earlier work. The worker
//! therefore waits for links only until they have submitted, and for the device only at the end of a run.

mod lost;
mod side;
mod status;
mod timing;

pub(super) use lost::{Ahead, failure, healthy, look, wait_for};
pub(super) use side::GpuSide;

use super::error::{Failure, FailureSite};
use super::faults::Operation;
use super::link::Staging;
use super::resident::DeviceTensor;
use super::run_channels::{Halt, Wait};
use super::worker::{GpuTensors, Log, Run, Worker};
use super::worker_program::{After, DeviceProgram, Gate, HandedOut, NO_GATE, NodeCall, Streaming, Work};
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Gpu, GpuBuffer, Kernel};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::gpu_batch;
use lost::wait_for_work;
use std::sync::Arc;
use timing::Timing;

/// Commands that are not submitted yet.
#[derive(Default)]
struct Batch {
    encoder: Option<wgpu::CommandEncoder>,
    /// Open pass of the encoder; it is ended before any other use of the encoder.
    pass: Option<wgpu::ComputePass<'static>>,
    kernels: usize,
    /// Number of command buffers with kernels that the run has submitted.
    number: usize,
    /// Whether the commands copy the status words to the host.
    has_status: bool,
    /// Gates to open once the commands are submitted.
    after: Vec<Gate>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.kernels >= gpu_batch(self.number)
    }

    /// Returns the encoder, for commands outside of passes.
    fn commands(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()))
    }
}

/// State of a GPU's worker.
pub(super) struct GpuWorker {
    program: Arc<DeviceProgram>,
    side: Arc<GpuSide>,
    log: Log,
    batch: Batch,
    timing: Timing,
    tensors: GpuTensors,
    /// Copy of the status words on the host, if nodes have some.
    status: Option<Staging>,
}

impl GpuWorker {
    pub(super) fn new(device: DeviceId, program: DeviceProgram, side: Arc<GpuSide>) -> Result<Self, KernelError> {
        Ok(Self {
            status: status_copy(&side)?,
            timing: Timing::new(device, &side),
            log: Log::default(),
            batch: Batch::default(),
            tensors: GpuTensors::default(),
            program: Arc::new(program),
            side,
        })
    }

    /// Waits, after submitting the encoded commands.
    fn wait(&mut self, wait: Wait, run: &Run<'_>) -> Result<(), Halt> {
        if !run.port().is_ready(wait) {
            self.submit(run)?;
        }
        run.wait(wait)
    }

    fn run_node(&mut self, node: &NodeCall, at: usize, run: &Run<'_>) -> Result<(), Halt> {
        self.log.at = FailureSite::Node(node.node);
        let side = Arc::clone(&self.side);
        let kernels = side.kernels(at);
        self.timing.begin(node, run.now());
        if let Some(words) = side.status.as_ref().filter(|words| words.begins_at(node.node)) {
            words.clear(self.batch.commands(side.gpu.device()));
        }
        match &node.streaming {
            Some(streaming) => self.run_chunks(&kernels, streaming, run)?,
            None => kernels.iter().for_each(|kernel| self.encode(kernel, run)),
        }
        if let (Some(words), Some(copy)) = (&side.status, &self.status)
            && words.ends_at(node.node)
        {
            words.copy(self.batch.commands(side.gpu.device()), copy);
            self.batch.has_status = true;
        }
        Ok(())
    }

    /// Encodes the rows of each chunk when the chunk has arrived; links are informed at once of results to pass on.
    fn run_chunks(&mut self, chunks: &[Kernel], streaming: &Streaming, run: &Run<'_>) -> Result<(), Halt> {
        for kernel in chunks {
            run.check()?;
            for input in &streaming.ins {
                self.wait(Wait::Channel(input.feed.wait), run)?;
                run.next_chunk(&input.feed)?;
            }
            self.encode(kernel, run);
            if !streaming.outs.is_empty() || self.batch.is_full() {
                self.submit(run)?;
            }
            for onward in streaming.outs.iter().flat_map(|out| &out.to) {
                run.channels.send(onward.to, None);
            }
        }
        Ok(())
    }

    fn encode(&mut self, kernel: &Kernel, run: &Run<'_>) {
        let device = self.side.gpu.device();
        let encoder = self.batch.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        if run.terms.profile {
            let timestamp_writes = self.timing.writes();
            let description = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            kernel.encode(&mut encoder.begin_compute_pass(&description));
        } else {
            let begin = || encoder.begin_compute_pass(&Default::default()).forget_lifetime();
            kernel.encode(self.batch.pass.get_or_insert_with(begin));
        }
        self.batch.kernels += 1;
    }

    /// Encodes the copy of a whole value between a buffer of the caller and a buffer of the plan, which may be longer.
    /// A value that goes on in place is there.
    fn copy(&mut self, source: &wgpu::Buffer, target: &wgpu::Buffer) {
        if source == target {
            return;
        }
        let encoder = self.batch.commands(self.side.gpu.device());
        let bytes = source.size().min(target.size());
        encoder.copy_buffer_to_buffer(source, 0, target, 0, bytes);
        self.log.copied += bytes;
    }

    /// Makes slots the buffers of the outputs that they hold.
    fn take_over(&self) -> Result<(), Failure> {
        let buffer = |slot: &HandedOut| Ok::<_, Failure>((slot.cell, given(&self.tensors.outputs, slot.output)?));
        let slots: Vec<_> = self.program.handed_out.iter().map(buffer).collect::<Result<_, Failure>>()?;
        self.side.take_over(slots.into_iter());
        Ok(())
    }

    /// Waits until the caller's outputs are written, so that successive runs do not fill the device's queue.
    fn finish_outputs(&self, run: &Run<'_>) -> Result<(), Halt> {
        if self.tensors.outputs.is_empty() {
            return Ok(());
        }
        let last = self.side.gpu.queue().submit([]);
        wait_for_work(&self.side.gpu, &last, run.site(self.log.at))
    }

    fn give(&mut self, encoder: wgpu::CommandEncoder, run: &Run<'_>) -> Result<(), Failure> {
        let struck = run.strike(Operation::Submission);
        struck.map_err(|error| failure(&self.side.gpu, self.log.at, error))?;
        // A lost device accepts submissions without an error.
        self.side.healthy(self.log.at)?;
        let submission = self.side.gpu.queue().submit([encoder.finish()]);
        if std::mem::take(&mut self.batch.has_status)
            && let (Some(words), Some(copy)) = (&self.side.status, &mut self.status)
        {
            words.submitted(copy, submission);
        }
        self.side.healthy(self.log.at)
    }

    /// Checks that no kernel of the run has reported a value.
    fn check_status(&self, run: &Run<'_>) -> Result<(), Halt> {
        match (&self.side.status, &self.status) {
            (Some(words), Some(copy)) => words.check(&self.side.gpu, copy, run.site(self.log.at)),
            _ => Ok(()),
        }
    }

    /// Submits the encoded commands, and opens the gates that wait for them.
    fn submit(&mut self, run: &Run<'_>) -> Result<(), Halt> {
        self.batch.pass = None;
        let kernels = std::mem::take(&mut self.batch.kernels);
        self.batch.number += usize::from(kernels > 0);
        if let Some(encoder) = self.batch.encoder.take() {
            self.give(encoder, run).map_err(|failure| failure.among(kernels))?;
            if run.terms.profile {
                self.timing.submitted(&self.side, run)?;
            }
        }
        for gate in self.batch.after.drain(..) {
            run.channels.open(gate)?;
        }
        Ok(())
    }
}

/// Creates the buffer for the status words on the host, if nodes have some.
fn status_copy(side: &GpuSide) -> Result<Option<Staging>, KernelError> {
    side.status.as_ref().map(|words| words.staging(&side.gpu)).transpose()
}

/// The buffer of a tensor of the caller.
fn given(tensors: &[DeviceTensor], index: u32) -> Result<wgpu::Buffer, Failure> {
    let buffer = tensors.get(index as usize).and_then(DeviceTensor::buffer).cloned();
    buffer.ok_or_else(|| Failure::internal("a tensor of the caller is not there"))
}

impl Worker for GpuWorker {
    fn follow(&mut self, run: &Run<'_>) -> Result<(), Halt> {
        let program = Arc::clone(&self.program);
        if run.terms.profile {
            self.timing.prepare(&self.side, &program)?;
        }
        self.take_over()?;
        self.batch.number = 0;
        for step in &program.steps {
            run.check()?;
            if step.gate != NO_GATE {
                self.wait(Wait::Gate(step.gate), run)?;
                run.pass(step.gate, drop)?;
            }
            match step.work {
                Work::Node(at) => self.run_node(&program.nodes[at as usize], at as usize, run)?,
                Work::Input { index, cell } => {
                    self.copy(&given(&self.tensors.inputs, index)?, &self.side.cell(cell));
                }
                Work::Output { index, cell } => {
                    self.copy(&self.side.cell(cell), &given(&self.tensors.outputs, index)?);
                }
            }
            let gates = program.after(&step.after).iter().filter_map(|after| match after {
                After::Open(gate) => Some(*gate),
                After::HandOver(_) | After::Share { .. } | After::Forget(_) => None,
            });
            self.batch.after.extend(gates);
            if step.urgent || self.batch.is_full() {
                self.submit(run)?;
            }
        }
        self.submit(run)?;
        self.finish_outputs(run)?;
        self.check_status(run)?;
        self.side.gpu.poll(None).map_err(|error| failure(&self.side.gpu, self.log.at, error))?;
        if run.terms.profile {
            let events = self.timing.events(&self.side, run)?;
            self.log.events.extend(events);
        }
        self.timing.clear();
        Ok(())
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn let_go(&mut self) {
        self.timing.renew();
        self.batch = Batch::default();
        match status_copy(&self.side) {
            Ok(copy) => self.status = copy,
            // The engine is then built again, and that reports the error.
            Err(error) => self.side.gpu.condemn(&error.to_string()),
        }
    }

    fn restore(&mut self) -> bool {
        self.side.gpu.fault().is_none()
    }

    fn tensors(&mut self) -> Option<&mut GpuTensors> {
        Some(&mut self.tensors)
    }

    fn unused_slot(&mut self, output: u32) -> Option<(Arc<Gpu>, GpuBuffer)> {
        Some((Arc::clone(&self.side.gpu), self.side.unused_slot(output)?))
    }

    fn gpu(&self) -> Option<&Arc<Gpu>> {
        Some(&self.side.gpu)
    }
}
