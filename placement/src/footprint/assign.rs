//! Assignment of partitions to fewer devices, with balanced work and memory (Wu et al. 2018, section 3, third step).
//!
//! *By load*, the partition with the most work goes first, to the device of least work that has enough memory. This is
//! longest processing time first (Graham 1969: at most 4/3 of the optimal load without memory limits). *By affinity*,
//! partitions that exchange the most bytes are grouped first, as long as no group exceeds its share of the work by more
//! than a quarter. `O(E log E + P log D)` for `P` partitions and `D` devices; `O(P·D)` if memory is scarce.

use super::partition::Partitioning;
use super::problem::Problem;
use crate::total::Total;
use crate::union_find::UnionFind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Factor by which a group may exceed its share of the work.
const BALANCE: f64 = 1.25;

/// Partitions that go to one device together.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    work: f64,
    memory: u64,
}

/// Returns a device for each task, by load alone; `None` if no device has enough memory for some partition.
pub(super) fn by_load(problem: &Problem<'_>, partitioning: &Partitioning, devices: usize) -> Option<Vec<u32>> {
    let groups = groups(problem, partitioning);
    let group_of: Vec<u32> = (0..groups.len() as u32).collect();
    assign(problem, partitioning, &groups, &group_of, devices)
}

/// Returns a device for each task, by load of grouped partitions; `None` as for [`by_load`].
pub(super) fn by_affinity(problem: &Problem<'_>, partitioning: &Partitioning, devices: usize) -> Option<Vec<u32>> {
    let mut groups = groups(problem, partitioning);
    let share = groups.iter().map(|group| group.work).sum::<f64>() / devices.max(1) as f64 * BALANCE;
    let memory = problem.capacity().memory.unwrap_or(u64::MAX);
    let (mut sets, mut left) = (UnionFind::new(groups.len()), groups.len());
    for (_, one, other) in joining(problem, partitioning) {
        let (one, other) = (sets.root(one), sets.root(other));
        let together =
            Group { work: groups[one].work + groups[other].work, memory: groups[one].memory + groups[other].memory };
        if left > devices && one != other && together.work <= share && together.memory <= memory {
            let (stays, _) = sets.join(one, other);
            groups[stays] = together;
            left -= 1;
        }
    }
    let roots: Vec<usize> = (0..groups.len()).map(|part| sets.root(part)).collect();
    let (group_of, count) = sets.numbered();
    let mut joined = vec![Group::default(); count];
    roots.iter().zip(&group_of).for_each(|(&root, &group)| joined[group as usize] = groups[root]);
    assign(problem, partitioning, &joined, &group_of, devices)
}

/// Returns the work and the memory of each partition.
fn groups(problem: &Problem<'_>, partitioning: &Partitioning) -> Vec<Group> {
    let work =
        |part: &super::Part| part.tasks.iter().map(|&task| problem.cores(task) as f64 * problem.time(task)).sum();
    partitioning.parts.iter().map(|part| Group { work: work(part), memory: part.memory }).collect()
}

/// Returns the bytes between pairs of partitions, most bytes first.
fn joining(problem: &Problem<'_>, partitioning: &Partitioning) -> Vec<(Reverse<u64>, usize, usize)> {
    let (graph, mut bytes) = (problem.graph(), BTreeMap::<(u32, u32), u64>::new());
    for datum in graph.datum_ids() {
        let from = partitioning.part_of[graph.producer(datum).index()];
        for to in graph.consumers(datum).iter().map(|to| partitioning.part_of[to.index()]).filter(|&to| to != from) {
            let sum = bytes.entry((from.min(to), from.max(to))).or_default();
            *sum = sum.saturating_add(graph.bytes(datum));
        }
    }
    let mut pairs: Vec<_> =
        bytes.into_iter().map(|((one, other), bytes)| (Reverse(bytes), one as usize, other as usize)).collect();
    pairs.sort_unstable();
    pairs
}

/// Assigns groups to devices, the group with the most work first; returns `None` if no device has enough memory for
/// some group.
fn assign(
    problem: &Problem<'_>,
    partitioning: &Partitioning,
    groups: &[Group],
    group_of: &[u32],
    devices: usize,
) -> Option<Vec<u32>> {
    let capacity = problem.capacity().memory;
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&group| (Reverse(Total(groups[group].work)), Reverse(groups[group].memory), group));
    // Devices by load: the device with the least work comes first.
    let mut loads: BTreeSet<(Total, u64, u32)> = (0..devices as u32).map(|device| (Total(0.0), 0, device)).collect();
    let mut device_of = vec![0u32; groups.len()];
    for group in order {
        let Group { work, memory } = groups[group];
        let has_room = |(_, kept, _): &&(Total, u64, u32)| capacity.is_none_or(|capacity| kept + memory <= capacity);
        let &(Total(load), kept, device) = loads.iter().find(has_room)?;
        loads.remove(&(Total(load), kept, device));
        loads.insert((Total(load + work), kept + memory, device));
        device_of[group] = device;
    }
    let of_part = |&part: &u32| device_of[group_of[part as usize] as usize];
    Some(partitioning.part_of.iter().map(of_part).collect())
}
