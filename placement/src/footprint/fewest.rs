//! The fewest partitions, cores and devices that keep a deadline, each with a bound that nothing can beat.
//!
//! * Cores of one device: list schedules, between the bound and the parallelism of the graph. With as many cores as that, no task waits, and the
//!   longest path decides.
//! * Partitions: edge zeroing and [`merge_rest`](super::merge_rest); merging never makes the completion longer, so the fewest that are found are also
//!   the fastest that are found.
//! * Devices: from the bound upwards, the partitions on so many devices by two ways of [assigning](super::assign), whichever ends sooner.

use super::assign::{by_affinity, by_load};
use super::partition::Partitioning;
use super::problem::{FootprintError, Problem};
use super::schedule::{Timetable, timetable};
use crate::total::Total;

/// Part of a deadline by which roundings may exceed it.
pub(super) const ROUNDING: f64 = 1e-9;

/// Whether a time is within a deadline, but for roundings.
pub(super) fn keeps(time: f64, deadline: f64) -> bool {
    time <= deadline * (1.0 + ROUNDING)
}

/// Refuses a deadline before the end of the longest path.
fn path_within(problem: &Problem<'_>, deadline: f64) -> Result<(), FootprintError> {
    let path = problem.longest_path(|_, _| false);
    if keeps(path, deadline) { Ok(()) } else { Err(FootprintError::Deadline { deadline, path }) }
}

/// Cores of one device that keep a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestCores {
    /// How many.
    pub cores: u64,
    /// No fewer do.
    pub bound: u64,
    /// What runs when with them.
    pub timetable: Timetable,
}

/// Alike devices that keep a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestDevices {
    /// How many.
    pub devices: usize,
    /// No fewer do.
    pub bound: usize,
    /// What runs where and when.
    pub timetable: Timetable,
}

/// Partitions that keep a deadline without any waiting for cores.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestPartitions {
    /// Them.
    pub partitioning: Partitioning,
    /// No fewer keep the cap on parallelism and the memory.
    pub bound: usize,
}

/// The fewest cores of one device on which everything ends by `deadline`; its memory and its own number of cores do not count.
///
/// Bisection between the bound and the parallelism, and downwards from there as long as fewer do: more cores may end later (Graham's
/// anomalies). A list schedule for each number that is tried.
///
/// # Errors
/// A deadline before the end of the longest path.
pub fn fewest_cores(problem: &Problem<'_>, deadline: f64) -> Result<FewestCores, FootprintError> {
    let bound = cores_bound(problem, deadline)?;
    let on_one = vec![0; problem.graph().task_count()];
    let with = |cores: u64| {
        Some((cores, timetable(problem, &on_one, cores))).filter(|(_, found)| keeps(found.makespan, deadline))
    };
    let widest = problem.parallelism().max(bound);
    // With as many cores as the parallelism nothing waits.
    let mut best = (widest, timetable(problem, &on_one, widest));
    let (mut low, mut high) = (bound, widest);
    while low < high {
        let middle = low + (high - low) / 2;
        match with(middle) {
            Some(found) => (best, high) = (found, middle),
            None => low = middle + 1,
        }
    }
    while best.0 > bound
        && let Some(found) = with(best.0 - 1)
    {
        best = found;
    }
    Ok(FewestCores { cores: best.0, bound, timetable: best.1 })
}

/// Cores without which nothing keeps the deadline: those of the greatest task; the work over the deadline; and the most that must run at some
/// moment, for a task runs between its latest start and its earliest end whatever else does (Lahrichi 1982). `O(V log V + E)`.
///
/// # Errors
/// A deadline before the end of the longest path.
fn cores_bound(problem: &Problem<'_>, deadline: f64) -> Result<u64, FootprintError> {
    let graph = problem.graph();
    path_within(problem, deadline)?;
    let greatest = graph.task_ids().map(|task| problem.cores(task)).max().unwrap_or(0);
    let work = problem.work();
    let by_work = if work > 0.0 { (work / deadline * (1.0 - ROUNDING)).ceil() as u64 } else { 0 };
    Ok(greatest.max(by_work).max(certain(problem, deadline)))
}

