//! Independent checker: it uses the definitions only and shares no code with the search for partitions and timetables.
//!
//! The parallelism of a partition comes from a separate search for antichains, which is not trusted. Its certificate is
//! checked: the antichain, and as many chains that cover the graph ([`check_antichain`]).

use super::antichain::Antichain;
use super::fewest::{FewestCores, FewestDevices};
use super::partition::Partitioning;
use super::problem::Problem;
use super::schedule::Timetable;
use crate::graph::{TaskGraph, TaskId};

/// Fault of a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Violation {
    /// A list without one entry for each task or edge.
    #[error("{what} has {found} entries, but should have {expected}")]
    Length { what: &'static str, found: usize, expected: usize },
    /// A task that does not exist, is listed twice, or is reachable from another task of the antichain.
    #[error("{task} does not form an antichain with the other tasks")]
    Ordered { task: TaskId },
    /// A weight that is not the sum of its parts.
    #[error(
        "the weight of the antichain is given as {claimed}, but its tasks weigh {tasks}, and {chains} chains \
         cover the graph"
    )]
    Weight { claimed: u64, tasks: u128, chains: u128 },
    /// A task that too few chains pass, or that more chains leave than pass.
    #[error("{task} weighs {weight}, but {passing} chains pass it and {leaving} leave it")]
    Cover { task: TaskId, weight: u64, passing: u128, leaving: u128 },
    /// A task that is not listed exactly once, by its own partition.
    #[error("{task} must be listed exactly once, by the partition that it is assigned to")]
    Part { task: TaskId },
    /// Colocated tasks in different partitions or devices.
    #[error("{first} and {second} are colocated, but placed apart")]
    Colocation { first: TaskId, second: TaskId },
    /// A partition or device that holds more bytes than fit.
    #[error("partition or device {place} keeps {bytes} bytes, but is stated to keep {claimed} of {capacity} bytes")]
    Memory { place: usize, bytes: u128, claimed: u64, capacity: u64 },
    /// A partition whose tasks can take more cores than the capacity, or a wrong number of cores.
    #[error("tasks of partition {place} can use {cores} cores at a time, but {claimed} of {capacity} are stated")]
    Parallelism { place: usize, cores: u64, claimed: u64, capacity: u64 },
    /// A time or an amount that differs from the claim.
    #[error("{what} is given as {claimed}, but is {found}")]
    Claim { what: &'static str, claimed: f64, found: f64 },
    /// A task that starts before its data are available.
    #[error("{task} starts at {start}, but its data arrive at {ready}")]
    Early { task: TaskId, start: f64, ready: f64 },
    /// More cores in use than a device has.
    #[error("device {device} has {cores} cores, but {taken} are used at {time}")]
    Cores { device: u32, cores: u64, taken: u128, time: f64 },
}

/// Share of a time by which rounding may exceed it.
const ROUNDING: f64 = 1e-9;

/// Whether two times differ; infinite values and NaN differ from everything.
fn differ(one: f64, other: f64) -> bool {
    let are_times = one.is_finite() && other.is_finite();
    !are_times || (one - other).abs() > ROUNDING * one.abs().max(other.abs())
}

/// Checks that `found` is an antichain of maximum weight.
///
/// The certificate is a chain cover: every task lies on at least as many chains as its weight, and the number of chains
/// equals the antichain's weight. A flow that never grows along its way decomposes into chains, and a chain meets an
/// antichain at most once. So no antichain can weigh more. `O(V + E)`.
pub fn check_antichain(graph: &TaskGraph, weights: &[u64], found: &Antichain) -> Vec<Violation> {
    let expected = graph.task_count();
    let cover = &found.cover;
    for (what, found) in [("weights", weights.len()), ("starts", cover.starts.len()), ("passing", cover.passing.len())]
    {
        if found != expected {
            return vec![Violation::Length { what, found, expected }];
        }
    }
    let mut violations = ordered(graph, &found.tasks);
    let mut passing: Vec<u128> = cover.starts.iter().map(|&chains| u128::from(chains)).collect();
    for &task in graph.topological() {
        let (onward, successors) = (&cover.passing[task.index()], graph.successors(task));
        if onward.len() != successors.len() {
            let (found, expected) = (onward.len(), successors.len());
            return vec![Violation::Length { what: "passing of a task", found, expected }];
        }
        let leaving = onward.iter().map(|&chains| u128::from(chains)).sum();
        let (weight, passing_it) = (weights[task.index()], passing[task.index()]);
        if passing_it < u128::from(weight) || leaving > passing_it {
            violations.push(Violation::Cover { task, weight, passing: passing_it, leaving });
        }
        successors.iter().zip(onward).for_each(|(to, &chains)| passing[to.index()] += u128::from(chains));
    }
    let tasks = found.tasks.iter().filter_map(|task| weights.get(task.index())).map(|&weight| u128::from(weight)).sum();
    let chains = cover.starts.iter().map(|&chains| u128::from(chains)).sum();
    if u128::from(found.weight) != tasks || tasks != chains {
        violations.push(Violation::Weight { claimed: found.weight, tasks, chains });
    }
    violations
}

