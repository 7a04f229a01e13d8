//! CPOP: the critical path on one device, every other task on the device where it finishes first (Topcuoglu 2002,
//! section 4.3).
//!
//! A task's priority is its upward rank plus its downward rank: the longest path from a source to it, and from it to a
//! sink. The critical path starts at a source of the greatest priority and continues over successors of equal priority.
//! Its device is the one with the smallest sum of the path's times. The ready task with the greatest priority is next.
//! Tasks of the path go to the path's device, other tasks to the device where they finish first. Both use the first gap
//! that is long enough.
//!
//! Constraints: devices are compared as for any set of units, so a device that cannot run some of the path is judged by
//! the tasks that it can run. If the path's device cannot take a task of the path, the task goes where it finishes
//! first.
//!
//! Choices that the text leaves open: equal priorities go in topological order. Several successors can have the
//! priority of the path, if an edge joins tasks of the path that are not neighbours on it. The next one is then the
//! successor that gave the upward rank. So the path leaves no task out, and rounding does not matter.
//!
//! Time: `O((V + E) log V + E × devices)`. Each pair of a device and a task off the path adds a search over the
//! device's gaps.

use super::frontier::by_priority;
use super::list::{Choice, PartialSchedule};
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::UnitId;
use crate::problem::Problem;
use crate::rank::{critical_path, downward_ranks, upward_ranks};

/// The CPOP strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpop;

impl Placer for Cpop {
    fn name(&self) -> &'static str {
        "cpop"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let upward = upward_ranks(problem);
        let path = critical_path(problem, &upward);
        let priorities: Vec<f64> =
            upward.into_iter().zip(downward_ranks(problem)).map(|(upward, downward)| upward + downward).collect();
        let mut on_path = vec![false; priorities.len()];
        path.iter().for_each(|task| on_path[task.index()] = true);
        let units: Vec<UnitId> = path.iter().map(|&task| problem.graph().unit(task)).collect();
        let device = fastest_first(problem, &units).into_iter().next();
        let mut schedule = PartialSchedule::new(problem)?;
        for task in by_priority(problem.graph(), &priorities) {
            let device = device.filter(|_| on_path[task.index()]);
            match (schedule.choice(task)?, device) {
                (Choice::Free(devices), Some(device)) if devices.contains(&device) => {
                    schedule.place_on(task, device, Some(Reason::CRITICAL_PATH))?;
                }
                _ => {
                    schedule.place_by(task, |_, span| span.end, Reason::EarliestFinish)?;
                }
            }
        }
        Ok(schedule.finish(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceId;
    use crate::sample;

    /// The path is 0, 1, 3 and takes least time on device 1, although task 3 alone would finish earlier on device 0.
    #[test]
    fn the_path_stays_on_the_device_with_its_smallest_sum() {
        let times = [[4.0, 2.0], [9.0, 6.0], [2.0, 2.0], [1.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 4], &[(0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 3, 0)]), &times);
        let problem = loaded.problem().unwrap();
        let placement = Cpop.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 1, 0, 1].map(DeviceId));
        assert_eq!(placement.reasons[3], Reason::CRITICAL_PATH);
        assert_eq!(placement.planned.unwrap().makespan, 11.0);
    }
}
