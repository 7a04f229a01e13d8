//! A GPU device: its buffers and kernels, and the worker that encodes and submits them.
//!
//! Consecutive steps go into one command buffer. It is submitted when the next step is not ready, when a link waits for
//! what was computed, or after [`BATCH`] nodes. What comes later in the queue sees what came before, so the worker waits
//! for links only until they have submitted, and never for the device.

mod lost;
mod side;
mod timing;

pub(super) use lost::{failure, wait_for};
pub(super) use side::{Extra, GpuSide};

use super::actor::{Actor, Desk};
use super::engine::Shared;
use super::error::{Failure, Place};
use super::gates::Gates;
use super::message::{Gate, Halt, Mail, Message, Run};
use super::script::{After, DeviceScript, NodeScript, Streaming, Work};
use anabranch_kernels::gpu::Kernel;
use anabranch_placement::platform::DeviceId;
use std::sync::Arc;
use timing::Timing;

/// Kernels in a command buffer at most, so that the device begins while the next ones are encoded.
pub(crate) const BATCH: usize = 32;

/// Commands that are not submitted yet.
#[derive(Default)]
struct Batch {
    encoder: Option<wgpu::CommandEncoder>,
    /// The pass that is open in the encoder; ended before anything else is done with that.
    pass: Option<wgpu::ComputePass<'static>>,
    kernels: usize,
    /// To be opened once the commands are submitted.
    after: Vec<Gate>,
}

/// The state of a GPU's worker.
pub(super) struct GpuWorker {
    script: Arc<DeviceScript>,
    desk: Desk,
    side: Arc<GpuSide>,
    gates: Gates,
    batch: Batch,
    /// Chunks that have landed, by queue.
    queues: Vec<usize>,
    timing: Timing,
}

impl GpuWorker {
    pub(super) fn new(
        device: DeviceId,
        script: Arc<DeviceScript>,
        shared: Arc<Shared>,
        mail: Mail,
        side: Arc<GpuSide>,
    ) -> Self {
        Self {
            desk: Desk::new(device.0, shared, mail),
            gates: Gates::new(&script.gates),
            timing: Timing::new(device, &side),
            queues: vec![0; script.queues.len()],
            script,
            side,
            batch: Batch::default(),
        }
    }

    /// Takes messages until a gate is open. What is encoded is submitted before this thread sleeps.
    fn until_open(&mut self, gate: usize) -> Result<(), Halt> {
        while !self.gates.is_open(gate) {
            self.receive_next(gate as u32)?;
        }
        Ok(())
    }

    fn receive_next(&mut self, gate: u32) -> Result<(), Halt> {
        if self.desk.mail.inbox.is_empty() {
            self.submit()?;
        }
        let message = self.desk.mail.wait(gate)?;
        Ok(self.receive(message)?)
    }

    fn run_node(&mut self, node: &NodeScript, at: usize, run: &Run) -> Result<(), Halt> {
        self.desk.at = Place::Node(node.node);
        let side = Arc::clone(&self.side);
        let kernels = &side.nodes[at];
        self.timing.begin(node, run.now());
        match (&kernels.whole, &node.streaming) {
            (Some(kernel), None) => self.encode(kernel),
            (_, Some(streaming)) => self.run_chunks(&kernels.chunks, streaming)?,
            (None, None) => return Err(Failure::internal("a node has no kernel").into()),
        }
        Ok(())
    }

    /// Encodes the rows of each chunk once that has landed; links hear at once of what they are to pass on.
    fn run_chunks(&mut self, chunks: &[Kernel], streaming: &Streaming) -> Result<(), Halt> {
        for kernel in chunks {
            self.desk.mail.stopped()?;
            for input in &streaming.ins {
                while self.queues[input.queue as usize] == 0 {
                    self.receive_next(input.wait)?;
                }
                self.queues[input.queue as usize] -= 1;
            }
            self.encode(kernel);
            if !streaming.outs.is_empty() || self.batch.kernels >= BATCH {
                self.submit()?;
            }
            for to in streaming.outs.iter().flat_map(|out| &out.to) {
                self.desk.mail.post(to.worker, Message::Chunk { queue: to.queue, buffer: None });
            }
        }
        Ok(())
    }

    fn encode(&mut self, kernel: &Kernel) {
        let device = self.side.gpu.device();
        let encoder = self.batch.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        if self.desk.profiles() {
            let timestamp_writes = self.timing.writes();
            let description = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            kernel.encode(&mut encoder.begin_compute_pass(&description));
        } else {
            let begin = || encoder.begin_compute_pass(&Default::default()).forget_lifetime();
            kernel.encode(self.batch.pass.get_or_insert_with(begin));
        }
        self.batch.kernels += 1;
    }

    /// Submits what is encoded, and tells those who waited for it.
    fn submit(&mut self) -> Result<(), Halt> {
        self.batch.pass = None;
        self.batch.kernels = 0;
        if let Some(encoder) = self.batch.encoder.take() {
            // A lost device takes submissions without a word.
            self.side.healthy(self.desk.at)?;
            self.side.gpu.queue().submit([encoder.finish()]);
            self.side.healthy(self.desk.at)?;
            if self.desk.profiles() {
                self.timing.submitted(&self.side, &self.desk)?;
            }
        }
        for gate in self.batch.after.drain(..) {
            self.desk.mail.open(gate);
        }
        Ok(())
    }
}

impl Actor for GpuWorker {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn follow(&mut self, run: &Run) -> Result<(), Halt> {
        let script = Arc::clone(&self.script);
        self.desk.expect_events(script.nodes.len());
        if self.desk.profiles() {
            self.timing.prepare(&self.side, &script)?;
        }
        for (index, step) in script.steps.iter().enumerate() {
            self.desk.mail.stopped()?;
            if !self.gates.is_open(index) {
                self.until_open(index)?;
            }
            let Work::Node(at) = step.work else {
                return Err(Failure::internal("only the host has inputs and outputs").into());
            };
            self.run_node(&script.nodes[at as usize], at as usize, run)?;
            let gates = script.after(&step.after).iter().filter_map(|after| match after {
                After::Open(gate) => Some(*gate),
                After::Landing(_) | After::Share { .. } | After::Forget(_) => None,
            });
            self.batch.after.extend(gates);
            if step.urgent || self.batch.kernels >= BATCH {
                self.submit()?;
            }
        }
        self.submit()?;
        self.side.gpu.poll(None).map_err(|error| failure(&self.side.gpu, self.desk.at, error))?;
        if self.desk.profiles() {
            for event in self.timing.events(&self.side, &self.desk, run)? {
                self.desk.note(event);
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Open(gate) => self.gates.count_down(gate).map(|_| ()),
            Message::Chunk { queue, .. } => {
                self.queues[queue as usize] += 1;
                Ok(())
            }
            Message::Wake | Message::Quit | Message::Clear | Message::Start(_) => Ok(()),
            Message::Value { .. } | Message::Landing { .. } | Message::Credit { .. } => {
                Err(Failure::internal("a GPU got a message with a buffer"))
            }
        }
    }

    fn forget(&mut self, failed: bool) {
        self.gates.reset();
        self.queues.fill(0);
        self.timing.clear();
        if failed {
            self.batch = Batch::default();
        }
    }
}
