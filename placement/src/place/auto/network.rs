//! A placed graph in flat vectors that are filled again for every placement that is tried.
//!
//! Items are numbered as in [`PlacedGraph`](crate::order::PlacedGraph): sends by datum and target, then tasks by id.

use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::simulate::SimulateOptions;

/// One datum on its way to one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedSend {
    pub(super) producer: TaskId,
    pub(super) from: DeviceId,
    pub(super) to: DeviceId,
    /// Time on the link.
    pub(super) transfer: f64,
    /// Where its receivers begin; they end where those of the next send begin.
    receivers: u32,
}

/// The sends of a placement and the path computation time of every item.
pub(super) struct Network<'p> {
    problem: &'p Problem<'p>,
    /// Time that a send takes on each device.
    send_time: Vec<f64>,
    /// What a receive counts in ranks, on each device.
    receive: Vec<f64>,
    device_of: Vec<DeviceId>,
    sends: Vec<TimedSend>,
    /// By datum, and one more.
    first_send: Vec<u32>,
    receivers: Vec<TaskId>,
    /// By datum, and one more.
    first_local: Vec<u32>,
    local: Vec<TaskId>,
    /// By item: as [`path_computation_times`](crate::order::path_computation_times).
    rank: Vec<f64>,
    /// By item: the time from its start to the end of all that follows from it, if no device kept anything waiting.
    rest: Vec<f64>,
    remote: Vec<(DeviceId, TaskId)>,
}

