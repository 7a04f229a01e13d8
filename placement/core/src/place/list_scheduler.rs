//! List schedulers as rows of one table: the priority that orders tasks, the score that chooses a device, gaps, a
//! reserved critical path and sufferage (Coleman & Krishnamachari 2024, *Parameterized Task Graph Scheduling
//! Algorithm*, arXiv 2403.07112).
//!
//! A [`ListScheduler`] takes the ready task of the highest priority, and puts it on the device with the smallest score;
//! on a tie, where it ends first, then on the smallest device id. With *insertion* it takes the first gap that is long
//! enough; otherwise it follows everything on the device. With *sufferage* the two ready tasks of the highest
//! priorities compete: first goes the one whose second best score is further from its best score. With a *reserved*
//! path the tasks of the critical path go to the device with the smallest sum of their times, if it can take them.
//!
//! All combinations are the 72 [`variants`] of the paper. Six published schedulers are rows as well:
//!
//! | row | source | next task | device | besides |
//! |---|---|---|---|---|
//! | [`HEFT`](ListScheduler::HEFT) | Topcuoglu 2002, section 4.2 | upward rank | finish | the shortest of the schedules below |
//! | [`CPOP`](ListScheduler::CPOP) | Topcuoglu 2002, section 4.3 | upward and downward rank | finish | reserved path |
//! | [`MIN_MIN`](ListScheduler::MIN_MIN) | Ibarra & Kim 1977; Braun et al. 2001 | pair that finishes first | finish | |
//! | [`MAX_MIN`](ListScheduler::MAX_MIN) | the same | [latest](super::max_min) best finish | finish | |
//! | [`ETF`](ListScheduler::ETF) | Hwang et al. 1989 | pair that starts first | start | |
//! | [`DLS`](ListScheduler::DLS) | Sih & Lee 1993 | pair of the highest [dynamic level](super::ready_list) | level | |
//!
//! # Choices that the texts leave open
//!
//! Equal priorities go in topological order. Means range over feasible devices. CPOP's priorities of a path can be
//! equal for several successors, so the path follows the successor that gave the upward rank. Then rounding does not
//! matter. Devices for the path are compared as for any set of units: a device that cannot run some of the path is
//! judged by the tasks that it can run.
//!
//! HEFT's text leaves two choices open, and no answer is always better. In these cases its schedule is built with each
//! answer, and the shortest is kept. The length is as planned, or as simulated if the problem has rules that list
//! schedules ignore.
//! - If constraints exclude tasks from devices: means range over feasible devices or over
//!   [all](unrestricted_upward_ranks).
//! - If tasks are colocated: the first member of a group chooses a device by its own end or by the end of the whole
//!   group. For the group's end the other members follow one after the other, each after its known inputs. (With the
//!   member's own end, profiled networks with large groups, BERT by operators, take three to seven times as long; on
//!   sparse graphs it is better by up to a sixth.)
//!
//! Time: `O((V + E) log V + E × devices)`. Each pair of a task and a device adds a search over the device's gaps.

use super::evaluator::Evaluator;
use super::frontier::{Frontier, by_priority};
use super::list::{Choice, PartialSchedule};
use super::ready_list::Pair;
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason, ScoreOn, max_min, ready_list};
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{critical_path, downward_ranks, unrestricted_upward_ranks, upward_ranks};
use crate::rules::Rules;
use crate::schedule::Span;
use crate::total::Total;
use std::sync::LazyLock;

/// List scheduler: a row of parameters. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListScheduler {
    name: &'static str,
    next: Next,
    score: Score,
    insertion: bool,
    reserved: bool,
}

/// Choice of the next task.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    /// The ready task of the highest priority.
    First(Priority),
    /// The one of two ready tasks of the highest priorities that loses more on its second best device.
    Sufferage(Priority),
    /// The ready task of the highest upward rank, in several schedules of which the shortest is kept.
    Shortest,
    /// The task of the best pair with a device.
    Pair(Pair),
    /// The task whose best finish is latest.
    Latest,
}

/// Priority of a task; the greatest goes first.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Priority {
    Upward,
    /// Upward plus downward rank.
    Cpop,
    /// Topological order.
    Topological,
}

