//! Batch split: ranges of equally important tasks, the most important range on the fastest device (Laich 2017, section
//! 4.4).
//!
//! Tasks are sorted by decreasing operations rank and cut into one range per device. The lengths of the ranges differ
//! by at most one task. The first range goes to the fastest device, the second to the second fastest, and so on. If the
//! device of a range is not feasible or too full, the next slower device takes the task, with all of its colocation
//! group. The fastest device follows the slowest.
//!
//! Choices that the text leaves open: equal ranks go in topological order; the length of a range is a number of tasks,
//! not of operations.
//!
//! Time: `O(V log V + V × devices)`.

use super::assignment::Assignment;
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::UnitId;
use crate::problem::Problem;
use crate::rank::{by_decreasing_rank, operations_ranks};

/// The batch split strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch;

impl Placer for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let graph = problem.graph();
        let units: Vec<UnitId> = graph.unit_ids().collect();
        let devices = fastest_first(problem, &units);
        let mut assignment = Assignment::new(problem)?;
        for (place, task) in by_decreasing_rank(problem, &operations_ranks(problem)).into_iter().enumerate() {
            if assignment.device_of_task(task).is_none() {
                let range = place * devices.len() / graph.task_count();
                assignment.place_from(task, &devices, range, Reason::Rule("device of its range of importance"))?;
            }
        }
        Ok(assignment.finish(self.name(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::platform::DeviceId;
    use crate::sample;

    /// Tasks 2, 3 and 4 are the critical path; 0 and 1 are isolated; 5 and 0 are colocated.
    #[test]
    fn the_most_important_range_is_on_the_fastest_device() {
        let mut builder = sample::tasks(&[1.0, 2.0, 4.0, 4.0, 4.0, 3.0]);
        builder.edge(TaskId(2), TaskId(3), 1);
        builder.edge(TaskId(3), TaskId(4), 1);
        builder.colocate(TaskId(0), TaskId(5));
        let loaded = sample::problem(builder.build().unwrap(), &[1.0, 3.0, 2.0]);
        let problem = loaded.problem().unwrap();
        assert_eq!(Batch.place(&problem).unwrap().device_of, [2, 0, 1, 1, 2, 2].map(DeviceId));
    }
}
