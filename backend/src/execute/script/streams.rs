//! Streams: who passes chunks to whom, who gives their buffers back, and who waits for what meanwhile.

use super::build::{Builder, Contradiction};
use super::{Cut, Feed, Gate, Onward, QueueAt, RingAt, StreamIn, StreamOut, Streaming, Work};
use crate::plan::{Stream, Transfer, TransferId};
use crate::program::{NodeId, ValueId};
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// Something that a worker waits for inside a step, beside the step's gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::execute) struct Channel {
    /// The worker's step.
    pub(in crate::execute) step: u32,
    /// What passes.
    pub(in crate::execute) value: ValueId,
    /// Whether a chunk is waited for, or room for one.
    pub(in crate::execute) what: Awaited,
    /// Of a chunk the worker's queue, of room its ring.
    pub(in crate::execute) index: u32,
    /// The workers that can end the wait.
    pub(in crate::execute) on: Vec<u32>,
}

/// What a channel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execute) enum Awaited {
    Chunk,
    Room,
}

impl Builder<'_> {
    /// Connects a stream's producer, or the link that cuts the value into chunks, with its reader.
    pub(super) fn route_stream(&mut self, id: TransferId, stream: &Stream, first: u32) -> Result<(), Contradiction> {
        let plan = self.plan;
        let transfer = plan.transfer(id);
        let (from, to) = (transfer.from, transfer.to);
        let Work::Node(reader) = self.step(to, first).work else { return Err("a stream is read by no node") };
        let cut = Cut { rows: stream.rows, chunk_rows: stream.chunk_rows };
        let source = match self.on_link(id) {
            None => self.producer_ring(from, transfer.value, stream)?,
            Some(at) => {
                self.route_link(at, transfer, stream)?;
                (self.kind(to) == DeviceKind::Cpu).then_some(RingAt { worker: at.worker, ring: 0 })
            }
        };
        let sender = self.on_link(id).map_or(from.0, |at| at.worker);
        let queue = self.open_queue(to.0, self.in_flight(source, stream));
        let chunk =
            Channel { step: first, value: transfer.value, what: Awaited::Chunk, index: queue, on: vec![sender] };
        let wait = self.channel(to.0, chunk);
        let streaming = self.streaming(to, reader, cut);
        streaming.ins.push(StreamIn { input: stream.input, row_bytes: stream.row_bytes, queue, wait, credit: source });
        let queue = QueueAt { worker: to.0, queue };
        match self.on_link(id) {
            Some(at) => self.link_step(at).reader = Some(queue),
            None => self.feed(from, transfer.value, stream, Onward { to: queue, transfer: Some(id) })?,
        }
        Ok(())
    }

    /// A stream over a link: fed chunk by chunk by its producer, unless the value is whole before.
    fn route_link(&mut self, at: Gate, transfer: &Transfer, stream: &Stream) -> Result<(), Contradiction> {
        let (from, to) = (transfer.from, transfer.to);
        if self.kind(to) == DeviceKind::Cpu {
            let what = Awaited::Room;
            let room = Channel { step: at.index, value: transfer.value, what, index: 0, on: vec![to.0] };
            self.link_step(at).room = self.channel(at.worker, room);
        }
        if stream.producer.is_none() {
            return Ok(());
        }
        let credit = self.producer_ring(from, transfer.value, stream)?;
        let queue = self.open_queue(at.worker, self.in_flight(credit, stream));
        let what = Awaited::Chunk;
        let chunk = Channel { step: at.index, value: transfer.value, what, index: queue, on: vec![from.0] };
        let wait = self.channel(at.worker, chunk);
        self.link_step(at).feed = Some(Feed { queue, wait, credit });
        let onward = Onward { to: QueueAt { worker: at.worker, queue }, transfer: None };
        self.feed(from, transfer.value, stream, onward)
    }

    /// Where a CPU producer takes its buffers; a GPU makes the whole value.
    fn producer_ring(
        &self,
        device: DeviceId,
        value: ValueId,
        stream: &Stream,
    ) -> Result<Option<RingAt>, Contradiction> {
        let producer = stream.producer.filter(|_| self.kind(device) == DeviceKind::Cpu);
        producer.map(|node| Ok(RingAt { worker: device.0, ring: self.output(node, value)? })).transpose()
    }

    fn output(&self, node: NodeId, value: ValueId) -> Result<u32, Contradiction> {
        let outputs = &self.program.node(node).outputs;
        let place = outputs.iter().position(|output| *output == value);
        place.map(|place| place as u32).ok_or("a stream's producer does not make its value")
    }

    /// Lets the producer of a value send its chunks to a reader.
    fn feed(&mut self, device: DeviceId, value: ValueId, stream: &Stream, reader: Onward) -> Result<(), Contradiction> {
        let made = stream.producer.zip(self.maker(value));
        let (producer, step) = made.ok_or("nothing makes the value of a stream")?;
        let Work::Node(at) = self.step(device, step).work else { return Err("a stream is made by no node") };
        let (output, cut) = (self.output(producer, value)?, Cut { rows: stream.rows, chunk_rows: stream.chunk_rows });
        if let Some(known) = self.streaming(device, at, cut).outs.iter_mut().find(|out| out.output == output) {
            known.to.push(reader);
            let wait = known.wait;
            self.known_channel(device.0, wait).on.push(reader.to.worker);
            return Ok(());
        }
        let room = Channel { step, value, what: Awaited::Room, index: output, on: vec![reader.to.worker] };
        let wait = self.channel(device.0, room);
        let out = StreamOut { output, row_bytes: stream.row_bytes, wait, to: vec![reader] };
        let outs = &mut self.streaming(device, at, cut).outs;
        outs.push(out);
        outs.sort_by_key(|out| out.output);
        Ok(())
    }

    /// How many chunks of a stream may wait in a queue at a time: no more than the ring that they come from has buffers.
    fn in_flight(&self, source: Option<RingAt>, stream: &Stream) -> usize {
        let depth = |at: RingAt| self.rings(at.worker).get(at.ring as usize).map_or(0, |ring| ring.depth as usize);
        source.map_or(usize::MAX, depth).min(stream.chunks())
    }

    fn streaming(&mut self, device: DeviceId, node: u32, cut: Cut) -> &mut Streaming {
        let node = &mut self.device(device).nodes[node as usize];
        node.streaming.get_or_insert_with(|| Box::new(Streaming { cut, ins: Vec::new(), outs: Vec::new() }))
    }
}
