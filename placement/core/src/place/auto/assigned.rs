//! Complete placement with the free memory of each device.

use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Device of every task, and the free bytes of each device.
#[derive(Clone)]
pub(super) struct Assigned<'p> {
    problem: &'p Problem<'p>,
    device_of: Vec<DeviceId>,
    /// Free bytes by device; `None` means no limit.
    left: Vec<Option<u64>>,
}

impl<'p> Assigned<'p> {
    /// Starts from `device_of`, which must keep all constraints.
    pub(super) fn new(problem: &'p Problem<'p>, device_of: Vec<DeviceId>) -> Self {
        let left = problem.platform().devices().iter().map(|device| device.memory).collect();
        let mut assigned = Assigned { problem, device_of, left };
        for unit in problem.graph().unit_ids() {
            let device = assigned.device(unit);
            assigned.change(device, |left| left.saturating_sub(problem.demand(unit)));
        }
        assigned
    }

    /// Puts `unit` on `to`, which must [admit](Assigned::admits) it.
    pub(super) fn move_unit(&mut self, unit: UnitId, to: DeviceId) {
        let demand = self.problem.demand(unit);
        self.change(self.device(unit), |left| left.saturating_add(demand));
        self.change(to, |left| left.saturating_sub(demand));
        for &member in self.problem.graph().members(unit) {
            self.device_of[member.index()] = to;
        }
    }

    fn change(&mut self, device: DeviceId, change: impl Fn(u64) -> u64) {
        if let Some(left) = &mut self.left[device.index()] {
            *left = change(*left);
        }
    }

    /// Copies `other` into the memory of this value.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.device_of.clone_from(&other.device_of);
        self.left.clone_from(&other.left);
    }

    /// Whether all of `units` may be on `to` together with the units there.
    pub(super) fn admits(&self, units: &[UnitId], to: DeviceId) -> bool {
        let mut needed: u64 = 0;
        for &unit in units {
            if !self.problem.is_feasible(unit, to) {
                return false;
            }
            if self.device(unit) != to {
                needed = needed.saturating_add(self.problem.demand(unit));
            }
        }
        self.left[to.index()].is_none_or(|left| needed <= left)
    }

    /// Exchanges the devices of two units; returns whether each is feasible and fits there.
    pub(super) fn exchange(&mut self, one: UnitId, other: UnitId) -> bool {
        let (here, there) = (self.device(one), self.device(other));
        let demand = |unit| self.problem.demand(unit);
        // Sums are in order of what leaves first, because both units together may not fit.
        let after = |device: DeviceId, leaves: u64, comes: u64| match self.left[device.index()] {
            None => Some(None),
            Some(left) => left.saturating_add(leaves).checked_sub(comes).map(Some),
        };
        let (Some(left), Some(right)) =
            (after(here, demand(one), demand(other)), after(there, demand(other), demand(one)))
        else {
            return false;
        };
        if here == there || !self.problem.is_feasible(one, there) || !self.problem.is_feasible(other, here) {
            return false;
        }
        (self.left[here.index()], self.left[there.index()]) = (left, right);
        for (unit, to) in [(one, there), (other, here)] {
            for &member in self.problem.graph().members(unit) {
                self.device_of[member.index()] = to;
            }
        }
        true
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
        assert!(!assigned.exchange(pair, cpu) && assigned.device(pair) == DeviceId(0), "one device");
        let mut other = assigned.clone();
        other.move_unit(cpu, DeviceId(0));
        assigned.copy_from(&other);
        assert_eq!(assigned.device_of(), [0, 0, 1, 0].map(DeviceId));
    }
}