/// Score of a device, of which the smallest is best.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Score {
    Finish,
    Start,
    /// Time of the task on the device.
    Time,
}

impl Score {
    /// Returns what makes a reason of the devices with their scores.
    fn reason(self) -> fn(Vec<ScoreOn>) -> Reason {
        match self {
            Self::Finish => Reason::EarliestFinish,
            Self::Start => |candidates| Reason::Smallest { what: "start", candidates },
            Self::Time => |candidates| Reason::Smallest { what: "time", candidates },
        }
    }
}

/// Span by whose end a device is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Judgement {
    /// The span of the task.
    Task,
    /// The span of the task's whole colocation group.
    Group,
}

const PRIORITIES: [(&str, Priority); 3] =
    [("upward", Priority::Upward), ("cpop", Priority::Cpop), ("topological", Priority::Topological)];
const SCORES: [(&str, Score); 3] = [("eft", Score::Finish), ("est", Score::Start), ("quickest", Score::Time)];
const GAPS: [(&str, bool); 2] = [("insertion", true), ("append", false)];
/// First part of a variant's name.
const PREFIX: &str = "list";

static VARIANTS: LazyLock<Vec<ListScheduler>> = LazyLock::new(|| {
    let mut variants = Vec::new();
    for ((priority_name, priority), (score_name, score)) in pairs(PRIORITIES, SCORES) {
        for ((gaps_name, insertion), (reserved, sufferage)) in
            pairs(GAPS, [(false, false), (true, false), (false, true), (true, true)])
        {
            let mut name = [PREFIX, priority_name, score_name, gaps_name].join(":");
            name.push_str(if reserved { ":path" } else { "" });
            name.push_str(if sufferage { ":sufferage" } else { "" });
            let next = if sufferage { Next::Sufferage(priority) } else { Next::First(priority) };
            variants.push(ListScheduler { name: name.leak(), next, score, insertion, reserved });
        }
    }
    variants
});

fn pairs<A: Copy, B: Copy, const N: usize, const M: usize>(
    ones: [A; N],
    others: [B; M],
) -> impl Iterator<Item = (A, B)> {
    ones.into_iter().flat_map(move |one| others.into_iter().map(move |other| (one, other)))
}

/// Returns the 72 combinations of parameters, each with its name for [`strategy_by_name`](super::strategy_by_name).
pub fn variants() -> &'static [ListScheduler] {
    &VARIANTS
}

/// Returns the variant called `list:PRIORITY:SCORE:GAPS:path:sufferage`. Parameters may be left out and have any order
/// (default: `list:upward:eft:insertion`).
pub(super) fn variant(name: &str) -> Option<&'static ListScheduler> {
    let mut words: Vec<&str> = name.split(':').collect();
    if words.remove(0) != PREFIX {
        return None;
    }
    let mut take =
        |known: &str| words.iter().position(|word| *word == known).map(|place| words.remove(place)).is_some();
    let mut choose = |names: [&'static str; 3]| names.into_iter().find(|name| take(name)).unwrap_or(names[0]);
    let priority = choose(PRIORITIES.map(|(name, _)| name));
    let score = choose(SCORES.map(|(name, _)| name));
    let gaps = choose(["insertion", "append", "append"]);
    let mut wanted = [PREFIX, priority, score, gaps].join(":");
    for flag in ["path", "sufferage"] {
        if take(flag) {
            wanted = wanted + ":" + flag;
        }
    }
    VARIANTS.iter().find(|variant| words.is_empty() && variant.name == wanted)
}

impl ListScheduler {
    const fn of(name: &'static str, next: Next) -> Self {
        ListScheduler { name, next, score: Score::Finish, insertion: true, reserved: false }
    }

