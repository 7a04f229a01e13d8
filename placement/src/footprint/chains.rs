//! Chain covers of partitions, kept while the partitions grow.
//!
//! With them, a few searches decide whether two partitions together exceed a cap, instead of a flow over everything
//! between their tasks.
//!
//! By Dilworth's theorem with weights, the heaviest antichain among some tasks weighs as much as the fewest chains that
//! cover each task as often as it weighs (see [`antichain`](super::antichain)). A chain goes from task to task along
//! paths of the graph, through any tasks between: along its transitive [`Closure`]. The chains of two partitions
//! together cover both. An augmenting path leads from the end of a chain to the start of another, and may undo links
//! (Fulkerson 1956, with weights). Each augmenting path saves one chain; if there is none, the number of chains is
//! minimal. A partition under a cap has at most as many chains as the cap, so at most as many searches decide about
//! two.
//!
//! A search visits each task once, with all words of its row: `O(n V / 64)` for `n` tasks. [`Closure::of`] takes `V² /
//! 8` bytes.

use crate::graph::{TaskGraph, TaskId};
use std::ops::Range;

/// Most bytes of a closure, enough for some 46,000 tasks.
const MOST: usize = 256 << 20;

/// Transitive closure: reachability between tasks, by positions in the topological order.
#[derive(Debug, Clone)]
pub(super) struct Closure {
    /// Number of words in a row.
    words: usize,
    /// Rows of bits: bit `t` of row `f` is set if a path leads from position `f` to position `t`.
    rows: Vec<u64>,
}

impl Closure {
    /// Computes the closure of a graph whose tasks have these positions; `None` if it needs too much memory. `O(E V /
    /// 64)`.
    pub(super) fn of(graph: &TaskGraph, position: &[u32]) -> Option<Self> {
        let (tasks, words) = (graph.task_count(), graph.task_count().div_ceil(64));
        if tasks.checked_mul(words).is_none_or(|all| all > MOST / 8) {
            return None;
        }
        let mut rows = vec![0u64; tasks * words];
        for (from, &task) in graph.topological().iter().enumerate().rev() {
            let (upper, lower) = rows.split_at_mut((from + 1) * words);
            let row = &mut upper[from * words..];
            for to in graph.successors(task).iter().map(|to| position[to.index()] as usize) {
                row[to / 64] |= 1 << (to % 64);
                let below = &lower[(to - from - 1) * words..][..words];
                row[to / 64..].iter_mut().zip(&below[to / 64..]).for_each(|(word, more)| *word |= more);
            }
        }
        Some(Closure { words, rows })
    }

    fn row(&self, place: usize) -> &[u64] {
        &self.rows[place * self.words..][..self.words]
    }
}

/// Chains that cover each task as often as it weighs. The chains of a partition pass its tasks only.
#[derive(Debug)]
pub(super) struct Chains<'p> {
    closure: &'p Closure,
    position: &'p [u32],
    /// Number of chains that start at each position, and that end there.
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// For each position, the previous positions of its chains, with the number of chains.
    previous: Vec<Vec<(u32, u64)>>,
    search: Search,
}

/// State of a search; only the entries of its tasks are valid.
#[derive(Debug, Default)]
struct Search {
    /// Positions that the search has not entered, as bits.
    unseen: Vec<u64>,
    /// For each position, the position from which a chain would continue to it.
    entered_from: Vec<u32>,
    /// For each position, the next position that its chain would give up; the position itself if a chain ends there.
    instead_of: Vec<u32>,
    /// For each position, the number of the last search that reached its end.
    left_in: Vec<u64>,
    /// Number of the current search.
    number: u64,
    queue: Vec<u32>,
}

/// Reversible change of the cover: an augmenting path that joined chains.
#[derive(Debug)]
struct Joint {
    /// Hops of the path: from, to, and the former next position if there was one.
    hops: Vec<(u32, u32, Option<u32>)>,
    chains: u64,
}

