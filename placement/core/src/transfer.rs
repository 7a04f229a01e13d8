//! Insertion of sends and receives: the data that cross between devices, once for each datum and target (Laich 2017,
//! section 2.4).

use crate::graph::{DatumId, Rows, TaskGraph, TaskId};
use crate::platform::DeviceId;
use std::ops::Range;

/// Transfer of one datum to one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Send {
    /// The datum.
    pub datum: DatumId,
    /// Device of the producer.
    pub from: DeviceId,
    /// Device of at least one consumer.
    pub to: DeviceId,
    /// Size of the datum.
    pub bytes: u64,
}

/// All sends of a placement, by datum and then by target, with the tasks that wait for them.
#[derive(Debug, Clone, Default)]
pub struct Sends {
    sends: Vec<Send>,
    /// First send of each datum: the sends of datum `d` are those from `first[d]` to `first[d + 1]`.
    first: Vec<u32>,
    receivers: Rows<TaskId>,
    local: Rows<TaskId>,
    /// Scratch memory of `fill`, kept between calls.
    remote: Vec<(DeviceId, TaskId)>,
}

impl Sends {
    /// Returns the sends of `graph` with task `t` on `device_of[t]`. `O(V + E log E)`.
    ///
    /// `device_of` must have an entry for every task.
    pub fn of(graph: &TaskGraph, device_of: &[DeviceId]) -> Self {
        let mut sends = Sends::default();
        sends.fill(graph, device_of);
        sends
    }

    /// Replaces the contents, as [`Sends::of`], but reuses their memory.
    pub(crate) fn fill(&mut self, graph: &TaskGraph, device_of: &[DeviceId]) {
        let Sends { sends, first, receivers, local, remote } = self;
        sends.clear();
        first.clear();
        receivers.clear();
        local.clear();
        for datum in graph.datum_ids() {
            first.push(sends.len() as u32);
            let from = device_of[graph.producer(datum).index()];
            let consumers = || graph.consumers(datum).iter().map(|&consumer| (device_of[consumer.index()], consumer));
            local.push(consumers().filter(|&(to, _)| to == from).map(|(_, consumer)| consumer));
            remote.clear();
            remote.extend(consumers().filter(|&(to, _)| to != from));
            remote.sort_unstable();
            for group in remote.chunk_by(|one, other| one.0 == other.0) {
                receivers.push(group.iter().map(|&(_, consumer)| consumer));
                sends.push(Send { datum, from, to: group[0].0, bytes: graph.bytes(datum) });
            }
        }
        first.push(sends.len() as u32);
    }

    /// Returns all sends.
    pub fn all(&self) -> &[Send] {
        &self.sends
    }

    /// Returns the number of sends.
    pub fn count(&self) -> usize {
        self.sends.len()
    }

    /// Returns the positions of a datum's sends in [`Sends::all`].
    pub fn of_datum(&self, datum: DatumId) -> Range<usize> {
        self.first[datum.index()] as usize..self.first[datum.index() + 1] as usize
    }

    /// Returns the position of the send of `datum` to `target`, if there is one.
    pub fn to(&self, datum: DatumId, target: DeviceId) -> Option<usize> {
        let range = self.of_datum(datum);
        let place = self.sends[range.clone()].binary_search_by_key(&target, |send| send.to).ok()?;
        Some(range.start + place)
    }

    /// Returns the tasks that wait for the send at `position`.
    pub fn receivers(&self, position: usize) -> &[TaskId] {
        self.receivers.row(position)
    }

    /// Returns the consumers of a datum on the device that produces it.
    pub fn local_consumers(&self, datum: DatumId) -> &[TaskId] {
        self.local.row(datum.index())
    }

    /// Returns the bytes of all sends, each datum counted once for each target device; saturates.
    pub fn traffic(&self) -> u64 {
        self.sends.iter().fold(0, |sum, send| sum.saturating_add(send.bytes))
    }

    /// Returns the number of edges (uses of a datum by a task) between different devices.
    pub fn cut_edges(&self) -> usize {
        self.receivers.item_count()
    }

    /// Returns the bytes of all edges between different devices, a datum counted once for each consumer (Laich 2017,
    /// equation 2.2); saturates.
    pub fn traffic_by_edge(&self) -> u64 {
        self.sends.iter().enumerate().fold(0, |sum, (position, send)| {
            sum.saturating_add(send.bytes.saturating_mul(self.receivers(position).len() as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};

    #[test]
    fn a_datum_goes_once_to_each_device() {
        let mut builder = GraphBuilder::new();
        let tasks: Vec<TaskId> = (0..6).map(|id| builder.task(Task::new(format!("t{id}")))).collect();
        let wide = builder.datum(tasks[0], 50);
        tasks[1..].iter().for_each(|&consumer| builder.consume(wide, consumer));
        let own = builder.edge(tasks[1], tasks[2], 7);
        let graph = builder.build().unwrap();
        let sends = Sends::of(&graph, &[0, 0, 2, 1, 2, 1].map(DeviceId));
        let (from, bytes) = (DeviceId(0), 50);
        let expected = [
            Send { datum: wide, from, to: DeviceId(1), bytes },
            Send { datum: wide, from, to: DeviceId(2), bytes },
            Send { datum: own, from, to: DeviceId(2), bytes: 7 },
        ];
        assert_eq!(sends.all(), expected);
        assert_eq!(sends.receivers(0), [tasks[3], tasks[5]]);
        assert_eq!(sends.local_consumers(wide), [tasks[1]]);
        assert_eq!((sends.of_datum(wide), sends.of_datum(own)), (0..2, 2..3));
        assert_eq!((sends.traffic(), sends.traffic_by_edge(), sends.cut_edges()), (107, 207, 5));
    }
}
