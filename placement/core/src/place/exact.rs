//! Exact: the search for the optimum as a strategy.
//!
//! First [`Auto`] places. From its schedule the [exact search](crate::exact) starts, until it has proven an optimum or
//! reaches a limit. Graphs beyond the limits of that search keep the result of `auto`. In all cases the result comes
//! with a lower bound of the makespan, so that the gap to the optimum is known.
//!
//! The exact search knows transfers without contention and sends without costs. Under other rules its optimum is a
//! lower bound, and its schedule is simulated under the rules of the problem. Then the result is proven only if the
//! simulated makespan equals the bound.

use super::{Auto, EXACT, PlaceError, Placement, Placer, Reason};
use crate::exact::{ExactError, ExactOptions, optimum_from};
use crate::order::InOrder;
use crate::problem::Problem;
use crate::schedule::Schedule;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Relative difference up to which a makespan equals its bound: sums of the same times in another order.
const PRECISION: f64 = 1e-9;

/// Strategy that searches for a proven optimum, and the limits of its search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact {
    /// Search that the exact search starts from.
    pub auto: Auto,
    /// Nodes after which the exact search stops (default: a million).
    pub nodes: u64,
    /// Time after which both searches stop (default: none). With it, the result depends on the speed of the machine.
    /// The strategies that `auto` starts from always run to their ends.
    pub time_limit: Option<Duration>,
}

impl Default for Exact {
    fn default() -> Self {
        Exact { auto: Auto::default(), nodes: ExactOptions::default().nodes, time_limit: None }
    }
}

/// Result of the exact search: a makespan, and a lower bound of all makespans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proof {
    /// Makespan of the schedule that was found.
    pub makespan: f64,
    /// Lower bound of the makespan of all schedules; equal to the makespan if it is proven.
    pub bound: f64,
    /// Nodes that the search visited; `None` if the problem is beyond its limits.
    pub nodes: Option<u64>,
}

impl Proof {
    /// Whether no schedule is shorter, up to a part in 10^9.
    pub fn is_optimal(&self) -> bool {
        self.makespan <= self.bound * (1.0 + PRECISION)
    }

    /// Returns the part by which the makespan exceeds the bound; `None` for a bound of 0.
    pub fn gap(&self) -> Option<f64> {
        (self.bound > 0.0).then(|| (self.makespan / self.bound - 1.0).max(0.0))
    }
}

impl Exact {
    /// Returns the strategy that `exact` or `exact:SECONDS` names; the seconds are a whole number from 1.
    pub fn by_name(name: &str) -> Option<Self> {
        let limit = match name.strip_prefix(EXACT)? {
            "" => None,
            limit => Some(limit.strip_prefix(':')?.parse::<NonZeroU32>().ok()?),
        };
        let time_limit = limit.map(|seconds| Duration::from_secs(seconds.get().into()));
        Some(Exact { time_limit, ..Exact::default() })
    }
}

impl Placer for Exact {
    fn name(&self) -> &'static str {
        EXACT
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let until = self.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let over = || until.is_some_and(|until| Instant::now() >= until);
        // The exact search may find a placement in tight memory although no strategy does.
        let started = match self.auto.improve_until(problem, &over, |_, _| {}) {
            Err(PlaceError::Interrupted) => return Err(PlaceError::Interrupted),
            improved => improved.map(|improved| (improved.schedule, improved.bound.value)),
        };
        let sequence = |schedule: &Schedule| {
            schedule.order.iter().map(|&task| (task, schedule.tasks[task.index()].device)).collect()
        };
        let known: Vec<_> = started.iter().map(|(schedule, _)| sequence(schedule)).collect();
        let options = ExactOptions { nodes: self.nodes, until };
        let known_bound = started.as_ref().ok().map(|(_, bound)| *bound);
        let (found, mut bound, nodes) = match optimum_from(problem, &options, &known, known_bound) {
            Ok(found) => {
                let order = InOrder::new(&found.schedule.order);
                let schedule = super::auto::simulated(problem, &found.device_of, &order)?;
                (Some(schedule), found.lower_bound, Some(found.nodes))
            }
            Err(ExactError::Interrupted) => return Err(PlaceError::Interrupted),
            // The result of `auto` comes with its own bound.
            Err(ExactError::TooLarge { .. }) => (None, 0.0, None),
            Err(ExactError::Unfinished { nodes }) => (None, 0.0, Some(nodes)),
            Err(ExactError::NoPlacement) if started.is_err() => return Err(PlaceError::Impossible),
            Err(ExactError::NoPlacement) => (None, 0.0, Some(0)),
        };
        let schedule = match (started, found) {
            (Ok((first, known)), found) => {
                bound = bound.max(known);
                found.filter(|found| found.makespan < first.makespan).unwrap_or(first)
            }
            (Err(_), Some(found)) => found,
            (Err(error), None) => return Err(error),
        };
        let proof = Proof { makespan: schedule.makespan, bound: bound.min(schedule.makespan), nodes };
        let device_of: Vec<_> = schedule.tasks.iter().map(|span| span.device).collect();
        let reasons = vec![Reason::Exact(proof); device_of.len()];
        Ok(Placement { strategy: EXACT, device_of, reasons, planned: Some(schedule) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn it_is_proven_that_nothing_fits() {
        let mut builder = GraphBuilder::new();
        (0..3).for_each(|_| _ = builder.task(Task::new("t").with_memory(2).with_operations(1.0)));
        let devices = vec![Device::new("d", DeviceKind::Cpu).with_memory(2); 2];
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        assert_eq!(Exact::default().place(&loaded.problem().unwrap()), Err(PlaceError::Impossible));
    }
}
