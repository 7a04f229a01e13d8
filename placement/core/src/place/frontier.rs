//! Order of ready tasks by a priority of each task.

use crate::graph::{TaskGraph, TaskId};
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns all tasks, each after its predecessors. Of the possible next tasks, the one with the greatest priority comes
/// first; on a tie, the first in topological order. `O(V log V + E)`.
pub(crate) fn by_priority(graph: &TaskGraph, priorities: &[f64]) -> Vec<TaskId> {
    let mut places = vec![0; graph.task_count()];
    for (place, task) in (0..).zip(graph.topological()) {
        places[task.index()] = place;
    }
    let entry = |task: TaskId| (Total(priorities[task.index()]), Reverse(places[task.index()]), task);
    let mut missing: Vec<usize> = graph.task_ids().map(|task| graph.predecessors(task).len()).collect();
    let mut ready: BinaryHeap<(Total, Reverse<u32>, TaskId)> =
        graph.task_ids().filter(|task| missing[task.index()] == 0).map(entry).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some((.., task)) = ready.pop() {
        order.push(task);
        for &next in graph.successors(task) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.push(entry(next));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn priorities_count_among_ready_tasks_only() {
        let graph = sample::graph(&[0.0; 5], &[(0, 3, 0), (1, 4, 0)]);
        let order = by_priority(&graph, &[1.0, 2.0, 2.0, 9.0, 5.0]);
        assert_eq!(order, [1, 4, 2, 0, 3].map(TaskId));
    }
}
