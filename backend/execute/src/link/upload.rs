//! Copies from the host to a GPU, through staging buffers that stay mapped while the host uses them.
//!
//! `Queue::write_buffer` would allocate a staging buffer for each piece and free it after the copy, without a bound on
//! their number. Here the number is the plan's.

use super::copy;
use super::staging::{End, refused};
use crate::run_channels::Halt;
use crate::worker::Site;
use anabranch_kernels::cpu::Team;

impl End {
    /// Waits for the next staging buffer.
    pub(crate) fn wait(&mut self, site: Site<'_>) -> Result<(), Halt> {
        self.side.healthy(site.place)?;
        self.staging[self.next % self.staging.len()].wait(&self.side.gpu, site)
    }

    /// Writes a piece into a slot and submits the copy: later submissions see it. `offset` is a multiple of 4, and the
    /// caller has waited for the next staging buffer.
    pub(crate) fn write(
        &mut self,
        copiers: &Team,
        slot: u32,
        offset: usize,
        bytes: &[u8],
        site: Site<'_>,
    ) -> Result<(), Halt> {
        let depth = self.staging.len();
        let staging = &mut self.staging[self.next % depth];
        self.next = (self.next + 1) % depth;
        let padded = (bytes.len() as u64).next_multiple_of(4);
        let view = staging.buffer.get_mapped_range_mut(..padded);
        let mut view = view.map_err(|error| refused(&self.side.gpu, site.place, error.to_string()))?;
        copy::write(copiers, bytes, view.slice(..bytes.len()));
        drop(view);
        staging.buffer.unmap();
        let mut encoder = self.side.gpu.device().create_command_encoder(&Default::default());
        let target = &self.side.cell(slot);
        encoder.copy_buffer_to_buffer(&staging.buffer, 0, target, offset as u64, padded);
        // The buffer is mapped whole again: the next piece may be longer.
        staging.submit(&self.side.gpu, encoder.finish(), wgpu::MapMode::Write, self.size.bytes);
        self.side.healthy(site.place)?;
        Ok(())
    }
}
