//! Min-min: the ready task that can finish first, on the device where it does (Ibarra & Kim 1977; Braun et al. 2001).
//!
//! Choices that the text leaves open: on equal finishes the greater upward rank wins, then the smaller task id, then
//! the smaller device id. The texts have no gaps; here the chosen task takes the first gap that is long enough.
//!
//! Time and memory: as for the choice of [pairs](super::ready_list).

use super::ready_list::{Pairing, place_pairs};
use super::{PlaceError, Placement, Placer, Reason};
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
        let (offset, urgency) = (|task, device| problem.time(task, device), upward_ranks(problem));
        place_pairs(problem, self.name(), &Pairing { reason: Reason::EarliestFinish, offset, urgency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::sample;

    /// The short tasks fill both devices before the long one starts; max-min avoids this.
    #[test]
    fn short_tasks_go_first() {
        let loaded = sample::problem(sample::graph(&[4.0, 1.0, 2.0, 2.0], &[]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let planned = MinMin.place(&problem).unwrap().planned.unwrap();
        assert_eq!(planned.order, [1, 2, 3, 0].map(TaskId));
        assert_eq!(planned.makespan, 6.0);
    }
}
