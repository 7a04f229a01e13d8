//! Canonical task graphs of regular shapes with random volumes (De Matteis et al. 2023, section 7).

use super::{GenerateError, Grain, Random, Shape};
use crate::graph::{TaskGraph, TaskId};
use crate::streaming::{CanonicalGraph, CanonicalGraphBuilder, MAX_VOLUME, Node, NodeId};

/// Shape whose tasks are element-wise, downsamplers and upsamplers at random.
///
/// Each level of the shape draws a rate, so that all inputs of a task agree: 1, a factor of 2, 3 or 4, or the inverse
/// of such a factor. The three kinds are equally likely. A task reads `volume` times the rates of the levels before its
/// own, rounded down and at least 1. It writes the volume that its first readers read, or as much as it reads. The
/// graph has no memory, so every edge can stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomVolumes {
    /// Shape. It must be canonical: the readers of a task are on one level, or the levels between do not change
    /// volumes.
    pub shape: Shape,
    /// Number of elements that tasks without predecessors read.
    pub volume: u64,
}

impl RandomVolumes {
    /// Generates the graph of a seed. In Gaussian elimination the pivots are element-wise: they pass a column on to
    /// readers on different levels.
    ///
    /// # Errors
    /// Returns the errors of [`Shape::generate`], and an error for a shape that is not canonical.
    pub fn generate(&self, seed: u64) -> Result<CanonicalGraph, GenerateError> {
        let shape = self.shape.generate(&Grain::default())?;
        let levels = levels(&shape);
        let volumes = self.volumes(levels.iter().max().copied().unwrap_or(0), &mut Random::new(seed));
        let mut builder = CanonicalGraphBuilder::new();
        for task in shape.task_ids() {
            let level = levels[task.index()];
            let first_reader = shape.successors(task).iter().map(|after| levels[after.index()]).min();
            let (input, output) = (volumes[level], volumes[first_reader.unwrap_or(level)]);
            builder.node(Node::task(shape.task(task).name.clone(), input, output));
        }
        for task in shape.task_ids() {
            shape.successors(task).iter().for_each(|after| builder.edge(NodeId(task.0), NodeId(after.0)));
        }
        Ok(builder.build()?)
    }

    /// Returns the input volume of the tasks of each level, from the first on.
    fn volumes(&self, levels: usize, random: &mut Random) -> Vec<u64> {
        let pivots = matches!(self.shape, Shape::GaussianElimination { .. });
        let mut volumes = vec![self.volume];
        let mut volume = self.volume;
        for level in 0..levels {
            if !(pivots && level % 2 == 0) {
                let (kind, factor) = (random.below(3), 2 + random.below(3));
                volume = match kind {
                    0 => volume,
                    1 => (volume / factor).max(1),
                    _ => volume.saturating_mul(factor).min(MAX_VOLUME),
                };
            }
            volumes.push(volume);
        }
        volumes
    }
}

/// Returns the number of edges on the longest path to each task.
fn levels(shape: &TaskGraph) -> Vec<usize> {
    let mut levels = vec![0; shape.task_count()];
    for &task in shape.topological() {
        let before = shape.predecessors(task).iter();
        levels[task.index()] = before.map(|before: &TaskId| levels[before.index()] + 1).max().unwrap_or(0);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::NodeKind;

    #[test]
    fn the_paper_s_shapes_are_canonical_and_seeded() {
        let shapes = [
            (Shape::Chain { length: 8 }, 8),
            (Shape::FastFourierTransform { points: 32 }, 223),
            (Shape::GaussianElimination { order: 16 }, 135),
            (Shape::Cholesky { tiles: 8 }, 120),
        ];
        for (shape, tasks) in shapes {
            let random = RandomVolumes { shape, volume: 2048 };
            let graph = random.generate(1).unwrap();
            assert_eq!(graph.node_count(), tasks);
            assert_eq!(graph, random.generate(1).unwrap());
            assert!((2..10).any(|seed| random.generate(seed).unwrap() != graph));
            let kinds = |kind| {
                (0..10).any(|seed| random.generate(seed).unwrap().nodes().iter().any(|node| node.kind() == kind))
            };
            assert!([NodeKind::Elementwise, NodeKind::Downsampler, NodeKind::Upsampler].into_iter().all(kinds));
        }
    }

    #[test]
    fn volumes_stay_within_their_range() {
        for seed in 0..4 {
            for volume in [1, MAX_VOLUME] {
                RandomVolumes { shape: Shape::Chain { length: 64 }, volume }.generate(seed).unwrap();
            }
        }
    }
}
