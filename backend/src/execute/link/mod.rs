//! The worker of a link: moves values one after the other, in pieces, through staging buffers that it uses again and again.

mod arrivals;
mod download;
mod pieces;
mod staging;
mod upload;

pub(super) use download::Download;
pub(super) use upload::Upload;

use super::actor::{Actor, Desk};
use super::engine::Shared;
use super::error::{ExecError, Failure, Place};
use super::event::{Activity, Event, Lane};
use super::gpu::GpuSide;
use super::message::{Halt, Mail, Message, Run};
use super::script::{Feed, LinkScript, LinkStep};
use anabranch_kernels::KernelError;
use anabranch_placement::platform::DeviceId;
use arrivals::Arrivals;
use pieces::{Carriage, Load, Target};
use std::sync::Arc;

/// The state of a link.
pub(super) struct LinkWorker {
    script: Arc<LinkScript>,
    desk: Desk,
    arrivals: Arrivals,
    /// The GPU ends.
    download: Option<Download>,
    upload: Option<Upload>,
}

impl LinkWorker {
    /// A link between the GPUs of these sides, or the host where there is none.
    pub(super) fn new(
        number: u32,
        script: LinkScript,
        shared: Arc<Shared>,
        mail: Mail,
        [from, to]: [Option<Arc<GpuSide>>; 2],
    ) -> Result<Self, ExecError> {
        let devices = shared.plan.devices();
        if let Some(link) = shared.plan.links().get(number as usize - devices.len()) {
            shared.ledger.take(link.staging_device(devices), link.staging(devices) as usize);
            shared.ledger.take(link.to, link.ring() as usize);
        }
        let refused = |end: DeviceId, source: KernelError| ExecError::Device {
            device: devices[end.index()].name.clone(),
            source: Box::new(source),
        };
        let staging = (script.staging_bytes, script.staging_depth);
        let download = from.map(|side| Download::new(side, staging)).transpose();
        let upload = to.map(|side| Upload::new(side, staging)).transpose();
        Ok(Self {
            download: download.map_err(|error| refused(script.from, error))?,
            upload: upload.map_err(|error| refused(script.to, error))?,
            arrivals: Arrivals::new(&script),
            desk: Desk::new(number, Arc::clone(&shared), mail),
            script: Arc::new(script),
        })
    }

    /// Moves the value of one step, and tells who waits for it and for its source. Returns how long it waited for chunks.
    fn carry(&mut self, index: usize, step: &LinkStep, run: &Run) -> Result<u64, Halt> {
        let shared = Arc::clone(&self.desk.shared);
        let stream = shared.plan.transfer(step.transfer).stream();
        let piece = stream.map_or(self.script.staging_bytes as usize, |stream| stream.chunk_rows * stream.row_bytes);
        let (mail, arrivals) = (&self.desk.mail, &mut self.arrivals);
        let mut carriage = Carriage { arrivals, mail, run, index, step, waited: 0 };
        let mut landing = None;
        let mut target = match (step.target, &mut self.upload) {
            (Some(slot), Some(upload)) => Target::Gpu(upload, slot),
            (None, None) => Target::Ring,
            (Some(_), None) => {
                let buffer = landing.insert(carriage.arrivals.landing(index)?);
                let buffer = Arc::get_mut(buffer);
                Target::Cpu(buffer.ok_or_else(|| Failure::internal("a slot to land in is still read"))?)
            }
            (None, Some(_)) => return Err(Failure::internal("a value for a GPU has no place there").into()),
        };
        match (&mut self.download, &step.feed) {
            (Some(download), _) => {
                let at = carriage.place();
                let load = &mut Load { carriage: &mut carriage, target: &mut target };
                download.read(step.source, (step.bytes, piece), (mail, at), load)?;
            }
            (None, Some(feed)) => forward(feed, piece, &mut carriage, &mut target)?,
            (None, None) => {
                let source = carriage.arrivals.source(index)?;
                for (number, bytes) in source.bytes()[..step.bytes].chunks(piece).enumerate() {
                    mail.stopped()?;
                    target.take(&mut carriage, number * piece, bytes)?;
                }
            }
        }
        let waited = carriage.waited;
        match (step.arrival, landing) {
            (Some((gate, cell)), Some(buffer)) => {
                mail.post(gate.worker, Message::Value { gate: gate.index, cell, buffer });
            }
            (Some((gate, _)), None) => mail.open(gate),
            (None, _) => {}
        }
        for gate in &step.after {
            mail.open(*gate);
        }
        Ok(waited)
    }
}

/// Sends on each chunk that a CPU device makes, and gives its buffer back.
fn forward(feed: &Feed, piece: usize, carriage: &mut Carriage<'_>, target: &mut Target<'_>) -> Result<(), Halt> {
    let bytes = carriage.step.bytes;
    for offset in (0..bytes).step_by(piece) {
        carriage.mail.stopped()?;
        let chunk = carriage.next_chunk(feed)?;
        let (Some(buffer), Some(credit)) = (chunk, feed.credit) else {
            return Err(Failure::internal("a chunk of a CPU has no bytes").into());
        };
        target.take(carriage, offset, &buffer.bytes()[..piece.min(bytes - offset)])?;
        carriage.mail.post(credit.worker, Message::Credit { ring: credit.ring, buffer });
    }
    Ok(())
}

impl Actor for LinkWorker {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn follow(&mut self, run: &Run) -> Result<(), Halt> {
        let script = Arc::clone(&self.script);
        self.desk.expect_events(script.steps.len());
        let lane = Lane::Link { from: script.from, to: script.to };
        let mut now = run.now();
        for (index, step) in script.steps.iter().enumerate() {
            self.desk.mail.stopped()?;
            self.desk.at = Place::Transfer(step.transfer);
            let ready = now;
            self.arrivals.until_open(index, &self.desk.mail)?;
            let start = run.now();
            let waited = self.carry(index, step, run)?;
            now = run.now();
            let (what, bytes) = (Activity::Transfer(step.transfer), step.bytes as u64);
            self.desk.note(Event { what, lane, ready, start, end: now, waited, bytes });
        }
        self.desk.at = Place::Nowhere;
        Ok(())
    }

    fn receive(&mut self, message: Message) -> Result<(), Failure> {
        self.arrivals.receive(message)
    }

    fn forget(&mut self, failed: bool) {
        self.arrivals.forget(failed);
        if failed {
            self.download.iter_mut().for_each(Download::renew);
            self.upload.iter_mut().for_each(Upload::renew);
        }
    }
}
