//! Paths of rows through trees: eight paths at a time, which do not wait for each other.
//!
//! A step of one path depends on the step before, through two reads and a comparison of some 15 cycles. Eight paths, of
//! different rows or of one row through different trees, fill that time.

use anabranch_op::op::TreeNode;
use bytemuck::Pod;

/// Number of paths at a time.
pub(super) const LANES: usize = 8;

/// Steps between two checks whether all paths have ended.
const STRIDE: u32 = 4;

/// Type of features and thresholds.
pub(super) trait Feature: Pod + PartialOrd + Send + Sync {
    /// Returns the threshold of a node.
    fn threshold(node: &[u32; 4]) -> Self;

    /// Returns the first entry of a leaf.
    fn entry(node: &[u32; 4]) -> u32;

    fn is_missing(self) -> bool;
}

impl Feature for f32 {
    #[inline(always)]
    fn threshold(node: &[u32; 4]) -> Self {
        Self::from_bits(node[0])
    }

    #[inline(always)]
    fn entry(node: &[u32; 4]) -> u32 {
        node[1]
    }

    #[inline(always)]
    fn is_missing(self) -> bool {
        self.is_nan()
    }
}

impl Feature for f64 {
    #[inline(always)]
    fn threshold(node: &[u32; 4]) -> Self {
        Self::from_bits(u64::from(node[0]) | u64::from(node[1]) << 32)
    }

    #[inline(always)]
    fn entry(node: &[u32; 4]) -> u32 {
        node[0]
    }

    #[inline(always)]
    fn is_missing(self) -> bool {
        self.is_nan()
    }
}

/// Returns the first entries of the leaves at which paths of at most `depth` steps end that begin at `roots`. The
/// features of a path's row are `x[..][lane % ROWS]`. If `MISSING` is not set, no feature is NaN. Returns `None` if a
/// node or a feature does not exist.
#[inline(always)]
pub(super) fn walk<T: Feature, const ROWS: usize, const MISSING: bool>(
    nodes: &[[u32; 4]],
    roots: [u32; LANES],
    depth: u32,
    x: &[[T; ROWS]],
) -> Option<[u32; LANES]> {
    let mut at = roots;
    let mut done = 0;
    while done < depth {
        for _ in 1..STRIDE {
            at = step::<T, ROWS, MISSING>(nodes, at, x)?;
        }
        let before = at;
        at = step::<T, ROWS, MISSING>(nodes, at, x)?;
        // Only leaves lead to themselves.
        if at == before {
            break;
        }
        done = done.saturating_add(STRIDE);
    }
    let mut entries = [0; LANES];
    for (entry, at) in entries.iter_mut().zip(at) {
        *entry = T::entry(nodes.get(at as usize)?);
    }
    Some(entries)
}

/// Makes one step of each path.
#[inline(always)]
fn step<T: Feature, const ROWS: usize, const MISSING: bool>(
    nodes: &[[u32; 4]],
    mut at: [u32; LANES],
    x: &[[T; ROWS]],
) -> Option<[u32; LANES]> {
    for (lane, at) in at.iter_mut().enumerate() {
        let node = nodes.get(*at as usize)?;
        let value = x.get((node[2] & !TreeNode::MISSING) as usize)?[lane % ROWS];
        let mut right = value > T::threshold(node);
        if MISSING {
            right |= value.is_missing() & (node[2] & TreeNode::MISSING != 0);
        }
        *at = node[3].wrapping_add(u32::from(right));
    }
    Some(at)
}
