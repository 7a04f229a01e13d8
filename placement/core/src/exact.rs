//! Optimum of small problems, to measure the gaps of strategies against the best possible schedule.
//!
//! The method is branch and bound over placement and order together. A node of the search is a schedule of some tasks.
//! Its children append one more task, whose predecessors are all scheduled, to one device as early as data and device
//! permit. If the tasks of any schedule are appended by their start times, no task starts later than before. So some
//! sequence of appends reaches the optimum, and sequences in which starts never decrease suffice.
//!
//! Symmetric sequences are followed once. Independent tasks that start together on different devices come in the order
//! of their ids. Of unused identical devices the first is taken. A node is pruned if nothing below it can beat the best
//! known schedule. One bound is the longest path from the current state; the other is the remaining work, divided among
//! the devices from their free times (as in [`bound`](crate::bound)). The search starts from the best schedule of all
//! strategies, or from given ones. The strategy [`Exact`](crate::place::Exact) uses it.
//!
//! Transfers take their time and do not contend. A device may be idle even if it could run something. The search keeps
//! constraints, colocation and memory limits.

mod partial_bound;
mod search;
mod state;
mod twins;

use crate::bound::lower_bound;
use crate::graph::TaskId;
use crate::order::Pct;
use crate::place::{Placer, STRATEGIES, strategy_by_name};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::simulate::simulate;
use search::{End, Search};
use std::time::Instant;

/// Most tasks of a problem. A dozen tasks take a fraction of a second; more take long, unless the bounds are tight.
pub const MAX_TASKS: usize = 64;
/// Most devices of a problem.
pub const MAX_DEVICES: usize = 64;
/// Most data of a problem.
pub const MAX_DATA: usize = 1024;

/// Limits of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactOptions {
    /// Nodes after which the search stops (default: a million).
    pub nodes: u64,
    /// Instant after which the search stops (default: none). With it, the result depends on the speed of the machine.
    pub until: Option<Instant>,
}

impl Default for ExactOptions {
    /// A million nodes: seconds for a dozen tasks, up to a minute for several dozen on several devices.
    fn default() -> Self {
        ExactOptions { nodes: 1_000_000, until: None }
    }
}

/// Reason why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The schedule is proven to be optimal.
    Proven,
    /// The allowed nodes are used up; a better schedule may exist.
    NodeLimit,
    /// The allowed time is used up; a better schedule may exist.
    TimeLimit,
}

/// Best schedule that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimum {
    /// Device of each task, indexed by [`TaskId`].
    pub device_of: Vec<DeviceId>,
    /// The schedule.
    pub schedule: Schedule,
    /// Lower bound of all schedules: the makespan if it is proven, up to a part in 10^12; else the least bound of the
    /// nodes that the search left open.
    pub lower_bound: f64,
    /// Number of visited nodes.
    pub nodes: u64,
    /// Reason why the search ended.
    pub stop: StopReason,
}

/// Reason why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum ExactError {
    /// A problem that is too large.
    #[error("{count} {what} are too many for an exact search; the limit is {limit}")]
    TooLarge { what: &'static str, count: usize, limit: usize },
    /// No placement fits into the devices' memory.
    #[error("no placement fits into the devices' memory")]
    NoPlacement,
    /// No placement was found within the limits.
    #[error("the search found no placement within {nodes} nodes; allow more nodes or more time")]
    Unfinished { nodes: u64 },
    /// The caller wants no result any more.
    #[error("the search was interrupted")]
    Interrupted,
}

/// Searches for the schedule with the least makespan. Takes time exponential in the number of tasks, but at most
/// proportional to [`ExactOptions::nodes`].
///
/// # Errors
/// Returns an error for too many tasks, devices or data, if no placement exists, or if none was found within the
/// limits.
pub fn optimum(problem: &Problem<'_>, options: &ExactOptions) -> Result<Optimum, ExactError> {
    verify_size(problem)?;
    optimum_from(problem, options, &known_sequences(problem), None)
}

