//! Copies from a GPU to the host.
//!
//! Copies of a large value run ahead of the reads by as many pieces as there are staging buffers. Small values that are
//! there at the same time are copied with one submission and one wait, because each of these costs more than the copy.

use super::staging::{End, step};
use crate::error::Failure;
use crate::gpu::Ahead;
use crate::run_channels::Halt;
use crate::worker::Site;
use crate::worker_program::LinkStep;

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

    /// Copies the first bytes of these slots side by side into the first staging buffer.
    pub(super) fn fetch_together(&mut self, values: &[(u32, usize)], site: Site<'_>) -> Result<(), Halt> {
        self.side.healthy(site.place)?;
        let gpu = &self.side.gpu;
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let (mut offset, mut end) = (0, 0);
        for &(slot, bytes) in values {
            let padded = (bytes as u64).next_multiple_of(4);
            encoder.copy_buffer_to_buffer(&self.side.cell(slot), 0, &self.staging[0].buffer, offset, padded);
            self.together.push_back((offset, bytes));
            end = offset + padded;
            offset += step(bytes);
        }
        self.staging[0].submit(gpu, encoder.finish(), wgpu::MapMode::Read, end);
        Ok(())
    }

    /// Gives the next of the values that were fetched together to `take`.
    pub(super) fn read_together(
        &mut self,
        site: Site<'_>,
        take: impl FnOnce(&[u8]) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let Some(place) = self.together.pop_front() else {
            return Err(Failure::internal("no value was fetched").into());
        };
        self.staging[0].look(&self.side.gpu, place, site, |view| {
            self.side.healthy(site.place)?;
            take(view)
        })?;
        if self.together.is_empty() {
            self.staging[0].buffer.unmap();
        }
        Ok(())
    }
}

/// Returns slot and bytes of the values that are fetched together with the first of these steps, which may begin: whole
/// values, as many as fit a staging buffer of `room` bytes and are there. Empty if there is only one.
pub(super) fn together(steps: &[LinkStep], room: u64, is_there: impl Fn(&LinkStep) -> bool) -> Vec<(u32, usize)> {
    let (mut values, mut end) = (Vec::new(), 0);
    for next in steps {
        let Some(slot) = next.source.filter(|_| next.is_whole() && next.bytes > 0 && !next.pinned) else { break };
        end += step(next.bytes);
        if end > room || !values.is_empty() && !is_there(next) {
            break;
        }
        values.push((slot, next.bytes));
    }
    if values.len() > 1 { values } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_program::NO_GATE;
    use anabranch_plan::TransferId;

    fn value(slot: u32, bytes: usize) -> LinkStep {
        LinkStep {
            transfer: TransferId(slot),
            bytes,
            gate: NO_GATE,
            source: Some(slot),
            constant: None,
            target: Some(slot),
            arrival: None,
            after: Vec::new(),
            feed: None,
            reader: None,
            buffer_channel: 0,
            pinned: false,
        }
    }

    #[test]
    fn values_that_are_there_and_fit_are_fetched_together() {
        let steps = [value(7, 12), value(3, 4), value(5, 100), value(2, 8)];
        let all = |_: &LinkStep| true;
        assert_eq!(together(&steps, 200, all), [(7, 12), (3, 4), (5, 100), (2, 8)]);
        assert_eq!(together(&steps, 136, all), [(7, 12), (3, 4), (5, 100), (2, 8)], "16 + 8 + 104 + 8");
        assert_eq!(together(&steps, 135, all), [(7, 12), (3, 4), (5, 100)]);
        assert_eq!(together(&steps, 64, all), [(7, 12), (3, 4)]);
        assert_eq!(together(&steps, 20, all), [], "one alone goes its usual way");
        assert_eq!(together(&steps, 200, |next| next.bytes != 100), [(7, 12), (3, 4)]);
        assert_eq!(together(&steps, 200, |_| false), []);
        let mut sent = steps.clone();
        sent[1].source = None;
        assert_eq!(together(&sent, 200, all), [], "a value of a CPU ends the round");
        let mut direct = steps.clone();
        direct[2].pinned = true;
        assert_eq!(together(&direct, 200, all), [(7, 12), (3, 4)], "memory that is pinned needs no staging");
        let empty = [value(1, 4), value(2, 0), value(3, 4)];
        assert_eq!(together(&empty, 200, all), []);
    }
}
