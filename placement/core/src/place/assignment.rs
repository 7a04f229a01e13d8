//! Partial placement: it gives devices to units and reasons to tasks, and tracks memory.

use super::free_memory::FreeMemory;
use super::{PlaceError, Placement, Reason};
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use anabranch_base::interruption;

/// Devices of some of the units.
pub(crate) struct Assignment<'p> {
    problem: &'p Problem<'p>,
    free_memory: FreeMemory<'p>,
    device_of_unit: Vec<Option<DeviceId>>,
    reasons: Vec<Reason>,
}

impl<'p> Assignment<'p> {
    pub(crate) fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        Ok(Assignment {
            problem,
            free_memory: FreeMemory::new(problem)?,
            device_of_unit: vec![None; problem.graph().unit_count()],
            reasons: vec![Reason::OnlyFeasible; problem.graph().task_count()],
        })
    }

    pub(crate) fn device(&self, unit: UnitId) -> Option<DeviceId> {
        self.device_of_unit[unit.index()]
    }

    pub(crate) fn device_of_task(&self, task: TaskId) -> Option<DeviceId> {
        self.device(self.problem.graph().unit(task))
    }

    pub(crate) fn free_memory(&self) -> &FreeMemory<'p> {
        &self.free_memory
    }

    /// Returns the only feasible device of `unit`, if there is just one, with the reason.
    pub(crate) fn forced(&self, unit: UnitId) -> Option<(DeviceId, Reason)> {
        let device = self.problem.only_feasible(unit)?;
        let pinned = self.problem.graph().unit_pinned(unit).is_some();
        Some((device, if pinned { Reason::Pinned } else { Reason::OnlyFeasible }))
    }

    /// Returns the feasible devices with enough free memory for `unit`, ascending; `unit` must have more than one
    /// feasible device.
    pub(crate) fn candidates(&self, unit: UnitId) -> impl Iterator<Item = DeviceId> + '_ {
        self.problem.feasible(unit).filter(move |&device| self.free_memory.holds(unit, device))
    }

    /// Puts the unit of `task` on the first feasible device with enough free memory, in the cyclic order of `devices`
    /// from `first` on.
    ///
    /// # Errors
    /// Where there is none, and as [`Self::assign`].
    pub(crate) fn place_from(
        &mut self,
        task: TaskId,
        devices: &[DeviceId],
        first: usize,
        reason: Reason,
    ) -> Result<(), PlaceError> {
        let unit = self.problem.graph().unit(task);
        if let Some((device, reason)) = self.forced(unit) {
            return self.assign(unit, task, device, reason);
        }
        let device = self.first_with_memory(unit, devices[first..].iter().chain(&devices[..first]))?;
        self.assign(unit, task, device, reason)
    }

    /// Returns the first of `devices` that is feasible for `unit` and has enough free memory.
    ///
    /// # Errors
    /// Returns an error if there is no such device.
    pub(crate) fn first_with_memory<'d>(
        &self,
        unit: UnitId,
        mut devices: impl Iterator<Item = &'d DeviceId>,
    ) -> Result<DeviceId, PlaceError> {
        let takes =
            |device: &&DeviceId| self.problem.is_feasible(unit, **device) && self.free_memory.holds(unit, **device);
        devices.find(takes).copied().ok_or_else(|| self.free_memory.refusal(unit))
    }

    /// Puts `unit` on `device`: `task`, a member of it, for `reason`, and the other members because they follow it.
    ///
    /// # Errors
    /// If the caller wants no placement any more.
    pub(crate) fn assign(
        &mut self,
        unit: UnitId,
        task: TaskId,
        device: DeviceId,
        reason: Reason,
    ) -> Result<(), PlaceError> {
        if interruption::is_due() {
            return Err(PlaceError::Interrupted);
        }
        self.free_memory.take(unit, device);
        self.device_of_unit[unit.index()] = Some(device);
        for &member in self.problem.graph().members(unit) {
            self.reasons[member.index()] = Reason::ColocatedWith(task);
        }
        self.reasons[task.index()] = reason;
        Ok(())
    }

    /// Returns the finished placement. Every unit must have a device.
    pub(crate) fn finish(self, strategy: &'static str, planned: Option<Schedule>) -> Placement {
        let graph = self.problem.graph();
        let device =
            |task| self.device_of_unit[graph.unit(task).index()].expect("the strategy has gone through every unit");
        let device_of = graph.task_ids().map(device).collect();
        Placement { strategy, device_of, reasons: self.reasons, planned }
    }
}
