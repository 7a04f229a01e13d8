//! Copies from a GPU to the host: copies run ahead of the reads by as many pieces as there are staging buffers.

use super::staging::End;
use crate::gpu::Ahead;
use crate::run_channels::Halt;
use crate::worker::Site;

impl End {
    /// Reads the first `bytes` bytes of a slot in pieces of `piece` bytes, and gives each to `take` with its offset.
    ///
    /// `piece` is a multiple of 4 that fits the staging buffers. `is_made` says whether the GPU will have computed the
    /// next piece before a copy that is submitted now, and waits for a piece that must come. `begins` is called when
    /// the device starts the first copy, after all earlier submissions; that costs a wait, for profiles.
    pub(crate) fn read(
        &mut self,
        slot: u32,
        (bytes, piece): (usize, usize),
        site: Site<'_>,
        is_made: impl Fn(bool) -> Result<bool, Halt>,
        begins: Option<&dyn Fn()>,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let (pieces, depth) = (bytes.div_ceil(piece), self.staging.len());
        let cut = |number: usize| (number * piece, piece.min(bytes - number * piece));
        let (mut fetched, mut ahead) = (0, None);
        for number in 0..pieces {
            site.stop.check()?;
            // Only the next piece is waited for: its reader may be what the other workers wait for.
            while fetched < pieces.min(number + depth) && is_made(fetched == number)? {
                self.side.healthy(site.place)?;
                let (offset, bytes) = cut(fetched);
                let source = &self.side.cell(slot);
                if fetched == 0 && begins.is_some() {
                    ahead = Some(Ahead::of(&self.side.gpu));
                }
                self.staging[fetched % depth].fetch(&self.side.gpu, source, offset as u64, bytes);
                fetched += 1;
            }
            if let Some((ahead, begins)) = ahead.take().zip(begins) {
                ahead.wait(&self.side.gpu, site)?;
                begins();
            }
            let (offset, bytes) = cut(number);
            self.staging[number % depth].read(&self.side.gpu, bytes, site, |view| {
                self.side.healthy(site.place)?;
                take(offset, view)
            })?;
        }
        Ok(())
    }
}
