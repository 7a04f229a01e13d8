//! Copies between slots of a CPU device in pinned memory and a GPU: the GPU reads and writes them by itself.
//!
//! A slot that the GPU reads belongs to the link until the copy is done, and the gates of those who write it next open
//! only then. The link goes on meanwhile, but waits for no other worker before that: the worker may wait for the slot.

use super::{Brought, LinkWorker};
use crate::error::{Failure, FailureSite};
use crate::faults::Operation;
use crate::gpu::{Ahead, GpuSide, look, wait_for};
use crate::run_channels::{Delivery, Halt};
use crate::worker::{Run, Site};
use crate::worker_program::{Gate, LinkStep};
use anabranch_kernels::gpu::PinnedCopy;
use anabranch_plan::TransferId;
use std::time::Duration;

/// A copy from pinned memory that the GPU may not have finished.
pub(super) struct Flight {
    pub(super) transfer: TransferId,
    copy: PinnedCopy,
    /// Gates that wait for the source to be read.
    after: Vec<Gate>,
}

/// Time between two looks at the GPU while the link also looks for its next value.
const SLICE: Duration = Duration::from_micros(50);

impl Flight {
    /// Waits until the GPU has read the source, and informs those who wait for that.
    fn land(self, side: &GpuSide, run: &Run<'_>) -> Result<(), Halt> {
        let site = run.site(FailureSite::Transfer(self.transfer));
        wait_for(&side.gpu, self.copy.submission(), site, || self.copy.is_done())?;
        side.healthy(site.place)?;
        self.after.into_iter().try_for_each(|gate| run.channels.open(gate).map_err(Halt::from))
    }
}

impl LinkWorker {
    /// Moves the value of a step whose slot on the CPU is pinned. Returns the time at which the copy started, if that
    /// is known; `None` if the slot's memory is not pinned after all.
    pub(super) fn carry_directly(
        &mut self,
        step: &LinkStep,
        brought: &mut Brought,
        run: &Run<'_>,
    ) -> Result<Option<u64>, Halt> {
        match (&brought.source, step.source) {
            (Some(_), None) => self.send_directly(step, brought, run),
            (None, Some(slot)) => self.receive_directly(step, slot, brought, run),
            _ => Ok(None),
        }
    }

    fn send_directly(&mut self, step: &LinkStep, brought: &Brought, run: &Run<'_>) -> Result<Option<u64>, Halt> {
        let site = run.site(FailureSite::Transfer(step.transfer));
        let (Some(upload), Some(slot), Some(source)) = (&self.upload, step.target, &brought.source) else {
            return Ok(None);
        };
        debug_assert!(upload.written.is_empty(), "the values before it are sent");
        let side = &upload.side;
        if !side.gpu.has_pinned(source) {
            return Ok(None);
        }
        let begun = begin(side, run, site)?;
        let Some(copy) = side.gpu.send(source, &side.cell(slot), step.bytes) else { return Ok(None) };
        side.healthy(site.place)?;
        self.flights.push_back(Flight { transfer: step.transfer, copy, after: step.after.clone() });
        Ok(Some(begun))
    }

    fn receive_directly(
        &mut self,
        step: &LinkStep,
        slot: u32,
        brought: &mut Brought,
        run: &Run<'_>,
    ) -> Result<Option<u64>, Halt> {
        let site = run.site(FailureSite::Transfer(step.transfer));
        let (Some(download), Some(cell), Some(landing)) = (&self.download, step.target, brought.landing.take()) else {
            return Ok(None);
        };
        let side = &download.side;
        if !side.gpu.has_pinned(&landing) {
            brought.landing = Some(landing);
            return Ok(None);
        }
        let begun = begin(side, run, site)?;
        let copy = match side.gpu.receive(&side.cell(slot), landing, step.bytes) {
            Ok(copy) => copy,
            Err(landing) => {
                brought.landing = Some(landing);
                return Ok(None);
            }
        };
        wait_for(&side.gpu, copy.submission(), site, || copy.is_done())?;
        // Another thread may have found the end: the link's own look finds a loss before the content is read.
        look(&side.gpu, site)?;
        side.healthy(site.place)?;
        let buffer = copy.into_written().ok_or_else(|| Failure::internal("a slot to land in is still written"))?;
        if let Some(gate) = step.arrival {
            run.channels.deliver(gate, Delivery { cell, buffer })?;
        }
        Ok(Some(begun))
    }

    /// Waits until the GPU has read all sources, and informs those who wait for that.
    pub(super) fn settle(&mut self, run: &Run<'_>) -> Result<(), Halt> {
        let Some(upload) = &self.upload else { return Ok(()) };
        for flight in self.flights.drain(..) {
            flight.land(&upload.side, run)?;
        }
        Ok(())
    }

    /// Informs those who wait for sources that the GPU has read, and waits for further ones as long as `waits` says so.
    pub(super) fn settle_while(&mut self, run: &Run<'_>, waits: impl Fn() -> bool) -> Result<(), Halt> {
        let Some(upload) = &self.upload else { return Ok(()) };
        while let Some(flight) = self.flights.front() {
            let site = run.site(FailureSite::Transfer(flight.transfer));
            look(&upload.side.gpu, site)?;
            if flight.copy.is_done() {
                let flight = self.flights.pop_front();
                flight.map_or(Ok(()), |flight| flight.land(&upload.side, run))?;
            } else if waits() {
                run.check()?;
                std::thread::sleep(SLICE);
            } else {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Lets a test fail the copy, and returns the time at which the GPU starts it; that costs a wait, for profiles.
fn begin(side: &GpuSide, run: &Run<'_>, site: Site<'_>) -> Result<u64, Halt> {
    run.strike(Operation::Copy).map_err(|error| Failure::at(site.place, error))?;
    side.healthy(site.place)?;
    if run.terms.profile {
        Ahead::of(&side.gpu).wait(&side.gpu, site)?;
    }
    Ok(run.now())
}
