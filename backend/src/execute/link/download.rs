//! From a GPU to the host: copies run ahead of the reading by as many pieces as there are staging buffers.

use super::staging::{Pieces, Staging, refused};
use crate::execute::error::Place;
use crate::execute::exchange::Halt;
use crate::execute::gpu::GpuSide;
use crate::execute::worker::Site;
use anabranch_kernels::KernelError;
use std::sync::Arc;

/// The sending end of a link from a GPU.
pub(in crate::execute) struct Download {
    side: Arc<GpuSide>,
    staging: Vec<Staging>,
    size: Pieces,
}

/// Where the pieces of a value go.
pub(in crate::execute) trait Sink {
    /// Whether the GPU will have computed the next piece by the time of a copy that is submitted now. One that `must` come is
    /// waited for.
    fn is_made(&mut self, _must: bool) -> Result<bool, Halt> {
        Ok(true)
    }

    /// Takes a piece: its offset in the value, and its bytes.
    fn take(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Halt>;
}

impl<F: FnMut(usize, &[u8]) -> Result<(), Halt>> Sink for F {
    fn take(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        self(offset, bytes)
    }
}

impl Download {
    /// An end with these staging buffers.
    pub(in crate::execute) fn new(side: Arc<GpuSide>, size: Pieces) -> Result<Self, KernelError> {
        let mut end = Self { side, staging: Vec::new(), size };
        end.renew();
        end.side.gpu.poll(None)?;
        Ok(end)
    }

    /// Makes the staging buffers anew, after a failure that may have left them anywhere.
    pub(in crate::execute) fn renew(&mut self) {
        let Pieces { bytes, depth } = self.size;
        self.staging = (0..depth).map(|_| Staging::new(&self.side, bytes, wgpu::MapMode::Read)).collect();
    }

    /// Reads the first `bytes` bytes of a slot in pieces of `piece` bytes, a multiple of 4 that fits the staging buffers. Of a
    /// value that is being made, a piece is copied once the GPU's worker has submitted its computing.
    pub(in crate::execute) fn read(
        &mut self,
        slot: u32,
        (bytes, piece): (usize, usize),
        site: Site<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let (pieces, depth) = (bytes.div_ceil(piece), self.staging.len());
        let cut = |number: usize| (number * piece, piece.min(bytes - number * piece));
        let mut fetched = 0;
        for number in 0..pieces {
            site.stop.check()?;
            // Never waits for more than the piece that is next: its reader may be what the others wait for.
            while fetched < pieces.min(number + depth) && sink.is_made(fetched == number)? {
                self.fetch(slot, fetched, cut(fetched), site.place)?;
                fetched += 1;
            }
            self.take(number, cut(number), site, sink)?;
        }
        Ok(())
    }

    /// Copies a piece into its staging buffer.
    fn fetch(&mut self, slot: u32, number: usize, (offset, bytes): (usize, usize), at: Place) -> Result<(), Halt> {
        self.side.healthy(at)?;
        let depth = self.staging.len();
        let staging = &mut self.staging[number % depth];
        let padded = (bytes as u64).next_multiple_of(4);
        let mut encoder = self.side.gpu.device().create_command_encoder(&Default::default());
        let source = &self.side.cells[slot as usize];
        encoder.copy_buffer_to_buffer(source, offset as u64, &staging.buffer, 0, padded);
        staging.submit(&self.side, encoder.finish(), wgpu::MapMode::Read, padded);
        Ok(())
    }

    /// Hands a piece on once it is there.
    fn take(
        &mut self,
        number: usize,
        (offset, bytes): (usize, usize),
        site: Site<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let staging = &self.staging[number % self.staging.len()];
        staging.wait(&self.side, site)?;
        self.side.healthy(site.place)?;
        let padded = (bytes as u64).next_multiple_of(4);
        let view = staging.buffer.get_mapped_range(..padded);
        let view = view.map_err(|error| refused(&self.side, site.place, error.to_string()))?;
        let result = sink.take(offset, &view[..bytes]);
        drop(view);
        staging.buffer.unmap();
        result
    }
}
