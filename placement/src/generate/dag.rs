//! Random graphs that are usual for comparisons of heterogeneous list schedulers (Topcuoglu 2002, section 5).

use super::{GenerateError, Random, check_parameter, check_size};
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Parameters of a random graph of tasks.
///
/// Tasks are on levels, whose width is uniform with a mean of `shape × √tasks`, so there are about `√tasks / shape`
/// levels. Each task except those of the last level sends a separate datum to `out_degree` tasks on average, most of
/// them on the next level. Each task except those of the first level has a predecessor on the level before. Operations
/// and sizes are uniform up to twice their means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomDag {
    /// Number of tasks.
    pub tasks: u32,
    /// Ratio of width to length, α of the paper: above 1 the graph is wide and short, below 1 narrow and long. The
    /// paper uses 0.5, 1 and 2.
    pub shape: f64,
    /// Mean number of successors; the paper uses 1 to 5 and 100.
    pub out_degree: u32,
    /// Mean number of operations of a task.
    pub operations: f64,
    /// Mean size of a datum in bytes.
    pub bytes: u64,
}

impl Default for RandomDag {
    fn default() -> Self {
        RandomDag { tasks: 100, shape: 1.0, out_degree: 3, operations: 50.0, bytes: 1000 }
    }
}

/// Inverse share of the freely drawn edges that may skip levels.
const FAR: u64 = 4;

impl RandomDag {
    /// Draws a graph.
    ///
    /// # Errors
    /// Returns an error for a parameter outside its range, or for more tasks or edges than the limits.
    pub fn generate(&self, seed: u64) -> Result<TaskGraph, GenerateError> {
        check_parameter("shape", self.shape, 1e-3..=1e3, "from 0.001 to 1000")?;
        check_parameter("operations", self.operations, 0.0..=1e300, "finite and not negative")?;
        check_size(self.tasks.into(), u128::from(self.tasks) * (u128::from(self.out_degree) * 2 + 1))?;
        let levels = self.draw_levels(&mut Random::stream(seed, 1));
        let edges = self.draw_edges(&levels, &mut Random::stream(seed, 2));
        let mut random = Random::stream(seed, 3);
        let mut builder = GraphBuilder::new();
        for number in 0..self.tasks {
            let operations = random.uniform(0.0, 2.0 * self.operations);
            builder.task(Task::new(format!("t{number}")).with_operations(operations));
        }
        for (from, to) in edges {
            builder.edge(TaskId(from), TaskId(to), random.between(&(0..=self.bytes.saturating_mul(2))));
        }
        Ok(builder.build()?)
    }

    fn draw_levels(&self, random: &mut Random) -> Vec<Range<u32>> {
        let mean = self.shape * f64::from(self.tasks).sqrt();
        let widest = (2.0 * mean - 1.0).max(1.0) as u64;
        let mut levels: Vec<Range<u32>> = Vec::new();
        let mut next = 0;
        while next < self.tasks {
            let width = random.between(&(1..=widest)).min(u64::from(self.tasks - next)) as u32;
            levels.push(next..next + width);
            next += width;
        }
        levels
    }

    fn draw_edges(&self, levels: &[Range<u32>], random: &mut Random) -> BTreeSet<(u32, u32)> {
        let mut edges = BTreeSet::new();
        let any = |random: &mut Random, range: &Range<u32>| {
            range.start + random.below(u64::from(range.end - range.start)) as u32
        };
        for pair in levels.windows(2) {
            for to in pair[1].clone() {
                edges.insert((any(random, &pair[0]), to));
            }
        }
        let mut used = vec![0u64; self.tasks as usize];
        edges.iter().for_each(|&(from, _)| used[from as usize] += 1);
        for (number, level) in levels.iter().enumerate() {
            let Some(next) = levels.get(number + 1) else { break };
            for from in level.clone() {
                let most = u64::from(self.out_degree).saturating_mul(2).saturating_sub(1).max(1);
                let wanted = random.between(&(1..=most)).min(u64::from(self.tasks - level.end));
                for _ in used[from as usize]..wanted {
                    let end = if random.below(FAR) == 0 { self.tasks } else { next.end };
                    edges.insert((from, any(random, &(next.start..end))));
                }
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::depth;

    #[test]
    fn shape_and_degree_are_what_they_say() {
        let generate = |shape, out_degree| RandomDag { tasks: 400, shape, out_degree, ..RandomDag::default() };
        let depths = [0.5, 1.0, 2.0].map(|shape| depth(&generate(shape, 3).generate(11).unwrap()));
        assert!(depths[0] > depths[1] && depths[1] > depths[2], "{depths:?}");
        assert!((12..=30).contains(&depths[1]), "about the root of 400: {depths:?}");
        for out_degree in [1, 3, 5] {
            let graph = generate(1.0, out_degree).generate(5).unwrap();
            let mean = graph.edge_count() as f64 / 400.0;
            // Each task has at least one predecessor, and edges that are drawn twice count once.
            assert!((f64::from(out_degree) * 0.7..f64::from(out_degree) + 0.7).contains(&mean), "{out_degree}: {mean}");
            assert!(graph.task_ids().filter(|&task| graph.predecessors(task).is_empty()).count() < 60);
        }
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let base = RandomDag::default;
        for parameters in [
            RandomDag { tasks: u32::MAX, ..base() },
            RandomDag { out_degree: u32::MAX, ..base() },
            RandomDag { shape: 0.0, ..base() },
            RandomDag { operations: f64::NAN, ..base() },
        ] {
            assert!(parameters.generate(0).is_err(), "{parameters:?}");
        }
        for tasks in 0..4 {
            assert_eq!(RandomDag { tasks, ..base() }.generate(0).unwrap().task_count(), tasks as usize);
        }
    }
}
