//! Graphs of regular shapes: chains, forks and joins, trees, wavefronts, and graphs of numerical algorithms.

use super::numerical::{cholesky, fast_fourier_transform, gaussian_elimination};
use super::{GenerateError, check_parameter, check_size};
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};

/// Regular graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Tasks one after the other.
    Chain {
        /// Number of tasks.
        length: u32,
    },
    /// A task that feeds `width` others, all of which feed the next such task, `stages` times.
    ForkJoin {
        /// Number of forks.
        stages: u32,
        /// Tasks between a fork and its join.
        width: u32,
    },
    /// A complete tree whose edges go to the root, which is the last task.
    InTree {
        /// Levels of edges; 0 for the root alone.
        depth: u32,
        /// Children of a task.
        arity: u32,
    },
    /// A complete tree whose edges come from the root, which is the first task.
    OutTree {
        /// Levels of edges; 0 for the root alone.
        depth: u32,
        /// Children of a task.
        arity: u32,
    },
    /// Blocks of a table in which each needs the block above and the block to its left, as for the longest common
    /// subsequence.
    Wavefront {
        /// Blocks from top to bottom.
        rows: u32,
        /// Blocks from left to right.
        columns: u32,
    },
    /// The recursive fast Fourier transform (Topcuoglu 2002, section 5): a tree of `2 points − 1` calls, then
    /// `points × log₂ points` butterflies.
    FastFourierTransform {
        /// A power of two.
        points: u32,
    },
    /// Gaussian elimination by columns (Topcuoglu 2002, section 5): `(order² + order − 2) / 2` tasks.
    GaussianElimination {
        /// Rows and columns of the matrix.
        order: u32,
    },
    /// The right-looking Cholesky factorisation by tiles: `tiles (tiles + 1) (tiles + 2) / 6` tasks.
    Cholesky {
        /// Rows and columns of tiles.
        tiles: u32,
    },
}

/// Size of the smallest piece of work and of data. The sizes of all tasks and data are multiples of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grain {
    /// Number of operations of one piece.
    pub operations: f64,
    /// Number of bytes of one piece.
    pub bytes: u64,
}

impl Default for Grain {
    /// One operation, eight bytes.
    fn default() -> Self {
        Grain { operations: 1.0, bytes: 8 }
    }
}

impl Shape {
    /// Generates the graph. The names of tasks describe their work and position.
    ///
    /// # Errors
    /// Returns an error for a size that the shape cannot have, an invalid grain, or more tasks or edges than the
    /// limits.
    pub fn generate(self, grain: &Grain) -> Result<TaskGraph, GenerateError> {
        check_parameter("operations", grain.operations, 0.0..=1e280, "finite and not negative")?;
        match self {
            Shape::Chain { length } => chain(length, grain),
            Shape::ForkJoin { stages, width } => fork_join(stages, width, grain),
            Shape::InTree { depth, arity } => tree(depth, arity, grain, true),
            Shape::OutTree { depth, arity } => tree(depth, arity, grain, false),
            Shape::Wavefront { rows, columns } => wavefront(rows, columns, grain),
            Shape::FastFourierTransform { points } => fast_fourier_transform(points, grain),
            Shape::GaussianElimination { order } => gaussian_elimination(order, grain),
            Shape::Cholesky { tiles } => cholesky(tiles, grain),
        }
    }
}

impl Grain {
    /// Creates a task of `pieces` pieces of work.
    pub(super) fn task(&self, name: String, pieces: u64) -> Task {
        Task::new(name).with_operations(self.operations * pieces as f64)
    }

    /// Returns the size of `pieces` pieces of data.
    pub(super) fn size(&self, pieces: u64) -> u64 {
        self.bytes.saturating_mul(pieces)
    }
}

fn chain(length: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    check_size(length.into(), length.into())?;
    let mut builder = GraphBuilder::new();
    for number in 0..length {
        let task = builder.task(grain.task(format!("link {number}"), 1));
        if let Some(before) = number.checked_sub(1) {
            builder.edge(TaskId(before), task, grain.bytes);
        }
    }
    Ok(builder.build()?)
}

fn fork_join(stages: u32, width: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    let tasks = u128::from(stages) * (u128::from(width) + 1) + 1;
    check_size(tasks, 2 * tasks)?;
    let mut builder = GraphBuilder::new();
    let mut fork = builder.task(grain.task("fork 0".into(), 1));
    for stage in 0..stages {
        let branches: Vec<TaskId> = (0..width)
            .map(|branch| {
                let task = builder.task(grain.task(format!("branch {stage}.{branch}"), 1));
                builder.edge(fork, task, grain.bytes);
                task
            })
            .collect();
        let join = builder.task(grain.task(format!("fork {}", stage + 1), 1));
        for branch in branches {
            builder.edge(branch, join, grain.bytes);
        }
        fork = join;
    }
    Ok(builder.build()?)
}

