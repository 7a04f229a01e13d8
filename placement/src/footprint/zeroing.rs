//! Edge zeroing under a cap on parallelism (Wu et al. 2018, algorithm 1; the procedure is Sarkar's, 1987).
//!
//! At first each task is a partition of its own. Edges are taken in descending order of their bytes. The partitions at
//! an edge's ends are merged if their tasks together never use more cores, or keep more memory, than a device has. An
//! edge within a partition costs nothing. Merging never lengthens the longest path (theorem 1, which says *strictly
//! non-increasing* and proves *not increasing*). So of the partitionings found, the one with the fewest partitions also
//! has the shortest completion.
//!
//! After the edges, [`merge_rest`] merges partitions without a common edge: fewer devices, and never a longer path.
//!
//! The cap is decided exactly only if necessary. For each partition an upper bound of its parallelism is known, the sum
//! of its parts' bounds, and more is computed only if the bound exceeds the cap. Tasks of one depth are never ordered,
//! so the cores of the widest depth reject most mergings at once. The [`chains`](super::chains) of both partitions
//! decide the rest. This takes `O(E log E)`, and for each such merging at most as many searches through both as a
//! device has cores. If the graph is too large for its closure, an antichain replaces the chains.

use super::antichain::parallelism_within;
use super::chains::Chains;
use super::partition::Partitioning;
use super::problem::Problem;
use crate::graph::TaskId;
use crate::union_find::UnionFind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most attempts to merge partitions without a common edge.
const MOST_TRIES: usize = 200_000;

/// Returns the partitions of edge zeroing alone, the paper's algorithm 1.
pub fn zero_edges(problem: &Problem<'_>) -> Partitioning {
    let mut merging = Merging::new(problem);
    merging.zero_edges();
    merging.partitioning()
}

/// Returns the partitions of edge zeroing, merged further without common edges: the first partition with enough
/// capacity takes the next one.
pub fn merge_rest(problem: &Problem<'_>) -> Partitioning {
    let mut merging = Merging::new(problem);
    merging.zero_edges();
    merging.merge_rest();
    merging.partitioning()
}

/// Returns the results of [`zero_edges`] and [`merge_rest`], but zeroes the edges once.
pub fn zero_and_merge(problem: &Problem<'_>) -> [Partitioning; 2] {
    let mut merging = Merging::new(problem);
    merging.zero_edges();
    let zeroed = merging.partitioning();
    merging.merge_rest();
    [zeroed, merging.partitioning()]
}

/// Partitions during merging, indexed by their roots.
struct Merging<'p> {
    problem: &'p Problem<'p>,
    sets: UnionFind,
    parts: Vec<Growing>,
    /// Chains of each partition, as many as its bound; `None` if the closure needs too much memory.
    chains: Option<Chains<'p>>,
}

#[derive(Debug, Clone, Default)]
struct Growing {
    members: Vec<TaskId>,
    /// Upper bound of its parallelism.
    at_most: u64,
    /// Cores by depth.
    depths: BTreeMap<u32, u64>,
    memory: u64,
    /// Roots of partitions that do not fit together with it, nor with anything larger.
    refused: BTreeSet<usize>,
}

impl<'p> Merging<'p> {
    fn new(problem: &'p Problem<'p>) -> Self {
        let graph = problem.graph();
        let mut depth = vec![0u32; graph.task_count()];
        let mut parts = vec![Growing::default(); graph.task_count()];
        for &task in graph.topological() {
            let before = graph.predecessors(task).iter().map(|from| depth[from.index()] + 1);
            depth[task.index()] = before.max().unwrap_or(0);
            parts[task.index()] = Growing {
                members: vec![task],
                at_most: problem.cores(task),
                depths: BTreeMap::from([(depth[task.index()], problem.cores(task))]),
                memory: graph.task(task).memory,
                refused: BTreeSet::new(),
            };
        }
        let chains = problem.closure().map(|closure| Chains::new(closure, problem.position(), problem.all_cores()));
        let mut merging = Merging { problem, sets: UnionFind::new(parts.len()), parts, chains };
        // Colocated tasks are one partition from the start, without regard to capacity.
        for unit in graph.unit_ids() {
            graph.members(unit).windows(2).for_each(|pair| merging.join(pair[0].index(), pair[1].index(), None));
        }
        merging
    }

