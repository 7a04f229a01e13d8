//! Forests of decision trees: blocks of rows, and spans of trees if rows are few.
//!
//! Each tree is applied to all rows of a block before the next, so that its nodes stay in cache. Eight rows are
//! computed at a time, with their features side by side. The remaining rows of a block use eight trees at a time, row
//! by row. The numbers of rows and trees determine the division of work, and weights are added in the trees' order, so
//! that a score's bits do not depend on threads.

mod walk;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::with_workspace;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, TreeAggregate, TreeNode, Trees};
use bytemuck::Pod;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use walk::{Feature, LANES, walk};

/// Bytes of a block's features and scores, which stay in a core's cache while all trees are applied.
const BLOCK_BYTES: usize = 256 << 10;

/// Maximum rows of a block.
const BLOCK_ROWS: usize = 1024;

/// Minimum parts into which the work is divided, as far as there are trees.
const PARTS: usize = 16;

/// Minimum trees of a part, unless it has all.
const SPAN: usize = 16;

/// Maximum bytes of the sums of all spans.
const SCRATCH_BYTES: usize = 64 << 20;

struct TreesKernel {
    aggregate: TreeAggregate,
    features: usize,
    targets: usize,
    rows: usize,
    trees: usize,
    /// Rows of a block, and spans of trees for each of them.
    block: usize,
    spans: usize,
    /// Types of features and scores.
    types: [DType; 2],
}

/// Constant inputs of a call.
struct Forest<'a> {
    nodes: &'a [[u32; 4]],
    /// First node of each tree, and the maximum steps to a leaf.
    roots: &'a [[u32; 2]],
    targets: &'a [u32],
    weights: &'a [f64],
}

/// Prepares a forest.
pub(crate) fn prepare(node: &NodeSpec, op: &Trees) -> Box<dyn CpuKernel> {
    Box::new(TreesKernel::new(node, op))
}

/// Returns a key of the order of all sums, see `summation` of the crate.
pub(crate) fn summation(node: &NodeSpec, op: &Trees) -> Vec<usize> {
    match op.aggregate {
        TreeAggregate::Min | TreeAggregate::Max => Vec::new(),
        _ => vec![TreesKernel::new(node, op).spans],
    }
}

impl CpuKernel for TreesKernel {
    /// Returns the size of the sums of each span.
    fn scratch_bytes(&self) -> usize {
        match self.spans {
            1 => 0,
            spans => spans * self.rows * self.targets * size_of::<f64>(),
        }
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        match self.types {
            [DType::F64, DType::F64] => self.run_as::<f64, f64>(call),
            [DType::F64, _] => self.run_as::<f64, f32>(call),
            [_, DType::F64] => self.run_as::<f32, f64>(call),
            _ => self.run_as::<f32, f32>(call),
        }
    }
}

impl TreesKernel {
    fn new(node: &NodeSpec, op: &Trees) -> Self {
        let (x, output) = (&node.inputs[0], &node.outputs[0]);
        let [rows, features] = [0, 1].map(|axis| x.shape.dims()[axis]);
        let (targets, trees) = (output.shape.dims()[1], node.inputs[2].shape.dims()[0]);
        let row = (features * x.dtype.size()).saturating_add(targets * size_of::<f64>()).max(1);
        let block = (BLOCK_BYTES / row).clamp(LANES, BLOCK_ROWS) / LANES * LANES;
        let blocks = rows.div_ceil(block).max(1);
        let sums = rows.saturating_mul(targets).saturating_mul(size_of::<f64>()).max(1);
        let spans = PARTS.div_ceil(blocks).min(trees / SPAN).min(SCRATCH_BYTES / sums).max(1);
        let types = [x.dtype, output.dtype];
        Self { aggregate: op.aggregate, features, targets, rows, trees, block, spans, types }
    }

