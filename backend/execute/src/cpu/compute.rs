//! Calls a node's kernel on the bytes in its cells.

use super::CpuWorker;
use super::cell::Cell;
use super::slow::Slow;
use crate::error::{Failure, FailureSite};
use crate::faults::Operation;
use crate::run_channels::Halt;
use crate::worker::Run;
use crate::worker_program::{DeviceProgram, NodeCall, Operand, Streaming};
use anabranch_kernels::KernelError;
use anabranch_kernels::cpu::{Call, CpuKernel};
use std::ops::Range;

/// Most inputs of a node that need no allocation.
const FEW_INPUTS: usize = 6;

/// One chunk of a node.
pub(super) struct Part<'a> {
    /// Rows of the node.
    pub(super) rows: Range<usize>,
    pub(super) streaming: &'a Streaming,
    /// Rows of the chunk.
    pub(super) chunk_rows: usize,
}

impl CpuWorker {
    /// Calls [`Self::work`], and discards the result of an interrupted kernel, even its error.
    pub(super) fn compute(
        &mut self,
        program: &DeviceProgram,
        node: &NodeCall,
        at: u32,
        part: Option<&Part<'_>>,
        run: &Run<'_>,
    ) -> Result<(), Halt> {
        let computed = self.work(program, node, at, part, run);
        run.uninterrupted(FailureSite::Node(node.node))?;
        Ok(computed?)
    }

    /// Runs a node on whole tensors, or a part of it with tensors that arrive or leave in chunks. The output buffers
    /// are out of their cells meanwhile.
    fn work(
        &mut self,
        program: &DeviceProgram,
        node: &NodeCall,
        at: u32,
        part: Option<&Part<'_>>,
        run: &Run<'_>,
    ) -> Result<(), Failure> {
        let written = program.operands(&node.outputs);
        if let ([output], None) = (written, part) {
            let mut held = [std::mem::take(&mut self.cells[output.cell as usize])];
            let result = self.call(program, node, at, None, &mut held, run);
            let [cell] = held;
            self.cells[output.cell as usize] = cell;
            return result;
        }
        let mut held = std::mem::take(&mut self.held);
        let mut made = self.made.drain(..);
        for (number, operand) in written.iter().enumerate() {
            held.push(match part.and_then(|part| part.streaming.out(number)) {
                Some(_) => made.next().unwrap_or_default(),
                None => std::mem::take(&mut self.cells[operand.cell as usize]),
            });
        }
        drop(made);
        let result = self.call(program, node, at, part, &mut held, run);
        for ((number, operand), cell) in written.iter().enumerate().zip(held.drain(..)) {
            match part.and_then(|part| part.streaming.out(number)) {
                Some(_) => self.made.push(cell),
                None => self.cells[operand.cell as usize] = cell,
            }
        }
        self.held = held;
        result
    }

    // Inlined, so that whole nodes do not look for parts at each operand.
    #[inline(always)]
    fn call(
        &mut self,
        program: &DeviceProgram,
        node: &NodeCall,
        at: u32,
        part: Option<&Part<'_>>,
        held: &mut [Cell],
        run: &Run<'_>,
    ) -> Result<(), Failure> {
        let (read, written) = (program.operands(&node.inputs), program.operands(&node.outputs));
        let mut few: [&[u8]; FEW_INPUTS] = [&[]; FEW_INPUTS];
        let mut many = Vec::new();
        let inputs = match few.get_mut(..read.len()) {
            Some(inputs) => inputs,
            None => {
                many.resize(read.len(), &[][..]);
                &mut many
            }
        };
        for (index, (operand, input)) in read.iter().zip(inputs.iter_mut()).enumerate() {
            if let Some((part, place)) = part.and_then(|part| Some((part, part.streaming.place_of(index)?))) {
                let bytes = part.chunk_rows * part.streaming.ins[place].row_bytes;
                let chunk = self.taken.get(place).ok_or_else(|| Failure::internal("a chunk is not there"))?;
                *input = &chunk.bytes()[..bytes];
            } else if operand.bytes > 0 {
                let cell = self.cells[operand.cell as usize].bytes();
                let bytes = cell.ok_or_else(|| Failure::internal("an input is not there"))?;
                // Nothing of an input that lies in the output's memory.
                *input = if bytes.is_empty() { bytes } else { &bytes[operand.window(part)] };
            }
        }
        let (mut one, mut several): ([&mut [u8]; 1], Vec<&mut [u8]>);
        let outputs: &mut [&mut [u8]] = match (held, written) {
            ([cell], [operand]) => {
                one = [output(cell, operand, 0, part)?];
                &mut one
            }
            (held, written) => {
                let cells = held.iter_mut().zip(written).enumerate();
                let windows = cells.map(|(number, (cell, operand))| output(cell, operand, number, part));
                several = windows.collect::<Result<_, _>>()?;
                &mut several
            }
        };
        let rows = part.map_or(0..node.rows, |part| part.rows.clone());
        let call = Call { inputs, outputs, rows, scratch: self.scratch.bytes_mut(), team: &self.team };
        let struck = run.strike(Operation::Kernel);
        let kernel = &*self.kernels[at as usize];
        let result = struck.and_then(|()| perform(kernel, self.slowdown, call, &|| run.is_interrupted()));
        result.map_err(|error| Failure::at(FailureSite::Node(node.node), error))
    }
}

/// Target of the output with this number.
#[inline(always)]
fn output<'a>(
    cell: &'a mut Cell,
    operand: &Operand,
    number: usize,
    part: Option<&Part<'_>>,
) -> Result<&'a mut [u8], Failure> {
    let window = match part.and_then(|part| Some((part, part.streaming.out(number)?))) {
        Some((part, out)) => 0..part.chunk_rows * out.row_bytes,
        None => operand.window(part),
    };
    let bytes = cell.bytes_mut().ok_or_else(|| Failure::internal("an output's slot is away or still read"))?;
    Ok(&mut bytes[window])
}

/// Calls a kernel, and waits until an emulated slower device would be done, or `left` says that the run has ended.
pub(crate) fn perform(
    kernel: &dyn CpuKernel,
    slowdown: Option<f64>,
    call: Call<'_>,
    left: &dyn Fn() -> bool,
) -> Result<(), KernelError> {
    let Some(times) = slowdown else { return kernel.run(call) };
    let started = Slow::start(times);
    let result = kernel.run(call);
    started.finish(left);
    result
}

impl Operand {
    /// Range of the cell's bytes for the whole tensor, or for a part.
    #[inline(always)]
    fn window(&self, part: Option<&Part<'_>>) -> Range<usize> {
        match (self.row, part) {
            (Some(row), Some(part)) => part.rows.start * row..part.rows.end * row,
            _ => 0..self.bytes,
        }
    }
}