/// Returns the tasks of a set that are reachable from another of its tasks, and duplicates.
fn ordered(graph: &TaskGraph, tasks: &[TaskId]) -> Vec<Violation> {
    let (mut member, mut reached) = (vec![false; graph.task_count()], vec![false; graph.task_count()]);
    let mut violations = Vec::new();
    for &task in tasks {
        match member.get_mut(task.index()) {
            Some(is_member) if !*is_member => *is_member = true,
            _ => violations.push(Violation::Ordered { task }),
        }
    }
    for &task in graph.topological() {
        let from = graph.predecessors(task).iter();
        reached[task.index()] = from.into_iter().any(|from| reached[from.index()] || member[from.index()]);
        if reached[task.index()] && member[task.index()] {
            violations.push(Violation::Ordered { task });
        }
    }
    violations
}

/// Checks that partitions cover all tasks, keep colocation, the cap and memory, and that the claims about them are
/// true.
///
/// The parallelism of each partition is computed again with its proof, on the whole graph with other tasks weightless.
/// It takes the time of an antichain of the graph for each partition.
pub fn check_partitioning(problem: &Problem<'_>, found: &Partitioning) -> Vec<Violation> {
    let graph = problem.graph();
    if found.part_of.len() != graph.task_count() {
        let (found, expected) = (found.part_of.len(), graph.task_count());
        return vec![Violation::Length { what: "the partitioning", found, expected }];
    }
    let mut violations = colocation(problem, &found.part_of);
    let mut times = vec![0; graph.task_count()];
    for (place, part) in found.parts.iter().enumerate() {
        let mut weights = vec![0; graph.task_count()];
        for &task in &part.tasks {
            match times.get_mut(task.index()) {
                Some(times) if found.part_of[task.index()] as usize == place => *times += 1,
                _ => return vec![Violation::Part { task }],
            }
            weights[task.index()] = problem.cores(task);
        }
        let bytes = part.tasks.iter().map(|&task| u128::from(graph.task(task).memory)).sum();
        let capacity = problem.capacity().memory.unwrap_or(u64::MAX);
        if bytes != u128::from(part.memory) || bytes > u128::from(capacity) {
            violations.push(Violation::Memory { place, bytes, claimed: part.memory, capacity });
        }
        let capacity = problem.capacity().cores;
        let cores = super::heaviest_antichain(graph, &weights).map_or(u64::MAX, |antichain| {
            violations.extend(check_antichain(graph, &weights, &antichain));
            antichain.weight
        });
        if cores != part.parallelism || cores > capacity {
            violations.push(Violation::Parallelism { place, cores, claimed: part.parallelism, capacity });
        }
    }
    violations.extend(graph.task_ids().filter(|task| times[task.index()] != 1).map(|task| Violation::Part { task }));
    let (completion, movement) = consequences(problem, &found.part_of);
    if differ(completion, found.completion) {
        violations.push(Violation::Claim { what: "the completion", claimed: found.completion, found: completion });
    }
    if u128::from(found.movement) != movement.min(u128::from(u64::MAX)) {
        let (claimed, found) = (found.movement as f64, movement as f64);
        violations.push(Violation::Claim { what: "the movement", claimed, found });
    }
    violations
}

fn colocation(problem: &Problem<'_>, place_of: &[u32]) -> Vec<Violation> {
    let graph = problem.graph();
    let pairs = graph.unit_ids().flat_map(|unit| graph.members(unit).windows(2));
    let apart = pairs.filter(|pair| place_of[pair[0].index()] != place_of[pair[1].index()]);
    apart.map(|pair| Violation::Colocation { first: pair[0], second: pair[1] }).collect()
}