/// Searches as [`optimum`], but starts from `known` sequences of appends instead of the schedules of the strategies. A
/// sequence that breaks a constraint is ignored. `bound` is a known lower bound, which is computed if it is not given.
///
/// # Errors
/// As [`optimum`].
pub(crate) fn optimum_from(
    problem: &Problem<'_>,
    options: &ExactOptions,
    known: &[Vec<(TaskId, DeviceId)>],
    bound: Option<f64>,
) -> Result<Optimum, ExactError> {
    verify_size(problem)?;
    let mut search = Search::new(problem, *options);
    known.iter().for_each(|sequence| search.offer(sequence));
    search.run();
    let nodes = search.nodes();
    let open = search.open_bound();
    let stop = match search.end() {
        End::Complete => StopReason::Proven,
        End::Nodes => StopReason::NodeLimit,
        End::Time => StopReason::TimeLimit,
        End::Interrupted => return Err(ExactError::Interrupted),
    };
    match (search.into_best(), stop) {
        (Some(spans), _) => {
            let device_of = spans.iter().map(|span| span.device).collect();
            let schedule = Schedule::of_spans(problem, spans);
            let makespan = schedule.makespan;
            let bound = || bound.unwrap_or_else(|| lower_bound(problem).value).max(open);
            let lower_bound = if stop == StopReason::Proven { makespan } else { bound().min(makespan) };
            Ok(Optimum { device_of, schedule, lower_bound, nodes, stop })
        }
        (None, StopReason::Proven) => Err(ExactError::NoPlacement),
        (None, _) => Err(ExactError::Unfinished { nodes }),
    }
}

/// Refuses problems beyond the limits of the module.
fn verify_size(problem: &Problem<'_>) -> Result<(), ExactError> {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let sizes = [
        ("tasks", graph.task_count(), MAX_TASKS),
        ("devices", devices, MAX_DEVICES),
        ("data", graph.datum_count(), MAX_DATA),
    ];
    match sizes.iter().find(|&&(_, count, limit)| count > limit) {
        Some(&(what, count, limit)) => Err(ExactError::TooLarge { what, count, limit }),
        None => Ok(()),
    }
}

/// Returns the schedules of all strategies as sequences of appends.
fn known_sequences(problem: &Problem<'_>) -> Vec<Vec<(TaskId, DeviceId)>> {
    let strategies = STRATEGIES.iter().filter_map(|(name, _)| strategy_by_name(name));
    let placements = strategies.filter_map(|strategy: Box<dyn Placer>| strategy.place(problem).ok());
    let mut sequences = Vec::new();
    for placement in placements {
        let simulated = simulate(problem, &placement.device_of, &Pct).ok();
        for schedule in placement.planned.into_iter().chain(simulated) {
            let device = |&task: &TaskId| (task, placement.device_of[task.index()]);
            sequences.push(schedule.order.iter().map(device).collect());
        }
    }
    sequences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    fn solve(tasks: u32, memory: u64, nodes: u64) -> Result<Optimum, ExactError> {
        let mut builder = GraphBuilder::new();
        for number in 1..=tasks {
            builder.task(Task::new("t").with_memory(2).with_operations(number.into()));
        }
        let devices = vec![Device::new("d", DeviceKind::Cpu).with_memory(memory); 2];
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        optimum(&loaded.problem().unwrap(), &ExactOptions { nodes, until: None })
    }

    #[test]
    fn memory_is_kept_and_limits_are_results() {
        assert_eq!(solve(0, 2, 100).unwrap().schedule.makespan, 0.0);
        assert_eq!(solve(4, 8, 1_000_000).unwrap().schedule.makespan, 5.0);
        assert_eq!(
            solve(5, 8, 1_000_000).unwrap().schedule.makespan,
            8.0,
            "15 in two parts, the greater of 3 or 4 tasks"
        );
        assert_eq!(solve(3, 2, 1_000_000), Err(ExactError::NoPlacement));
        assert_eq!(solve(65, 1000, 100), Err(ExactError::TooLarge { what: "tasks", count: 65, limit: 64 }));
        let stopped = solve(40, 1000, 10).unwrap();
        assert!(stopped.schedule.makespan >= stopped.lower_bound && stopped.nodes <= 10);
    }
}
