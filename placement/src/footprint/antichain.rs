//! Degree of parallelism: the most cores (or another weight) that tasks can use at the same time, in any order and with
//! any times.
//!
//! Tasks that run at the same time are mutually unreachable, an *antichain*. So no order uses more than the antichain
//! of the greatest weight (Wu et al. 2018, section 4.2, theorem 2 and equation 2). By Dilworth's theorem with weights,
//! this equals the least number of chains that cover each task as often as it weighs. The paper finds it by a
//! minimum-cost flow on the split graph of the transitive closure (its algorithm 2, after Cong 1993). For one antichain
//! the flow needs no costs and no closure. It starts from one chain per unit of weight and joins as many as possible
//! end to start; a joint may pass through tasks. Each task is two vertices, *start* and *end*, with arcs
//!
//! * source → end and start → sink, both of the task's weight: a chain that ends there may be continued, a chain that
//!   starts there may continue another;
//! * end → start of each successor, and start → end of the task itself, without bounds.
//!
//! The weight of the antichain is the weight of all tasks minus the maximum flow. It consists of the tasks whose end is
//! still reachable from the source, but whose start is not. `O(V + E)` memory, and the time of [`flow`](super::flow).
//!
//! The chains prove that no antichain weighs more, because a chain meets an antichain at most once. A [`Cover`] holds
//! the number of chains on each edge and the number that start at each task.
//! [`check_antichain`](super::check::check_antichain) needs nothing else.

use super::flow::{Network, UNBOUNDED};
use crate::graph::{TaskGraph, TaskId};

/// Mutually unreachable tasks with the greatest total weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Antichain {
    /// Tasks of the antichain with a weight above 0, ascending.
    pub tasks: Vec<TaskId>,
    /// Total weight of the tasks.
    pub weight: u64,
    /// Chains that cover all tasks; their number equals the antichain's weight.
    pub cover: Cover,
}

/// Chains in a graph that pass each task at least as often as it weighs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// Number of chains that start at each task.
    pub starts: Vec<u64>,
    /// Number of chains from each task to each of its [successors](TaskGraph::successors).
    pub passing: Vec<Vec<u64>>,
}

/// Returns the antichain of the greatest weight, if task `t` weighs `weights[t]`.
///
/// Tasks without weight only connect others. Returns `None` if the weights sum to 2⁶² or more, or if there is not one
/// per task.
pub fn heaviest_antichain(graph: &TaskGraph, weights: &[u64]) -> Option<Antichain> {
    let total = weights.iter().try_fold(0u64, |sum, &weight| sum.checked_add(weight))?;
    if weights.len() != graph.task_count() || total >= UNBOUNDED / 2 {
        return None;
    }
    let mut split = Split::new(graph, graph.topological(), |task| weights[task.index()]);
    let joined = split.network.send(split.source, split.sink, UNBOUNDED);
    let reached = split.network.reached(split.source);
    let mut tasks: Vec<TaskId> = graph.topological().to_vec();
    tasks.retain(|&task| {
        let place = split.place_of[task.index()] as usize;
        weights[task.index()] > 0 && reached[end(place)] && !reached[start(place)]
    });
    tasks.sort_unstable();
    Some(Antichain { tasks, weight: total - joined, cover: split.cover(graph, weights) })
}

/// Returns the weight of the heaviest antichain among `members`. If it is at most `cap`, returns some number between it
/// and `cap`.
///
/// All paths of the graph count, also paths that leave the members and return. `members` must be sorted by `position`,
/// their positions in [`TaskGraph::topological`]. Their weights must sum to less than 2⁶².
///
/// Only tasks on paths between members take part: `O(V + E)` to find them, and the flow over them.
pub(super) fn parallelism_within(
    graph: &TaskGraph,
    members: &[TaskId],
    position: &[u32],
    weight: impl Fn(TaskId) -> u64,
    cap: u64,
) -> u64 {
    let total = members.iter().map(|&task| weight(task)).sum::<u64>();
    let (Some(&first), Some(&last)) = (members.first(), members.last()) else { return 0 };
    if total <= cap {
        return total;
    }
    let window = &graph.topological()[position[first.index()] as usize..=position[last.index()] as usize];
    let offset = position[first.index()] as usize;
    let place = |task: TaskId| (position[task.index()] as usize).checked_sub(offset).filter(|&at| at < window.len());
    let mut is_member = vec![false; window.len()];
    members.iter().for_each(|&task| is_member[position[task.index()] as usize - offset] = true);
    let (mut below, mut above) = (is_member.clone(), is_member.clone());
    for (at, &task) in window.iter().enumerate() {
        below[at] |= graph.predecessors(task).iter().filter_map(|&from| place(from)).any(|from| below[from]);
    }
    for (at, &task) in window.iter().enumerate().rev() {
        above[at] |= graph.successors(task).iter().filter_map(|&to| place(to)).any(|to| above[to]);
    }
    let between: Vec<TaskId> = (0..window.len()).filter(|&at| below[at] && above[at]).map(|at| window[at]).collect();
    let weight_of = |task: TaskId| if is_member[position[task.index()] as usize - offset] { weight(task) } else { 0 };
    let mut split = Split::new(graph, &between, weight_of);
    total - split.network.send(split.source, split.sink, total - cap)
}

