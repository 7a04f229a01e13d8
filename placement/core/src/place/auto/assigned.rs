//! Complete placement with the free memory of each device.

use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Device of every task, and the free bytes of each device.
#[derive(Clone)]
pub(super) struct Assigned<'p> {
    problem: &'p Problem<'p>,
    device_of: Vec<DeviceId>,
    /// Free bytes by device, negative beyond its memory; `None` means no limit.
    left: Vec<Option<i128>>,
    /// Bytes beyond the memories of all devices.
    excess: i128,
}

impl<'p> Assigned<'p> {
    /// Starts from `device_of`, which must keep all constraints.
    pub(super) fn new(problem: &'p Problem<'p>, device_of: Vec<DeviceId>) -> Self {
        let left = problem.platform().devices().iter().map(|device| device.memory.map(i128::from)).collect();
        let mut assigned = Assigned { problem, device_of, left, excess: 0 };
        for unit in problem.graph().unit_ids() {
            let device = assigned.device(unit);
            assigned.take(device, problem.demand(unit).into());
        }
        assigned
    }

    /// Puts `unit` on `to`, which must [admit](Assigned::admits) it.
    pub(super) fn move_unit(&mut self, unit: UnitId, to: DeviceId) {
        let demand = i128::from(self.problem.demand(unit));
        self.take(self.device(unit), -demand);
        self.take(to, demand);
        for &member in self.problem.graph().members(unit) {
            self.device_of[member.index()] = to;
        }
    }

    /// Takes bytes of a device, or gives them back.
    fn take(&mut self, device: DeviceId, bytes: i128) {
        if let Some(left) = &mut self.left[device.index()] {
            let before = (-*left).max(0);
            *left -= bytes;
            self.excess += (-*left).max(0) - before;
        }
    }

    /// Returns the bytes beyond the memories of all devices.
    pub(super) fn excess(&self) -> i128 {
        self.excess
    }

    /// Copies `other` into the memory of this value.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.device_of.clone_from(&other.device_of);
        self.left.clone_from(&other.left);
        self.excess = other.excess;
    }

    /// Whether all of `units` may be on `to` together with the units there.
    pub(super) fn admits(&self, units: &[UnitId], to: DeviceId) -> bool {
        let comes = |unit: &&UnitId| self.device(**unit) != to;
        let needed: i128 = units.iter().filter(comes).map(|&unit| i128::from(self.problem.demand(unit))).sum();
        self.are_feasible(units, to) && self.left[to.index()].is_none_or(|left| needed <= left)
    }

    /// Whether all of `units` may be on `to`, without regard to memory.
    pub(super) fn are_feasible(&self, units: &[UnitId], to: DeviceId) -> bool {
        units.iter().all(|&unit| self.problem.is_feasible(unit, to))
    }

    /// Whether `one` and `other` may exchange their devices, without regard to memory.
    pub(super) fn may_exchange(&self, one: UnitId, other: UnitId) -> bool {
        let (here, there) = (self.device(one), self.device(other));
        here != there && self.problem.is_feasible(one, there) && self.problem.is_feasible(other, here)
    }

    /// Exchanges the devices of two units.
    pub(super) fn exchange(&mut self, one: UnitId, other: UnitId) {
        let (here, there) = (self.device(one), self.device(other));
        self.move_unit(one, there);
        self.move_unit(other, here);
    }

    pub(super) fn device(&self, unit: UnitId) -> DeviceId {
        self.device_of[self.problem.graph().members(unit)[0].index()]
    }

    /// Returns the device of each task, by task id.
    pub(super) fn device_of(&self) -> &[DeviceId] {
        &self.device_of
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
    fn memory_moves_with_units() {
        let mut builder = sample::tasks(&[]);
        for memory in [30, 40, 50] {
            builder.task(Task::new("t").with_memory(memory));
        }
        builder.task(Task::new("cpu").with_allowed(DeviceKinds::CPU));
        builder.colocate(TaskId(0), TaskId(1));
        let device = |kind| Device::new("d", kind).with_memory(100);
        let loaded = sample::on(
            builder.build().unwrap(),
            [device(DeviceKind::Cpu), device(DeviceKind::Gpu)],
            MemoryRule::Resident,
        );
        let problem = loaded.problem().unwrap();
        let mut assigned = Assigned::new(&problem, [0, 0, 1, 0].map(DeviceId).to_vec());
        let (pair, single, cpu) = (UnitId(0), UnitId(1), UnitId(2));
        assert!(!assigned.admits(&[single], DeviceId(0)), "70 of 100 are taken");
        assert!(!assigned.admits(&[cpu], DeviceId(1)), "kinds");
        assert!(assigned.admits(&[pair], DeviceId(0)), "it is there");
        assert!(!assigned.admits(&[pair], DeviceId(1)));
        assigned.move_unit(single, DeviceId(1));
        assert!(!assigned.admits(&[pair, single], DeviceId(1)));
        assert!(!assigned.may_exchange(pair, cpu), "one device");
        assigned.move_unit(pair, DeviceId(1));
        assert_eq!((assigned.excess(), assigned.are_feasible(&[pair], DeviceId(1))), (20, true), "70 and 50 of 100");
        assigned.exchange(pair, cpu);
        assert_eq!((assigned.excess(), assigned.device(cpu)), (0, DeviceId(1)), "kinds are not checked here");
        assigned.exchange(pair, cpu);
        assigned.move_unit(pair, DeviceId(0));
        let mut other = assigned.clone();
        other.move_unit(cpu, DeviceId(0));
        assigned.copy_from(&other);
        assert_eq!(assigned.device_of(), [0, 0, 1, 0].map(DeviceId));
    }
}
