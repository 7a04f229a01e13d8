//! Memory left on each device while units are being placed.

use super::PlaceError;
use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// What each device has left. Units with one feasible device have their room set aside from the start, so that what could go
/// anywhere never takes it.
pub(crate) struct Room<'p> {
    problem: &'p Problem<'p>,
    /// `None` where there is no limit.
    left: Vec<Option<u64>>,
}

impl<'p> Room<'p> {
    /// Empty devices but for the room of units that can be on one device only.
    pub(crate) fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let left = problem.platform().devices().iter().map(|device| device.memory).collect();
        let mut room = Room { problem, left };
        for unit in problem.graph().unit_ids() {
            if let Some(device) = problem.only_feasible(unit) {
                if !room.holds(unit, device) {
                    return Err(room.refusal(unit));
                }
                room.subtract(unit, device);
            }
        }
        Ok(room)
    }

    /// Whether `unit`, which must have more than one feasible device, still fits onto `device`.
    pub(crate) fn holds(&self, unit: UnitId, device: DeviceId) -> bool {
        self.left[device.index()].is_none_or(|left| self.problem.demand(unit) <= left)
    }

    /// Takes the room of `unit` on `device`, where it must fit; that of units with one feasible device is taken already.
    pub(crate) fn take(&mut self, unit: UnitId, device: DeviceId) {
        if self.problem.only_feasible(unit).is_none() {
            self.subtract(unit, device);
        }
    }

    /// Bytes in use on `device` of all that it has; `None` where there is no limit.
    pub(crate) fn used(&self, device: DeviceId) -> Option<(u64, u64)> {
        let memory = self.problem.platform().device(device).memory?;
        self.left[device.index()].map(|left| (memory - left, memory))
    }

    /// The error that says that no feasible device has room for `unit`.
    pub(crate) fn refusal(&self, unit: UnitId) -> PlaceError {
        let left = |device: DeviceId| self.left[device.index()].unwrap_or(u64::MAX);
        let roomiest = self.problem.feasible(unit).max_by_key(|&device| left(device)).unwrap_or(DeviceId(0));
        let graph = self.problem.graph();
        let device = self.problem.platform().device(roomiest);
        PlaceError::NoRoom {
            task: graph.task(graph.members(unit)[0]).name.clone(),
            device: device.name.clone(),
            needed: self.problem.demand(unit),
            available: left(roomiest),
            memory: device.memory.unwrap_or(u64::MAX),
        }
    }

    fn subtract(&mut self, unit: UnitId, device: DeviceId) {
        if let Some(left) = &mut self.left[device.index()] {
            *left = left.saturating_sub(self.problem.demand(unit));
        }
    }
}
