//! Order of ready tasks by a priority of each task.

use crate::graph::{TaskGraph, TaskId};
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Ready tasks, the one with the greatest priority first; on a tie, the first in topological order. `O(V log V + E)`
/// for all tasks.
pub(crate) struct Frontier {
    /// All tasks in the order in which they would go if all were ready, and the position of each.
    tasks: Vec<TaskId>,
    places: Vec<u32>,
    missing: Vec<u32>,
    ready: BinaryHeap<Reverse<u32>>,
}

impl Frontier {
    pub(crate) fn new(graph: &TaskGraph, priorities: &[f64]) -> Self {
        let mut tasks = graph.topological().to_vec();
        tasks.sort_by_key(|task| Reverse(Total(priorities[task.index()])));
        let mut places = vec![0; tasks.len()];
        for (place, task) in (0..).zip(&tasks) {
            places[task.index()] = place;
        }
        let missing: Vec<u32> = graph.task_ids().map(|task| graph.predecessors(task).len() as u32).collect();
        let ready = graph.task_ids().filter(|task| missing[task.index()] == 0);
        let ready = ready.map(|task| Reverse(places[task.index()])).collect();
        Frontier { tasks, places, missing, ready }
    }

    /// Removes and returns the next task.
    pub(crate) fn pop(&mut self) -> Option<TaskId> {
        self.ready.pop().map(|Reverse(place)| self.tasks[place as usize])
    }

    /// Gives back a task that [`Self::pop`] has returned.
    pub(crate) fn push_back(&mut self, task: TaskId) {
        self.ready.push(Reverse(self.places[task.index()]));
    }

    /// Makes the successors ready for which `task` was the last missing predecessor.
    pub(crate) fn release(&mut self, graph: &TaskGraph, task: TaskId) {
        for &next in graph.successors(task) {
            self.missing[next.index()] -= 1;
            if self.missing[next.index()] == 0 {
                self.push_back(next);
            }
        }
    }
}

/// Returns all tasks, each after its predecessors, as [`Frontier`] orders them.
pub(crate) fn by_priority(graph: &TaskGraph, priorities: &[f64]) -> Vec<TaskId> {
    let mut frontier = Frontier::new(graph, priorities);
    let mut order = Vec::with_capacity(graph.task_count());
    while let Some(task) = frontier.pop() {
        order.push(task);
        frontier.release(graph, task);
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