    fn run_as<T: Feature, S: Score>(&self, call: Call<'_>) -> Result<(), KernelError> {
        let Call { inputs, outputs, scratch, team, .. } = call;
        let &[x, nodes, roots, targets, weights, base] = inputs else { unreachable!("six inputs, as was checked") };
        let (x, base): (&[T], &[f64]) = (elements(x), elements(base));
        let forest = Forest {
            nodes: elements(nodes),
            roots: elements(roots),
            targets: elements(targets),
            weights: elements(weights),
        };
        let (width, wrong) = (self.block * self.targets, AtomicBool::new(false));
        let rows = |block: usize| block * self.block..self.rows.min((block + 1) * self.block);
        let summed = |block: usize, trees: Range<usize>, sums: &mut [f64], lanes: &mut [f32]| {
            sums.fill(self.identity());
            let rows = rows(block);
            let x = &x[rows.start * self.features..rows.end * self.features];
            if self.add_block(&forest, trees, x, sums, bytemuck::cast_slice_mut(lanes)).is_none() {
                wrong.store(true, Ordering::Relaxed);
            }
        };
        // Size of the features of whole groups of rows, side by side.
        let lanes = self.block.min(self.rows) / LANES * LANES * self.features * size_of::<T>() / size_of::<f32>();
        let output: &mut [S] = elements_mut(outputs[0]);
        if self.spans == 1 {
            team.run_pieces(output, width, &|block, scores| {
                with_workspace(2 * scores.len() + lanes, |memory| {
                    let (sums, lanes) = memory.split_at_mut(2 * scores.len());
                    let sums = bytemuck::cast_slice_mut(sums);
                    summed(block, 0..self.trees, sums, lanes);
                    self.finish(sums, base, scores);
                });
            });
        } else {
            let blocks = self.rows.div_ceil(self.block);
            let all = self.rows * self.targets;
            let sums: &mut [f64] = elements_mut(&mut scratch[..self.spans * all * size_of::<f64>()]);
            // Pieces of one block each: those of a span are consecutive, and the last one may be shorter.
            let mut pieces: Vec<_> =
                sums.chunks_mut(all.max(1)).flat_map(|span| span.chunks_mut(width.max(1))).collect();
            team.run_pieces(&mut pieces, 1, &|at, piece| {
                let (span, block) = (at / blocks, at % blocks);
                with_workspace(lanes, |lanes| summed(block, self.span(span), piece[0], lanes));
            });
            let (first, others) = sums.split_at_mut(all);
            for other in others.chunks(all.max(1)) {
                first.iter_mut().zip(other).for_each(|(sum, other)| self.join(sum, *other));
            }
            self.finish(first, base, output);
        }
        match wrong.into_inner() {
            true => Err(KernelError::Value {
                op: "trees",
                reason: "a tree names a node, feature or target that does not exist".into(),
            }),
            false => Ok(()),
        }
    }

    /// Returns the trees of a span.
    fn span(&self, span: usize) -> Range<usize> {
        span * self.trees / self.spans..(span + 1) * self.trees / self.spans
    }

    /// Returns the number with which the first weight is joined.
    fn identity(&self) -> f64 {
        match self.aggregate {
            TreeAggregate::Sum | TreeAggregate::Average => 0.0,
            TreeAggregate::Min | TreeAggregate::Max => f64::NAN,
        }
    }

    #[inline(always)]
    fn join(&self, sum: &mut f64, weight: f64) {
        match self.aggregate {
            TreeAggregate::Sum | TreeAggregate::Average => *sum += weight,
            // These functions return the number if the other operand is NaN.
            TreeAggregate::Min => *sum = sum.min(weight),
            TreeAggregate::Max => *sum = sum.max(weight),
        }
    }

    /// Adds the weights of trees for the rows of a block.
    fn add_block<T: Feature>(
        &self,
        forest: &Forest<'_>,
        trees: Range<usize>,
        x: &[T],
        sums: &mut [f64],
        lanes: &mut [[T; LANES]],
    ) -> Option<()> {
        match x.iter().any(|value| value.is_missing()) {
            true => self.add_rows::<T, true>(forest, trees, x, sums, lanes),
            false => self.add_rows::<T, false>(forest, trees, x, sums, lanes),
        }
    }

