//! Min-min: of all ready tasks the one that can finish first, where it does (Ibarra & Kim 1977; Braun et al. 2001).
//!
//! Where the text leaves a choice: of equal finishes the greater upward rank wins, then the smaller task id, then the smaller
//! device id. The texts know no gaps; here a task that has been chosen takes the first one that is long enough.
//!
//! Time and memory: those of choosing [pairs](super::ready_list).

use super::ready_list::{Pairing, place_pairs};
use super::{PlaceError, Placement, Placer, Reason, ScoreOn};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::upward_ranks;

/// The min-min strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct MinMin;

impl Placer for MinMin {
    fn name(&self) -> &'static str {
        "minmin"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        place_pairs(problem, self.name(), &EarliestFinish { problem, ranks: upward_ranks(problem) })
    }
}

struct EarliestFinish<'p> {
    problem: &'p Problem<'p>,
    ranks: Vec<f64>,
}

impl Pairing for EarliestFinish<'_> {
    fn offset(&self, task: TaskId, device: DeviceId) -> f64 {
        self.problem.time(task, device)
    }

    fn urgency(&self, task: TaskId) -> f64 {
        self.ranks[task.index()]
    }

    fn reason(&self, candidates: Vec<ScoreOn>) -> Reason {
        Reason::finishing_first(candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::problem::MemoryRule;
    use crate::sample;

    /// The short tasks fill both devices before the long one starts, which is what max-min avoids.
    #[test]
    fn short_tasks_go_first() {
        let graph = sample::graph(&[4.0, 1.0, 2.0, 2.0], &[]);
        let platform = sample::platform(&[1.0; 2]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let planned = MinMin.place(&problem).unwrap().planned.unwrap();
        assert_eq!(planned.order, [1, 2, 3, 0].map(TaskId));
        assert_eq!(planned.makespan, 6.0);
    }
}
