//! Heads and tails: how early a task can end on a device, and how long it then still takes at least.
//!
//! *Head*: `h(t, d)` is the time of `t` on `d` plus the latest arrival of its inputs there. A datum of producer `p` arrives no
//! earlier than the least, over the devices `e` where `p` may be, of `h(p, e)` plus the transfer from `e` to `d`; where `p` must
//! share its device with `t`, `e` is `d`. By induction along the graph, no schedule that has `t` on `d` ends it before `h(t, d)`.
//!
//! *Tail*: `q(t, d)` is the same from behind: for each consumer `c` of each output the least, over its devices `e`, of the
//! transfer from `d` to `e`, the time of `c` there, and `q(c, e)`; of these the greatest. No schedule that has `t` on `d` ends
//! less than `q(t, d)` after `t` does.
//!
//! *Bound*: the members of an assignment unit share a device. On `d` the makespan is at least `h(t, d) + q(t, d)` for each
//! member `t`, and at least the least start of a member, the sum of the members' times and the least tail of a member. A unit is on
//! the device that is best for it at least, and the makespan is at least what the worst unit needs.

use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Heads and tails of every task on every device; infinite where a task cannot be.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    devices: usize,
    heads: Vec<f64>,
    tails: Vec<f64>,
}

impl Paths {
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        Paths { devices: problem.platform().device_count(), heads: heads(problem), tails: tails(problem) }
    }

    /// The earliest end of `task` on `device`.
    pub(crate) fn head(&self, task: TaskId, device: DeviceId) -> f64 {
        self.heads[task.index() * self.devices + device.index()]
    }

    /// The least time from the end of `task` on `device` to the end of everything.
    pub(crate) fn tail(&self, task: TaskId, device: DeviceId) -> f64 {
        self.tails[task.index() * self.devices + device.index()]
    }

    /// The bound of the module's documentation.
    pub(super) fn bound(&self, problem: &Problem<'_>) -> f64 {
        let graph = problem.graph();
        let on_device = |members: &[TaskId], device: DeviceId| {
            let (mut longest, mut start, mut sum, mut rest) = (0.0f64, f64::INFINITY, 0.0, f64::INFINITY);
            for &task in members {
                let (time, head, tail) = (problem.time(task, device), self.head(task, device), self.tail(task, device));
                longest = longest.max(head + tail);
                (start, sum, rest) = (start.min(head - time), sum + time, rest.min(tail));
            }
            longest.max(start + sum + rest)
        };
        let of_unit = |unit| {
            problem.feasible(unit).map(|device| on_device(graph.members(unit), device)).fold(f64::INFINITY, f64::min)
        };
        graph.unit_ids().map(of_unit).fold(0.0, f64::max)
    }
}

/// Goes forward; the entry of a task holds the latest arrival of its inputs until its own time is added.
fn heads(problem: &Problem<'_>) -> Vec<f64> {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let mut heads = vec![0.0; graph.task_count() * devices];
    let mut arrivals = vec![0.0; devices];
    for &task in graph.topological() {
        let row = task.index() * devices;
        for device in problem.platform().device_ids() {
            let feasible = problem.is_feasible(graph.unit(task), device);
            let head = &mut heads[row + device.index()];
            *head = if feasible { *head + problem.time(task, device) } else { f64::INFINITY };
        }
        let nearest = by_value(&heads[row..row + devices]);
        for &datum in graph.outputs(task) {
            arrive(problem, datum, &nearest, &heads[row..row + devices], &mut arrivals);
            for &consumer in graph.consumers(datum) {
                let together = graph.unit(consumer) == graph.unit(task);
                for device in 0..devices {
                    let arrival = if together { heads[row + device] } else { arrivals[device] };
                    let start = &mut heads[consumer.index() * devices + device];
                    *start = start.max(arrival);
                }
            }
        }
    }
    heads
}

/// The finite values, ascending, with their devices.
fn by_value(values: &[f64]) -> Vec<(f64, DeviceId)> {
    let ids = (0..).map(DeviceId);
    let mut sorted: Vec<(f64, DeviceId)> =
        values.iter().copied().zip(ids).filter(|(value, _)| value.is_finite()).collect();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    sorted
}

