//! CP: the critical path on the fastest device, other units on the least loaded device (Laich 2017, section 4.6).
//!
//! The critical path is that of upward ranks. Its units go to the fastest feasible device with enough free memory.
//! Every other unit goes to the feasible device with the smallest load: the time of everything assigned to the device
//! (equation 4.5).
//!
//! Choices that the text leaves open: *fastest* refers to the whole path, so that a path stays together if each task
//! has different times. Units off the path go in topological order. Of equal loads, the device with the least time of
//! the unit is taken. The load excludes the current unit, as in the text. Some fifty orders were tried on the thesis'
//! three graphs, and this one was chosen there. On 21 other problems one of three other orders was better in 14 cases,
//! by at most 7 % (`bench/PLACEMENT.md`).
//!
//! Time: `O(E + V × devices)`.

use super::assignment::Assignment;
use super::reason::Best;
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason, ScoreOn};
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
        for &task in problem.graph().topological() {
            state.place_by_load(task)?;
        }
        Ok(state.assignment.finish(self.name(), None))
    }
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
                None => (self.assignment.first_with_memory(unit, devices.iter())?, Reason::CRITICAL_PATH),
            };
            self.assign(unit, task, device, reason)?;
        }
        Ok(())
    }

    fn place_by_load(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let unit = self.problem.graph().unit(task);
        if self.assignment.device(unit).is_some() {
            return Ok(());
        }
        if let Some((device, reason)) = self.assignment.forced(unit) {
            return self.assign(unit, task, device, reason);
        }
        let mut best = Best::new();
        for device in self.assignment.candidates(unit) {
            let load = ScoreOn { device, score: self.load[device.index()] };
            best.offer((load, self.problem.unit_time(unit, device)), |one, other| {
                one.0.score.total_cmp(&other.0.score).then(one.1.total_cmp(&other.1)).is_lt()
            });
        }
        let loads: Vec<ScoreOn> = best.into_list(|(load, _)| load);
        let device = loads.first().ok_or_else(|| self.assignment.free_memory().refusal(unit))?.device;
        self.assign(unit, task, device, Reason::LeastLoaded(loads))
    }

    fn assign(&mut self, unit: UnitId, task: TaskId, device: DeviceId, reason: Reason) -> Result<(), PlaceError> {
        self.load[device.index()] += self.problem.unit_time(unit, device);
        self.assignment.assign(unit, task, device, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_path_takes_the_fastest_device_and_the_rest_the_least_loaded() {
        let loaded = sample::problem(
            sample::graph(&[4.0, 8.0, 3.0, 4.0, 4.0], &[(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1)]),
            &[1.0, 4.0, 2.0],
        );
        let problem = loaded.problem().unwrap();
        let placement = CriticalPath.place(&problem).unwrap();
        // The path has 16 operations, 4 of them pinned. Of the two devices without load, task 2 takes the faster one.
        assert_eq!(placement.device_of, [1, 1, 2, 1, 0].map(DeviceId));
        let loads = |loads: [(u32, f64); 3]| {
            let loads = loads.map(|(device, score)| ScoreOn { device: DeviceId(device), score });
            Reason::LeastLoaded(loads.to_vec())
        };
        assert_eq!(placement.reasons[1], Reason::CRITICAL_PATH);
        assert_eq!(placement.reasons[2], loads([(2, 0.0), (0, 0.0), (1, 4.0)]));
        assert_eq!(placement.reasons[4], loads([(0, 0.0), (2, 1.5), (1, 4.0)]));
    }

    /// One task of the path is a little faster elsewhere; the path does not leave its device for it.
    #[test]
    fn a_path_stays_together_where_each_task_has_times_of_its_own() {
        let times = [[9.0, 1.0], [1.0, 1.1], [9.0, 1.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 3], &[(0, 1, 1), (1, 2, 1)]), &times);
        let problem = loaded.problem().unwrap();
        assert_eq!(CriticalPath.place(&problem).unwrap().device_of, [DeviceId(1); 3]);
    }
}
