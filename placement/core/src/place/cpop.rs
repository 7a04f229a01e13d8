//! CPOP: the critical path on one device, every other task where it finishes first (Topcuoglu 2002, section 4.3).
//!
//! A task's priority is its upward rank plus its downward rank, the longest way to it from a source and from it to a sink. The
//! critical path starts at a source of the greatest priority and goes on over successors of the same priority. Its device is
//! the one with the smallest sum of the path's times. Of the ready tasks the one of the greatest priority is next; those of the
//! path go to its device, the others where they finish first, both into the first gap that is long enough.
//!
//! Constraints: a device that cannot run some of the path has the sum of what it can run against that sum's mean, as
//! everywhere devices are compared for a set of units; a task of the path that its device cannot take goes where it finishes
//! first, as do those off the path.
//!
//! Where the text leaves a choice: equal priorities go in topological order. Of several successors with the priority of the path,
//! where an edge joins tasks of the path that are no neighbours on it, the one is next over which the upward rank came; so
//! the path leaves nothing out, and rounding does not matter.
//!
//! Time: `O((V + E) log V + E × devices)`, and for each task off the path and device a search over that device's gaps.

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

    /// The path is 0, 1, 3 and takes least on device 1, although task 3 alone would finish earlier on device 0.
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
