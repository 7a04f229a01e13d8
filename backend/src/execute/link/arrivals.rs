//! What others have given a link: values to send, slots to land in, empty buffers.

use crate::execute::error::Failure;
use crate::execute::gates::Gates;
use crate::execute::message::{Halt, Mail, Message};
use crate::execute::script::LinkScript;
use anabranch_kernels::Buffer;
use std::sync::Arc;

/// The contents of a link's inbox, sorted.
pub(super) struct Arrivals {
    gates: Gates,
    /// By step: the value, if it comes from a CPU, and the slot, if it lands on one.
    sources: Vec<Option<Arc<Buffer>>>,
    landings: Vec<Option<Arc<Buffer>>>,
    /// Free buffers of the ring, the last used on top: that is still in cache.
    ring: Vec<Arc<Buffer>>,
}

impl Arrivals {
    pub(super) fn new(script: &LinkScript) -> Self {
        let mut arrivals = Self {
            gates: Gates::new(&script.gates),
            sources: vec![None; script.steps.len()],
            landings: vec![None; script.steps.len()],
            ring: Vec::new(),
        };
        arrivals.fill_ring(script);
        arrivals
    }

    fn fill_ring(&mut self, script: &LinkScript) {
        self.ring.clear();
        self.ring.extend((0..script.ring_depth).map(|_| Arc::new(Buffer::zeroed(script.ring_bytes as usize))));
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
            Message::Credit(buffer) => {
                self.ring.push(buffer);
                return Ok(());
            }
            Message::Wake | Message::Quit | Message::Clear | Message::Start(_) => return Ok(()),
            Message::Chunk { .. } => return Err(Failure::internal("a link got a chunk")),
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

    /// An empty buffer of the ring, once there is one.
    pub(super) fn free_buffer(&mut self, step: usize, mail: &Mail) -> Result<Arc<Buffer>, Halt> {
        loop {
            if let Some(buffer) = self.ring.pop() {
                return Ok(buffer);
            }
            let message = mail.wait(step as u32)?;
            self.receive(message)?;
        }
    }

    /// Prepares the next run.
    pub(super) fn forget(&mut self, failed: bool, script: &LinkScript) {
        self.gates.reset();
        if failed {
            self.sources.fill(None);
            self.landings.fill(None);
            self.fill_ring(script);
        }
    }
}