impl<'p> Chains<'p> {
    /// Covers each task alone, by as many chains as it weighs. `weights` are by task.
    pub(super) fn new(closure: &'p Closure, position: &'p [u32], weights: &[u64]) -> Self {
        let tasks = weights.len();
        let mut alone = vec![0; tasks];
        position.iter().zip(weights).for_each(|(&place, &weight)| alone[place as usize] = weight);
        let search = Search {
            unseen: vec![0; closure.words],
            entered_from: vec![0; tasks],
            instead_of: vec![0; tasks],
            left_in: vec![0; tasks],
            ..Search::default()
        };
        Chains { closure, position, starts: alone.clone(), ends: alone, previous: vec![Vec::new(); tasks], search }
    }

    /// Reduces the number of chains over these tasks by `by` if possible, and returns whether it was. If not, nothing
    /// changes.
    pub(super) fn shorten(&mut self, members: &[&[TaskId]], by: u64) -> bool {
        let (joined, joints) = self.join(members, by);
        if joined < by {
            self.undo(joints);
        }
        joined == by
    }

    /// Returns the least number of chains that cover these tasks: the weight of their heaviest antichain. Nothing
    /// changes.
    pub(super) fn fewest(&mut self, members: &[TaskId]) -> u64 {
        let chains: u64 = members.iter().map(|task| self.ends[self.position[task.index()] as usize]).sum();
        let (joined, joints) = self.join(&[members], u64::MAX);
        self.undo(joints);
        chains - joined
    }

    fn join(&mut self, members: &[&[TaskId]], most: u64) -> (u64, Vec<Joint>) {
        let (mut joined, mut joints) = (0, Vec::new());
        while joined < most
            && let Some(found) = self.find(members)
        {
            let joint = self.way(found, most - joined);
            joined += joint.chains;
            self.apply(&joint, true);
            joints.push(joint);
        }
        (joined, joints)
    }

    fn undo(&mut self, joints: Vec<Joint>) {
        joints.iter().rev().for_each(|joint| self.apply(joint, false));
    }

    /// Searches an augmenting path through these tasks, from the end of a chain to the start of one; returns that
    /// start.
    fn find(&mut self, members: &[&[TaskId]]) -> Option<u32> {
        let Search { unseen, entered_from, instead_of, left_in, number, queue } = &mut self.search;
        *number += 1;
        queue.clear();
        let mut within = Range { start: usize::MAX, end: 0 };
        unseen.fill(0);
        for place in members.iter().copied().flatten().map(|task| self.position[task.index()]) {
            let word = place as usize / 64;
            unseen[word] |= 1 << (place % 64);
            within = within.start.min(word)..within.end.max(word + 1);
            if self.ends[place as usize] > 0 {
                (instead_of[place as usize], left_in[place as usize]) = (place, *number);
                queue.push(place);
            }
        }
        let mut next = 0;
        while let Some(&from) = queue.get(next) {
            next += 1;
            let row = self.closure.row(from as usize);
            for word in (from as usize / 64).max(within.start)..within.end {
                let mut found = row[word] & unseen[word];
                unseen[word] &= !found;
                while found != 0 {
                    let to = (word * 64) as u32 + found.trailing_zeros();
                    found &= found - 1;
                    entered_from[to as usize] = from;
                    if self.starts[to as usize] > 0 {
                        return Some(to);
                    }
                    for &(before, _) in &self.previous[to as usize] {
                        if left_in[before as usize] != *number {
                            (instead_of[before as usize], left_in[before as usize]) = (to, *number);
                            queue.push(before);
                        }
                    }
                }
            }
        }
        None
    }

    /// Returns the augmenting path to `found`, for as many chains as it can take, but at most `most`.
    fn way(&self, found: u32, most: u64) -> Joint {
        let (mut hops, mut chains, mut to) = (Vec::new(), most.min(self.starts[found as usize]), found);
        loop {
            let from = self.search.entered_from[to as usize];
            let instead = self.search.instead_of[from as usize];
            if instead == from {
                hops.push((from, to, None));
                return Joint { hops, chains: chains.min(self.ends[from as usize]) };
            }
            hops.push((from, to, Some(instead)));
            chains = chains.min(self.passing(from, instead));
            to = instead;
        }
    }

    fn passing(&self, from: u32, to: u32) -> u64 {
        self.previous[to as usize].iter().find(|(before, _)| *before == from).map_or(0, |(_, chains)| *chains)
    }