impl<'p> Network<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, options: &SimulateOptions) -> Self {
        let speeds = problem.platform().devices().iter().map(|device| device.speed);
        Network {
            problem,
            send_time: speeds.clone().map(|speed| options.send_costs.send_operations / speed).collect(),
            receive: speeds.map(|speed| options.send_costs.receive_operations / speed).collect(),
            device_of: Vec::new(),
            sends: Vec::new(),
            first_send: Vec::new(),
            receivers: Vec::new(),
            first_local: Vec::new(),
            local: Vec::new(),
            rank: Vec::new(),
            rest: Vec::new(),
            remote: Vec::new(),
        }
    }

    /// Describes the placement `device_of` instead of what was described before. `O(V + E log E)`.
    pub(super) fn fill(&mut self, device_of: &[DeviceId]) {
        self.device_of.clear();
        self.device_of.extend_from_slice(device_of);
        self.find_sends();
        self.find_ranks();
    }

    fn find_sends(&mut self) {
        let graph = self.problem.graph();
        self.sends.clear();
        self.first_send.clear();
        self.receivers.clear();
        self.first_local.clear();
        self.local.clear();
        for datum in graph.datum_ids() {
            self.first_send.push(self.sends.len() as u32);
            self.first_local.push(self.local.len() as u32);
            let producer = graph.producer(datum);
            let from = self.device_of[producer.index()];
            self.remote.clear();
            for &consumer in graph.consumers(datum) {
                match self.device_of[consumer.index()] {
                    to if to == from => self.local.push(consumer),
                    to => self.remote.push((to, consumer)),
                }
            }
            self.remote.sort_unstable();
            for group in self.remote.chunk_by(|one, other| one.0 == other.0) {
                let to = group[0].0;
                let transfer = self.problem.transfer_time(graph.bytes(datum), from, to);
                let receivers = self.receivers.len() as u32;
                self.sends.push(TimedSend { producer, from, to, transfer, receivers });
                self.receivers.extend(group.iter().map(|&(_, consumer)| consumer));
            }
        }
        self.first_send.push(self.sends.len() as u32);
        self.first_local.push(self.local.len() as u32);
    }

    fn find_ranks(&mut self) {
        let graph = self.problem.graph();
        let mut rank = std::mem::take(&mut self.rank);
        let mut rest = std::mem::take(&mut self.rest);
        rank.clear();
        rank.resize(self.item_count(), 0.0);
        rest.clear();
        rest.resize(self.item_count(), 0.0);
        for &task in graph.topological().iter().rev() {
            let (mut longest_rank, mut longest_rest): (f64, f64) = (0.0, 0.0);
            for &datum in graph.outputs(task) {
                for &consumer in self.local_consumers(datum) {
                    longest_rank = longest_rank.max(rank[self.item(consumer)]);
                    longest_rest = longest_rest.max(rest[self.item(consumer)]);
                }
                for send in self.sends_of(datum) {
                    let (mut after_rank, mut after_rest): (f64, f64) = (0.0, 0.0);
                    for &receiver in self.receivers(send) {
                        after_rank = after_rank.max(rank[self.item(receiver)]);
                        after_rest = after_rest.max(rest[self.item(receiver)]);
                    }
                    let TimedSend { from, to, transfer, .. } = self.sends[send];
                    let busy = self.send_time[from.index()] + transfer;
                    rank[send] = busy + self.receive[to.index()] + after_rank;
                    rest[send] = busy + after_rest;
                    longest_rank = longest_rank.max(rank[send]);
                    longest_rest = longest_rest.max(rest[send]);
                }
            }
            let item = self.item(task);
            let time = self.time(item);
            rank[item] = longest_rank + time;
            rest[item] = longest_rest + time;
        }
        self.rank = rank;
        self.rest = rest;
    }

    pub(super) fn problem(&self) -> &'p Problem<'p> {
        self.problem
    }

    pub(super) fn item_count(&self) -> usize {
        self.sends.len() + self.device_of.len()
    }

    pub(super) fn item(&self, task: TaskId) -> usize {
        self.sends.len() + task.index()
    }

    /// The task of an item, if it is one.
    pub(super) fn task(&self, item: usize) -> Option<TaskId> {
        item.checked_sub(self.sends.len()).map(|task| TaskId(task as u32))
    }

    pub(super) fn sends(&self) -> &[TimedSend] {
        &self.sends
    }

    pub(super) fn sends_of(&self, datum: DatumId) -> std::ops::Range<usize> {
        self.first_send[datum.index()] as usize..self.first_send[datum.index() + 1] as usize
    }

    /// The send of `datum` to `device`, if there is one.
    pub(super) fn send_to(&self, datum: DatumId, device: DeviceId) -> Option<usize> {
        let sends = self.sends_of(datum);
        let place = self.sends[sends.clone()].binary_search_by_key(&device, |send| send.to).ok()?;
        Some(sends.start + place)
    }

    pub(super) fn receivers(&self, send: usize) -> &[TaskId] {
        let end = self.sends.get(send + 1).map_or(self.receivers.len(), |next| next.receivers as usize);
        &self.receivers[self.sends[send].receivers as usize..end]
    }

    pub(super) fn local_consumers(&self, datum: DatumId) -> &[TaskId] {
        &self.local[self.first_local[datum.index()] as usize..self.first_local[datum.index() + 1] as usize]
    }

    pub(super) fn device_of(&self, task: TaskId) -> DeviceId {
        self.device_of[task.index()]
    }

    /// The device that does an item.
    pub(super) fn device(&self, item: usize) -> DeviceId {
        match self.task(item) {
            Some(task) => self.device_of(task),
            None => self.sends[item].from,
        }
    }

    /// Time that an item takes on its device.
    pub(super) fn time(&self, item: usize) -> f64 {
        match self.task(item) {
            Some(task) => self.problem.time(task, self.device_of(task)),
            None => self.send_time[self.sends[item].from.index()],
        }
    }

    /// Time that a send takes on `device`.
    pub(super) fn send_time(&self, device: DeviceId) -> f64 {
        self.send_time[device.index()]
    }

    /// Time until `bytes` that are on `from` can be on `to`: that of the send and of the transfer.
    pub(super) fn crossing_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        if from == to { 0.0 } else { self.send_time(from) + self.problem.transfer_time(bytes, from, to) }
    }

    pub(super) fn rank(&self, item: usize) -> f64 {
        self.rank[item]
    }

    pub(super) fn rest(&self, item: usize) -> f64 {
        self.rest[item]
    }
}
