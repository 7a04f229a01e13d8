//! Partitions: sets of tasks, each for one device.

use super::antichain::parallelism_within;
use super::problem::Problem;
use crate::graph::TaskId;
use serde::Serialize;

/// Assignment of every task to a partition, with derived quantities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Partitioning {
    /// Partition of each task. Partitions are numbered by their smallest task.
    pub part_of: Vec<u32>,
    /// The partitions.
    pub parts: Vec<Part>,
    /// Longest path, with transfers between partitions: the end of the last task if no partition runs short of cores.
    pub completion: f64,
    /// Bytes of all edges between partitions, each edge counted: the paper's data movement.
    pub movement: u64,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Tasks, ascending.
    pub tasks: Vec<TaskId>,
    /// Most cores that its tasks can use at a time: the heaviest antichain among them, under all paths of the graph.
    pub parallelism: u64,
    /// Bytes that its tasks keep.
    pub memory: u64,
}

impl Partitioning {
    /// Computes the partitioning from a label for each task; equal labels mean one partition. It takes the time of an
    /// antichain for each partition.
    pub fn of(problem: &Problem<'_>, labels: &[u32]) -> Self {
        let (graph, position) = (problem.graph(), problem.position());
        Self::with(problem, labels, |tasks| parallelism_within(graph, tasks, position, |task| problem.cores(task), 0))
    }

    /// As [`Partitioning::of`], with `parallelism` for the parallelism of a partition's tasks, which are in topological
    /// order.
    pub(super) fn with(problem: &Problem<'_>, labels: &[u32], mut parallelism: impl FnMut(&[TaskId]) -> u64) -> Self {
        let graph = problem.graph();
        let mut numbers = std::collections::BTreeMap::new();
        let part_of: Vec<u32> = labels
            .iter()
            .map(|label| {
                let next = numbers.len() as u32;
                *numbers.entry(*label).or_insert(next)
            })
            .collect();
        let mut members = vec![Vec::new(); numbers.len()];
        graph.topological().iter().for_each(|&task| members[part_of[task.index()] as usize].push(task));
        let part = |mut tasks: Vec<TaskId>| {
            let parallelism = parallelism(&tasks);
            let memory = tasks.iter().map(|&task| graph.task(task).memory).sum();
            tasks.sort_unstable();
            Part { tasks, parallelism, memory }
        };
        let parts = members.into_iter().map(part).collect();
        let crosses = |from: TaskId, to: TaskId| part_of[from.index()] != part_of[to.index()];
        let completion = problem.longest_path(crosses);
        let cut = graph.datum_ids().map(|datum| {
            let from = graph.producer(datum);
            let cut = graph.consumers(datum).iter().filter(|&&to| crosses(from, to)).count() as u64;
            graph.bytes(datum).saturating_mul(cut)
        });
        Partitioning { completion, movement: cut.fold(0, u64::saturating_add), parts, part_of }
    }
}
