//! Ranks of tasks before placement: lengths of the paths to the sinks and from the sources.

use crate::graph::TaskId;
use crate::problem::Problem;

/// Returns the upward rank of every task (Topcuoglu 2002, section 4.1).
///
/// The rank is the task's mean time over its feasible devices plus the longest path from there to a sink, with mean
/// transfers. `O(V + E)`, and `O(V × devices)` for the means.
///
/// A rank is at least the rank of each successor.
pub fn upward_ranks(problem: &Problem<'_>) -> Vec<f64> {
    upward(problem, |task| problem.mean_time(task), |bytes| problem.mean_transfer_time(bytes))
}

/// Returns upward ranks that ignore constraints.
///
/// A task's time is its [work](Problem::work). Transfers are means over the pairs of devices that two tasks may be on,
/// including the pair of a device with itself. `O(V + E)`.
pub fn unrestricted_upward_ranks(problem: &Problem<'_>) -> Vec<f64> {
    let devices = problem.platform().device_count() as f64;
    // There are `n (n + 1) / 2` unordered pairs, and `n` of them pair a device with itself.
    let apart = (devices - 1.0) / (devices + 1.0);
    upward(problem, |task| problem.work(task), |bytes| apart * problem.mean_transfer_time(bytes))
}

fn upward(problem: &Problem<'_>, time: impl Fn(TaskId) -> f64, transfer: impl Fn(u64) -> f64) -> Vec<f64> {
    let graph = problem.graph();
    let mut ranks = vec![0.0; graph.task_count()];
    for &task in graph.topological().iter().rev() {
        let mut rest: f64 = 0.0;
        for &datum in graph.outputs(task) {
            let longest = graph.consumers(datum).iter().map(|consumer| ranks[consumer.index()]).reduce(f64::max);
            if let Some(longest) = longest {
                rest = rest.max(transfer(graph.bytes(datum)) + longest);
            }
        }
        ranks[task.index()] = time(task) + rest;
    }
    ranks
}

/// Returns the downward rank of every task (Topcuoglu 2002, section 4.1).
///
/// The rank is the longest path from a source to the start of the task, in mean times over feasible devices and mean
/// transfers. `O(V + E)`, and `O(V × devices)` for the means.
pub fn downward_ranks(problem: &Problem<'_>) -> Vec<f64> {
    let graph = problem.graph();
    let mut ranks = vec![0.0f64; graph.task_count()];
    for &task in graph.topological() {
        let end = ranks[task.index()] + problem.mean_time(task);
        for &datum in graph.outputs(task) {
            let arrival = end + problem.mean_transfer_time(graph.bytes(datum));
            for consumer in graph.consumers(datum) {
                let rank = &mut ranks[consumer.index()];
                *rank = rank.max(arrival);
            }
        }
    }
    ranks
}

/// Returns the static level of every task: the greatest sum of `time` on a path from it to a sink, itself included and
/// transfers excluded. `O(V + E)`.
pub fn static_levels(problem: &Problem<'_>, time: impl Fn(TaskId) -> f64) -> Vec<f64> {
    let graph = problem.graph();
    let mut levels = vec![0.0f64; graph.task_count()];
    for &task in graph.topological().iter().rev() {
        let after = graph.successors(task).iter().map(|after| levels[after.index()]);
        levels[task.index()] = time(task) + after.fold(0.0, f64::max);
    }
    levels
}

/// Returns the tasks by decreasing rank; equal ranks in topological order. `O(V log V)`.
///
/// If every rank is at least the rank of each successor, this is a topological order too.
pub fn by_decreasing_rank(problem: &Problem<'_>, ranks: &[f64]) -> Vec<TaskId> {
    let mut sorted = problem.graph().topological().to_vec();
    sorted.sort_by(|one, other| ranks[other.index()].total_cmp(&ranks[one.index()]));
    sorted
}

/// Returns the path of greatest upward rank: from the task of greatest rank, always to the successor that gave the
/// rank.
///
/// The path is empty only for an empty graph.
pub fn critical_path(problem: &Problem<'_>, ranks: &[f64]) -> Vec<TaskId> {
    let graph = problem.graph();
    // The first of equal paths is taken: data by id, consumers by id.
    let first_greatest = |ways: &mut dyn Iterator<Item = (f64, TaskId)>| {
        ways.reduce(|best, way| if way.0 > best.0 { way } else { best }).map(|(_, task)| task)
    };
    let mut path = Vec::new();
    let sources = graph.task_ids().filter(|&task| graph.inputs(task).is_empty());
    let mut next = first_greatest(&mut sources.map(|task| (ranks[task.index()], task)));
    while let Some(task) = next {
        path.push(task);
        let mut ways = graph.outputs(task).iter().flat_map(|&datum| {
            let transfer = problem.mean_transfer_time(graph.bytes(datum));
            graph.consumers(datum).iter().map(move |&consumer| (transfer + ranks[consumer.index()], consumer))
        });
        next = first_greatest(&mut ways);
    }
    path
}

/// Returns the operations rank of every task (Laich 2017, section 4.4.1): the most work on a path through it from a
/// source to a sink, transfers excluded. Work is [`Problem::work`]. `O(V × devices + E)`.
pub fn operations_ranks(problem: &Problem<'_>) -> Vec<f64> {
    let graph = problem.graph();
    let work: Vec<f64> = graph.task_ids().map(|task| problem.work(task)).collect();
    let mut source = vec![0.0f64; work.len()];
    for &task in graph.topological() {
        let before = graph.predecessors(task).iter().map(|before| source[before.index()] + work[before.index()]);
        source[task.index()] = before.fold(0.0, f64::max);
    }
    let sink = static_levels(problem, |task| work[task.index()]);
    source.iter().zip(sink).map(|(source, sink)| source + sink).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// A diamond whose lower arm has more work and whose upper arm is longer with its transfers.
    #[test]
    fn ranks_of_a_diamond() {
        let graph = sample::graph(&[4.0, 2.0, 8.0, 6.0], &[(0, 1, 30), (0, 2, 0), (1, 3, 10), (2, 3, 0)]);
        let loaded = sample::problem(graph, &[2.0; 2]);
        let problem = loaded.problem().unwrap();
        let [a, b, c, d] = [0, 1, 2, 3].map(TaskId);
        let ranks = upward_ranks(&problem);
        assert_eq!(ranks, [10.0, 5.0, 7.0, 3.0]);
        assert_eq!(downward_ranks(&problem), [0.0, 5.0, 2.0, 7.0]);
        assert_eq!(critical_path(&problem, &ranks), [a, b, d]);
        assert_eq!(by_decreasing_rank(&problem, &ranks), [a, c, b, d]);
        assert_eq!(operations_ranks(&problem), [9.0, 6.0, 9.0, 9.0]);
    }
}