    /// Each task where it finishes first, the most urgent task first.
    pub const HEFT: Self = Self::of("heft", Next::Shortest);
    /// The critical path on one device, the rest where it finishes first.
    pub const CPOP: Self = Self { reserved: true, ..Self::of("cpop", Next::First(Priority::Cpop)) };
    /// The ready task that can finish first, where it does.
    pub const MIN_MIN: Self = Self::of("minmin", Next::Pair(Pair::Finish));
    /// The ready task that can finish last, where it finishes first.
    pub const MAX_MIN: Self = Self::of("maxmin", Next::Latest);
    /// The ready task that can start first, where it does.
    pub const ETF: Self = Self::of("etf", Next::Pair(Pair::Start));
    /// The pair of a ready task and a device with the highest dynamic level.
    pub const DLS: Self = Self::of("dls", Next::Pair(Pair::DynamicLevel));
    /// The rows for published schedulers.
    pub(super) const NAMED: [Self; 6] = [Self::HEFT, Self::CPOP, Self::MIN_MIN, Self::MAX_MIN, Self::ETF, Self::DLS];

    /// Returns the device of each task, without the schedule and the transfers that [`Placer::place`] adds. `ranks`
    /// must be of the same problem.
    ///
    /// # Errors
    /// As [`Placer::place`].
    pub fn devices(&self, problem: &Problem<'_>, ranks: &ListRanks) -> Result<Vec<DeviceId>, PlaceError> {
        match self.next {
            Next::First(priority) | Next::Sufferage(priority) => {
                let schedule = self.build(problem, ranks, ranks.of(priority))?;
                Ok(schedule.spans().iter().map(|span| span.device).collect())
            }
            Next::Shortest | Next::Pair(_) | Next::Latest => Ok(self.place(problem)?.device_of),
        }
    }

    /// Builds a schedule in the order of `priorities`.
    fn build<'p>(
        &self,
        problem: &'p Problem<'p>,
        ranks: &ListRanks,
        priorities: &[f64],
    ) -> Result<PartialSchedule<'p>, PlaceError> {
        let mut schedule = PartialSchedule::new(problem)?;
        schedule.inserts = self.insertion;
        let mut frontier = Frontier::new(problem.graph(), priorities);
        while let Some(mut task) = frontier.pop() {
            if let Next::Sufferage(_) = self.next
                && let Some(other) = frontier.pop()
            {
                let [one, two] = [task, other].map(|task| self.sufferage(&mut schedule, problem, ranks, task));
                let later = if two? > one? { std::mem::replace(&mut task, other) } else { other };
                frontier.push_back(later);
            }
            self.place_task(&mut schedule, ranks, task, Judgement::Task)?;
            frontier.release(problem.graph(), task);
        }
        Ok(schedule)
    }

    fn place_task(
        &self,
        schedule: &mut PartialSchedule<'_>,
        ranks: &ListRanks,
        task: TaskId,
        judgement: Judgement,
    ) -> Result<(), PlaceError> {
        if let Some(device) = self.reserved_device(schedule, ranks, task)? {
            return schedule.place_on(task, device, Some(Reason::CRITICAL_PATH)).map(drop);
        }
        let score = |schedule: &PartialSchedule<'_>, span: Span| match judgement {
            Judgement::Task => self.score(schedule.problem(), task, span),
            Judgement::Group => schedule.unit_end(task, span),
        };
        schedule.place_by(task, score, self.score.reason()).map(drop)
    }

    fn score(&self, problem: &Problem<'_>, task: TaskId, span: Span) -> f64 {
        match self.score {
            Score::Finish => span.end,
            Score::Start => span.start,
            Score::Time => problem.time(task, span.device),
        }
    }

    /// Returns the difference between the second best and the best score of `task`; 0 if it has no choice.
    fn sufferage(
        &self,
        schedule: &mut PartialSchedule<'_>,
        problem: &Problem<'_>,
        ranks: &ListRanks,
        task: TaskId,
    ) -> Result<f64, PlaceError> {
        if self.reserved_device(schedule, ranks, task)?.is_some() {
            return Ok(0.0);
        }
        let best = schedule.best_two(task, |span| self.score(problem, task, span))?;
        Ok(best.map_or(0.0, |[best, second]| second - best))
    }

    /// Returns the device that is reserved for the critical path, if `task` is on the path and can go there.
    fn reserved_device(
        &self,
        schedule: &PartialSchedule<'_>,
        ranks: &ListRanks,
        task: TaskId,
    ) -> Result<Option<DeviceId>, PlaceError> {
        let Some(device) = ranks.path_device.filter(|_| self.reserved && ranks.on_path[task.index()]) else {
            return Ok(None);
        };
        match schedule.choice(task)? {
            Choice::Free(devices) if devices.contains(&device) => Ok(Some(device)),
            Choice::Free(_) | Choice::Forced(..) => Ok(None),
        }
    }

    /// Builds the schedules of all answers to what HEFT's text leaves open, and returns the shortest.
    fn shortest(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut all_priorities = vec![upward_ranks(problem)];
        if problem.is_restricted() {
            all_priorities.push(unrestricted_upward_ranks(problem));
        }
        let has_groups = problem.graph().unit_count() < problem.graph().task_count();
        let judgements: &[Judgement] =
            if has_groups { &[Judgement::Group, Judgement::Task] } else { &[Judgement::Task] };
        let mut answers = Vec::new();
        for priorities in &all_priorities {
            answers.extend(self.build_each(problem, priorities, judgements));
        }
        let shortest = if answers.len() > 1 { shortest_of(problem, &answers) } else { 0 };
        Ok(answers.swap_remove(shortest)?.finish(self.name))
    }

    /// Builds a schedule with each of `judgements` in the order of `priorities`. They grow together, so that each part
    /// of the graph is brought into the cache once.
    fn build_each<'p>(
        &self,
        problem: &'p Problem<'p>,
        priorities: &[f64],
        judgements: &[Judgement],
    ) -> Vec<Result<PartialSchedule<'p>, PlaceError>> {
        let ranks = ListRanks::default();
        let mut schedules: Vec<_> = judgements.iter().map(|_| PartialSchedule::new(problem)).collect();
        for task in by_priority(problem.graph(), priorities) {
            for (built, judgement) in schedules.iter_mut().zip(judgements) {
                if let Ok(schedule) = built
                    && let Err(error) = self.place_task(schedule, &ranks, task, *judgement)
                {
                    *built = Err(error);
                }
            }
        }
        schedules
    }
}

