//! The worker of a link: moves values one after the other, in pieces, through staging buffers that it reuses.

mod copy;
mod direct;
mod download;
mod pieces;
mod staging;
mod upload;

pub(super) use copy::copy;
pub(super) use staging::{End, Staging, download};

use super::error::{Failure, FailureSite};
use super::event::{Activity, Event, Lane};
use super::gpu::GpuSide;
use super::run_channels::{Delivery, Halt, Wait};
use super::worker::{Log, Run, Worker};
use super::worker_program::{Feed, LinkProgram, LinkStep, NO_GATE};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::{Buffer, KernelError};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, Plan};
use copy::LARGE;
use direct::Flight;
use download::together;
use pieces::{Moving, Target};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// State of a link.
pub(super) struct LinkWorker {
    program: Arc<LinkProgram>,
    plan: Arc<Plan>,
    log: Log,
    /// GPU ends of the link.
    download: Option<End>,
    upload: Option<End>,
    /// Threads that copy large pieces.
    copiers: Arc<Team>,
    /// Copies from pinned memory that the GPU may not have finished.
    flights: VecDeque<Flight>,
}

impl LinkWorker {
    /// Creates a link between the GPUs of these sides; a missing side is the host. `copiers` is called if pieces may be
    /// large.
    pub(super) fn new(
        program: LinkProgram,
        plan: &Arc<Plan>,
        copiers: impl FnOnce() -> Arc<Team>,
        [from, to]: [Option<Arc<GpuSide>>; 2],
    ) -> Result<Self, ExecError> {
        let refused = |end: DeviceId, error: KernelError| ExecError::unusable(&plan.device(end).name, &error);
        let download = from.map(|side| End::new(side, program.staging, wgpu::MapMode::Read)).transpose();
        let upload = to.map(|side| End::new(side, program.staging, wgpu::MapMode::Write)).transpose();
        Ok(Self {
            download: download.map_err(|error| refused(program.from, error))?,
            upload: upload.map_err(|error| refused(program.to, error))?,
            copiers: if program.staging.bytes < LARGE { Arc::new(Team::solo()) } else { copiers() },
            log: Log::default(),
            flights: VecDeque::new(),
            plan: Arc::clone(plan),
            program: Arc::new(program),
        })
    }

    /// Fetches small values that are there together with that of the first of these steps. A profile measures each
    /// value alone.
    fn fetch_ahead(&mut self, steps: &[LinkStep], run: &Run<'_>) -> Result<(), Halt> {
        let Some(download) = &mut self.download else { return Ok(()) };
        if run.terms.profile || !download.together.is_empty() {
            return Ok(());
        }
        let values = together(steps, self.program.staging.bytes, |step| is_there(step, run));
        if values.is_empty() { Ok(()) } else { download.fetch_together(&values, run.site(self.log.at)) }
    }

    /// Moves the value of one step. A value that lands on a CPU is delivered. Returns the time at which that started,
    /// if it is known, and the time spent waiting for chunks.
    fn carry(&mut self, step: &LinkStep, mut brought: Brought, run: &Run<'_>) -> Result<(u64, u64), Halt> {
        if step.pinned
            && let Some(begun) = self.carry_directly(step, &mut brought, run)?
        {
            return Ok((begun, 0));
        }
        let Brought { source, mut landing } = brought;
        let stream = self.plan.transfer(step.transfer).stream();
        let piece = stream.map_or(self.program.staging.bytes as usize, |stream| stream.chunk_rows * stream.row_bytes);
        let moving = &Moving { run, step, copiers: &self.copiers, waited: Cell::new(0), begun: Cell::new(0) };
        let mut target = match (step.target, &mut self.upload) {
            (Some(slot), Some(upload)) => Target::Gpu(upload, slot),
            (None, None) => Target::Ring,
            (Some(_), None) => {
                let buffer = landing.as_mut().ok_or_else(|| Failure::internal("a slot to land in is not there"))?;
                let buffer = Arc::get_mut(buffer);
                Target::Cpu(buffer.ok_or_else(|| Failure::internal("a slot to land in is still read"))?)
            }
            (None, Some(_)) => return Err(Failure::internal("a value for a GPU has no place there").into()),
        };
        match (&mut self.download, &step.feed) {
            (Some(download), _) if !download.together.is_empty() => {
                download.read_together(moving.site(), |bytes| target.take(moving, 0, bytes))?;
            }
            (Some(download), _) => {
                let slot = step.source.ok_or_else(|| Failure::internal("a value of a GPU has no place there"))?;
                let take = |offset, bytes: &[u8]| target.take(moving, offset, bytes);
                let begins: &dyn Fn() = &|| moving.begun.set(run.now());
                let begins = (run.terms.profile && step.feed.is_none()).then_some(begins);
                download.read(slot, (step.bytes, piece), moving.site(), |must| moving.is_made(must), begins, take)?;
            }
            (None, Some(feed)) => forward(feed, piece, moving, &mut target)?,
            (None, None) => {
                let source = source.ok_or_else(|| Failure::internal("a value to send is not there"))?;
                for (number, bytes) in source.bytes()[..step.bytes].chunks(piece).enumerate() {
                    run.check()?;
                    target.take(moving, number * piece, bytes)?;
                }
            }
        }
        if let Some((buffer, cell)) = landing.zip(step.target)
            && let Some(gate) = step.arrival
        {
            run.channels.deliver(gate, Delivery { cell, buffer })?;
        }
        Ok((moving.begun.get(), moving.waited.get()))
    }

