//! Least numbers of partitions, cores and devices that keep a deadline, each with a lower bound.
//!
//! * Cores of one device: list schedules, between the bound and the parallelism of the graph. With as many cores as the
//!   parallelism, no task waits, and the longest path decides.
//! * Partitions: edge zeroing and [`merge_rest`](super::merge_rest). Merging never lengthens the completion, so of the
//!   partitionings found, the one with fewest partitions is also the fastest.
//! * Devices: for each number of devices from the bound on, the partitions are [assigned](super::assign) in two ways,
//!   and the shorter result counts.

use super::assign::{by_affinity, by_load};
use super::partition::Partitioning;
use super::problem::{FootprintError, Problem};
use super::schedule::{Timetable, timetable};
use crate::total::Total;

/// Share of a deadline by which rounding may exceed it.
pub(super) const ROUNDING: f64 = 1e-9;

/// Whether a time keeps a deadline, except for rounding.
pub(super) fn keeps(time: f64, deadline: f64) -> bool {
    time <= deadline * (1.0 + ROUNDING)
}

/// Returns an error if the longest path alone exceeds the deadline.
fn path_within(problem: &Problem<'_>, deadline: f64) -> Result<(), FootprintError> {
    let path = problem.longest_path(|_, _| false);
    if keeps(path, deadline) { Ok(()) } else { Err(FootprintError::Deadline { deadline, path }) }
}

/// Number of cores of one device that keeps a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestCores {
    /// Number of cores.
    pub cores: u64,
    /// Lower bound of the number of cores.
    pub bound: u64,
    /// Timetable on this number of cores.
    pub timetable: Timetable,
}

/// Number of identical devices that keeps a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestDevices {
    /// Number of devices.
    pub devices: usize,
    /// Lower bound of the number of devices.
    pub bound: usize,
    /// Timetable on these devices.
    pub timetable: Timetable,
}

/// Partitions that keep a deadline, without waiting for cores.
#[derive(Debug, Clone, PartialEq)]
pub struct FewestPartitions {
    /// The partitions.
    pub partitioning: Partitioning,
    /// Lower bound of the number of partitions, from the cap on parallelism and the memory.
    pub bound: usize,
}

/// Finds the least number of cores of one device that keeps `deadline`. The device's memory and number of cores are
/// ignored.
///
/// The search bisects between the bound and the parallelism. Then it goes downwards as long as fewer cores suffice,
/// because more cores may end later (Graham's anomalies). Each number takes one list schedule.
///
/// # Errors
/// Returns [`FootprintError::Deadline`] if the longest path alone exceeds the deadline.
pub fn fewest_cores(problem: &Problem<'_>, deadline: f64) -> Result<FewestCores, FootprintError> {
    let bound = cores_bound(problem, deadline)?;
    let on_one = vec![0; problem.graph().task_count()];
    let with = |cores: u64| {
        Some((cores, timetable(problem, &on_one, cores))).filter(|(_, found)| keeps(found.makespan, deadline))
    };
    let widest = problem.parallelism().max(bound);
    // With as many cores as the parallelism no task waits.
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

/// Returns a lower bound of the cores that keep the deadline. It is the greatest of the cores of one task, the work
/// over the deadline, and the cores that are certainly in use at some moment. A task certainly runs between its latest
/// start and its earliest end (Lahrichi 1982). `O(V log V + E)`.
///
/// # Errors
/// Returns an error if the longest path alone exceeds the deadline.
fn cores_bound(problem: &Problem<'_>, deadline: f64) -> Result<u64, FootprintError> {
    let graph = problem.graph();
    path_within(problem, deadline)?;
    let greatest = graph.task_ids().map(|task| problem.cores(task)).max().unwrap_or(0);
    let work = problem.work();
    let by_work = if work > 0.0 { (work / deadline * (1.0 - ROUNDING)).ceil() as u64 } else { 0 };
    Ok(greatest.max(by_work).max(certain(problem, deadline)))
}

/// Returns the most cores that are certainly in use at some moment.
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
    // Ends come before starts.
    changes.sort_unstable();
    let (mut taken, mut most) = (0, 0);
    for (_, begins, cores) in changes {
        taken = if begins { taken + cores } else { taken - cores };
        most = most.max(taken);
    }
    most
}

/// Returns the fewest partitions found whose completion keeps the deadline.
///
/// `merged` must be the result of [`merge_rest`](super::merge_rest). Takes the time of an antichain of the graph.
///
/// # Errors
/// Returns [`FootprintError::Deadline`] if the longest path alone exceeds the deadline, and else
/// [`FootprintError::NotReached`] with the completion of `merged` if that does.
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

/// Returns a lower bound of the number of partitions, from cap and memory.
///
/// Each partition takes at most a device's cores of the heaviest antichain, and at most a device's memory of the total.
pub fn partitions_bound(problem: &Problem<'_>) -> usize {
    let capacity = problem.capacity();
    let wide = problem.parallelism().div_ceil(capacity.cores.max(1));
    usize::try_from(wide.max(memory_bound(problem))).unwrap_or(usize::MAX)
}

/// Returns the number of devices whose memory together holds all resident bytes; at least one if there is a task.
fn memory_bound(problem: &Problem<'_>) -> u64 {
    let bytes: u64 = problem.graph().tasks().iter().map(|task| task.memory).sum();
    let by_memory = problem.capacity().memory.filter(|_| bytes > 0).map_or(0, |memory| bytes.div_ceil(memory.max(1)));
    by_memory.max(u64::from(problem.graph().task_count() > 0))
}

/// Returns the fewest identical devices found on which everything ends by `deadline`; tasks may wait for cores.
///
/// `merged`, the result of [`merge_rest`](super::merge_rest), is put on each number of devices from the bound on. Above
/// 64 devices, each number is an eighth more than the last. Each takes two list schedules.
///
/// # Errors
/// Returns [`FootprintError::Deadline`] if the longest path alone exceeds the deadline, and
/// [`FootprintError::NotReached`] if no tried number keeps it.
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