impl Placer for ListScheduler {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        match self.next {
            Next::First(priority) | Next::Sufferage(priority) => {
                let ranks = ListRanks::new(problem);
                Ok(self.build(problem, &ranks, ranks.of(priority))?.finish(self.name))
            }
            Next::Shortest => self.shortest(problem),
            Next::Pair(pair) => ready_list::place(problem, self.name, pair),
            Next::Latest => max_min::place(problem, self.name),
        }
    }
}

/// Returns the position of the schedule with the least makespan: as planned, or, if the problem has rules that list
/// schedules ignore, as simulated under them. Of equal ones, and if nothing was placed, it is the first.
fn shortest_of(problem: &Problem<'_>, answers: &[Result<PartialSchedule<'_>, PlaceError>]) -> usize {
    let built = answers.iter().enumerate().filter_map(|(number, built)| Some((number, built.as_ref().ok()?.spans())));
    if *problem.rules() == Rules::default() {
        let makespan = |spans: &[Span]| spans.iter().map(|span| span.end).fold(0.0, f64::max);
        return built.min_by_key(|(number, spans)| (Total(makespan(spans)), *number)).map_or(0, |(number, _)| number);
    }
    let mut evaluator = Evaluator::new(problem);
    let mut promising: Vec<_> = built
        .map(|(number, spans)| {
            let device_of: Vec<DeviceId> = spans.iter().map(|span| span.device).collect();
            (Total(evaluator.greatest_load(&device_of)), number, device_of)
        })
        .collect();
    // The first simulation has no limit, and the loads exclude many of the others.
    promising.sort_unstable_by_key(|(load, number, _)| (*load, *number));
    let mut best = (Total(f64::INFINITY), usize::MAX);
    for (_, number, device_of) in promising {
        if let Some(makespan) = evaluator.evaluate(&device_of, best.0.0) {
            best = best.min((Total(makespan), number));
        }
    }
    if best.1 == usize::MAX { 0 } else { best.1 }
}

/// Priorities of the tasks of a problem, and its critical path, which all [`variants`] share.
#[derive(Debug, Clone, Default)]
pub struct ListRanks {
    upward: Vec<f64>,
    cpop: Vec<f64>,
    topological: Vec<f64>,
    on_path: Vec<bool>,
    path_device: Option<DeviceId>,
}

