//! Running one node on a CPU device.

use super::CpuWorker;
use super::slow::Slow;
use crate::execute::actor::Actor;
use crate::execute::error::{Failure, Place};
use crate::execute::event::{Activity, Event, Lane};
use crate::execute::message::{Halt, Message, Run};
use crate::execute::script::{DeviceScript, NodeScript, Operand, StreamScript};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::Call;
use std::ops::Range;
use std::sync::Arc;

/// Up to this many inputs of a node need no allocation.
const FEW_INPUTS: usize = 6;

/// Up to this many outputs need none.
const FEW_OUTPUTS: usize = 3;

/// The part of a node that one call computes.
struct Part<'a> {
    rows: Range<usize>,
    /// The rows of the streamed input.
    chunk: Option<(usize, &'a [u8])>,
}

impl CpuWorker {
    /// Runs the node at place `at` of the script in step `step`. `ready` and `start` are when the worker turned to it and when
    /// all was there. Returns the time after it.
    pub(super) fn run_node(
        &mut self,
        script: &DeviceScript,
        (step, at): (usize, u32),
        run: &Run,
        (ready, mut start): (u64, u64),
    ) -> Result<u64, Halt> {
        let node = &script.nodes[at as usize];
        self.desk.at = Place::Node(node.node);
        match node.stream {
            None => self.compute(script, at, &Part { rows: 0..node.rows, chunk: None })?,
            Some(stream) => start = self.run_chunks(script, (step, at), stream, run)?,
        }
        let end = run.now();
        let (what, lane) = (Activity::Node(node.node), Lane::Device(self.device));
        self.desk.note(Event { what, lane, ready, start, end, bytes: node.made });
        Ok(end)
    }

    /// Computes each chunk as it comes. Returns when the first was there.
    fn run_chunks(
        &mut self,
        script: &DeviceScript,
        (step, at): (usize, u32),
        stream: StreamScript,
        run: &Run,
    ) -> Result<u64, Halt> {
        let shared = Arc::clone(&self.desk.shared);
        let Some(cut) = shared.plan.transfer(stream.transfer).stream() else {
            return Err(Failure::internal("a stream is none").into());
        };
        let mut start = None;
        for chunk in 0..cut.chunks() {
            self.desk.mail.stopped()?;
            let buffer = self.next_chunk(stream.link, step)?;
            start.get_or_insert_with(|| run.now());
            let rows = cut.rows_of(chunk);
            let bytes = &buffer.bytes()[..rows.len() * cut.row_bytes];
            self.compute(script, at, &Part { rows, chunk: Some((stream.input, bytes)) })?;
            self.desk.mail.post(stream.link, Message::Credit(buffer));
        }
        Ok(start.unwrap_or(0))
    }

    fn next_chunk(&mut self, link: u32, gate: usize) -> Result<Arc<Buffer>, Halt> {
        loop {
            if let Some(buffer) = self.chunks.get_mut(&link).and_then(std::collections::VecDeque::pop_front) {
                return Ok(buffer);
            }
            let message = self.desk.mail.wait(gate as u32)?;
            self.receive(message)?;
        }
    }

    /// Calls the kernel on the cells' bytes. The output buffers are out of their cells meanwhile.
    fn compute(&mut self, script: &DeviceScript, at: u32, part: &Part<'_>) -> Result<(), Failure> {
        let node = &script.nodes[at as usize];
        for operand in script.operands(&node.outputs) {
            self.held.push(std::mem::take(&mut self.cells[operand.cell as usize]));
        }
        let result = self.call(script, node, at, part);
        for operand in script.operands(&node.outputs).iter().rev() {
            self.cells[operand.cell as usize] = self.held.pop().unwrap_or_default();
        }
        result
    }

    fn call(&mut self, script: &DeviceScript, node: &NodeScript, at: u32, part: &Part<'_>) -> Result<(), Failure> {
        let (read, written) = (script.operands(&node.inputs), script.operands(&node.outputs));
        let mut few_inputs: [&[u8]; FEW_INPUTS] = [&[]; FEW_INPUTS];
        let mut many_inputs = Vec::new();
        let inputs = match few_inputs.get_mut(..read.len()) {
            Some(inputs) => inputs,
            None => {
                many_inputs.resize(read.len(), &[][..]);
                &mut many_inputs
            }
        };
        for (index, (operand, input)) in read.iter().zip(inputs.iter_mut()).enumerate() {
            *input = match part.chunk {
                Some((streamed, bytes)) if streamed == index => bytes,
                _ if operand.bytes == 0 => &[],
                _ => {
                    let bytes = self.cells[operand.cell as usize].bytes();
                    &bytes.ok_or_else(|| Failure::internal("an input is not there"))?[operand.window(part)]
                }
            };
        }
        let mut few_outputs: [&mut [u8]; FEW_OUTPUTS] = std::array::from_fn(|_| &mut [][..]);
        let mut many_outputs: Vec<&mut [u8]> = Vec::new();
        let outputs = match few_outputs.get_mut(..written.len()) {
            Some(outputs) => outputs,
            None => {
                many_outputs.resize_with(written.len(), || &mut [][..]);
                &mut many_outputs
            }
        };
        for ((operand, cell), output) in written.iter().zip(&mut self.held).zip(outputs.iter_mut()) {
            let bytes = cell.bytes_mut().ok_or_else(|| Failure::internal("an output's slot is away or still read"))?;
            *output = &mut bytes[operand.window(part)];
        }
        let rows = part.rows.clone();
        let call = Call { inputs, outputs, rows, scratch: self.scratch.bytes_mut(), team: &self.team };
        let started = self.slowdown.map(Slow::start);
        let result = self.kernels[at as usize].run(call).map_err(|error| Failure::at(Place::Node(node.node), error));
        if let Some(started) = started {
            started.finish();
        }
        result
    }
}

impl Operand {
    /// Where in its cell the bytes of a part are.
    fn window(&self, part: &Part<'_>) -> Range<usize> {
        match (self.row, &part.chunk) {
            (Some(row), Some(_)) => part.rows.start * row..part.rows.end * row,
            _ => 0..self.bytes,
        }
    }
}
