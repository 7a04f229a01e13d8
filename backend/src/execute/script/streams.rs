//! Streams: who passes chunks to whom, who gives their buffers back, and who waits for what meanwhile.

use super::build::Builder;
use super::{Credit, Cut, Feed, Onward, StreamIn, StreamOut, Streaming, Work};
use crate::execute::message::Gate;
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
    pub(super) fn route_stream(&mut self, (id, transfer): (TransferId, &Transfer), stream: &Stream, first: u32) {
        let (from, to) = (transfer.from, transfer.to);
        let Work::Node(reader) = self.step(to, first).work else { return };
        let cut = Cut { rows: stream.rows, chunk_rows: stream.chunk_rows };
        let source = match self.on_link(id) {
            None => self.producer_ring(from, transfer.value, stream),
            Some(at) => {
                self.route_link((at, transfer), stream);
                (self.kind(to) == DeviceKind::Cpu).then_some(Credit { worker: at.worker, ring: 0 })
            }
        };
        let sender = self.on_link(id).map_or(from.0, |at| at.worker);
        let queue = self.open_queue(to, self.in_flight(source, stream));
        let wait =
            self.channel(to.0, Channel { step: first, value: transfer.value, what: Awaited::Chunk, on: vec![sender] });
        let streaming = self.streaming(to, reader, cut);
        streaming.ins.push(StreamIn { input: stream.input, row_bytes: stream.row_bytes, queue, wait, credit: source });
        match self.on_link(id) {
            Some(at) => self.link_step(at).reader = Some((to.0, queue)),
            None => self.feed((from, transfer.value), stream, Onward { worker: to.0, queue, transfer: Some(id) }),
        }
    }

    /// A stream over a link: fed chunk by chunk by its producer, unless the value is whole before.
    fn route_link(&mut self, (at, transfer): (Gate, &Transfer), stream: &Stream) {
        let (from, to) = (transfer.from, transfer.to);
        if self.kind(to) == DeviceKind::Cpu {
            let room = Channel { step: at.index, value: transfer.value, what: Awaited::Room, on: vec![to.0] };
            self.link_step(at).room = self.channel(at.worker, room);
        }
        if stream.producer.is_none() {
            return;
        }
        let credit = self.producer_ring(from, transfer.value, stream);
        let chunk = Channel { step: at.index, value: transfer.value, what: Awaited::Chunk, on: vec![from.0] };
        let wait = self.channel(at.worker, chunk);
        let chunks = self.in_flight(credit, stream);
        self.link_step(at).feed = Some(Feed { wait, credit, chunks });
        let onward = Onward { worker: at.worker, queue: at.index, transfer: None };
        self.feed((from, transfer.value), stream, onward);
    }

    /// Where a CPU producer takes its buffers; a GPU makes the whole value.
    fn producer_ring(&self, device: DeviceId, value: ValueId, stream: &Stream) -> Option<Credit> {
        let producer = stream.producer.filter(|_| self.kind(device) == DeviceKind::Cpu)?;
        Some(Credit { worker: device.0, ring: self.output(producer, value) })
    }

    fn output(&self, node: NodeId, value: ValueId) -> u32 {
        let outputs = &self.program.node(node).outputs;
        outputs.iter().position(|output| *output == value).unwrap_or(0) as u32
    }

    /// Lets the producer of a value send its chunks to a reader.
    fn feed(&mut self, (device, value): (DeviceId, ValueId), stream: &Stream, reader: Onward) {
        let (Some(producer), Some(step)) = (stream.producer, self.maker(value)) else { return };
        let Work::Node(at) = self.step(device, step).work else { return };
        let (output, cut) = (self.output(producer, value), Cut { rows: stream.rows, chunk_rows: stream.chunk_rows });
        if let Some(known) = self.streaming(device, at, cut).outs.iter_mut().find(|out| out.output == output) {
            known.to.push(reader);
            let wait = known.wait;
            self.known_channel(device.0, wait).on.push(reader.worker);
            return;
        }
        let wait = self.channel(device.0, Channel { step, value, what: Awaited::Room, on: vec![reader.worker] });
        let out = StreamOut { output, row_bytes: stream.row_bytes, wait, to: vec![reader] };
        let outs = &mut self.streaming(device, at, cut).outs;
        outs.push(out);
        outs.sort_by_key(|out| out.output);
    }

    /// How many chunks of a stream may lie in an inbox at a time: no more than the ring that they come from has buffers.
    fn in_flight(&self, source: Option<Credit>, stream: &Stream) -> usize {
        let depth = |ring: Credit| match self
            .plan
            .links()
            .get((ring.worker as usize).wrapping_sub(self.plan.devices().len()))
        {
            Some(link) => link.ring_depth,
            None => {
                let rings = self.plan.memory().rings(DeviceId(ring.worker));
                rings.get(ring.ring as usize).map_or(0, |ring| ring.depth)
            }
        };
        source.map_or(usize::MAX, |ring| depth(ring) as usize).min(stream.chunks())
    }

    fn streaming(&mut self, device: DeviceId, node: u32, cut: Cut) -> &mut Streaming {
        let node = &mut self.device(device).nodes[node as usize];
        node.streaming.get_or_insert_with(|| Streaming { cut, ins: Vec::new(), outs: Vec::new() })
    }
}
