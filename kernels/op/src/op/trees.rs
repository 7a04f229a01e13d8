//! Forests of decision trees: their definition, and the flat form in which their nodes are stored.
//!
//! A node is four words, so that a step from a node to a child reads a quarter of a cache line. The children of a
//! branch are neighbours, so that a step is an addition: the left child, or the child after it.

use super::NodeSpec;
use crate::dtype::DType;
use crate::error::KernelError;
use serde::{Deserialize, Serialize};

/// Function that makes a score from the weights of the leaves that a row reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeAggregate {
    /// Sum of the weights.
    Sum,
    /// Sum of the weights divided by the number of trees.
    Average,
    /// Least weight; 0 if there is none.
    Min,
    /// Greatest weight; 0 if there is none.
    Max,
}

/// Scores of rows by a forest of decision trees, each summed in `f64` in the order of the trees.
///
/// Inputs:
/// - X `[rows, features]`, `f32` or `f64`.
/// - Nodes `[nodes, 4]`, `u32`: [`TreeNode`]s.
/// - Roots `[trees, 2]`, `u32`: the first node of each tree, and the maximum steps from there to a leaf.
/// - The leaves' entries: targets, `u32`, and weights, `f64`.
/// - One `f64` for each target, which is added in the end.
///
/// Output: `[rows, targets]`, `f32` or `f64`.
///
/// The entries of a leaf follow each other; [`TreeNode::LAST`] is added to the target of the last entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trees {
    /// Function that joins weights.
    pub aggregate: TreeAggregate,
}

/// Node of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TreeNode {
    /// A row goes to node `left + 1` if its feature is greater than the threshold, else to node `left`.
    Branch {
        /// The feature's index, less than 2³¹.
        feature: u32,
        /// A number of X's type, or NaN: no number is greater than NaN.
        threshold: f64,
        /// Whether a row whose feature is NaN goes to node `left + 1`.
        missing_right: bool,
        /// First of the two children.
        left: u32,
    },
    /// End of a row's path.
    Leaf {
        /// First of its entries, or [`TreeNode::NO_ENTRY`].
        entry: u32,
    },
}

impl TreeNode {
    /// Bit that marks the target of a leaf's last entry.
    pub const LAST: u32 = 1 << 31;

    /// Entry of a leaf that has no entries.
    pub const NO_ENTRY: u32 = u32::MAX;

    /// Bit that marks the feature of a branch that sends NaN to the right.
    #[doc(hidden)]
    pub const MISSING: u32 = 1 << 31;

    /// Returns the node's words as node `at`, with thresholds of type `dtype`. A leaf is a branch from which every row
    /// goes to the leaf itself, so that rows that have arrived wait for others.
    pub fn words(self, dtype: DType, at: u32) -> [u32; 4] {
        match (self, dtype) {
            (Self::Branch { feature, threshold, missing_right, left }, _) => {
                let feature = feature | if missing_right { Self::MISSING } else { 0 };
                match dtype {
                    DType::F64 => {
                        let bits = threshold.to_bits();
                        [bits as u32, (bits >> 32) as u32, feature, left]
                    }
                    _ => [(threshold as f32).to_bits(), 0, feature, left],
                }
            }
            // The entry is in the free bits of a quiet NaN.
            (Self::Leaf { entry }, DType::F64) => [entry, 0x7ff8_0000, 0, at],
            (Self::Leaf { entry }, _) => [f32::NAN.to_bits(), entry, 0, at],
        }
    }
}

impl NodeSpec {
    pub(super) fn check_trees(&self) -> Result<(), KernelError> {
        let [x, nodes, roots, targets, weights, base] = &self.inputs[..] else {
            return Err(self.invalid("required: it has six inputs"));
        };
        let output = &self.outputs[0];
        let (&[rows, _], &[same, scores]) = (x.shape.dims(), output.shape.dims()) else {
            return Err(self.invalid("required: it maps rows to rows"));
        };
        let floats = [x, output].iter().all(|tensor| matches!(tensor.dtype, DType::F32 | DType::F64));
        self.require(floats && rows == same, "it maps rows of floats to as many")?;
        let words = [nodes, roots, targets].iter().all(|tensor| tensor.dtype == DType::U32);
        let numbers = [weights, base].iter().all(|tensor| tensor.dtype == DType::F64);
        self.require(words && numbers, "its trees are words and their weights 64-bit floats")?;
        let pairs = |tensor: &crate::TensorSpec, width| matches!(*tensor.shape.dims(), [_, own] if own == width);
        self.require(pairs(nodes, 4) && pairs(roots, 2), "a node is four words, a root two")?;
        let fits = targets.shape.elements() == weights.shape.elements() && base.shape.elements() == scores;
        self.require(fits, "each weight has a target, and each target a base")
    }

    /// Returns the approximate steps of all rows of a forest's input: as many as in trees whose leaves have equal
    /// depth.
    pub(super) fn tree_steps(&self) -> f64 {
        let (rows, nodes, trees) = (self.size(0, 0), self.size(1, 0), self.size(2, 0));
        rows * trees * (1.0 + nodes / trees.max(1.0)).log2()
    }
}