    /// Adds whole groups of rows tree by tree, then the remaining rows by groups of trees.
    fn add_rows<T: Feature, const MISSING: bool>(
        &self,
        forest: &Forest<'_>,
        trees: Range<usize>,
        x: &[T],
        sums: &mut [f64],
        lanes: &mut [[T; LANES]],
    ) -> Option<()> {
        let roots = forest.roots.get(trees)?;
        let wide = LANES * self.features;
        let (groups, rest) = x.split_at(x.len() - x.len().checked_rem(wide)?);
        let (group_sums, rest_sums) = sums.split_at_mut(groups.len() / self.features * self.targets);
        let side_by_side = &mut lanes[..groups.len() / LANES];
        for (group, to) in groups.chunks_exact(wide).zip(side_by_side.chunks_exact_mut(self.features)) {
            for (row, values) in group.chunks_exact(self.features).enumerate() {
                to.iter_mut().zip(values).for_each(|(to, value)| to[row] = *value);
            }
        }
        for &[root, depth] in roots {
            let groups = side_by_side.chunks_exact(self.features);
            for (x, sums) in groups.zip(group_sums.chunks_exact_mut(LANES * self.targets)) {
                let entries = walk::<T, LANES, MISSING>(forest.nodes, [root; LANES], depth, x)?;
                for (entry, sums) in entries.into_iter().zip(sums.chunks_exact_mut(self.targets)) {
                    self.add(forest, entry, sums)?;
                }
            }
        }
        for (x, sums) in rest.chunks_exact(self.features).zip(rest_sums.chunks_exact_mut(self.targets)) {
            let x: &[[T; 1]] = bytemuck::cast_slice(x);
            for some in roots.chunks(LANES) {
                // The first tree fills the group if fewer than eight remain.
                let of = |lane: usize| some.get(lane).unwrap_or(&some[0]);
                let depth = some.iter().map(|[_, depth]| *depth).max()?;
                let entries = walk::<T, 1, MISSING>(forest.nodes, std::array::from_fn(|lane| of(lane)[0]), depth, x)?;
                entries[..some.len()].iter().try_for_each(|entry| self.add(forest, *entry, sums))?;
            }
        }
        Some(())
    }

    /// Adds the entries of a leaf to a row's sums.
    #[inline(always)]
    fn add(&self, forest: &Forest<'_>, first: u32, sums: &mut [f64]) -> Option<()> {
        if first == TreeNode::NO_ENTRY {
            return Some(());
        }
        let mut at = first as usize;
        loop {
            let target = *forest.targets.get(at)?;
            let sum = sums.get_mut((target & !TreeNode::LAST) as usize)?;
            self.join(sum, *forest.weights.get(at)?);
            if target & TreeNode::LAST != 0 {
                return Some(());
            }
            at += 1;
        }
    }

    /// Writes the scores of whole rows.
    fn finish<S: Score>(&self, sums: &[f64], base: &[f64], scores: &mut [S]) {
        let rows = sums.chunks_exact(self.targets.max(1)).zip(scores.chunks_exact_mut(self.targets.max(1)));
        for (sums, scores) in rows {
            for ((sum, base), score) in sums.iter().zip(base).zip(scores) {
                let joined = match self.aggregate {
                    TreeAggregate::Sum => *sum,
                    TreeAggregate::Average => *sum / self.trees as f64,
                    TreeAggregate::Min | TreeAggregate::Max => {
                        if sum.is_nan() {
                            0.0
                        } else {
                            *sum
                        }
                    }
                };
                *score = S::of(joined + base);
            }
        }
    }
}

/// Type of scores.
trait Score: Pod + Send {
    fn of(sum: f64) -> Self;
}

impl Score for f32 {
    fn of(sum: f64) -> Self {
        sum as f32
    }
}

impl Score for f64 {
    fn of(sum: f64) -> Self {
        sum
    }
}

#[cfg(test)]
mod tests;
