//! Parts of a placement: groups of tasks that each run on one device without a message in between.
//!
//! A process that computes a part gets all of its inputs, computes, and then sends all of its outputs. A schedule of
//! single tasks becomes parts in two steps. First each device's tasks are cut before a task that waits for another
//! device, and after a task that another device waits for. So no part delays a message of the schedule. Then
//! neighbours on one device are merged as long as the latency of an input does not grow ([`forecast()`]), because each
//! part costs its device a fixed time.
//!
//! Parts may never wait for each other in a circle, so each device may have several of them: a stem and a join, with a
//! branch of another device between them. [`check()`] judges parts and their forecast independently.

mod check;
mod forecast;

pub use check::{Violation, check};
pub use forecast::{Forecast, Message, PartSpan, forecast};

use crate::graph::TaskId;
use crate::order::{InOrder, Pct};
use crate::place::{Auto, PlaceError, Placement};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::simulate::simulate;
use std::collections::{BTreeMap, BTreeSet};

/// Most parts of a schedule before neighbours are merged. Schedules with more parts are not considered.
const MOST_PARTS: usize = 256;
/// Share by which merging may make the latency longer: a part less is worth that.
const TOLERANCE: f64 = 1e-3;

/// Tasks that run on one device without a message in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The device.
    pub device: DeviceId,
    /// The tasks, in the order in which they run.
    pub tasks: Vec<TaskId>,
}

/// Parts of the placement with the least latency that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Name of the strategy that placed the tasks.
    pub strategy: &'static str,
    /// The parts, each after the parts that it waits for.
    pub parts: Vec<Part>,
    /// Their predicted times.
    pub forecast: Forecast,
}

/// Searches for the parts of the least latency, and of those for the least period.
///
/// `auto` places the tasks, within so many `evaluations`. All placements that it has seen are made into parts.
/// `overhead` holds the time that each part costs a device, by device. Returns `None` if no schedule has few enough
/// parts.
///
/// `O(placements × parts² × (edges × log edges + parts × (parts + devices)))` after the search of `auto`.
///
/// # Errors
/// If no strategy finds a placement.
pub fn best_parts(problem: &Problem<'_>, overhead: &[f64], evaluations: u64) -> Result<Option<Found>, PlaceError> {
    let auto = Auto { evaluations: Some(evaluations), ..Auto::default() };
    let mut best: Option<Found> = None;
    for (_, placement) in auto.improve(problem, |_, _| ())?.different {
        let Some(schedule) = scheduled(problem, &placement) else { continue };
        let parts = parts_of(problem, &schedule);
        if parts.len() > MOST_PARTS {
            continue;
        }
        let (parts, forecast) = merged(problem, parts, overhead);
        let rank = |forecast: &Forecast| (forecast.latency, forecast.period);
        if best.as_ref().is_none_or(|best| rank(&forecast) < rank(&best.forecast)) {
            best = Some(Found { strategy: placement.strategy, parts, forecast });
        }
    }
    Ok(best)
}

/// Returns the schedule of a placement, in the order that belongs to it.
fn scheduled(problem: &Problem<'_>, placement: &Placement) -> Option<Schedule> {
    let found = match placement.order_to_keep() {
        Some(order) => simulate(problem, &placement.device_of, &InOrder::new(order)),
        None => simulate(problem, &placement.device_of, &Pct),
    };
    found.ok()
}

/// Cuts a schedule into parts that delay none of its messages. They come in the order in which they start.
///
/// `O(tasks + edges × log parts)`.
pub fn parts_of(problem: &Problem<'_>, schedule: &Schedule) -> Vec<Part> {
    let graph = problem.graph();
    let device = |task: TaskId| schedule.tasks[task.index()].device;
    let mut parts: Vec<Part> = Vec::new();
    let mut part_of = vec![0; graph.task_count()];
    // The part of each device that may still grow, with the parts of other devices that it waits for.
    let mut open: BTreeMap<DeviceId, (usize, BTreeSet<usize>)> = BTreeMap::new();
    for &task in &schedule.order {
        let own = device(task);
        let away = graph.predecessors(task).iter().filter(|before| device(**before) != own);
        let sources: BTreeSet<usize> = away.map(|before| part_of[before.index()]).collect();
        let at = match open.get(&own) {
            Some((at, known)) if sources.is_subset(known) => *at,
            _ => {
                parts.push(Part { device: own, tasks: Vec::new() });
                open.insert(own, (parts.len() - 1, sources));
                parts.len() - 1
            }
        };
        parts[at].tasks.push(task);
        part_of[task.index()] = at;
        if graph.successors(task).iter().any(|after| device(*after) != own) {
            open.remove(&own);
        }
    }
    parts
}

/// Merges neighbours on one device until each merge would make the latency longer, within [`TOLERANCE`]. Returns the
/// parts with their forecast.
fn merged(problem: &Problem<'_>, parts: Vec<Part>, overhead: &[f64]) -> (Vec<Part>, Forecast) {
    let mut known = forecast(problem, &parts, overhead);
    let most = known.latency * (1.0 + TOLERANCE);
    let mut parts = parts;
    loop {
        let (before, mut at) = (parts.len(), 0);
        while at < parts.len() {
            let next = (at + 1..parts.len()).find(|next| parts[*next].device == parts[at].device);
            let tried = next.and_then(|next| joined(problem, &parts, at, next));
            match tried.map(|parts| (forecast(problem, &parts, overhead), parts)) {
                Some((found, joined)) if found.latency <= most => (known, parts) = (found, joined),
                _ => at += 1,
            }
        }
        if parts.len() == before {
            return (parts, known);
        }
    }
}

