//! Least number of devices of a given platform that keeps a deadline.
//!
//! Devices are removed one by one, as long as some strategy still keeps the deadline without them. Each round tries the
//! four least busy devices, and removes the one without which the schedule is shortest. That makes `O(devices)` rounds
//! of four placements by each strategy. The method does not search all subsets, so it may miss a smaller set.

use super::fewest::{ROUNDING, keeps};
use crate::check::{check_placement, check_schedule};
use crate::cost::CostModel;
use crate::graph::TaskId;
use crate::order::{Order, Pct, Planned};
use crate::place::{Placement, Placer};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::simulate::simulate;
use std::collections::BTreeSet;

/// Number of the least busy devices that a round tries.
const TRIED: usize = 4;

/// Devices of a platform that keep a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct Subset {
    /// The devices, ascending.
    pub devices: Vec<DeviceId>,
    /// Lower bound of the number of devices.
    pub bound: usize,
    /// Name of the strategy that placed on them.
    pub strategy: &'static str,
    /// The schedule, which has passed the checker.
    pub schedule: Schedule,
}

/// Returns the best schedule of `placers` on all devices, under their planned order or PCT; `None` if none of them
/// places the problem.
pub fn best_schedule(problem: &Problem<'_>, placers: &[&dyn Placer]) -> Option<(&'static str, Schedule)> {
    let schedules = placers.iter().filter_map(|placer| {
        let Placement { strategy, device_of, planned, .. } = placer.place(problem).ok()?;
        let planned = planned.as_ref().map(|planned| Planned::new(&planned.order));
        let orders = [Some(&Pct as &dyn Order), planned.as_ref().map(|planned| planned as &dyn Order)];
        let simulated = orders.into_iter().flatten().filter_map(|order| simulate(problem, &device_of, order).ok());
        let schedule = simulated.min_by(|one, other| one.makespan.total_cmp(&other.makespan))?;
        let is_valid = check_placement(problem, &device_of).is_empty()
            && check_schedule(problem, &device_of, &schedule).is_empty();
        is_valid.then_some((strategy, schedule))
    });
    schedules.min_by(|one, other| one.1.makespan.total_cmp(&other.1.makespan))
}

