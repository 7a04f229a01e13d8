//! ETF: the ready task that can start first, on the device where it does (Hwang, Chow, Anger & Lee 1989).
//!
//! If pairs can start at the same time, the task with the higher level goes first. Its level is the mean time of the
//! longest path from it to a sink, without transfers. Then the smaller task id wins. Of a task's devices, the one where
//! it ends first wins (the paper's processors are identical).
//!
//! Time and memory: as for the choice of [pairs](super::ready_list).

use super::ready_list::{Pairing, place_pairs};
use super::{PlaceError, Placement, Placer, Reason};
use crate::problem::Problem;
use crate::rank::static_levels;

/// The ETF strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Etf;

impl Placer for Etf {
    fn name(&self) -> &'static str {
        "etf"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let urgency = static_levels(problem, |task| problem.mean_time(task));
        let reason = |candidates| Reason::Smallest { what: "start", candidates };
        place_pairs(problem, self.name(), &Pairing { reason, offset: |_, _| 0.0, urgency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceId;
    use crate::sample;

    /// All sources could start at once: the one with the longest path goes first, to the faster device.
    #[test]
    fn of_equal_starts_the_higher_level_goes_first() {
        let loaded = sample::problem(sample::graph(&[2.0, 4.0, 2.0, 6.0], &[(2, 3, 0)]), &[1.0, 2.0]);
        let problem = loaded.problem().unwrap();
        let placement = Etf.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 0, 1, 1].map(DeviceId));
        let starts: Vec<f64> = placement.planned.unwrap().tasks.iter().map(|span| span.start).collect();
        assert_eq!(starts, [4.0, 0.0, 0.0, 1.0]);
    }
}
