//! Memory that every device holds over the time of a schedule.

use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use serde::Serialize;

/// Memory that a device holds from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryLevel {
    /// The moment.
    pub time: f64,
    /// Bytes; saturates at `u64::MAX`.
    pub bytes: u64,
}

/// Returns the memory of each device over time: by device, then ascending in time, from 0 on. The problem's memory rule
/// is ignored.
///
/// A task's resident memory is always on its device. On its producer's device a datum stays from the producer's start
/// until its last consumer there and its last transfer have ended. On another device it stays from its transfer's start
/// to the end of its last consumer there. A datum without consumers is a result and stays. A datum that is on a device
/// for no time does not count. `O((V + E) log (V + E))`, plus each datum's consumers once for each device that receives
/// it.
pub fn memory_over_time(problem: &Problem<'_>, schedule: &Schedule) -> Vec<Vec<MemoryLevel>> {
    let mut changes = Changes { by_device: vec![Vec::new(); problem.platform().device_count()] };
    for (task, span) in problem.graph().tasks().iter().zip(&schedule.tasks) {
        changes.add(span.device, 0.0, f64::INFINITY, task.memory);
    }
    add_data(problem, schedule, &mut changes);
    changes.by_device.into_iter().map(sum).collect()
}

/// Allocations (positive) and releases (negative), with their times.
struct Changes {
    by_device: Vec<Vec<(f64, i128)>>,
}

impl Changes {
    fn add(&mut self, device: DeviceId, from: f64, to: f64, bytes: u64) {
        if bytes > 0 && to > from {
            let changes = &mut self.by_device[device.index()];
            changes.extend([(from, i128::from(bytes)), (to, -i128::from(bytes))]);
        }
    }
}

fn add_data(problem: &Problem<'_>, schedule: &Schedule, changes: &mut Changes) {
    let graph = problem.graph();
    let mut transfers = schedule.transfers.iter().peekable();
    for datum in graph.datum_ids() {
        let (bytes, produced) = (graph.bytes(datum), schedule.tasks[graph.producer(datum).index()]);
        let last_use = |device| {
            let spans = graph.consumers(datum).iter().map(|consumer| schedule.tasks[consumer.index()]);
            spans.filter(|span| span.device == device).map(|span| span.end).fold(0.0, f64::max)
        };
        let mut needed = last_use(produced.device);
        while let Some(transfer) = transfers.next_if(|transfer| transfer.datum == datum) {
            needed = needed.max(transfer.end);
            changes.add(transfer.to, transfer.start, last_use(transfer.to), bytes);
        }
        let is_result = graph.consumers(datum).is_empty();
        changes.add(produced.device, produced.start, if is_result { f64::INFINITY } else { needed }, bytes);
    }
}

/// Accumulates the changes; returns one entry for each finite moment with a change.
fn sum(mut changes: Vec<(f64, i128)>) -> Vec<MemoryLevel> {
    changes.retain(|(time, _)| time.is_finite());
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut held = vec![MemoryLevel { time: 0.0, bytes: 0 }];
    let mut sum = 0;
    for moment in changes.chunk_by(|one, other| one.0 == other.0) {
        sum += moment.iter().map(|(_, bytes)| bytes).sum::<i128>();
        let bytes = u64::try_from(sum).unwrap_or(u64::MAX);
        match held.last_mut().filter(|last| last.time == moment[0].0) {
            Some(last) => last.bytes = bytes,
            None => held.push(MemoryLevel { time: moment[0].0, bytes }),
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::graph::{GraphBuilder, Task};
    use crate::order::Pct;
    use crate::platform::{Device, DeviceKind, Platform};
    use crate::problem::MemoryRule;
    use crate::simulate::simulate;

    /// Tasks a (0 to 2) and b (2 to 5) are on device 0. Task c on device 1 reads a's datum from 4 on, after a transfer
    /// from 2 to 4.
    #[test]
    fn data_are_held_from_their_production_to_their_last_use() {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = [(2.0, 5), (3.0, 0), (1.0, 7)]
            .map(|(work, memory)| builder.task(Task::new("t").with_operations(work).with_memory(memory)));
        let datum = builder.datum(a, 100);
        builder.consume(datum, b);
        builder.consume(datum, c);
        builder.datum(b, 1000);
        let graph = builder.build().unwrap();
        let platform = Platform::uniform(vec![Device::new("d", DeviceKind::Cpu); 2], 0.0, 50.0).unwrap();
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let schedule = simulate(&problem, &[0, 0, 1].map(DeviceId), &Pct).unwrap();
        let found: Vec<Vec<(f64, u64)>> = memory_over_time(&problem, &schedule)
            .iter()
            .map(|device| device.iter().map(|held| (held.time, held.bytes)).collect())
            .collect();
        assert_eq!(found[0], [(0.0, 105), (2.0, 1105), (5.0, 1005)]);
        assert_eq!(found[1], [(0.0, 7), (2.0, 107), (5.0, 7)]);
    }
}