/// The most cores that are certainly taken at some moment.
fn certain(problem: &Problem<'_>, deadline: f64) -> u64 {
    let graph = problem.graph();
    let (mut earliest, mut latest) = (vec![0.0f64; graph.task_count()], vec![deadline; graph.task_count()]);
    for &task in graph.topological() {
        let before = graph.predecessors(task).iter().map(|from| earliest[from.index()]);
        earliest[task.index()] = before.fold(0.0, f64::max) + problem.time(task);
    }
    for &task in graph.topological().iter().rev() {
        let after = graph.successors(task).iter().map(|to| latest[to.index()]);
        latest[task.index()] = after.fold(deadline, f64::min) - problem.time(task);
    }
    let mut changes: Vec<(Total, bool, u64)> = Vec::new();
    let slack = deadline * ROUNDING;
    for task in graph.task_ids() {
        let (from, to) = (latest[task.index()] + slack, earliest[task.index()] - slack);
        if from < to {
            changes.extend([(Total(from), true, problem.cores(task)), (Total(to), false, problem.cores(task))]);
        }
    }
    // Ends before starts.
    changes.sort_unstable();
    let (mut taken, mut most) = (0, 0);
    for (_, begins, cores) in changes {
        taken = if begins { taken + cores } else { taken - cores };
        most = most.max(taken);
    }
    most
}

/// The fewest partitions that are found whose completion keeps the deadline: `merged`, which [`merge_rest`](super::merge_rest) gives. Time as an
/// antichain of the graph.
///
/// # Errors
/// Where none is found, with the shortest completion that was.
pub fn fewest_partitions(
    problem: &Problem<'_>,
    merged: Partitioning,
    deadline: f64,
) -> Result<FewestPartitions, FootprintError> {
    if !keeps(merged.completion, deadline) {
        path_within(problem, deadline)?;
        return Err(FootprintError::NotReached { deadline, reached: merged.completion });
    }
    Ok(FewestPartitions { bound: partitions_bound(problem), partitioning: merged })
}

/// Partitions without which nothing keeps cap and memory: the tasks of the heaviest antichain take its weight together, a partition of them at most what a
/// device has; and all memory over that of a device.
pub fn partitions_bound(problem: &Problem<'_>) -> usize {
    let capacity = problem.capacity();
    let wide = problem.parallelism().div_ceil(capacity.cores.max(1));
    usize::try_from(wide.max(memory_bound(problem))).unwrap_or(usize::MAX)
}

/// Devices whose memory together holds all that stays; at least one where there is a task.
fn memory_bound(problem: &Problem<'_>) -> u64 {
    let bytes: u64 = problem.graph().tasks().iter().map(|task| task.memory).sum();
    let by_memory = problem.capacity().memory.filter(|_| bytes > 0).map_or(0, |memory| bytes.div_ceil(memory.max(1)));
    by_memory.max(u64::from(problem.graph().task_count() > 0))
}

/// The fewest alike devices that are found on which everything ends by `deadline`, tasks waiting for cores where that pays. What
/// [`merge_rest`](super::merge_rest) gives, `merged`, is put on each number of them from the bound on, but of more than 64 every one that is an eighth more
/// than the last; two list schedules each.
///
/// # Errors
/// A deadline before the end of the longest path, or one that is kept by none of what is tried.
pub fn fewest_devices(
    problem: &Problem<'_>,
    merged: &Partitioning,
    deadline: f64,
) -> Result<FewestDevices, FootprintError> {
    let cores = problem.capacity().cores.max(1);
    let bound = cores_bound(problem, deadline)?.div_ceil(cores).max(memory_bound(problem));
    let bound = usize::try_from(bound).unwrap_or(usize::MAX);
    let partitions = merged.parts.len();
    let (mut devices, mut reached) = (bound, f64::INFINITY);
    while devices <= partitions.max(bound) {
        let assigned = [by_affinity(problem, merged, devices), by_load(problem, merged, devices)];
        for device_of in assigned.into_iter().flatten() {
            let timetable = timetable(problem, &device_of, cores);
            if keeps(timetable.makespan, deadline) {
                return Ok(FewestDevices { devices, bound, timetable });
            }
            reached = reached.min(timetable.makespan);
        }
        devices = if devices >= partitions { devices + 1 } else { (devices + 1 + devices / 64 * 8).min(partitions) };
    }
    Err(FootprintError::NotReached { deadline, reached: reached.min(merged.completion) })
}
