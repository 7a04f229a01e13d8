//! Free memory of each device while units are being placed.

use super::PlaceError;
use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Free memory of each device. Memory for units with one feasible device is reserved from the start, so that units with
/// a choice never take it.
pub(crate) struct FreeMemory<'p> {
    problem: &'p Problem<'p>,
    /// Free bytes of each device; `None` means no limit.
    left: Vec<Option<u64>>,
}

impl<'p> FreeMemory<'p> {
    /// Creates empty devices, with memory reserved for units that can be on one device only.
    pub(crate) fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let left = problem.platform().devices().iter().map(|device| device.memory).collect();
        let mut free = FreeMemory { problem, left };
        for unit in problem.graph().unit_ids() {
            if let Some(device) = problem.only_feasible(unit) {
                if !free.holds(unit, device) {
                    return Err(free.refusal(unit));
                }
                free.subtract(unit, device);
            }
        }
        Ok(free)
    }

    /// Whether `unit`, which must have more than one feasible device, still fits onto `device`.
    pub(crate) fn holds(&self, unit: UnitId, device: DeviceId) -> bool {
        self.left[device.index()].is_none_or(|left| self.problem.demand(unit) <= left)
    }

    /// Whether all of `units` fit onto `device`. None of them may have a device yet, and `device` must be feasible for
    /// each.
    pub(crate) fn holds_all(&self, units: &[UnitId], device: DeviceId) -> bool {
        let open = units.iter().filter(|&&unit| self.problem.only_feasible(unit).is_none());
        let needed = open.fold(0, |sum: u64, &unit| sum.saturating_add(self.problem.demand(unit)));
        self.left[device.index()].is_none_or(|left| needed <= left)
    }

    /// Takes the memory of `unit` on `device`, where it must fit. Memory of units with one feasible device is already
    /// reserved.
    pub(crate) fn take(&mut self, unit: UnitId, device: DeviceId) {
        if self.problem.only_feasible(unit).is_none() {
            self.subtract(unit, device);
        }
    }

    /// Returns the bytes in use on `device` and its capacity; `None` if it has no limit.
    pub(crate) fn used(&self, device: DeviceId) -> Option<(u64, u64)> {
        let memory = self.problem.platform().device(device).memory?;
        self.left[device.index()].map(|left| (memory - left, memory))
    }

    /// Returns the error that no feasible device has enough free memory for `unit`.
    pub(crate) fn refusal(&self, unit: UnitId) -> PlaceError {
        let left = |device: DeviceId| self.left[device.index()].unwrap_or(u64::MAX);
        let freest = self.problem.feasible(unit).max_by_key(|&device| left(device)).unwrap_or(DeviceId(0));
        let graph = self.problem.graph();
        let device = self.problem.platform().device(freest);
        PlaceError::InsufficientMemory {
            task: graph.task(graph.members(unit)[0]).name.clone(),
            device: device.name.clone(),
            needed: self.problem.demand(unit),
            available: left(freest),
            memory: device.memory.unwrap_or(u64::MAX),
        }
    }

    fn subtract(&mut self, unit: UnitId, device: DeviceId) {
        if let Some(left) = &mut self.left[device.index()] {
            *left = left.saturating_sub(self.problem.demand(unit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::place::{ListScheduler, Placer};
    use crate::platform::{Device, DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    fn place(tasks: &[(u64, DeviceKinds)]) -> Result<Vec<u32>, PlaceError> {
        let mut builder = GraphBuilder::new();
        for &(memory, kinds) in tasks {
            builder.task(Task::new("t").with_memory(memory).with_allowed(kinds).with_operations(1.0));
        }
        let device = |name, kind, speed| Device::new(name, kind).with_memory(100).with_speed(speed);
        let devices = vec![device("cpu", DeviceKind::Cpu, 1.0), device("gpu", DeviceKind::Gpu, 9.0)];
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        Ok(ListScheduler::HEFT.place(&problem)?.device_of.iter().map(|device| device.0).collect())
    }

    #[test]
    fn what_can_be_on_one_device_only_finds_its_room_there() {
        let (any, gpu) = (DeviceKinds::ALL, DeviceKinds::GPU);
        assert_eq!(place(&[(60, any), (40, any), (60, gpu)]), Ok(vec![0, 1, 1]));
    }

    #[test]
    fn a_refusal_names_task_device_and_bytes() {
        let any = DeviceKinds::ALL;
        let (task, device) = ("t".to_string(), "gpu".to_string());
        let expected = PlaceError::InsufficientMemory { task, device, needed: 60, available: 40, memory: 100 };
        assert_eq!(place(&[(60, any), (60, any), (60, any)]), Err(expected.clone()));
        assert_eq!(place(&[(60, DeviceKinds::GPU), (60, DeviceKinds::GPU)]), Err(expected));
    }
}
