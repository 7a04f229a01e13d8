//! CP: the critical path on the fastest device, the rest where least is to do (Laich 2017, section 4.6).
//!
//! The critical path is that of upward ranks. Its units go to the fastest feasible device with room; every other unit to the
//! feasible device that then has the smallest load, where a device's load is the time of all that is assigned to it
//! (equation 4.5).
//!
//! Where the text leaves a choice: *fastest* is judged on the whole path, so that a path stays together where every task has
//! times of its own; the load includes the unit in hand, without which an expensive unit would go to a device that is bad at it
//! only because that has had little to do; units off the path go by decreasing work, without which the many cheap ones would
//! gather on slow devices, which then spend their time on sends.
//!
//! Time: `O(V log V + E + V × devices)`.

use super::assignment::Assignment;
use super::reason::Best;
use super::slowness::fastest_first;
use super::{LoadOn, PlaceError, Placement, Placer, Reason};
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{critical_path, upward_ranks};

/// The CP strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct CriticalPath;

impl Placer for CriticalPath {
    fn name(&self) -> &'static str {
        "cp"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let ranks = upward_ranks(problem);
        let path = critical_path(problem, &ranks);
        let mut state = State::new(problem)?;
        state.place_path(&path)?;
        for unit in by_decreasing_work(problem) {
            state.place_by_load(unit)?;
        }
        Ok(state.assignment.finish(self.name(), None))
    }
}

fn by_decreasing_work(problem: &Problem<'_>) -> Vec<UnitId> {
    let graph = problem.graph();
    let work = |unit| graph.members(unit).iter().map(|&task| problem.work(task)).sum();
    let work: Vec<f64> = graph.unit_ids().map(work).collect();
    let mut units: Vec<UnitId> = graph.unit_ids().collect();
    units.sort_by(|one, other| work[other.index()].total_cmp(&work[one.index()]));
    units
}

struct State<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    load: Vec<f64>,
}

impl<'p> State<'p> {
    fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let load = vec![0.0; problem.platform().device_count()];
        Ok(State { problem, assignment: Assignment::new(problem)?, load })
    }

    fn place_path(&mut self, path: &[TaskId]) -> Result<(), PlaceError> {
        let units: Vec<UnitId> = path.iter().map(|&task| self.problem.graph().unit(task)).collect();
        let devices = fastest_first(self.problem, &units);
        for (&task, &unit) in path.iter().zip(&units) {
            if self.assignment.device(unit).is_some() {
                continue;
            }
            let (device, reason) = match self.assignment.forced(unit) {
                Some(forced) => forced,
                None => (self.first_with_room(&devices, unit)?, Reason::CriticalPath),
            };
            self.assign(unit, task, device, reason);
        }
        Ok(())
    }

    fn first_with_room(&self, devices: &[DeviceId], unit: UnitId) -> Result<DeviceId, PlaceError> {
        let room = self.assignment.room();
        let takes = |&device: &DeviceId| self.problem.is_feasible(unit, device) && room.holds(unit, device);
        devices.iter().copied().find(takes).ok_or_else(|| room.refusal(unit))
    }

    fn place_by_load(&mut self, unit: UnitId) -> Result<(), PlaceError> {
        let task = self.problem.graph().members(unit)[0];
        if self.assignment.device(unit).is_some() {
            return Ok(());
        }
        if let Some((device, reason)) = self.assignment.forced(unit) {
            self.assign(unit, task, device, reason);
            return Ok(());
        }
        let mut best = Best::new();
        for device in self.assignment.candidates(unit) {
            let load = self.load[device.index()] + self.problem.unit_time(unit, device);
            best.offer(LoadOn { device, load }, |one, other| one.load < other.load);
        }
        let Some(&LoadOn { device, .. }) = best.first() else {
            return Err(self.assignment.room().refusal(unit));
        };
        self.assign(unit, task, device, Reason::LeastLoaded(best.into_list()));
        Ok(())
    }

    fn assign(&mut self, unit: UnitId, task: TaskId, device: DeviceId, reason: Reason) {
        self.load[device.index()] += self.problem.unit_time(unit, device);
        self.assignment.assign(unit, task, device, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::cost::OperationsOverSpeed;
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn the_path_takes_the_fastest_device_and_the_rest_the_least_loaded() {
        let graph = sample::graph(&[4.0, 8.0, 3.0, 4.0, 4.0], &[(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1)]);
        let platform = sample::platform(&[1.0, 4.0]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let placement = CriticalPath.place(&problem).unwrap();
        // The path has 16 operations. The lone task of 4 comes first: 4 on the slow device, 5 on the fast one. Task 2 of 3 then
        // finds 7 and 4.75.
        assert_eq!(placement.device_of, [1, 1, 1, 1, 0].map(DeviceId));
        let loads = [(1, 4.75), (0, 7.0)].map(|(device, load)| LoadOn { device: DeviceId(device), load });
        assert_eq!(placement.reasons[1], Reason::CriticalPath);
        assert_eq!(placement.reasons[2], Reason::LeastLoaded(loads.to_vec()));
    }

    /// One task of the path is a little faster elsewhere; the path does not change devices for it.
    #[test]
    fn a_path_stays_together_where_each_task_has_times_of_its_own() {
        let graph = sample::graph(&[0.0; 3], &[(0, 1, 1), (1, 2, 1)]);
        let platform = sample::platform(&[1.0, 1.0]);
        let times = [[9.0, 1.0], [1.0, 1.1], [9.0, 1.0]];
        let costs =
            CostTable::from_fn(&graph, &platform, |task, device| Some(times[task.index()][device.index()])).unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        assert_eq!(CriticalPath.place(&problem).unwrap().device_of, [DeviceId(1); 3]);
    }
}