/// Returns the fewest devices found of the problem's platform on which one of `placers` ends by `deadline`. `best` must
/// be the result of [`best_schedule`]. Returns `None` if `best` ends after the deadline.
pub fn fewest_of_platform(
    problem: &Problem<'_>,
    best: (&'static str, Schedule),
    deadline: f64,
    placers: &[&dyn Placer],
) -> Option<Subset> {
    let in_time = |found: &(&'static str, Schedule)| keeps(found.1.makespan, deadline);
    let mut allowed: BTreeSet<DeviceId> = problem.platform().device_ids().collect();
    let mut best = Some(best).filter(in_time)?;
    let mut needed: BTreeSet<DeviceId> = BTreeSet::new();
    while allowed.len() > 1 {
        let busy = best.1.busy(problem.platform().device_count());
        let mut least: Vec<DeviceId> = allowed.difference(&needed).copied().collect();
        least.sort_by(|one, other| busy[one.index()].total_cmp(&busy[other.index()]).then(one.cmp(other)));
        let mut without: Vec<(DeviceId, (&'static str, Schedule))> = Vec::new();
        for &device in least.iter().take(TRIED) {
            let fewer: BTreeSet<DeviceId> = allowed.iter().copied().filter(|&other| other != device).collect();
            match schedule_on(problem, &fewer, placers).filter(in_time) {
                Some(found) => without.push((device, found)),
                // The device stays needed, because removing further devices usually only lengthens schedules.
                None => _ = needed.insert(device),
            }
        }
        let shortest = without.into_iter().min_by(|one, other| one.1.1.makespan.total_cmp(&other.1.1.makespan));
        match shortest {
            Some((device, found)) => {
                allowed.remove(&device);
                best = found;
            }
            None if least.len() <= TRIED => break,
            None => {}
        }
    }
    let bound = devices_bound(problem, deadline);
    Some(Subset { devices: allowed.into_iter().collect(), bound, strategy: best.0, schedule: best.1 })
}

/// Returns the best schedule on some devices alone; `None` if a task can run on none of them.
fn schedule_on(
    problem: &Problem<'_>,
    allowed: &BTreeSet<DeviceId>,
    placers: &[&dyn Placer],
) -> Option<(&'static str, Schedule)> {
    let only = Only { costs: problem.costs(), allowed };
    let fewer = Problem::new(problem.graph(), problem.platform(), &only, problem.memory_rule()).ok()?;
    best_schedule(&fewer.under(problem.rules().clone()).ok()?, placers)
}

/// Returns a lower bound of the number of devices that keep the deadline. It is the greatest of the pinned devices, all
/// work over the deadline (each task on its fastest device), and the fewest memories that hold all resident bytes. `O(V
/// × devices)`.
fn devices_bound(problem: &Problem<'_>, deadline: f64) -> usize {
    let (graph, platform) = (problem.graph(), problem.platform());
    let pinned: BTreeSet<DeviceId> = graph.tasks().iter().filter_map(|task| task.pinned).collect();
    let shortest = |task: TaskId| {
        problem.feasible(graph.unit(task)).map(|device| problem.time(task, device)).fold(f64::INFINITY, f64::min)
    };
    let work: f64 = graph.task_ids().map(shortest).sum();
    let by_work = if work > 0.0 { (work / deadline * (1.0 - ROUNDING)).ceil() as usize } else { 0 };
    let mut memories: Vec<u64> = platform.devices().iter().map(|device| device.memory.unwrap_or(u64::MAX)).collect();
    memories.sort_unstable_by(|one, other| other.cmp(one));
    let demand: u128 = graph.unit_ids().map(|unit| u128::from(problem.demand(unit))).sum();
    let mut room = 0u128;
    let by_memory = memories.iter().take_while(|&&memory| {
        let short = room < demand;
        room += u128::from(memory);
        short
    });
    pinned.len().max(by_work).max(by_memory.count()).max(usize::from(graph.task_count() > 0))
}

/// Costs of a platform of which only some devices may be used.
struct Only<'a> {
    costs: &'a dyn CostModel,
    allowed: &'a BTreeSet<DeviceId>,
}

impl CostModel for Only<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        self.costs.task_time(task, device).filter(|_| self.allowed.contains(&device))
    }

    fn nominal_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        self.costs.nominal_time(task, device).filter(|_| self.allowed.contains(&device))
    }

    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        self.costs.transfer_time(bytes, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::ListScheduler;
    use crate::sample;

    fn within(problem: &Problem<'_>, deadline: f64) -> Option<Subset> {
        let best = best_schedule(problem, &[&ListScheduler::HEFT])?;
        fewest_of_platform(problem, best, deadline, &[&ListScheduler::HEFT])
    }

    /// Three independent tasks of 4 on devices of speed 1, 1, 2 and 4.
    #[test]
    fn devices_that_the_deadline_does_not_need_are_left_out() {
        let loaded = sample::problem(sample::graph(&[4.0; 3], &[]), &[1.0, 1.0, 2.0, 4.0]);
        let problem = loaded.problem().unwrap();
        let within = |deadline: f64| within(&problem, deadline);
        let devices = |deadline: f64| within(deadline).map(|subset| subset.devices);
        assert_eq!(devices(2.0), Some(vec![DeviceId(2), DeviceId(3)]));
        assert_eq!(devices(3.0), Some(vec![DeviceId(3)]));
        assert_eq!(devices(1.9), None);
        let subset = within(2.0).unwrap();
        assert_eq!((subset.bound, subset.schedule.makespan), (2, 2.0));
    }

    #[test]
    fn pinned_devices_stay() {
        let mut builder = sample::tasks(&[1.0, 1.0]);
        builder.task(crate::graph::Task::new("pinned").with_pin(DeviceId(1)));
        let loaded = sample::problem(builder.build().unwrap(), &[9.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let subset = within(&problem, 1.0).unwrap();
        assert_eq!(subset.devices, [0, 1].map(DeviceId));
        let subset = within(&problem, 10.0).unwrap();
        assert_eq!((subset.devices, subset.bound), (vec![DeviceId(1)], 1));
    }
}
