//! Calling a node's kernel on the bytes in its cells.

use super::CpuWorker;
use super::cell::Cell;
use super::slow::Slow;
use crate::execute::error::{Failure, Place};
use crate::execute::script::{DeviceScript, NodeScript, Operand, Streaming};
use anabranch_kernels::KernelError;
use anabranch_kernels::cpu::{Call, CpuKernel};
use std::ops::Range;

/// Up to this many inputs of a node need no allocation.
const FEW_INPUTS: usize = 6;

/// One chunk of a node.
pub(super) struct Part<'a> {
    /// The node's rows.
    pub(super) rows: Range<usize>,
    pub(super) streaming: &'a Streaming,
    /// The chunk's rows.
    pub(super) chunk_rows: usize,
}

impl CpuWorker {
    /// Runs a node on whole tensors. The output buffers are out of their cells meanwhile.
    pub(super) fn compute(&mut self, script: &DeviceScript, node: &NodeScript, at: u32) -> Result<(), Failure> {
        let (read, written) = (script.operands(&node.inputs), script.operands(&node.outputs));
        if let [output] = written {
            let mut held = [std::mem::take(&mut self.cells[output.cell as usize])];
            let result = self.call_whole(node, at, read, written, &mut held);
            let [cell] = held;
            self.cells[output.cell as usize] = cell;
            return result;
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend(written.iter().map(|operand| std::mem::take(&mut self.cells[operand.cell as usize])));
        let result = self.call_whole(node, at, read, written, &mut held);
        for (operand, cell) in written.iter().zip(held.drain(..)) {
            self.cells[operand.cell as usize] = cell;
        }
        self.held = held;
        result
    }

    fn call_whole(
        &mut self,
        node: &NodeScript,
        at: u32,
        read: &[Operand],
        written: &[Operand],
        held: &mut [Cell],
    ) -> Result<(), Failure> {
        let mut few: [&[u8]; FEW_INPUTS] = [&[]; FEW_INPUTS];
        let mut many = Vec::new();
        let inputs = match few.get_mut(..read.len()) {
            Some(inputs) => inputs,
            None => {
                many.resize(read.len(), &[][..]);
                &mut many
            }
        };
        for (operand, input) in read.iter().zip(inputs.iter_mut()) {
            if operand.bytes > 0 {
                *input = &bytes_of(&self.cells, operand)?[..operand.bytes];
            }
        }
        let (mut one, mut several): ([&mut [u8]; 1], Vec<&mut [u8]>);
        let outputs: &mut [&mut [u8]] = match (held, written) {
            ([cell], [operand]) => {
                one = [&mut cell.bytes_mut().ok_or_else(away)?[..operand.bytes]];
                &mut one
            }
            (held, written) => {
                let window = |(cell, operand): (_, &Operand)| Some(&mut Cell::bytes_mut(cell)?[..operand.bytes]);
                several = held.iter_mut().zip(written).map(window).collect::<Option<_>>().ok_or_else(away)?;
                &mut several
            }
        };
        let call = Call { inputs, outputs, rows: 0..node.rows, scratch: self.scratch.bytes_mut(), team: &self.team };
        perform(&*self.kernels[at as usize], self.slowdown, call).map_err(|error| blamed(node, error))
    }

    /// Runs a part of a node: some of its tensors come or go in chunks.
    pub(super) fn compute_part(
        &mut self,
        script: &DeviceScript,
        node: &NodeScript,
        at: u32,
        part: &Part<'_>,
    ) -> Result<(), Failure> {
        let written = script.operands(&node.outputs);
        let mut held = std::mem::take(&mut self.held);
        let mut made = self.made.drain(..);
        for (number, operand) in written.iter().enumerate() {
            held.push(match part.streaming.out(number) {
                Some(_) => made.next().unwrap_or_default(),
                None => std::mem::take(&mut self.cells[operand.cell as usize]),
            });
        }
        drop(made);
        let result = self.call_part(script, node, at, part, &mut held);
        for ((number, operand), cell) in written.iter().enumerate().zip(held.drain(..)) {
            match part.streaming.out(number) {
                Some(_) => self.made.push(cell),
                None => self.cells[operand.cell as usize] = cell,
            }
        }
        self.held = held;
        result
    }

    fn call_part(
        &mut self,
        script: &DeviceScript,
        node: &NodeScript,
        at: u32,
        part: &Part<'_>,
        held: &mut [Cell],
    ) -> Result<(), Failure> {
        let (read, written) = (script.operands(&node.inputs), script.operands(&node.outputs));
        let mut inputs: Vec<&[u8]> = Vec::with_capacity(read.len());
        for (index, operand) in read.iter().enumerate() {
            inputs.push(match part.streaming.place_of(index) {
                Some(place) => {
                    let bytes = part.chunk_rows * part.streaming.ins[place].row_bytes;
                    &self.taken.get(place).ok_or_else(|| Failure::internal("a chunk is not there"))?.bytes()[..bytes]
                }
                None if operand.bytes == 0 => &[],
                None => &bytes_of(&self.cells, operand)?[operand.window(part)],
            });
        }
        let mut outputs: Vec<&mut [u8]> = Vec::with_capacity(written.len());
        for ((number, operand), cell) in written.iter().enumerate().zip(held) {
            let window = match part.streaming.out(number) {
                Some(out) => 0..part.chunk_rows * out.row_bytes,
                None => operand.window(part),
            };
            outputs.push(&mut cell.bytes_mut().ok_or_else(away)?[window]);
        }
        let (rows, scratch) = (part.rows.clone(), self.scratch.bytes_mut());
        let call = Call { inputs: &inputs, outputs: &mut outputs, rows, scratch, team: &self.team };
        perform(&*self.kernels[at as usize], self.slowdown, call).map_err(|error| blamed(node, error))
    }
}

/// Calls a kernel, and waits until a slower device would be done.
fn perform(kernel: &dyn CpuKernel, slowdown: Option<f64>, call: Call<'_>) -> Result<(), KernelError> {
    let Some(times) = slowdown else { return kernel.run(call) };
    let started = Slow::start(times);
    let result = kernel.run(call);
    started.finish();
    result
}

fn bytes_of<'a>(cells: &'a [Cell], operand: &Operand) -> Result<&'a [u8], Failure> {
    cells[operand.cell as usize].bytes().ok_or_else(|| Failure::internal("an input is not there"))
}

#[cold]
fn away() -> Failure {
    Failure::internal("an output's slot is away or still read")
}

#[cold]
fn blamed(node: &NodeScript, error: KernelError) -> Failure {
    Failure::at(Place::Node(node.node), error)
}

impl Operand {
    /// Where in its cell the bytes of a part are.
    fn window(&self, part: &Part<'_>) -> Range<usize> {
        match self.row {
            Some(row) => part.rows.start * row..part.rows.end * row,
            None => 0..self.bytes,
        }
    }
}