impl ListRanks {
    /// Computes the priorities and the path. `O(V × devices + E)`.
    pub fn new(problem: &Problem<'_>) -> Self {
        let upward = upward_ranks(problem);
        let path = critical_path(problem, &upward);
        let cpop: Vec<f64> = upward.iter().zip(downward_ranks(problem)).map(|(upward, down)| upward + down).collect();
        let mut on_path = vec![false; upward.len()];
        path.iter().for_each(|task| on_path[task.index()] = true);
        let units: Vec<UnitId> = path.iter().map(|&task| problem.graph().unit(task)).collect();
        let path_device = fastest_first(problem, &units).into_iter().next();
        ListRanks { topological: vec![0.0; upward.len()], upward, cpop, on_path, path_device }
    }

    fn of(&self, priority: Priority) -> &[f64] {
        match priority {
            Priority::Upward => &self.upward,
            Priority::Cpop => &self.cpop,
            Priority::Topological => &self.topological,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::strategy_by_name;
    use crate::sample;

    /// The later input decides: with the minimum over predecessors, task 2 would start too early.
    #[test]
    fn a_task_waits_for_its_last_input() {
        let loaded = sample::problem(sample::graph(&[2.0, 8.0, 1.0], &[(0, 2, 0), (1, 2, 30)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let placement = ListScheduler::HEFT.place(&problem).unwrap();
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
        let placement = ListScheduler::HEFT.place(&problem).unwrap();
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
        let placement = ListScheduler::HEFT.place(&problem).unwrap();
        assert_eq!(placement.device_of, [2, 0, 2].map(DeviceId));
        assert_eq!(placement.reasons[2], Reason::ColocatedWith(TaskId(0)));
    }

    /// The path is 0, 1, 3 and takes least time on device 1, although task 3 alone would finish earlier on device 0.
    #[test]
    fn the_path_stays_on_the_device_with_its_smallest_sum() {
        let times = [[4.0, 2.0], [9.0, 6.0], [2.0, 2.0], [1.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 4], &[(0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 3, 0)]), &times);
        let problem = loaded.problem().unwrap();
        let placement = ListScheduler::CPOP.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 1, 0, 1].map(DeviceId));
        assert_eq!(placement.reasons[3], Reason::CRITICAL_PATH);
        assert_eq!(placement.planned.unwrap().makespan, 11.0);
    }

    #[test]
    fn there_are_72_variants_and_their_names_read_back() {
        assert_eq!(variants().len(), 72);
        for variant in variants() {
            assert_eq!(strategy_by_name(variant.name).unwrap().name(), variant.name);
        }
        let read = |name| strategy_by_name(name).map(|strategy| strategy.name());
        assert_eq!(read("list"), Some("list:upward:eft:insertion"));
        assert_eq!(read("list:sufferage:est:append"), Some("list:upward:est:append:sufferage"));
        for unknown in ["list:", "list:eft:est", "list:eft:eft", "list:path:path", "heft:eft", ""] {
            assert_eq!(read(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn append_leaves_gaps_and_sufferage_prefers_who_loses_more() {
        // Task 2 fits into the gap of device 1 before task 1, which waits for its input.
        let loaded = sample::timed(sample::graph(&[0.0; 3], &[(0, 1, 40)]), &[[1.0, 9.0], [9.0, 1.0], [8.0, 1.0]]);
        let problem = loaded.problem().unwrap();
        let plan = |name: &str| strategy_by_name(name).unwrap().place(&problem).unwrap().planned.unwrap();
        assert_eq!(["insertion", "append"].map(|gaps| plan(&format!("list:{gaps}")).tasks[2].start), [0.0, 6.0]);
        let loaded = sample::timed(sample::graph(&[0.0; 2], &[]), &[[4.0, 5.0], [1.0, 9.0]]);
        let problem = loaded.problem().unwrap();
        let plan = |name: &str| strategy_by_name(name).unwrap().place(&problem).unwrap().planned.unwrap();
        // The second task loses 8 on its other device, the first task 1.
        let starts = ["list:topological", "list:topological:sufferage"].map(|name| plan(name).tasks[1].start);
        assert_eq!(starts, [4.0, 0.0]);
    }
}
