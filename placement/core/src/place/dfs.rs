//! DFS: depth first from the most important source, each unit on the device with the smallest traffic times load (Laich
//! 2017, section 4.8).
//!
//! Sources go by decreasing operations rank, so that the search begins on a critical path. A task is placed when the
//! search reaches it, with all of its colocation group. Of the feasible devices with enough free memory, it goes to the
//! one with the smallest product of traffic and execution time. Both [factors](super::factors) are MITE's.
//!
//! Choices that the text leaves open: from a task the search continues with its successors by decreasing upward rank,
//! the most urgent first. This order was chosen on the thesis' three graphs. On 21 other problems one of three other
//! orders was better in 17 cases, by up to 2.6 times (`bench/PLACEMENT.md`).
//!
//! Time: `O(V log V + V × devices + E × devices)`.

use super::factors::Factors;
use super::{PlaceError, Placement, Placer};
use crate::graph::{TaskGraph, TaskId};
use crate::problem::Problem;
use crate::rank::{operations_ranks, upward_ranks};

/// The DFS strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dfs;

impl Placer for Dfs {
    fn name(&self) -> &'static str {
        "dfs"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut factors = Factors::new(problem)?;
        for task in depth_first(problem.graph(), &operations_ranks(problem), &upward_ranks(problem)) {
            if !factors.has_placed(task) {
                factors.place(task, None)?;
            }
        }
        Ok(factors.finish(self.name()))
    }
}

/// Returns all tasks in depth-first order: sources by decreasing `importance`, successors by decreasing `urgency`.
fn depth_first(graph: &TaskGraph, importance: &[f64], urgency: &[f64]) -> Vec<TaskId> {
    // The greatest rank comes last, because the stack returns the last entry first; of equal ranks, the smallest id
    // comes last.
    let ascending = |tasks: &mut Vec<TaskId>, ranks: &[f64]| {
        tasks.sort_by(|one, other| ranks[one.index()].total_cmp(&ranks[other.index()]).then(other.cmp(one)));
    };
    let mut reached = vec![false; graph.task_count()];
    let mut order = Vec::with_capacity(graph.task_count());
    let mut stack: Vec<TaskId> = graph.task_ids().filter(|&task| graph.predecessors(task).is_empty()).collect();
    ascending(&mut stack, importance);
    while let Some(task) = stack.pop() {
        if std::mem::replace(&mut reached[task.index()], true) {
            continue;
        }
        order.push(task);
        let mut next: Vec<TaskId> =
            graph.successors(task).iter().copied().filter(|next| !reached[next.index()]).collect();
        ascending(&mut next, urgency);
        stack.append(&mut next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceId;
    use crate::sample;

    /// The second of two sources leads to the heavier path, whose join is reached before its lighter arm. Task 2 has as
    /// much work as 3, but sends more.
    #[test]
    fn the_search_follows_the_ranks() {
        let edges = [(0, 4, 1), (1, 2, 1), (1, 3, 1), (2, 4, 20), (3, 4, 1)];
        let loaded = sample::problem(sample::graph(&[1.0, 2.0, 5.0, 5.0, 1.0], &edges), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let order = depth_first(&loaded.graph, &operations_ranks(&problem), &upward_ranks(&problem));
        assert_eq!(order, [1, 2, 4, 3, 0].map(TaskId));
    }

    /// A chain stays on its device, because any other device would add traffic; an isolated task goes to the empty
    /// device.
    #[test]
    fn a_chain_stays_together_and_an_apart_task_goes_to_the_empty_device() {
        let loaded = sample::problem(sample::graph(&[4.0, 4.0, 4.0, 1.0], &[(0, 1, 10), (1, 2, 10)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        assert_eq!(Dfs.place(&problem).unwrap().device_of, [0, 0, 0, 1].map(DeviceId));
    }
}