    /// Moves chains onto an augmenting path, or back.
    fn apply(&mut self, joint: &Joint, forward: bool) {
        let chains = joint.chains;
        let changed = |number: u64, more: bool| if more { number + chains } else { number - chains };
        for &(from, to, instead) in &joint.hops {
            self.pass(from, to, |number| changed(number, forward));
            match instead {
                Some(instead) => self.pass(from, instead, |number| changed(number, !forward)),
                None => self.ends[from as usize] = changed(self.ends[from as usize], !forward),
            }
        }
        if let Some(&(_, to, _)) = joint.hops.first() {
            self.starts[to as usize] = changed(self.starts[to as usize], !forward);
        }
    }

    fn pass(&mut self, from: u32, to: u32, change: impl FnOnce(u64) -> u64) {
        let previous = &mut self.previous[to as usize];
        let at = previous.iter().position(|(before, _)| *before == from).unwrap_or_else(|| {
            previous.push((from, 0));
            previous.len() - 1
        });
        previous[at].1 = change(previous[at].1);
        if previous[at].1 == 0 {
            previous.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::antichain::parallelism_within;
    use super::*;
    use crate::sample;
    use arbtest::arbitrary::{Result, Unstructured};

    /// A graph, weights, two disjoint sets of tasks, and the position of each task.
    type Drawn = (TaskGraph, Vec<u64>, [Vec<TaskId>; 2], Vec<u32>);

    fn drawn(random: &mut Unstructured<'_>) -> Result<Drawn> {
        let count: u32 = random.int_in_range(1..=90)?;
        let mut edges = Vec::new();
        for to in 1..count {
            for _ in 0..random.int_in_range(0..=2)? {
                edges.push((random.int_in_range(to.saturating_sub(12)..=to - 1)?, to, 0));
            }
        }
        let graph = sample::graph(&vec![1.0; count as usize], &edges);
        let (mut weights, mut sets) = (Vec::new(), [Vec::new(), Vec::new()]);
        for task in graph.task_ids() {
            weights.push(random.int_in_range(0..=3)?);
            if let Some(set) = sets.get_mut(random.int_in_range(0..=2usize)?) {
                set.push(task);
            }
        }
        let mut position = vec![0; count as usize];
        graph.topological().iter().enumerate().for_each(|(at, task)| position[task.index()] = at as u32);
        Ok((graph, weights, sets, position))
    }

    #[test]
    fn chains_are_as_few_as_flows_say_and_come_back_where_they_cannot_be_fewer() {
        arbtest::arbtest(|random| {
            let (graph, weights, sets, position) = drawn(random)?;
            let closure = Closure::of(&graph, &position).expect("small");
            let mut chains = Chains::new(&closure, &position, &weights);
            let flow = |members: &[&[TaskId]]| {
                let mut members = members.concat();
                members.sort_by_key(|task| position[task.index()]);
                parallelism_within(&graph, &members, &position, |task| weights[task.index()], 0)
            };
            let weigh = |set: &[TaskId]| set.iter().map(|task| weights[task.index()]).sum::<u64>();
            for set in &sets {
                let (all, least) = (weigh(set), flow(&[set]));
                assert_eq!(chains.fewest(set), least);
                assert!(!chains.shorten(&[set], all - least + 1), "fewer than the antichain weighs");
                // One half of the reduction here, the other half below.
                assert!(chains.shorten(&[set], (all - least) / 2));
                assert_eq!(chains.fewest(set), least);
            }
            let [one, other] = &sets;
            let least = flow(&[one, other]);
            let all: u64 = sets.iter().map(|set| weigh(set) - (weigh(set) - flow(&[set])) / 2).sum();
            assert!(!chains.shorten(&[one, other], all - least + 1));
            assert!(chains.shorten(&[one, other], all - least) && !chains.shorten(&[one, other], 1));
            assert_eq!(chains.fewest(&[&one[..], other].concat()), least);
            Ok(())
        });
    }

    #[test]
    fn a_closure_of_more_than_its_memory_is_not_made() {
        let graph = sample::graph(&vec![1.0; 47_000], &[]);
        let position: Vec<u32> = (0..47_000).collect();
        assert!(Closure::of(&graph, &position).is_none());
    }
}
