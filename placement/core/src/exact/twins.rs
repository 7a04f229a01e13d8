//! Devices that are identical in everything that a problem knows about them.

use crate::platform::DeviceId;
use crate::problem::Problem;

/// Returns the first twin of each device; the device itself if no earlier device is its twin.
///
/// Two devices are twins if they have equal task times, equal feasible units and equal memory. Every datum must also
/// take as long between either of them and a third device, and between the two in both directions. Exchanging twins in
/// a schedule then gives a schedule of equal makespan.
pub(super) fn first_twins(problem: &Problem<'_>) -> Vec<DeviceId> {
    let mut sizes: Vec<u64> = problem.graph().datum_ids().map(|datum| problem.graph().bytes(datum)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut groups: Vec<Vec<DeviceId>> = Vec::new();
    let mut firsts = Vec::new();
    for device in problem.platform().device_ids() {
        // The device must be a twin of all in a group, because links within the group must be identical too.
        let fits = |group: &&mut Vec<DeviceId>| group.iter().all(|&member| are_twins(problem, &sizes, member, device));
        match groups.iter_mut().find(fits) {
            Some(group) => {
                firsts.push(group[0]);
                group.push(device);
            }
            None => {
                firsts.push(device);
                groups.push(vec![device]);
            }
        }
    }
    firsts
}

fn are_twins(problem: &Problem<'_>, sizes: &[u64], one: DeviceId, other: DeviceId) -> bool {
    let (graph, platform) = (problem.graph(), problem.platform());
    let third = |device: &DeviceId| *device != one && *device != other;
    platform.device(one).memory == platform.device(other).memory
        && graph.task_ids().all(|task| problem.time(task, one) == problem.time(task, other))
        && graph.unit_ids().all(|unit| problem.is_feasible(unit, one) == problem.is_feasible(unit, other))
        && sizes.iter().all(|&bytes| {
            let time = |from, to| problem.transfer_time(bytes, from, to);
            time(one, other) == time(other, one)
                && platform
                    .device_ids()
                    .filter(third)
                    .all(|third| time(one, third) == time(other, third) && time(third, one) == time(third, other))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind, Platform};
    use crate::problem::MemoryRule;

    #[test]
    fn only_devices_that_are_alike_are_twins() {
        let mut builder = GraphBuilder::new();
        let [a, b] = ["a", "b"].map(|name| builder.task(Task::new(name)));
        builder.edge(a, b, 10);
        let graph = builder.build().unwrap();
        let devices = vec![Device::new("d", DeviceKind::Cpu); 5];
        // Device 3 is slower, and so is the link between 0 and 4.
        let rate = |from: u32, to: u32| if from.min(to) == 0 && from.max(to) == 4 { 1.0 } else { 2.0 };
        let platform = Platform::new(devices, |from, to| (0.0, rate(from.0, to.0))).unwrap();
        let time = |device: DeviceId| Some(if device.0 == 3 { 2.0 } else { 1.0 });
        let costs = CostTable::from_fn(&graph, &platform, |_, device| time(device)).unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        // Devices 0 and 4 are twins: their link is slow in both directions, and their links to all others are equal.
        assert_eq!(first_twins(&problem), [0, 1, 1, 3, 0].map(DeviceId));
    }
}
