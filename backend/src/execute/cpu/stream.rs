//! Running a node on a CPU device chunk by chunk.

use super::CpuWorker;
use super::cell::Cell;
use super::compute::Part;
use crate::execute::actor::Actor;
use crate::execute::event::{Activity, Event, Lane};
use crate::execute::message::{Halt, Message, Run};
use crate::execute::script::{DeviceScript, StreamIn, StreamOut, Streaming};
use anabranch_kernels::Buffer;
use std::sync::Arc;

/// When a node that streams had all for its first chunk, and how long it waited for the others. Nanoseconds.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) start: u64,
    pub(super) waited: u64,
}

impl CpuWorker {
    /// Computes each chunk as it comes, and passes on what it makes.
    pub(super) fn run_chunks(
        &mut self,
        script: &DeviceScript,
        (at, streaming): (u32, &Streaming),
        run: &Run,
    ) -> Result<Waits, Halt> {
        let node = &script.nodes[at as usize];
        let (mut waits, mut passing) = (Waits::default(), 0);
        for chunk in 0..streaming.cut.chunks() {
            self.desk.mail.stopped()?;
            let before = run.now();
            self.gather(streaming)?;
            let now = run.now();
            match chunk {
                0 => waits.start = now,
                _ => waits.waited += now - before,
            }
            let rows = streaming.cut.rows_of(chunk);
            let own = node.own_rows(&streaming.cut, &rows);
            self.compute(script, at, &Part { rows: own, chunk: Some((streaming, rows.len())) })?;
            self.pass_on(streaming);
            if chunk == 0 {
                passing = run.now();
            }
        }
        self.note_streams(streaming, (passing, run.now()));
        Ok(waits)
    }

    /// Takes a chunk of every stream and a buffer for every one that is made: into `taken`, and into `made`.
    fn gather(&mut self, streaming: &Streaming) -> Result<(), Halt> {
        for input in &streaming.ins {
            let chunk = self.next_chunk(input)?;
            self.taken.push(chunk);
        }
        for out in &streaming.outs {
            let buffer = self.free_buffer(out)?;
            self.made.push(Cell::Shared(buffer));
        }
        Ok(())
    }

    fn next_chunk(&mut self, input: &StreamIn) -> Result<Arc<Buffer>, Halt> {
        loop {
            if let Some(buffer) = self.queues[input.queue as usize].pop_front() {
                return Ok(buffer);
            }
            let message = self.desk.mail.wait(input.wait)?;
            self.receive(message)?;
        }
    }

    fn free_buffer(&mut self, out: &StreamOut) -> Result<Arc<Buffer>, Halt> {
        loop {
            if let Some(buffer) = self.rings[out.output as usize].take() {
                return Ok(buffer);
            }
            let message = self.desk.mail.wait(out.wait)?;
            self.receive(message)?;
        }
    }

    /// Sends what was made to its readers, and gives back what was read.
    fn pass_on(&mut self, streaming: &Streaming) {
        for (out, mut cell) in streaming.outs.iter().zip(self.made.drain(..)) {
            for (at, to) in out.to.iter().enumerate() {
                // The last gets the ring's own, so that nothing of it stays here.
                let buffer = if at + 1 < out.to.len() { cell.lend() } else { cell.hand_over() };
                self.desk.mail.post(to.worker, Message::Chunk { queue: to.queue, buffer });
            }
        }
        for (input, buffer) in streaming.ins.iter().zip(self.taken.drain(..)) {
            if let Some(credit) = input.credit {
                self.desk.mail.post(credit.worker, Message::Credit { ring: credit.ring, buffer });
            }
        }
    }

    /// Notes the transfers between CPU devices, from the first chunk to the last, which nobody else does.
    fn note_streams(&mut self, streaming: &Streaming, (start, end): (u64, u64)) {
        for transfer in streaming.outs.iter().flat_map(|out| &out.to).filter_map(|to| to.transfer) {
            let planned = self.desk.shared.plan.transfer(transfer);
            let lane = Lane::Link { from: planned.from, to: planned.to };
            let (what, bytes) = (Activity::Transfer(transfer), planned.bytes);
            self.desk.note(Event { what, lane, ready: start, start, end, waited: end - start, bytes });
        }
    }
}
