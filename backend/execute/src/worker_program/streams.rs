//! Streams: senders and readers of chunks, the return of buffers, and the waits in between.

use super::build::{Builder, Contradiction};
use super::{Feed, Gate, Onward, QueueAt, RingAt, StreamIn, StreamOut, Streaming, Work};
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{Stream, Transfer, TransferId};

/// An object that a worker waits for inside a step, in addition to the step's gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// Step of the worker.
    pub(crate) step: u32,
    /// Value of the stream.
    pub(crate) value: ValueId,
    /// Whether the worker waits for a chunk or for a free buffer.
    pub(crate) what: Awaited,
    /// Index of the worker's queue for a chunk, of its ring for a buffer.
    pub(crate) index: u32,
    /// Workers that can end the wait.
    pub(crate) on: Vec<u32>,
}

/// Object that a channel waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Chunk,
    EmptyBuffer,
}

impl Builder<'_> {
    /// Connects a stream's producer, or the link that cuts the value into chunks, with its reader.
    pub(super) fn route_stream(&mut self, id: TransferId, stream: &Stream, first: u32) -> Result<(), Contradiction> {
        let plan = self.plan;
        let transfer = plan.transfer(id);
        let (from, to) = (transfer.from, transfer.to);
        let step = &self.devices[to.index()].steps[first as usize];
        let Work::Node(reader) = step.work else { return Err("a stream is read by no node") };
        let source = match self.on_link(id) {
            None => self.producer_ring(from, transfer.value, stream)?,
            Some(at) => {
                self.route_link(at, transfer, stream)?;
                (self.kind(to) == DeviceKind::Cpu).then_some(RingAt { worker: at.worker, ring: 0 })
            }
        };
        let sender = self.on_link(id).map_or(from.0, |at| at.worker);
        let feed = self.feed_from(sender, Gate { worker: to.0, index: first }, transfer.value, stream, source);
        let streaming = self.streaming(to, reader, stream);
        streaming.ins.push(StreamIn { input: stream.input, row_bytes: stream.row_bytes, feed });
        let queue = QueueAt { worker: to.0, queue: feed.queue };
        match self.on_link(id) {
            Some(at) => self.link_step(at).reader = Some(queue),
            None => self.feed(from, transfer.value, stream, Onward { to: queue, transfer: Some(id) })?,
        }
        Ok(())
    }

    /// Connects a stream over a link, which its producer feeds chunk by chunk unless the value is whole before.
    fn route_link(&mut self, at: Gate, transfer: &Transfer, stream: &Stream) -> Result<(), Contradiction> {
        let (from, to) = (transfer.from, transfer.to);
        if self.kind(to) == DeviceKind::Cpu {
            let what = Awaited::EmptyBuffer;
            let channel = Channel { step: at.index, value: transfer.value, what, index: 0, on: vec![to.0] };
            self.link_step(at).buffer_channel = self.channel(at.worker, channel);
        }
        if stream.producer.is_none() {
            return Ok(());
        }
        let credit = self.producer_ring(from, transfer.value, stream)?;
        let feed = self.feed_from(from.0, at, transfer.value, stream, credit);
        self.link_step(at).feed = Some(feed);
        let onward = Onward { to: QueueAt { worker: at.worker, queue: feed.queue }, transfer: None };
        self.feed(from, transfer.value, stream, onward)
    }

    /// Creates a queue for the chunks that a worker sends to a step of another worker.
    fn feed_from(&mut self, sender: u32, at: Gate, value: ValueId, stream: &Stream, credit: Option<RingAt>) -> Feed {
        let capacity = self.in_flight(credit, stream);
        let queues = &mut self.ports[at.worker as usize].queues;
        queues.push(capacity);
        let index = queues.len() as u32 - 1;
        let chunk = Channel { step: at.index, value, what: Awaited::Chunk, index, on: vec![sender] };
        Feed { queue: index, wait: self.channel(at.worker, chunk), credit }
    }

    /// Ring from which a CPU producer takes its buffers; `None` for a GPU, which makes the whole value.
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

    /// Makes the producer of a value send its chunks to a reader.
    fn feed(&mut self, device: DeviceId, value: ValueId, stream: &Stream, reader: Onward) -> Result<(), Contradiction> {
        let made = stream.producer.zip(self.maker(value));
        let (producer, step) = made.ok_or("nothing makes the value of a stream")?;
        let made = &self.devices[device.index()].steps[step as usize];
        let Work::Node(at) = made.work else { return Err("a stream is made by no node") };
        let output = self.output(producer, value)?;
        if let Some(known) = self.streaming(device, at, stream).outs.iter_mut().find(|out| out.output == output) {
            known.to.push(reader);
            let wait = known.wait;
            self.ports[device.index()].channels[wait as usize].on.push(reader.to.worker);
            return Ok(());
        }
        let channel = Channel { step, value, what: Awaited::EmptyBuffer, index: output, on: vec![reader.to.worker] };
        let wait = self.channel(device.0, channel);
        let out = StreamOut { output, row_bytes: stream.row_bytes, wait, to: vec![reader] };
        let outs = &mut self.streaming(device, at, stream).outs;
        outs.push(out);
        outs.sort_by_key(|out| out.output);
        Ok(())
    }

    /// Most chunks of a stream that wait in a queue: at most the buffers of the ring from which they come.
    fn in_flight(&self, source: Option<RingAt>, stream: &Stream) -> usize {
        let rings = |at: RingAt| &self.ports[at.worker as usize].rings;
        let depth = |at: RingAt| rings(at).get(at.ring as usize).map_or(0, |ring| ring.depth as usize);
        source.map_or(usize::MAX, depth).min(stream.chunks())
    }

    fn streaming(&mut self, device: DeviceId, node: u32, cut: &Stream) -> &mut Streaming {
        let node = &mut self.devices[device.index()].nodes[node as usize];
        node.streaming.get_or_insert_with(|| Box::new(Streaming { cut: *cut, ins: Vec::new(), outs: Vec::new() }))
    }
}
