//! Bound from the work between a head, which must come before it, and a tail, which must come after it.
//!
//! Let `r(t)` be the least start and `q(t)` the least tail of task `t` over its feasible devices, as in heads and
//! tails. For numbers `r` and `q`, let `S` be the tasks with `r(t) ≥ r` and `q(t) ≥ q`. In a schedule of makespan `T`
//! every task of `S` runs between `r` and `T − q`, so each device works on `S` for at most `T − q − r`. As in the bound
//! of all work, for any weights of the devices and a set `S` that is not empty,
//!
//! `T ≥ r + q + Σ over t in S of min over d of w(d) time(t, d)`,
//!
//! (Fernández and Bussell 1973 give it for identical processors). The weights are the best ones for all work; `r` and
//! `q` are some quantiles.

use super::{Paths, Weights};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Number of quantiles of starts and of tails.
const QUANTILES: usize = 24;

/// Returns the greatest bound over all pairs of quantiles and all weights. `O(V (log V + devices))` for each vector of
/// weights.
pub(super) fn bound(problem: &Problem<'_>, paths: &Paths, weights: &Weights) -> f64 {
    let graph = problem.graph();
    let least = |task, value: &dyn Fn(DeviceId) -> f64| {
        problem.feasible(graph.unit(task)).map(value).fold(f64::INFINITY, f64::min)
    };
    let starts: Vec<f64> = graph.task_ids().map(|task| least(task, &|device| paths.start(task, device))).collect();
    let tails: Vec<f64> = graph.task_ids().map(|task| least(task, &|device| paths.tail(task, device))).collect();
    let (from, until) = (quantiles(&starts), quantiles(&tails));
    let mut best = 0.0f64;
    for weights in weights.vectors() {
        let mut cells = vec![Cell::default(); from.len() * until.len()];
        for task in graph.task_ids() {
            let (row, column) =
                (last_not_above(&from, starts[task.index()]), last_not_above(&until, tails[task.index()]));
            let cell = &mut cells[row * until.len() + column];
            cell.work += Weights::task_share(problem, weights, task);
            cell.any = true;
        }
        best = best.max(best_corner(&from, &until, &mut cells));
    }
    best
}

/// Tasks of one pair of neighbouring quantiles.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    work: f64,
    any: bool,
}

/// Sums the cells from the last corner, and returns the greatest sum with its head and tail.
fn best_corner(from: &[f64], until: &[f64], cells: &mut [Cell]) -> f64 {
    let mut best = 0.0f64;
    for row in (0..from.len()).rev() {
        let mut of_row = Cell::default();
        for column in (0..until.len()).rev() {
            let place = row * until.len() + column;
            let below = if row + 1 < from.len() { cells[place + until.len()] } else { Cell::default() };
            of_row = Cell { work: of_row.work + cells[place].work, any: of_row.any || cells[place].any };
            cells[place] = Cell { work: of_row.work + below.work, any: of_row.any || below.any };
            if cells[place].any {
                best = best.max(from[row] + until[column] + cells[place].work);
            }
        }
    }
    best
}

/// Returns different values, ascending, that divide `values` into parts of about equal size; the first is the least of
/// all.
fn quantiles(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut quantiles: Vec<f64> =
        (0..QUANTILES).filter_map(|part| sorted.get(part * sorted.len() / QUANTILES)).copied().collect();
    quantiles.dedup();
    quantiles
}

/// Returns the position of the last entry of `ascending` that is not above `value`; 0 if all are above it.
fn last_not_above(ascending: &[f64], value: f64) -> usize {
    ascending.partition_point(|&entry| entry <= value).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::sample;

    /// A chain of 3, then 8 tasks of 5 on two devices, then a chain of 2. All work gives only 25, the longest path only
    /// 10.
    #[test]
    fn work_between_chains_adds_to_them() {
        let mut builder = GraphBuilder::new();
        let chain = |builder: &mut GraphBuilder, length: usize| {
            let tasks: Vec<_> = (0..length).map(|_| builder.task(Task::new("t").with_operations(1.0))).collect();
            for pair in tasks.windows(2) {
                builder.edge(pair[0], pair[1], 0);
            }
            tasks
        };
        let (before, after) = (chain(&mut builder, 3), chain(&mut builder, 2));
        for _ in 0..8 {
            let middle = builder.task(Task::new("t").with_operations(5.0));
            builder.edge(before[2], middle, 0);
            builder.edge(middle, after[0], 0);
        }
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let (paths, weights) = (Paths::new(&problem), Weights::of(&problem));
        let found = bound(&problem, &paths, &weights);
        assert!((found - 25.0).abs() < 1e-9, "{found}");
        assert!(paths.bound(&problem) < 11.0 && weights.bound() < 23.0);
    }

    #[test]
    fn quantiles_start_at_the_least_and_differ() {
        assert_eq!(quantiles(&[]), [0.0; 0]);
        assert_eq!(quantiles(&[2.0, 1.0, 2.0]), [1.0, 2.0]);
        let many = quantiles(&(0..1000).map(f64::from).collect::<Vec<_>>());
        assert_eq!((many.len(), many[0]), (QUANTILES, 0.0));
        assert_eq!((last_not_above(&many, 0.5), last_not_above(&many, 2000.0)), (0, QUANTILES - 1));
    }
}