/// Returns the end of the last task if none waits for cores, and the bytes of edges between partitions. It works
/// backwards from the last task.
fn consequences(problem: &Problem<'_>, part_of: &[u32]) -> (f64, u128) {
    let graph = problem.graph();
    let (mut after, mut movement) = (vec![0.0f64; graph.task_count()], 0u128);
    for &task in graph.topological().iter().rev() {
        let mut longest = 0.0f64;
        for &datum in graph.outputs(task) {
            for &to in graph.consumers(datum) {
                let crosses = part_of[task.index()] != part_of[to.index()];
                longest = longest.max(after[to.index()] + if crosses { problem.transfer(datum) } else { 0.0 });
                movement += if crosses { u128::from(graph.bytes(datum)) } else { 0 };
            }
        }
        after[task.index()] = problem.time(task) + longest;
    }
    (after.into_iter().fold(0.0, f64::max), movement)
}

/// Checks a timetable: `cores` and memory of every device, arrival of data, colocation, and the claimed end. `O((V + E)
/// log V)`.
pub fn check_timetable(problem: &Problem<'_>, cores: u64, found: &Timetable) -> Vec<Violation> {
    let graph = problem.graph();
    for (what, found) in [("devices", found.device_of.len()), ("starts", found.starts.len())] {
        if found != graph.task_count() {
            return vec![Violation::Length { what, found, expected: graph.task_count() }];
        }
    }
    let mut violations = colocation(problem, &found.device_of);
    let mut changes: Vec<(u32, f64, bool, u64)> = Vec::new();
    let (mut last, mut kept) = (0.0f64, std::collections::BTreeMap::<u32, u128>::new());
    for task in graph.task_ids() {
        let (device, start) = (found.device_of[task.index()], found.starts[task.index()]);
        let ready = graph.inputs(task).iter().map(|&datum| {
            let from = graph.producer(datum).index();
            let stays = found.device_of[from] == device;
            found.starts[from] + problem.time(TaskId(from as u32)) + if stays { 0.0 } else { problem.transfer(datum) }
        });
        let ready = ready.fold(0.0, f64::max);
        if !start.is_finite() || start < ready - ROUNDING * ready {
            violations.push(Violation::Early { task, start, ready });
        }
        let end = start + problem.time(task);
        last = last.max(end);
        // The span is slightly shortened, so that rounding does not make a task overlap the one before it.
        let slack = ROUNDING * end;
        if end - slack > start {
            changes.extend([
                (device, start, true, problem.cores(task)),
                (device, end - slack, false, problem.cores(task)),
            ]);
        }
        *kept.entry(device).or_default() += u128::from(graph.task(task).memory);
    }
    violations.extend(overfull(changes, cores));
    for (device, bytes) in kept {
        if let Some(capacity) = problem.capacity().memory.filter(|&capacity| bytes > u128::from(capacity)) {
            violations.push(Violation::Memory { place: device as usize, bytes, claimed: capacity, capacity });
        }
    }
    if differ(last, found.makespan) {
        violations.push(Violation::Claim { what: "the makespan", claimed: found.makespan, found: last });
    }
    violations
}

/// Checks that the timetable of [`FewestCores`] is valid on a single device, without its memory limit. `O((V + E) log
/// V)`.
pub fn check_cores(problem: &Problem<'_>, found: &FewestCores) -> Vec<Violation> {
    let mut violations = check_timetable(problem, found.cores, &found.timetable);
    violations.retain(|violation| !matches!(violation, Violation::Memory { .. }));
    if let Some(&device) = found.timetable.device_of.iter().find(|&&device| device != 0) {
        violations.push(Violation::Claim { what: "the only device", claimed: 0.0, found: f64::from(device) });
    }
    violations
}

/// Checks that the timetable of [`FewestDevices`] is valid, and uses no more devices than claimed. `O((V + E) log V)`.
pub fn check_devices(problem: &Problem<'_>, found: &FewestDevices) -> Vec<Violation> {
    let mut violations = check_timetable(problem, problem.capacity().cores, &found.timetable);
    let devices = found.timetable.device_of.iter().max().map_or(0, |&most| most as usize + 1);
    if devices > found.devices {
        let (claimed, found) = (found.devices as f64, devices as f64);
        violations.push(Violation::Claim { what: "the number of devices", claimed, found });
    }
    violations
}

/// Returns the first moment of each device at which more cores are in use than it has.
fn overfull(mut changes: Vec<(u32, f64, bool, u64)>, cores: u64) -> Vec<Violation> {
    changes.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.cmp(&other.2)));
    let mut violations = Vec::new();
    for of_device in changes.chunk_by(|one, other| one.0 == other.0) {
        let mut taken = 0u128;
        for &(device, time, begins, more) in of_device {
            taken = if begins { taken + u128::from(more) } else { taken - u128::from(more) };
            if taken > u128::from(cores) {
                violations.push(Violation::Cores { device, cores, taken, time });
                break;
            }
        }
    }
    violations
}
