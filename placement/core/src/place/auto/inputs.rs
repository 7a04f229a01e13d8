//! Inputs of tasks with a table of transfer times, for evaluations that are much cheaper than a simulation.

use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Most times of transfers in the table: sizes of data times pairs of devices.
const MOST_TRANSFERS: usize = 1 << 22;

/// Producers and sizes of the inputs of each task, and the times of all transfers.
pub(super) struct Inputs {
    /// First input of each task in `rows`.
    first: Vec<usize>,
    /// Producer and number of the size of each input.
    rows: Vec<(TaskId, u32)>,
    /// Times by size, sender and receiver.
    transfers: Vec<f64>,
    devices: usize,
}

impl Inputs {
    /// Builds the tables; `None` if they are too large.
    pub(super) fn of(problem: &Problem<'_>) -> Option<Self> {
        let (graph, platform) = (problem.graph(), problem.platform());
        let devices = platform.device_count();
        let mut sizes: Vec<u64> = graph.datum_ids().map(|datum| graph.bytes(datum)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len().saturating_mul(devices * devices) > MOST_TRANSFERS {
            return None;
        }
        let mut transfers = Vec::with_capacity(sizes.len() * devices * devices);
        for &bytes in &sizes {
            for from in platform.device_ids() {
                transfers.extend(platform.device_ids().map(|to| problem.transfer_time(bytes, from, to)));
            }
        }
        let (mut first, mut rows) = (vec![0], Vec::with_capacity(graph.edge_count()));
        for task in graph.task_ids() {
            let size = |bytes: u64| sizes.partition_point(|&other| other < bytes) as u32;
            rows.extend(graph.inputs(task).iter().map(|&datum| (graph.producer(datum), size(graph.bytes(datum)))));
            first.push(rows.len());
        }
        Some(Inputs { first, rows, transfers, devices })
    }

    /// Returns the producer and the number of the size of each input of `task`.
    pub(super) fn of_task(&self, task: TaskId) -> &[(TaskId, u32)] {
        &self.rows[self.first[task.index()]..self.first[task.index() + 1]]
    }

    /// Returns the time of a transfer by the number of its size.
    pub(super) fn transfer(&self, size: u32, from: DeviceId, to: DeviceId) -> f64 {
        self.transfers[(size as usize * self.devices + from.index()) * self.devices + to.index()]
    }
}