/// Network that joins chains.
struct Split {
    network: Network,
    source: usize,
    sink: usize,
    /// Position of each task of the graph in the network; `u32::MAX` if it takes no part.
    place_of: Vec<u32>,
    /// For each position, the arc to the sink, and the arcs to successors in the network.
    arcs: Vec<(usize, Vec<usize>)>,
}

fn start(place: usize) -> usize {
    2 * place
}

fn end(place: usize) -> usize {
    2 * place + 1
}

impl Split {
    fn new(graph: &TaskGraph, tasks: &[TaskId], weight: impl Fn(TaskId) -> u64) -> Self {
        let mut place_of = vec![u32::MAX; graph.task_count()];
        tasks.iter().enumerate().for_each(|(place, task)| place_of[task.index()] = place as u32);
        let (source, sink) = (2 * tasks.len(), 2 * tasks.len() + 1);
        let mut network = Network::new(sink + 1);
        let mut arcs = Vec::with_capacity(tasks.len());
        for (place, &task) in tasks.iter().enumerate() {
            network.arc(source, end(place), weight(task));
            let continued = network.arc(start(place), sink, weight(task));
            network.arc(start(place), end(place), UNBOUNDED);
            let successors = graph.successors(task).iter().map(|to| place_of[to.index()]).filter(|&to| to != u32::MAX);
            let onward = successors.map(|to| network.arc(end(place), start(to as usize), UNBOUNDED)).collect();
            arcs.push((continued, onward));
        }
        Split { network, source, sink, place_of, arcs }
    }

    /// Returns the chains of a network over all tasks after a maximum flow.
    fn cover(&self, graph: &TaskGraph, weights: &[u64]) -> Cover {
        let mut cover = Cover { starts: Vec::with_capacity(weights.len()), passing: Vec::with_capacity(weights.len()) };
        for task in graph.task_ids() {
            let (continued, onward) = &self.arcs[self.place_of[task.index()] as usize];
            cover.starts.push(weights[task.index()] - self.network.carried(*continued));
            cover.passing.push(onward.iter().map(|&arc| self.network.carried(arc)).collect());
        }
        cover
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::check::check_antichain;
    use crate::sample;

    fn heaviest(weights: &[u64], edges: &[(u32, u32)]) -> Antichain {
        let edges: Vec<(u32, u32, u64)> = edges.iter().map(|&(from, to)| (from, to, 0)).collect();
        let graph = sample::graph(&vec![1.0; weights.len()], &edges);
        let found = heaviest_antichain(&graph, weights).unwrap();
        assert_eq!(check_antichain(&graph, weights, &found), []);
        found
    }

    #[test]
    fn chains_forks_and_crossings_have_their_widths() {
        assert_eq!(heaviest(&[5, 4, 7], &[(0, 1), (1, 2)]).tasks, [TaskId(2)]);
        assert_eq!(heaviest(&[5, 6, 7], &[(0, 1), (0, 2)]).weight, 13);
        // Two chains share their middle, and a joint passes through it.
        let crossed = heaviest(&[2, 3, 1, 3, 2], &[(0, 2), (1, 2), (2, 3), (2, 4)]);
        assert_eq!((crossed.weight, crossed.cover.starts.iter().sum::<u64>()), (5, 5));
        assert_eq!(heaviest(&[], &[]).weight, 0);
        assert_eq!(heaviest(&[0, 0], &[(0, 1)]).tasks, []);
    }

    #[test]
    fn weights_beyond_what_can_be_added_are_refused() {
        let graph = sample::graph(&[1.0, 1.0], &[]);
        assert_eq!(heaviest_antichain(&graph, &[u64::MAX, 1]), None);
        assert_eq!(heaviest_antichain(&graph, &[u64::MAX / 2, 0]), None);
        assert_eq!(heaviest_antichain(&graph, &[1]), None);
    }

    /// Tasks 0 and 2 are ordered through 1, which is not a member.
    #[test]
    fn ways_that_leave_the_members_count() {
        let graph = sample::graph(&[1.0; 4], &[(0, 1, 0), (1, 2, 0), (3, 2, 0)]);
        let mut position = vec![0; 4];
        graph.topological().iter().enumerate().for_each(|(at, task)| position[task.index()] = at as u32);
        let of = |members: &[u32], cap| {
            let mut members: Vec<TaskId> = members.iter().copied().map(TaskId).collect();
            members.sort_by_key(|task| position[task.index()]);
            parallelism_within(&graph, &members, &position, |_| 2, cap)
        };
        assert_eq!((of(&[0, 2], 0), of(&[0, 3], 0), of(&[0, 1, 3], 0), of(&[], 0)), (2, 4, 4, 0));
        // An antichain within the cap is not computed exactly.
        assert_eq!(of(&[0, 2], 4), 4);
    }
}