fn tree(depth: u32, arity: u32, grain: &Grain, inward: bool) -> Result<TaskGraph, GenerateError> {
    let mut tasks = 1u128;
    for _ in 0..depth {
        tasks = tasks.saturating_mul(arity.into()).saturating_add(1);
        check_size(tasks, tasks)?;
    }
    let tasks = tasks as u32;
    let mut builder = GraphBuilder::new();
    // The parent of `n` is `(n - 1) / arity` in breadth-first numbering from the root; an in-tree is numbered
    // backwards.
    let id = |number: u32| TaskId(if inward { tasks - 1 - number } else { number });
    for number in 0..tasks {
        builder.task(grain.task(format!("node {number}"), 1));
    }
    for number in 1..tasks {
        let (parent, child) = (id((number - 1) / arity), id(number));
        let (from, to) = if inward { (child, parent) } else { (parent, child) };
        builder.edge(from, to, grain.bytes);
    }
    Ok(builder.build()?)
}

fn wavefront(rows: u32, columns: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    let tasks = u128::from(rows) * u128::from(columns);
    check_size(tasks, 2 * tasks)?;
    let mut builder = GraphBuilder::new();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let task = builder.task(grain.task(format!("block {row},{column}"), 1));
        if row > 0 {
            builder.edge(TaskId(task.0 - columns), task, grain.bytes);
        }
        if column > 0 {
            builder.edge(TaskId(task.0 - 1), task, grain.bytes);
        }
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::depth;

    /// Returns the numbers of tasks, edges, sources, sinks, and tasks on the longest path.
    fn figures(shape: Shape) -> [usize; 5] {
        let graph = shape.generate(&Grain::default()).unwrap();
        let count = |wanted: &dyn Fn(TaskId) -> bool| graph.task_ids().filter(|&task| wanted(task)).count();
        [
            graph.task_count(),
            graph.edge_count(),
            count(&|task| graph.predecessors(task).is_empty()),
            count(&|task| graph.successors(task).is_empty()),
            depth(&graph),
        ]
    }

    #[test]
    fn shapes_have_their_tasks_edges_and_ends() {
        let cases = [
            (Shape::Chain { length: 8 }, [8, 7, 1, 1, 8]),
            (Shape::Chain { length: 0 }, [0, 0, 0, 0, 0]),
            (Shape::ForkJoin { stages: 2, width: 3 }, [9, 12, 1, 1, 5]),
            (Shape::ForkJoin { stages: 1, width: 0 }, [2, 0, 2, 2, 1]),
            (Shape::InTree { depth: 3, arity: 2 }, [15, 14, 8, 1, 4]),
            (Shape::OutTree { depth: 2, arity: 3 }, [13, 12, 1, 9, 3]),
            (Shape::OutTree { depth: 5, arity: 0 }, [1, 0, 1, 1, 1]),
            (Shape::Wavefront { rows: 3, columns: 4 }, [12, 17, 1, 1, 6]),
            (Shape::Wavefront { rows: 0, columns: 4 }, [0, 0, 0, 0, 0]),
            // The sizes of De Matteis 2023, section 7: 223, 135 and 120 tasks.
            (Shape::FastFourierTransform { points: 32 }, [223, 62 + 320, 1, 32, 11]),
            (Shape::FastFourierTransform { points: 1 }, [1, 0, 1, 1, 1]),
            (Shape::GaussianElimination { order: 16 }, [135, 120 + 119, 1, 1, 30]),
            (Shape::GaussianElimination { order: 5 }, [14, 19, 1, 1, 8]),
            (Shape::Cholesky { tiles: 8 }, [120, 252, 1, 1, 22]),
            (Shape::Cholesky { tiles: 1 }, [1, 0, 1, 1, 1]),
        ];
        for (shape, expected) in cases {
            assert_eq!(figures(shape), expected, "{shape:?}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let most = u32::MAX;
        let cases = [
            Shape::Chain { length: most },
            Shape::ForkJoin { stages: most, width: most },
            Shape::InTree { depth: most, arity: 2 },
            Shape::OutTree { depth: 40, arity: most },
            Shape::OutTree { depth: most, arity: 1 },
            Shape::Wavefront { rows: most, columns: most },
            Shape::FastFourierTransform { points: 12 },
            Shape::FastFourierTransform { points: 0 },
            Shape::FastFourierTransform { points: 1 << 31 },
            Shape::GaussianElimination { order: most },
            Shape::GaussianElimination { order: 1 },
            Shape::Cholesky { tiles: most },
        ];
        for shape in cases {
            assert!(shape.generate(&Grain::default()).is_err(), "{shape:?}");
        }
        let grain = Grain { operations: f64::NAN, bytes: 1 };
        assert!(Shape::Chain { length: 1 }.generate(&grain).is_err());
    }
}