/// Joins two parts of one device, of which the first comes before the second. Returns all parts, each after those that
/// it waits for, or `None` if some would wait for each other.
fn joined(problem: &Problem<'_>, parts: &[Part], first: usize, second: usize) -> Option<Vec<Part>> {
    let mut all = parts.to_vec();
    let tail = all.remove(second);
    all[first].tasks.extend(tail.tasks);
    let order = ordered(problem, &all)?;
    Some(
        order
            .into_iter()
            .map(|at| std::mem::replace(&mut all[at], Part { device: tail.device, tasks: Vec::new() }))
            .collect(),
    )
}

/// Returns the parts in an order in which each comes after those that it waits for, and otherwise as they are; `None`
/// if some wait for each other.
fn ordered(problem: &Problem<'_>, parts: &[Part]) -> Option<Vec<usize>> {
    let part_of = part_of(problem, parts);
    let (mut after, mut waits) = (vec![BTreeSet::new(); parts.len()], vec![0; parts.len()]);
    for task in problem.graph().task_ids() {
        let own = part_of[task.index()];
        for next in problem.graph().successors(task).iter().map(|next| part_of[next.index()]) {
            if next != own && after[own].insert(next) {
                waits[next] += 1;
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..parts.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::with_capacity(parts.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for next in &after[at] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    (order.len() == parts.len()).then_some(order)
}

/// Returns the part of each task.
fn part_of(problem: &Problem<'_>, parts: &[Part]) -> Vec<usize> {
    let mut part_of = vec![0; problem.graph().task_count()];
    for (at, part) in parts.iter().enumerate() {
        part.tasks.iter().for_each(|task| part_of[task.index()] = at);
    }
    part_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::lower_bound;
    use crate::graph::DatumId;
    use crate::random::Random;
    use crate::sample;

    /// A stem, two branches and a join.
    fn wide(branch: f64, bytes: u64) -> crate::loaded::LoadedProblem {
        let edges = [(0, 1, bytes), (0, 2, bytes), (1, 3, bytes), (2, 3, bytes)];
        sample::problem(sample::graph(&[1.0, branch, branch, 1.0], &edges), &[1.0, 1.0])
    }

    fn found(loaded: &crate::loaded::LoadedProblem, overhead: f64) -> Found {
        let problem = loaded.problem().unwrap();
        let overhead = vec![overhead; problem.platform().device_count()];
        let found = best_parts(&problem, &overhead, 200).unwrap().unwrap();
        assert_eq!(check(&problem, &found.parts, &overhead, &found.forecast), []);
        found
    }

    #[test]
    fn branches_run_at_the_same_time() {
        let found = found(&wide(10.0, 10), 0.0);
        // The stem and its send take 1 and 1; the way back takes 1.
        assert_eq!(found.forecast.latency, 1.0 + 1.0 + 10.0 + 1.0 + 1.0);
        assert_eq!(found.parts.iter().map(|part| part.device).collect::<BTreeSet<_>>().len(), 2);
        assert_eq!(found.parts.len(), 4, "the stem, a branch at each device, and the join");
    }

    #[test]
    fn a_branch_that_is_not_worth_its_messages_or_its_part_stays() {
        for (bytes, overhead) in [(100, 0.0), (10, 5.0)] {
            let found = found(&wide(10.0, bytes), overhead);
            assert_eq!(found.parts.len(), 1, "{bytes} bytes, {overhead}");
            assert_eq!(found.forecast.latency, 22.0 + overhead);
        }
    }

    #[test]
    fn parts_of_random_graphs_pass_the_checker() {
        let mut random = Random::new(1);
        let mut several = 0;
        for seed in 0..60 {
            let count = 2 + random.below(24) as u32;
            let operations: Vec<f64> = (0..count).map(|_| random.uniform(0.0, 8.0)).collect();
            let mut graph = sample::tasks(&operations);
            // Two data of each task, which several tasks may read.
            let data: Vec<DatumId> = (0..2 * count).map(|at| graph.datum(TaskId(at / 2), random.below(30))).collect();
            for to in 1..count {
                let read: BTreeSet<u64> = (0..random.below(4)).map(|_| random.below(2 * u64::from(to))).collect();
                read.iter().for_each(|datum| graph.consume(data[*datum as usize], TaskId(to)));
            }
            let speeds: Vec<f64> = (0..1 + random.below(4)).map(|_| random.uniform(0.5, 2.0)).collect();
            let loaded = sample::problem(graph.build().unwrap(), &speeds);
            let problem = loaded.problem().unwrap();
            let overhead: Vec<f64> = speeds.iter().map(|_| random.uniform(0.0, 1.0)).collect();
            let auto = Auto { evaluations: Some(20), seed };
            for (_, placement) in auto.improve(&problem, |_, _| ()).unwrap().different {
                let schedule = scheduled(&problem, &placement).unwrap();
                let finest = parts_of(&problem, &schedule);
                let first = forecast(&problem, &finest, &overhead);
                assert_eq!(check(&problem, &finest, &overhead, &first), [], "seed {seed}");
                let (parts, last) = merged(&problem, finest, &overhead);
                assert_eq!(check(&problem, &parts, &overhead, &last), [], "seed {seed}");
                assert!(last.latency <= first.latency * (1.0 + TOLERANCE));
                assert!(last.latency >= lower_bound(&problem).value * (1.0 - 1e-9), "seed {seed}");
                several += usize::from(parts.len() > 3);
            }
        }
        assert!(several > 50, "{several}");
    }
}
