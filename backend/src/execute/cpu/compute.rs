//! Running one node on a CPU device.

use super::CpuWorker;
use super::slow::Slow;
use super::stream::Waits;
use crate::execute::error::{Failure, Place};
use crate::execute::event::{Activity, Event, Lane};
use crate::execute::message::{Halt, Run};
use crate::execute::script::{DeviceScript, NodeScript, Operand, Streaming};
use anabranch_kernels::cpu::Call;
use std::ops::Range;

/// Up to this many inputs of a node need no allocation.
const FEW_INPUTS: usize = 6;

/// Up to this many outputs need none.
const FEW_OUTPUTS: usize = 3;

/// The part of a node that one call computes.
pub(super) struct Part<'a> {
    /// The node's rows.
    pub(super) rows: Range<usize>,
    /// Of a part: what comes and goes in chunks, and the chunk's rows.
    pub(super) chunk: Option<(&'a Streaming, usize)>,
}

impl CpuWorker {
    /// Runs the node at place `at` of the script. `ready` and `start` are when the worker turned to it and when
    /// all was there. Returns the time after it.
    pub(super) fn run_node(
        &mut self,
        script: &DeviceScript,
        at: u32,
        run: &Run,
        (ready, start): (u64, u64),
    ) -> Result<u64, Halt> {
        let node = &script.nodes[at as usize];
        self.desk.at = Place::Node(node.node);
        let Waits { start, waited } = match &node.streaming {
            None => {
                self.compute(script, at, &Part { rows: 0..node.rows, chunk: None })?;
                Waits { start, waited: 0 }
            }
            Some(streaming) => self.run_chunks(script, (at, streaming), run)?,
        };
        let end = run.now();
        let (what, lane) = (Activity::Node(node.node), Lane::Device(self.device));
        self.desk.note(Event { what, lane, ready, start, end, waited, bytes: node.made });
        Ok(end)
    }

    /// Calls the kernel on the cells' bytes. The output buffers are out of their cells meanwhile, or out of the ring.
    pub(super) fn compute(&mut self, script: &DeviceScript, at: u32, part: &Part<'_>) -> Result<(), Failure> {
        let node = &script.nodes[at as usize];
        let outputs = script.operands(&node.outputs);
        let mut made = 0;
        for (number, operand) in outputs.iter().enumerate() {
            let cell = if part.passes_on(number) {
                made += 1;
                &mut self.made[made - 1]
            } else {
                &mut self.cells[operand.cell as usize]
            };
            self.held.push(std::mem::take(cell));
        }
        let result = self.call(script, node, at, part);
        for (number, operand) in outputs.iter().enumerate().rev() {
            let cell = if part.passes_on(number) {
                made -= 1;
                &mut self.made[made]
            } else {
                &mut self.cells[operand.cell as usize]
            };
            *cell = self.held.pop().unwrap_or_default();
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
            *input = match part.taken(index) {
                Some((place, bytes)) => &self.taken[place].bytes()[..bytes],
                None if operand.bytes == 0 => &[],
                None => {
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
        for (number, (operand, cell)) in written.iter().zip(&mut self.held).enumerate() {
            let bytes = cell.bytes_mut().ok_or_else(|| Failure::internal("an output's slot is away or still read"))?;
            let window = match part.chunk {
                Some((streaming, rows)) => streaming.out(number).map(|out| 0..rows * out.row_bytes),
                None => None,
            };
            outputs[number] = &mut bytes[window.unwrap_or_else(|| operand.window(part))];
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

impl Part<'_> {
    /// Whether an output goes to a buffer of a ring.
    fn passes_on(&self, output: usize) -> bool {
        self.chunk.is_some_and(|(streaming, _)| streaming.out(output).is_some())
    }

    /// For a streamed input, which of the chunks taken it is, and the chunk's bytes.
    fn taken(&self, input: usize) -> Option<(usize, usize)> {
        let (streaming, rows) = self.chunk?;
        let place = streaming.ins.iter().position(|stream| stream.input == input)?;
        Some((place, rows * streaming.ins[place].row_bytes))
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