    /// Whether the value of the next step is copied to a GPU together with those that are written: it is small and on
    /// the host. A profile measures each value alone. A value in pinned memory goes alone too: its copy may end before
    /// the others are sent, and the gates after it would then open twice.
    fn joins(&self, next: Option<&LinkStep>, run: &Run<'_>) -> bool {
        let (Some(upload), Some(next)) = (&self.upload, next) else { return false };
        let is_here = self.download.as_ref().is_none_or(|download| !download.together.is_empty());
        let is_small = next.is_whole() && !next.pinned && upload.may_follow(next.bytes);
        !run.terms.profile && is_here && is_small && is_there(next, run)
    }

    /// Submits what is written for a GPU, and informs the waiters for the values of these steps and for their sources.
    fn send(&mut self, steps: &[LinkStep], run: &Run<'_>) -> Result<(), Halt> {
        if let Some(upload) = &mut self.upload {
            upload.send(run.site(self.log.at))?;
        }
        for step in steps {
            // A value that landed on a CPU was delivered.
            let arrival = step.arrival.filter(|_| self.upload.is_some());
            // The source of a copy in flight is read later.
            let is_read = self.flights.iter().all(|flight| flight.transfer != step.transfer);
            for gate in arrival.iter().chain(step.after.iter().filter(|_| is_read)) {
                run.channels.open(*gate)?;
            }
        }
        Ok(())
    }
}

/// Whether a step can begin.
fn is_there(step: &LinkStep, run: &Run<'_>) -> bool {
    step.gate == NO_GATE || run.port().is_ready(Wait::Gate(step.gate))
}

impl Worker for LinkWorker {
    fn follow(&mut self, run: &Run<'_>) -> Result<(), Halt> {
        let program = Arc::clone(&self.program);
        let lane = Lane::Link { from: program.from, to: program.to };
        let (mut now, mut sent) = (run.now(), 0);
        for (at, step) in program.steps.iter().enumerate() {
            run.check()?;
            self.log.at = FailureSite::Transfer(step.transfer);
            let ready = now;
            let mut brought = Brought { source: step.constant.clone(), landing: None };
            if step.is_whole() {
                self.settle_while(run, || !is_there(step, run))?;
            } else {
                self.settle(run)?;
            }
            run.pass(step.gate, |delivery| brought.take(delivery, step))?;
            let start = run.now();
            self.fetch_ahead(&program.steps[at..], run)?;
            let (begun, waited) = self.carry(step, brought, run)?;
            if !self.joins(program.steps.get(at + 1), run) {
                self.send(&program.steps[sent..=at], run)?;
                sent = at + 1;
            }
            if run.terms.profile {
                self.settle(run)?;
            }
            let start = start.max(begun);
            now = run.now();
            if run.terms.profile {
                let (what, bytes) = (Activity::Transfer(step.transfer), step.bytes as u64);
                self.log.events.push(Event { what, lane, ready, start, end: now, waited, bytes });
            }
        }
        self.settle(run)?;
        self.log.at = FailureSite::Nowhere;
        Ok(())
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn let_go(&mut self) {
        self.flights.clear();
        self.download.iter_mut().chain(&mut self.upload).for_each(End::renew);
    }

    fn restore(&mut self) -> bool {
        self.download.iter().chain(&self.upload).all(|end| end.side.gpu.fault().is_none())
    }
}

/// Buffers that came with the opening of a transfer's gate.
struct Brought {
    /// Value to send, if it comes from a CPU or is a constant.
    source: Option<Arc<Buffer>>,
    /// Target slot, if the value arrives in a slot.
    landing: Option<Arc<Buffer>>,
}

impl Brought {
    fn take(&mut self, delivery: Delivery, step: &LinkStep) {
        let place = if step.source.is_some() { &mut self.landing } else { &mut self.source };
        *place = Some(delivery.buffer);
    }
}

/// Forwards each chunk that a CPU device makes, and returns its buffer.
fn forward(feed: &Feed, piece: usize, moving: &Moving<'_>, target: &mut Target<'_>) -> Result<(), Halt> {
    let bytes = moving.step.bytes;
    for offset in (0..bytes).step_by(piece) {
        moving.run.check()?;
        let chunk = moving.next_chunk(feed)?;
        let (Some(buffer), Some(ring)) = (chunk, feed.credit) else {
            return Err(Failure::internal("a chunk of a CPU has no bytes").into());
        };
        target.take(moving, offset, &buffer.bytes()[..piece.min(bytes - offset)])?;
        moving.run.channels.give_back(ring, buffer)?;
    }
    Ok(())
}
