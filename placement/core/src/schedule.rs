//! Schedules: device and times of every task and every transfer.

use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::total::Total;
use crate::transfer::{Send, Sends};
use serde::{Deserialize, Serialize};

/// Time of a task on its device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The device.
    pub device: DeviceId,
    /// Start of the task.
    pub start: f64,
    /// End of the task.
    pub end: f64,
}

/// Transfer of one datum to one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TransferSpan {
    /// The datum.
    pub datum: DatumId,
    /// Device that sends the datum.
    pub from: DeviceId,
    /// Device that receives the datum.
    pub to: DeviceId,
    /// Size of the datum.
    pub bytes: u64,
    /// Time when the sending device starts to work on the send.
    pub send_start: f64,
    /// Time when the sending device has finished that work; equal to `send_start` if sends cost nothing.
    pub send_end: f64,
    /// Time when the transfer takes the link; later than `send_end` only if links are contended.
    pub start: f64,
    /// Time when the whole datum has arrived.
    pub end: f64,
}

/// Times of all tasks and transfers under one placement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// Times of the tasks, indexed by [`TaskId`].
    pub tasks: Vec<Span>,
    /// Transfers, sorted by datum, then by target device.
    pub transfers: Vec<TransferSpan>,
    /// All tasks in the order of their starts; each after its predecessors.
    pub order: Vec<TaskId>,
    /// End of the last task; 0 for an empty graph.
    pub makespan: f64,
    /// Bytes of all transfers together.
    pub traffic: u64,
}

impl Schedule {
    /// Builds the schedule of tasks at `spans`, with every transfer as soon as its datum is ready. Of tasks at the same
    /// instant, tasks without duration come first, in topological order.
    pub(crate) fn of_spans(problem: &Problem<'_>, spans: Vec<Span>) -> Self {
        let graph = problem.graph();
        let device_of: Vec<DeviceId> = spans.iter().map(|span| span.device).collect();
        let sends = Sends::of(graph, &device_of);
        let transfers = sends.all().iter().map(|&Send { datum, from, to, bytes }| {
            let start = spans[graph.producer(datum).index()].end;
            let end = start + problem.transfer_time(bytes, from, to);
            TransferSpan { datum, from, to, bytes, send_start: start, send_end: start, start, end }
        });
        let mut order = graph.topological().to_vec();
        order.sort_by_key(|task| (Total(spans[task.index()].start), Total(spans[task.index()].end)));
        Schedule {
            transfers: transfers.collect(),
            order,
            makespan: spans.iter().map(|span| span.end).fold(0.0, f64::max),
            traffic: sends.traffic(),
            tasks: spans,
        }
    }

    /// Returns each device's tasks in the order in which it runs them. `O(tasks)`.
    ///
    /// Devices that follow these orders run without deadlock: together the orders agree with [`Schedule::order`].
    pub fn device_orders(&self, device_count: usize) -> Vec<Vec<TaskId>> {
        let mut orders = vec![Vec::new(); device_count];
        for &task in &self.order {
            if let Some(order) = orders.get_mut(self.tasks[task.index()].device.index()) {
                order.push(task);
            }
        }
        orders
    }

    /// Returns the time that each device spends on tasks and sends.
    pub fn busy(&self, device_count: usize) -> Vec<f64> {
        let mut busy = vec![0.0; device_count];
        let tasks = self.tasks.iter().map(|span| (span.device, span.end - span.start));
        let sends = self.transfers.iter().map(|transfer| (transfer.from, transfer.send_end - transfer.send_start));
        for (device, time) in tasks.chain(sends) {
            if let Some(sum) = busy.get_mut(device.index()) {
                *sum += time;
            }
        }
        busy
    }
}
