//! DFS: depth first from the most important source, each unit where traffic times load is smallest (Laich 2017, section 4.8).
//!
//! Sources go by decreasing operations rank, so that the search begins on a critical path. A task is placed when the search
//! reaches it, with all of its colocation group, on the feasible device with room where the product of traffic and execution
//! time is smallest; both [factors](super::factors) are MITE's.
//!
//! Where the text leaves a choice: from a task the search goes on to its successors by decreasing upward rank, the most urgent
//! first. (By decreasing operations rank, as from source to source, it is worse on all but one of the thesis' three graphs on 7
//! and 50 devices, by up to two thirds.)
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

/// All tasks in the order in which a depth-first search reaches them: sources by decreasing `importance`, successors by decreasing
/// `urgency`.
fn depth_first(graph: &TaskGraph, importance: &[f64], urgency: &[f64]) -> Vec<TaskId> {
    // The greatest rank last, because that is where the stack gives it out first; of equals, the smallest id.
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

    /// Two sources; the second leads to the heavier path, whose join is reached before its lighter arm. Task 2 is as heavy as 3,
    /// but sends more.
    #[test]
    fn the_search_follows_the_ranks() {
        let edges = [(0, 4, 1), (1, 2, 1), (1, 3, 1), (2, 4, 20), (3, 4, 1)];
        let loaded = sample::problem(sample::graph(&[1.0, 2.0, 5.0, 5.0, 1.0], &edges), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let order = depth_first(&loaded.graph, &operations_ranks(&problem), &upward_ranks(&problem));
        assert_eq!(order, [1, 2, 4, 3, 0].map(TaskId));
    }

    /// A chain stays where it is, because any other device would add traffic; what is apart goes where nothing is.
    #[test]
    fn a_chain_stays_together_and_an_apart_task_goes_to_the_empty_device() {
        let loaded = sample::problem(sample::graph(&[4.0, 4.0, 4.0, 1.0], &[(0, 1, 10), (1, 2, 10)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        assert_eq!(Dfs.place(&problem).unwrap().device_of, [0, 0, 0, 1].map(DeviceId));
    }
}