    fn zero_edges(&mut self) {
        let graph = self.problem.graph();
        let uses = |datum| {
            graph.consumers(datum).iter().map(move |&to| (Reverse(graph.bytes(datum)), graph.producer(datum), to))
        };
        let mut edges: Vec<_> = graph.datum_ids().flat_map(uses).collect();
        edges.sort_unstable();
        for (_, from, to) in edges {
            self.merge(from.index(), to.index());
        }
    }

    fn merge_rest(&mut self) {
        let mut roots: Vec<usize> = (0..self.parts.len()).filter(|&task| self.sets.root(task) == task).collect();
        roots.sort_by_key(|&root| (Reverse(self.parts[root].at_most), root));
        let (mut kept, mut tries): (Vec<usize>, usize) = (Vec::new(), 0);
        for root in roots {
            let mut taken = false;
            for &into in &kept {
                tries += 1;
                taken = tries <= MOST_TRIES && self.merge(into, root);
                if taken {
                    break;
                }
            }
            if !taken {
                kept.push(root);
            }
        }
    }

    /// Merges two partitions if a device can hold both; returns whether they are one now.
    fn merge(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.sets.root(one), self.sets.root(other));
        if one == other || self.parts[one].refused.contains(&other) {
            return one == other;
        }
        match self.fits(one, other) {
            Some(at_most) => {
                self.join(one, other, Some(at_most));
                true
            }
            None => {
                self.parts[one].refused.insert(other);
                self.parts[other].refused.insert(one);
                false
            }
        }
    }

    /// Returns a bound of the parallelism of two partitions together; `None` if it or their memory exceeds a device's
    /// capacity.
    fn fits(&mut self, one: usize, other: usize) -> Option<u64> {
        let (one, other, capacity) = (&self.parts[one], &self.parts[other], self.problem.capacity());
        if capacity.memory.is_some_and(|memory| one.memory + other.memory > memory) {
            return None;
        }
        let sum = one.at_most + other.at_most;
        if sum <= capacity.cores {
            return Some(sum);
        }
        let both = |(depth, cores): (&u32, &u64)| cores + one.depths.get(depth).copied().unwrap_or(0);
        if other.depths.iter().map(both).any(|cores| cores > capacity.cores) {
            return None;
        }
        let fits = match &mut self.chains {
            Some(chains) => chains.shorten(&[&one.members, &other.members], sum - capacity.cores),
            None => {
                within(self.problem, &[&one.members[..], &other.members].concat(), capacity.cores) <= capacity.cores
            }
        };
        fits.then_some(capacity.cores)
    }

    /// Merges two partitions; `at_most` is a better bound of its parallelism than the sum of both.
    fn join(&mut self, one: usize, other: usize, at_most: Option<u64>) {
        let (one, other) = (self.sets.root(one), self.sets.root(other));
        if one == other {
            return;
        }
        let (stays, goes) = self.sets.join(one, other);
        let (kept, gone) = (std::mem::take(&mut self.parts[stays]), std::mem::take(&mut self.parts[goes]));
        for &third in &gone.refused {
            self.parts[third].refused.remove(&goes);
            self.parts[third].refused.insert(stays);
        }
        let (at_most, memory) = (at_most.unwrap_or(kept.at_most + gone.at_most), kept.memory + gone.memory);
        // The smaller partition is moved into the larger, so that no task moves more than log V times.
        let (mut large, small) = if kept.members.len() < gone.members.len() { (gone, kept) } else { (kept, gone) };
        large.members.extend(small.members);
        small.depths.into_iter().for_each(|(depth, cores)| *large.depths.entry(depth).or_default() += cores);
        large.refused.extend(small.refused);
        self.parts[stays] = Growing { at_most, memory, ..large };
    }

    /// Returns the current partitions.
    fn partitioning(&mut self) -> Partitioning {
        let labels: Vec<u32> = (0..self.parts.len()).map(|task| self.sets.root(task) as u32).collect();
        match &mut self.chains {
            Some(chains) => Partitioning::with(self.problem, &labels, |tasks| chains.fewest(tasks)),
            None => Partitioning::of(self.problem, &labels),
        }
    }
}

/// Returns the parallelism of tasks if it exceeds the cap, else some number up to the cap.
fn within(problem: &Problem<'_>, tasks: &[TaskId], cap: u64) -> u64 {
    let (position, mut tasks) = (problem.position(), tasks.to_vec());
    tasks.sort_unstable_by_key(|task| position[task.index()]);
    parallelism_within(problem.graph(), &tasks, position, |task| problem.cores(task), cap)
}
