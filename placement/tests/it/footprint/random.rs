//! Random graphs, and the heaviest antichain of small graphs by trying all sets of tasks.

use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use arbtest::arbitrary::{Result, Unstructured};

/// Draws a graph of up to `most` tasks with memory, and edges from earlier to later tasks.
pub(crate) fn graph(random: &mut Unstructured<'_>, most: u32) -> Result<TaskGraph> {
    let tasks = random.int_in_range(1..=most)?;
    let density = random.int_in_range(1..=9u8)?;
    let mut builder = GraphBuilder::new();
    for task in 0..tasks {
        builder.task(Task::new(task.to_string()).with_memory(random.int_in_range(0..=4)?));
    }
    for to in 1..tasks {
        for from in 0..to {
            if random.ratio(density, 20)? {
                builder.edge(TaskId(from), TaskId(to), random.int_in_range(0..=20)?);
            }
        }
    }
    Ok(builder.build().expect("edges go to later tasks"))
}

/// Draws a graph in which several tasks may read one datum.
pub(crate) fn shared(random: &mut Unstructured<'_>, most: u32) -> Result<TaskGraph> {
    let tasks = random.int_in_range(1..=most)?;
    let mut builder = GraphBuilder::new();
    (0..tasks).for_each(|task| _ = builder.task(Task::new(task.to_string())));
    for from in 0..tasks {
        for _ in 0..random.int_in_range(0..=2u8)? {
            let datum = builder.datum(TaskId(from), random.int_in_range(0..=20)?);
            for to in from + 1..tasks {
                if random.ratio(1, 4)? {
                    builder.consume(datum, TaskId(to));
                }
            }
        }
    }
    Ok(builder.build().expect("data go to later tasks"))
}

/// Returns the weight of the heaviest set of mutually unreachable tasks.
pub(crate) fn heaviest(graph: &TaskGraph, weights: &[u64]) -> u64 {
    let count = graph.task_count();
    assert!(count <= 16, "sets of {count} tasks are too many");
    let mut below = vec![0u32; count];
    for &task in graph.topological() {
        for from in graph.predecessors(task) {
            below[task.index()] |= below[from.index()] | 1 << from.0;
        }
    }
    let is_antichain = |set: &u32| (0..count).all(|task| set >> task & 1 == 0 || set & below[task] == 0);
    let weight = |set: u32| (0..count).filter(|task| set >> task & 1 == 1).map(|task| weights[task]).sum();
    (0..1u32 << count).filter(is_antichain).map(weight).max().unwrap_or(0)
}
