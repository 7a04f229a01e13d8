//! Runs a node on a CPU device chunk by chunk.

use super::CpuWorker;
use super::cell::Cell;
use super::compute::Part;
use crate::error::Failure;
use crate::run_channels::Halt;
use crate::worker::Run;
use crate::worker_program::{DeviceProgram, Streaming};

impl CpuWorker {
    /// Computes each chunk as it arrives, and passes on the results. Returns the time at which everything for the first
    /// chunk was present, and the nanoseconds of waiting for the other chunks.
    pub(super) fn run_chunks(
        &mut self,
        program: &DeviceProgram,
        at: u32,
        streaming: &Streaming,
        run: &Run<'_>,
    ) -> Result<(u64, u64), Halt> {
        let node = &program.nodes[at as usize];
        let (mut start, mut waited, mut passing) = (0, 0, 0);
        for chunk in 0..streaming.cut.chunks() {
            run.check()?;
            let before = run.now();
            self.gather(streaming, run)?;
            let now = run.now();
            match chunk {
                0 => start = now,
                _ => waited += now - before,
            }
            let rows = streaming.cut.rows_of(chunk);
            let part = Part { rows: node.own_rows(&streaming.cut, &rows), streaming, chunk_rows: rows.len() };
            self.compute(program, node, at, Some(&part), run)?;
            self.pass_on(streaming, run)?;
            if chunk == 0 {
                passing = run.now();
            }
        }
        if run.terms.profile {
            // The transfer lasts from the first chunk to the last.
            let end = run.now();
            for transfer in streaming.outs.iter().flat_map(|out| &out.to).filter_map(|to| to.transfer) {
                self.note_transfer(transfer, passing, end);
            }
        }
        Ok((start, waited))
    }

    /// Takes a chunk of every input stream into `taken`, and a buffer for every output stream into `made`.
    fn gather(&mut self, streaming: &Streaming, run: &Run<'_>) -> Result<(), Halt> {
        for input in &streaming.ins {
            let chunk = run.next_chunk(&input.feed)?;
            self.taken.push(chunk.ok_or_else(|| Failure::internal("a chunk for a CPU has no bytes"))?);
        }
        for out in &streaming.outs {
            self.made.push(Cell::Shared(run.free_buffer(out.output, out.wait)?));
        }
        Ok(())
    }

    /// Sends the results to their readers, and gives back the buffers of chunks that were read.
    fn pass_on(&mut self, streaming: &Streaming, run: &Run<'_>) -> Result<(), Failure> {
        for (out, mut cell) in streaming.outs.iter().zip(self.made.drain(..)) {
            for (at, onward) in out.to.iter().enumerate() {
                // The last reader gets the ring's own reference, so that no reference stays here.
                let buffer = if at + 1 < out.to.len() { cell.share() } else { cell.hand_over() };
                run.channels.send(onward.to, buffer);
            }
        }
        for (input, buffer) in streaming.ins.iter().zip(self.taken.drain(..)) {
            if let Some(ring) = input.feed.credit {
                run.channels.give_back(ring, buffer)?;
            }
        }
        Ok(())
    }
}
