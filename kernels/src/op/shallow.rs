//! Which convolutions CPUs compute from rows where they are, because writing their windows would cost much beside the products: a function of
//! their shapes.

use super::{Conv, NodeSpec};
use crate::tensor::TensorSpec;

/// Most channels of a group.
const MOST_CHANNELS: usize = 4;

/// Maps of a panel of weights.
pub(crate) const PANEL: usize = 8;

/// Outputs of a vector.
const LANES: usize = 16;

/// Greatest distance of columns for which rows taken apart are not mostly empty.
const MOST_STRIDE: usize = 4;

impl Conv {
    /// Whether it has few channels, as the first of a network, or few maps and one group, as the last of one that makes images; outputs that are near each
    /// other; and rows that mostly fill vectors, and maps that mostly fill panels if there are several.
    pub(crate) fn is_shallow(&self, node: &NodeSpec) -> bool {
        let dims = |spec: Option<&TensorSpec>| <[usize; 4]>::try_from(spec?.shape.dims()).ok();
        let weights = dims(node.inputs.get(1));
        let (Some([maps, channels, rows, columns]), Some([.., wide])) = (weights, dims(node.outputs.first())) else {
            return false;
        };
        let filled = |count: usize, block: usize| 4 * count >= 3 * count.next_multiple_of(block);
        let is_window = [rows, columns] != [1, 1] && self.strides[1] <= MOST_STRIDE;
        let maps = maps / self.group.max(1);
        let is_first = (1..=MOST_CHANNELS).contains(&channels) && filled(maps, PANEL);
        let is_last = channels > 0 && (1..=PANEL).contains(&maps) && self.group == 1;
        (is_first || is_last) && is_window && filled(wide, LANES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::spec;
    use crate::op::Op;

    #[test]
    fn other_kernels_have_what_would_be_left_empty() {
        let is_shallow = |[channels, maps, group]: [usize; 3], [window, stride]: [usize; 2], wide: usize| {
            let op = Conv { strides: [stride; 2], pads: [0; 4], dilations: [1; 2], group, epilogue: None };
            let weights = [maps, channels / group, window, window];
            let inputs = vec![spec(&[1, channels, 20, 20 * stride]), spec(&weights)];
            let node = NodeSpec { op: Op::Conv(op.clone()), inputs, outputs: vec![spec(&[1, maps, 18, wide])] };
            op.is_shallow(&node)
        };
        assert!(is_shallow([3, 16, 1], [3, 1], 48) && is_shallow([6, 16, 2], [3, 2], 48));
        assert!(is_shallow([64, 3, 1], [3, 1], 48) && is_shallow([3, 4, 1], [3, 1], 48));
        for (parts, window, wide) in [
            ([5, 16, 1], [3, 1], 48),
            ([3, 9, 1], [3, 1], 48),
            ([64, 3, 1], [1, 1], 48),
            ([64, 16, 4], [3, 1], 48),
            ([3, 16, 1], [3, 1], 18),
            ([3, 16, 1], [1, 1], 48),
            ([3, 16, 1], [8, 8], 48),
        ] {
            assert!(!is_shallow(parts, window, wide), "{parts:?} {window:?} {wide}");
        }
    }
}
