//! The worker of a link: moves values one after the other, in pieces, through staging buffers that it uses again and again.

mod arrivals;
mod download;
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
use super::script::{LinkScript, LinkStep};
use crate::plan::Stream;
use anabranch_kernels::KernelError;
use anabranch_placement::platform::DeviceId;
use arrivals::Arrivals;
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

    /// Moves the value of one step, and tells who waits for it and for its source.
    fn carry(&mut self, index: usize, step: &LinkStep) -> Result<(), Halt> {
        let shared = Arc::clone(&self.desk.shared);
        let stream = shared.plan.transfer(step.transfer).stream();
        match (step.target, stream) {
            (Some(target), _) if self.upload.is_some() => self.carry_to_gpu((index, step), target, stream)?,
            (_, Some(stream)) => self.carry_in_chunks((index, step), stream)?,
            (_, None) => self.carry_to_cpu((index, step))?,
        }
        for gate in &step.after {
            self.desk.mail.open(*gate);
        }
        Ok(())
    }

    /// To a GPU: whole, or chunk by chunk into its place. The host's source is let go at the end.
    fn carry_to_gpu(
        &mut self,
        (index, step): (usize, &LinkStep),
        target: u32,
        stream: Option<&Stream>,
    ) -> Result<(), Halt> {
        let (mail, at) = (&self.desk.mail, Place::Transfer(step.transfer));
        let Some(upload) = &mut self.upload else {
            return Err(Failure::internal("a transfer to a GPU has no such end").into());
        };
        let piece = stream.map_or(self.script.staging_bytes as usize, |stream| stream.chunk_rows * stream.row_bytes);
        let (link, reader) = (self.desk.number, self.script.to.0);
        let mut write = |offset: usize, bytes: &[u8]| {
            upload.write(target, offset, bytes, (mail, at))?;
            if stream.is_some() {
                mail.post(reader, Message::Chunk { link, buffer: None });
            }
            Ok(())
        };
        match &mut self.download {
            Some(download) => download.read(step.source, (step.bytes, piece), (mail, at), &mut write)?,
            None => {
                let source = self.arrivals.source(index)?;
                for (number, bytes) in source.bytes()[..step.bytes].chunks(piece).enumerate() {
                    mail.stopped()?;
                    write(number * piece, bytes)?;
                }
            }
        }
        if let Some((gate, _)) = step.arrival {
            mail.open(gate);
        }
        Ok(())
    }

    /// From a GPU into a slot of a CPU device.
    fn carry_to_cpu(&mut self, (index, step): (usize, &LinkStep)) -> Result<(), Halt> {
        let (mail, at) = (&self.desk.mail, Place::Transfer(step.transfer));
        let (Some(download), Some((gate, cell))) = (&mut self.download, step.arrival) else {
            return Err(Failure::internal("a transfer to a CPU has no GPU, or no reader").into());
        };
        let mut buffer = self.arrivals.landing(index)?;
        let landing = Arc::get_mut(&mut buffer).ok_or_else(|| Failure::internal("a slot to land in is still read"))?;
        let cut = (step.bytes, self.script.staging_bytes as usize);
        download.read(step.source, cut, (mail, at), &mut |offset, bytes| {
            landing.bytes_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        mail.post(gate.worker, Message::Value { gate: gate.index, cell, buffer });
        Ok(())
    }

    /// From a GPU through the ring into a node of a CPU device.
    fn carry_in_chunks(&mut self, (index, step): (usize, &LinkStep), stream: &Stream) -> Result<(), Halt> {
        let (mail, at, arrivals) = (&self.desk.mail, Place::Transfer(step.transfer), &mut self.arrivals);
        let Some(download) = &mut self.download else {
            return Err(Failure::internal("a stream to a CPU has no GPU").into());
        };
        let (link, reader) = (self.desk.number, self.script.to.0);
        let cut = (step.bytes, stream.chunk_rows * stream.row_bytes);
        download.read(step.source, cut, (mail, at), &mut |_, bytes| {
            let mut buffer = arrivals.free_buffer(index, mail)?;
            let chunk = Arc::get_mut(&mut buffer).ok_or_else(|| Failure::internal("a chunk's buffer is still read"))?;
            chunk.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            mail.post(reader, Message::Chunk { link, buffer: Some(buffer) });
            Ok(())
        })
    }
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
            self.carry(index, step)?;
            now = run.now();
            let (what, bytes) = (Activity::Transfer(step.transfer), step.bytes as u64);
            self.desk.note(Event { what, lane, ready, start, end: now, bytes });
        }
        self.desk.at = Place::Nowhere;
        Ok(())
    }

    fn receive(&mut self, message: Message) -> Result<(), Failure> {
        self.arrivals.receive(message)
    }

    fn forget(&mut self, failed: bool) {
        self.arrivals.forget(failed, &self.script);
        if failed {
            self.download.iter_mut().for_each(Download::renew);
            self.upload.iter_mut().for_each(Upload::renew);
        }
    }
}