/// When `datum` can be on each device at the earliest. `nearest` are its producer's heads, ascending: the search ends where a head
/// alone is no better than what has been found.
fn arrive(problem: &Problem<'_>, datum: DatumId, nearest: &[(f64, DeviceId)], heads: &[f64], arrivals: &mut [f64]) {
    let bytes = problem.graph().bytes(datum);
    for (to, arrival) in problem.platform().device_ids().zip(arrivals) {
        let mut best = heads[to.index()];
        for &(head, from) in nearest {
            if head >= best {
                break;
            }
            best = best.min(head + problem.transfer_time(bytes, from, to));
        }
        *arrival = best;
    }
}

/// Goes backward. Behind a task lies the best of its consumer's times and tails, over all devices, after a transfer.
fn tails(problem: &Problem<'_>) -> Vec<f64> {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let mut tails = vec![0.0f64; graph.task_count() * devices];
    let mut rest = vec![0.0; devices];
    for &task in graph.topological().iter().rev() {
        let row = task.index() * devices;
        for device in problem.platform().device_ids() {
            let feasible = problem.is_feasible(graph.unit(task), device);
            let tail = &mut tails[row + device.index()];
            *tail = if feasible { *tail } else { f64::INFINITY };
            rest[device.index()] = *tail + problem.time(task, device);
        }
        let nearest = by_value(&rest);
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let together = graph.unit(producer) == graph.unit(task);
            for from in problem.platform().device_ids() {
                let mut best = rest[from.index()];
                for &(behind, to) in nearest.iter().take_while(|_| !together) {
                    if behind >= best {
                        break;
                    }
                    best = best.min(behind + problem.transfer_time(graph.bytes(datum), from, to));
                }
                let tail = &mut tails[producer.index() * devices + from.index()];
                *tail = tail.max(best);
            }
        }
    }
    tails
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind, DeviceKinds, Platform};
    use crate::problem::MemoryRule;

    /// CPU → GPU → CPU by constraint, with a transfer of 1 for each 10 bytes; the third task takes longer on the second CPU.
    #[test]
    fn transfers_that_cannot_be_avoided_count() {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = [DeviceKinds::CPU, DeviceKinds::GPU, DeviceKinds::CPU]
            .map(|kinds| builder.task(Task::new("t").with_allowed(kinds)));
        builder.edge(a, b, 10);
        builder.edge(b, c, 20);
        let graph = builder.build().unwrap();
        let kinds = [DeviceKind::Cpu, DeviceKind::Cpu, DeviceKind::Gpu];
        let devices = kinds.map(|kind| Device::new("d", kind)).to_vec();
        let platform = Platform::uniform(devices, 0.0, 10.0).unwrap();
        let costs = CostTable::from_fn(&graph, &platform, |task, device| {
            Some(f64::from(task.0 + 1) * if device.0 == 1 { 2.0 } else { 1.0 })
        });
        let costs = costs.unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let paths = Paths::new(&problem);
        let gpu = DeviceId(2);
        assert_eq!((paths.head(a, DeviceId(1)), paths.head(a, gpu)), (2.0, f64::INFINITY));
        assert_eq!((paths.head(b, gpu), paths.tail(b, gpu)), (1.0 + 1.0 + 2.0, 2.0 + 3.0));
        assert_eq!((paths.head(c, DeviceId(1)), paths.tail(c, DeviceId(1))), (4.0 + 2.0 + 6.0, 0.0));
        assert_eq!(paths.bound(&problem), 9.0);
    }

    #[test]
    fn colocated_tasks_come_one_after_the_other() {
        let mut builder = GraphBuilder::new();
        let tasks = [(); 5].map(|()| builder.task(Task::new("t")));
        for &middle in &tasks[1..4] {
            builder.edge(tasks[0], middle, 0);
            builder.edge(middle, tasks[4], 0);
            builder.colocate(tasks[1], middle);
        }
        let graph = builder.build().unwrap();
        let platform = Platform::uniform(vec![Device::new("d", DeviceKind::Cpu); 3], 0.0, 1.0).unwrap();
        let costs = CostTable::from_fn(&graph, &platform, |_, _| Some(2.0)).unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        assert_eq!(Paths::new(&problem).bound(&problem), 2.0 + 3.0 * 2.0 + 2.0);
    }
}
