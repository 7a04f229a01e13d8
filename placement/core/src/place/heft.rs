//! HEFT: each task on the device where it finishes first, the most urgent task first (Topcuoglu 2002, section 4.2;
//! Laich 2017, section 4.3).
//!
//! Tasks go by decreasing upward rank. Each goes to the feasible device with enough free memory where it finishes
//! first, in the first gap that is long enough; on a tie, to the smallest device id. Means range over feasible devices.
//!
//! The text leaves two choices open, and no answer is always better. In these cases the schedule is built with
//! each answer, and the shortest is kept. The length is as planned, or as simulated if the problem has rules that list
//! schedules ignore.
//! - If constraints exclude tasks from devices: means range over feasible devices or over
//!   [all](unrestricted_upward_ranks).
//! - If tasks are colocated: the first member of a group chooses a device by its own end or by the end of the whole
//!   group. For the group's end the other members follow one after the other, each after its known inputs. (With the
//!   member's own end, profiled networks with large groups, BERT by operators, take three to seven times as long; on
//!   sparse graphs it is better by up to a sixth.)
//!
//! Time: `O(V log V + E × devices)`. Each pair of a task and a device adds a search over the device's gaps.

use super::list::PartialSchedule;
use super::{PlaceError, Placement, Placer, Reason};
use crate::order::Pct;
use crate::problem::Problem;
use crate::rank::{by_decreasing_rank, unrestricted_upward_ranks, upward_ranks};
use crate::rules::Rules;
use crate::schedule::Span;
use crate::simulate::simulate;

/// The HEFT strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heft;

impl Placer for Heft {
    fn name(&self) -> &'static str {
        "heft"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut all_ranks = vec![upward_ranks(problem)];
        if problem.is_restricted() {
            all_ranks.push(unrestricted_upward_ranks(problem));
        }
        let has_groups = problem.graph().unit_count() < problem.graph().task_count();
        let judgements: &[Judgement] =
            if has_groups { &[Judgement::Group, Judgement::Task] } else { &[Judgement::Task] };
        let mut best = None;
        for ranks in &all_ranks {
            for &judgement in judgements {
                let placed = self.build(problem, ranks, judgement);
                let makespan = makespan(problem, &placed);
                if best.as_ref().is_none_or(|(shortest, _)| makespan < *shortest) {
                    best = Some((makespan, placed));
                }
            }
        }
        best.expect("there is one way at least").1
    }
}

/// Span by whose end a device is chosen.
#[derive(Clone, Copy)]
enum Judgement {
    /// The span of the task.
    Task,
    /// The span of the task's whole colocation group.
    Group,
}

/// Returns the makespan as planned; if the problem has rules that list schedules ignore, as simulated under them.
/// Infinite if nothing was placed.
fn makespan(problem: &Problem<'_>, placed: &Result<Placement, PlaceError>) -> f64 {
    let Ok(Placement { device_of, planned, .. }) = placed else { return f64::INFINITY };
    match planned {
        Some(planned) if *problem.rules() == Rules::default() => planned.makespan,
        _ => simulate(problem, device_of, &Pct).map_or(f64::INFINITY, |schedule| schedule.makespan),
    }
}

impl Heft {
    fn build(&self, problem: &Problem<'_>, ranks: &[f64], judgement: Judgement) -> Result<Placement, PlaceError> {
        let mut schedule = PartialSchedule::new(problem)?;
        for task in by_decreasing_rank(problem, ranks) {
            let end = |schedule: &PartialSchedule<'_>, span: Span| match judgement {
                Judgement::Task => span.end,
                Judgement::Group => schedule.unit_end(task, span),
            };
            schedule.place_by(task, end, Reason::EarliestFinish)?;
        }
        Ok(schedule.finish(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::place::ScoreOn;
    use crate::platform::DeviceId;
    use crate::sample;

    /// The later input decides: with the minimum over predecessors, task 2 would start too early.
    #[test]
    fn a_task_waits_for_its_last_input() {
        let loaded = sample::problem(sample::graph(&[2.0, 8.0, 1.0], &[(0, 2, 0), (1, 2, 30)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let placement = Heft.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 0, 0].map(DeviceId));
        let planned = placement.planned.unwrap();
        assert_eq!(planned.tasks[2].start, 8.0);
        let finishes = [(0, 9.0), (1, 12.0)].map(|(device, score)| ScoreOn { device: DeviceId(device), score });
        assert_eq!(placement.reasons[2], Reason::EarliestFinish(finishes.to_vec()));
    }

    /// The first member alone would finish first on device 1; the second is slow there, and far from its input.
    #[test]
    fn a_group_goes_where_all_of_it_is_over_first() {
        let mut builder = sample::tasks(&[0.0; 3]);
        builder.edge(TaskId(0), TaskId(2), 50);
        builder.colocate(TaskId(1), TaskId(2));
        let times = [[6.0, 7.0], [4.0, 3.0], [2.0, 2.0]];
        let loaded = sample::timed(builder.build().unwrap(), &times);
        let problem = loaded.problem().unwrap();
        let placement = Heft.place(&problem).unwrap();
        // On device 0 the group ends at 6 + 4 + 2, on device 1 at 6 + 5 + 2.
        assert_eq!(placement.device_of, [DeviceId(0); 3]);
        let finishes = [(0, 12.0), (1, 13.0)].map(|(device, score)| ScoreOn { device: DeviceId(device), score });
        assert_eq!(placement.reasons[1], Reason::EarliestFinish(finishes.to_vec()));
    }

    #[test]
    fn a_group_follows_its_first_member_to_a_device_where_all_can_run() {
        let mut builder = sample::tasks(&[0.0; 3]);
        builder.colocate(TaskId(0), TaskId(2));
        let times = [[Some(3.0), Some(1.0), Some(2.0)], [Some(5.0); 3], [Some(1.0), None, Some(1.0)]];
        let loaded = sample::timed(builder.build().unwrap(), &times);
        let problem = loaded.problem().unwrap();
        let placement = Heft.place(&problem).unwrap();
        assert_eq!(placement.device_of, [2, 0, 2].map(DeviceId));
        assert_eq!(placement.reasons[2], Reason::ColocatedWith(TaskId(0)));
    }
}
