//! What others have given a link: values to send, slots to land in, empty buffers.

use crate::execute::error::Failure;
use crate::execute::gates::Gates;
use crate::execute::message::{Halt, Mail, Message};
use crate::execute::ring::Ring;
use crate::execute::script::{Feed, LinkScript};
use anabranch_kernels::Buffer;
use std::collections::VecDeque;
use std::sync::Arc;

/// The contents of a link's inbox, sorted.
pub(super) struct Arrivals {
    gates: Gates,
    /// By step: the value, if it comes from a CPU, and the slot, if it lands on one.
    sources: Vec<Option<Arc<Buffer>>>,
    landings: Vec<Option<Arc<Buffer>>>,
    /// By step: chunks of a value that is being made.
    chunks: Vec<VecDeque<Option<Arc<Buffer>>>>,
    /// Empty buffers for chunks on their way to a CPU.
    ring: Ring,
}

impl Arrivals {
    pub(super) fn new(script: &LinkScript) -> Self {
        let chunks = |feed: Option<&Feed>| VecDeque::with_capacity(feed.map_or(0, |feed| feed.chunks));
        Self {
            gates: Gates::new(&script.gates),
            sources: vec![None; script.steps.len()],
            landings: vec![None; script.steps.len()],
            chunks: script.steps.iter().map(|step| chunks(step.feed.as_ref())).collect(),
            ring: Ring::new(script.ring_bytes, script.ring_depth),
        }
    }

    pub(super) fn receive(&mut self, message: Message) -> Result<(), Failure> {
        let gate = match message {
            Message::Open(gate) => gate,
            Message::Value { gate, buffer, .. } => {
                self.sources[gate as usize] = Some(buffer);
                gate
            }
            Message::Landing { gate, buffer } => {
                self.landings[gate as usize] = Some(buffer);
                gate
            }
            Message::Credit { buffer, .. } => return self.ring.give(buffer),
            Message::Chunk { queue, buffer } => {
                self.chunks[queue as usize].push_back(buffer);
                return Ok(());
            }
            Message::Wake | Message::Quit | Message::Clear | Message::Start(_) => return Ok(()),
        };
        self.gates.count_down(gate).map(|_| ())
    }

    /// Waits until all is there that a step needs.
    pub(super) fn until_open(&mut self, step: usize, mail: &Mail) -> Result<(), Halt> {
        while !self.gates.is_open(step) {
            let message = mail.wait(step as u32)?;
            self.receive(message)?;
        }
        Ok(())
    }

    /// The value that a step sends.
    pub(super) fn source(&mut self, step: usize) -> Result<Arc<Buffer>, Failure> {
        self.sources[step].take().ok_or_else(|| Failure::internal("a value to send is not there"))
    }

    /// The slot that a step fills.
    pub(super) fn landing(&mut self, step: usize) -> Result<Arc<Buffer>, Failure> {
        self.landings[step].take().ok_or_else(|| Failure::internal("a slot to land in is not there"))
    }

    /// An empty buffer of the ring, once there is one. `room` is what the wait is called.
    pub(super) fn free_buffer(&mut self, room: u32, mail: &Mail) -> Result<Arc<Buffer>, Halt> {
        loop {
            if let Some(buffer) = self.ring.take() {
                return Ok(buffer);
            }
            let message = mail.wait(room)?;
            self.receive(message)?;
        }
    }

    /// The next chunk of the value of a step, once it is there: its bytes, or `None` for one that is on the GPU.
    pub(super) fn next_chunk(&mut self, step: usize, wait: u32, mail: &Mail) -> Result<Option<Arc<Buffer>>, Halt> {
        loop {
            if let Some(chunk) = self.chunks[step].pop_front() {
                return Ok(chunk);
            }
            let message = mail.wait(wait)?;
            self.receive(message)?;
        }
    }

    /// Whether a chunk of a step's value is there. Takes the messages that are.
    pub(super) fn has_chunk(&mut self, step: usize, mail: &Mail) -> Result<bool, Halt> {
        while let Ok(message) = mail.inbox.try_recv() {
            self.receive(message)?;
        }
        // What woke this worker may be among them, and does not come again.
        mail.stopped()?;
        Ok(!self.chunks[step].is_empty())
    }

    /// Prepares the next run.
    pub(super) fn forget(&mut self, failed: bool) {
        self.gates.reset();
        if failed {
            self.sources.fill(None);
            self.landings.fill(None);
            self.chunks.iter_mut().for_each(VecDeque::clear);
            self.ring.renew();
        }
    }
}
