//! Hash: units on devices in turn (Laich 2017, section 4.2).
//!
//! Colocation groups go first, then single tasks, both by id. The hash value of a unit is the number of units placed
//! before it modulo the number of devices. From this device on, the next feasible device with enough free memory takes
//! the unit.
//!
//! Time: `O(V × devices)`, and `O(V)` if every device is feasible.

use super::assignment::Assignment;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// The hash strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hash;

impl Placer for Hash {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let graph = problem.graph();
        let devices: Vec<DeviceId> = problem.platform().device_ids().collect();
        let mut units: Vec<UnitId> = graph.unit_ids().collect();
        units.sort_by_key(|&unit| graph.members(unit).len() == 1);
        let mut assignment = Assignment::new(problem)?;
        for (placed, unit) in units.into_iter().enumerate() {
            let task = graph.members(unit)[0];
            let first = placed % devices.len();
            assignment.place_from(task, &devices, first, Reason::Rule("next device in turn"))?;
        }
        Ok(assignment.finish(self.name(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Task, TaskId};
    use crate::platform::{Device, DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn groups_come_first_and_devices_that_cannot_take_a_unit_are_passed_over() {
        let mut builder = sample::tasks(&[1.0; 4]);
        let gpu = builder.task(Task::new("gpu").with_allowed(DeviceKinds::GPU));
        builder.task(Task::new("large").with_memory(11));
        builder.colocate(TaskId(1), TaskId(3));
        let kinds = [(DeviceKind::Cpu, 10), (DeviceKind::Cpu, 20), (DeviceKind::Gpu, 10)];
        let devices = kinds.map(|(kind, memory)| Device::new("d", kind).with_memory(memory));
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let placement = Hash.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 0, 2, 0, 2, 1].map(DeviceId));
        assert_eq!(placement.reasons[gpu.index()], Reason::OnlyFeasible);
        assert_eq!(placement.reasons[3], Reason::ColocatedWith(TaskId(1)));
    }
}
