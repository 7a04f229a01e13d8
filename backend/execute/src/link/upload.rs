//! Copies from the host to a GPU, through staging buffers that stay mapped while the host uses them.
//!
//! `Queue::write_buffer` would allocate a staging buffer for each piece and free it after the copy, without a bound on
//! their number. Here the number is the plan's. Small values that are there at the same time are written side by side
//! into one buffer and copied with one submission, because a submission costs more than their copies.

use super::copy;
use super::staging::{End, refused, step};
use crate::run_channels::Halt;
use crate::worker::Site;
use anabranch_kernels::cpu::Team;
use anabranch_plan::ROUND;

/// A piece in the next staging buffer that is not submitted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Place in the staging buffer.
    from: u64,
    slot: u32,
    /// Place in the slot.
    to: u64,
    /// Bytes, a multiple of 4.
    bytes: u64,
}

impl End {
    /// Waits for the next staging buffer.
    pub(crate) fn wait(&mut self, site: Site<'_>) -> Result<(), Halt> {
        self.side.healthy(site.place)?;
        self.staging[self.next % self.staging.len()].wait(&self.side.gpu, site)
    }

    /// Whether a value of this size may go behind pieces that are not submitted yet, if there are any.
    pub(super) fn may_follow(&self, bytes: usize) -> bool {
        !self.written.is_empty() && self.written_bytes() + step(bytes) <= ROUND.min(self.size.bytes)
    }

    /// Writes a piece for a slot behind the pieces that are not submitted yet. `offset`, its place in the slot, is a
    /// multiple of 4. The caller has waited for the next staging buffer, which has room.
    pub(crate) fn write(
        &mut self,
        copiers: &Team,
        slot: u32,
        offset: usize,
        bytes: &[u8],
        site: Site<'_>,
    ) -> Result<(), Halt> {
        let staging = &self.staging[self.next];
        let from = self.written_bytes();
        let padded = (bytes.len() as u64).next_multiple_of(4);
        let view = staging.buffer.get_mapped_range_mut(from..from + padded);
        let mut view = view.map_err(|error| refused(&self.side.gpu, site.place, error.to_string()))?;
        copy::write(copiers, bytes, view.slice(..bytes.len()));
        self.written.push(Written { from, slot, to: offset as u64, bytes: padded });
        Ok(())
    }

    /// Submits the copies of all pieces that are written: later submissions see them.
    pub(crate) fn send(&mut self, site: Site<'_>) -> Result<(), Halt> {
        if self.written.is_empty() {
            return Ok(());
        }
        let depth = self.staging.len();
        let staging = &mut self.staging[self.next];
        self.next = (self.next + 1) % depth;
        staging.buffer.unmap();
        let mut encoder = self.side.gpu.device().create_command_encoder(&Default::default());
        for Written { from, slot, to, bytes } in self.written.drain(..) {
            encoder.copy_buffer_to_buffer(&staging.buffer, from, &self.side.cell(slot), to, bytes);
        }
        // The buffer is mapped whole again: the next piece may be longer.
        staging.submit(&self.side.gpu, encoder.finish(), wgpu::MapMode::Write, self.size.bytes);
        self.side.healthy(site.place)?;
        Ok(())
    }

    /// Bytes of the next staging buffer that hold pieces.
    fn written_bytes(&self) -> u64 {
        self.written.last().map_or(0, |last| (last.from + last.bytes).next_multiple_of(8))
    }
}
