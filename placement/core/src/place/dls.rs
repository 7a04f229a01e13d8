//! DLS: of all pairs of a ready task and a device, the pair with the highest dynamic level (Sih & Lee 1993).
//!
//! The level of a pair, with the generalisation to unrelated devices (section 3 of the paper), is:
//!
//! ```text
//! DL(t, d) = SL(t) − start(t, d) + Δ(t, d)        Δ(t, d) = E(t) − time(t, d)
//! ```
//!
//! `E` is the median of a task's times over its feasible devices (the mean of the middle two if their number is even).
//! `SL` is the sum of `E` on the longest path to a sink, without transfers. `start` is the time when both inputs and
//! device are available. The paper's terms for descendants and for scarce devices are left out: constraints define
//! where a task cannot run.
//!
//! On equal levels the greater `SL` wins, then the smaller task id.
//!
//! Time and memory: as for the choice of [pairs](super::ready_list), and `O(V × devices × log devices)` for the
//! medians.

use super::ready_list::{Pairing, place_pairs};
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::TaskId;
use crate::problem::Problem;
use crate::rank::static_levels;

/// The DLS strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dls;

impl Placer for Dls {
    fn name(&self) -> &'static str {
        "dls"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let medians: Vec<f64> = problem.graph().task_ids().map(|task| median_time(problem, task)).collect();
        let levels = static_levels(problem, |task| medians[task.index()]);
        let urgency = levels.clone();
        let offset = |task: TaskId, device| problem.time(task, device) - medians[task.index()] - levels[task.index()];
        let reason = |candidates| Reason::Smallest { what: "negative dynamic level", candidates };
        place_pairs(problem, self.name(), &Pairing { reason, offset, urgency })
    }
}

/// Median time of a task over its feasible devices.
fn median_time(problem: &Problem<'_>, task: TaskId) -> f64 {
    let feasible = problem.feasible(problem.graph().unit(task));
    let mut times: Vec<f64> = feasible.map(|device| problem.time(task, device)).collect();
    times.sort_unstable_by(f64::total_cmp);
    (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::ScoreOn;
    use crate::platform::DeviceId;
    use crate::sample;

    /// Both tasks prefer device 0; it goes to the task that loses more elsewhere.
    #[test]
    fn a_device_goes_to_the_task_that_gains_most_from_it() {
        let times = [[2.0, 4.0, 4.0], [1.0, 9.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 2], &[]), &times);
        let problem = loaded.problem().unwrap();
        assert_eq!([0, 1].map(|task| median_time(&problem, TaskId(task))), [4.0, 3.0]);
        let placement = Dls.place(&problem).unwrap();
        assert_eq!(placement.device_of, [DeviceId(0); 2]);
        let Reason::Smallest { candidates, .. } = &placement.reasons[0] else { panic!("no candidates") };
        assert_eq!(candidates[0], ScoreOn { device: DeviceId(0), score: -6.0 });
        assert_eq!(placement.planned.unwrap().makespan, 3.0);
    }
}
