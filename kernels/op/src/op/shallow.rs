//! Convolutions that CPUs compute from rows in place, because writing their windows would cost much compared with the
//! products: a function of their shapes.

use super::{Conv, NodeSpec};
use crate::tensor::TensorSpec;

/// Maximum channels of a convolution with one group.
const MOST_CHANNELS: usize = 4;

/// Maximum channels and output channels of a small convolution, whose windows take as long to write as to multiply. Two
/// vectors of output channels read each row once.
const MOST_SMALL: usize = 32;

/// Maximum numbers of the rows that a row of outputs reads if it has many channels: the kernel refuses more.
const MOST_READ: usize = 1 << 16;

/// Maximum channels of each of several groups.
const MOST_GROUPED: usize = 8;

/// Maximum channels of a group whose output channels fill vectors.
const MOST_ACROSS_MAPS: usize = 128;

/// Numbers of outputs of a row for which output channels lie across: they mostly fill blocks, and the core's own caches
/// hold them with a tile's other rows.
const WIDE_ACROSS_MAPS: std::ops::RangeInclusive<usize> = 4..=256;

/// Output channels of a panel of weights.
#[doc(hidden)]
pub const PANEL: usize = 8;

/// Outputs of a vector.
const LANES: usize = 16;

/// Greatest distance of columns at which rows that are split by column are not mostly empty.
const MOST_STRIDE: usize = 4;

/// Elements that lie along a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Across {
    /// Outputs of a row.
    Pixels,
    /// Output channels of a group.
    Maps,
}

impl Conv {
    /// Returns the elements along a vector if this convolution is shallow and its windows are close to each other. It
    /// is shallow if it has few channels (the first of a network, or many groups), or few channels and few output
    /// channels. It is also shallow if it has one group of few output channels (the last of a network that makes
    /// images). Vectors hold the output channels of a group if these fill them. Otherwise they hold outputs, whose rows
    /// must mostly fill vectors; if there are several output channels, these must mostly fill panels.
    #[doc(hidden)]
    pub fn shallow(&self, node: &NodeSpec) -> Option<Across> {
        let dims = |spec: Option<&TensorSpec>| <[usize; 4]>::try_from(spec?.shape.dims()).ok();
        let ([maps, channels, rows, columns], [.., wide]) = (dims(node.inputs.get(1))?, dims(node.outputs.first())?);
        // A share of blocks, in eighths.
        let filled = |count: usize, block: usize, share: usize| {
            count > 0 && count.saturating_mul(8) >= count.div_ceil(block).saturating_mul(block).saturating_mul(share)
        };
        let (maps, groups) = (maps / self.group.max(1), self.group > 1);
        if [rows, columns] == [1, 1] || self.strides[1] > MOST_STRIDE || channels == 0 {
            return None;
        }
        let line = wide.saturating_mul(self.strides[1]).saturating_add(columns.saturating_mul(self.dilations[1]));
        let lines = rows.saturating_sub(1).saturating_mul(self.dilations[0]).saturating_add(1);
        let read = line.saturating_add(2 * LANES).saturating_mul(lines.saturating_mul(channels));
        let across_maps = channels <= MOST_ACROSS_MAPS && WIDE_ACROSS_MAPS.contains(&wide) && read <= MOST_READ;
        if across_maps && (groups || channels > MOST_CHANNELS && maps <= MOST_SMALL) && filled(maps, LANES, 7) {
            return Some(Across::Maps);
        }
        let most = match groups {
            true => MOST_GROUPED,
            false if maps <= MOST_SMALL && read <= MOST_READ => MOST_SMALL,
            false => MOST_CHANNELS,
        };
        let is_first = channels <= most && filled(maps, PANEL, 6);
        let is_last = (1..=PANEL).contains(&maps) && !groups;
        ((is_first || is_last) && filled(wide, LANES, 6)).then_some(Across::Pixels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::op::spec;

    #[test]
    fn other_kernels_have_what_would_be_left_empty() {
        let shallow = |[channels, maps, group]: [usize; 3], [window, stride]: [usize; 2], wide: usize| {
            let op = Conv { strides: [stride; 2], pads: [0; 4], dilations: [1; 2], group, epilogue: None };
            let weights = [maps, channels / group, window, window];
            let inputs = vec![spec(&[1, channels, 20, 20 * stride]), spec(&weights)];
            let node = NodeSpec { op: Op::Conv(op.clone()), inputs, outputs: vec![spec(&[1, maps, 18, wide])] };
            op.shallow(&node)
        };
        for (parts, window, wide, want) in [
            ([3, 16, 1], [3, 1], 48, Some(Across::Pixels)),
            ([6, 16, 2], [3, 2], 48, Some(Across::Pixels)),
            ([64, 64, 8], [3, 1], 48, Some(Across::Pixels)),
            ([64, 3, 1], [3, 1], 48, Some(Across::Pixels)),
            ([3, 4, 1], [3, 1], 48, Some(Across::Pixels)),
            ([64, 64, 4], [3, 1], 7, Some(Across::Maps)),
            ([12, 64, 4], [3, 2], 48, Some(Across::Maps)),
            ([64, 64, 4], [3, 1], 3, None),
            ([64, 64, 4], [3, 1], 257, None),
            ([32, 32, 1], [3, 1], 28, Some(Across::Maps)),
            ([128, 16, 1], [3, 2], 28, Some(Across::Maps)),
            ([129, 16, 1], [3, 2], 28, None),
            ([128, 16, 1], [3, 1], 135, Some(Across::Maps)),
            ([128, 16, 1], [3, 1], 136, None),
            ([256, 64, 2], [3, 2], 112, None),
            ([32, 64, 1], [3, 1], 28, None),
            ([32, 24, 1], [3, 1], 28, Some(Across::Pixels)),
            ([33, 24, 1], [3, 1], 28, None),
            ([32, 32, 1], [3, 1], 1024, None),
            ([4, 16, 1], [3, 1], 1024, Some(Across::Pixels)),
            ([5, 40, 1], [3, 1], 48, None),
            ([3, 9, 1], [3, 1], 48, None),
            ([64, 16, 1], [1, 1], 48, None),
            ([64, 16, 4], [3, 1], 48, None),
            ([64, 64, 8], [3, 1], 7, None),
            ([258, 64, 2], [3, 1], 7, None),
            ([64, 40, 2], [3, 1], 7, None),
            ([3, 16, 1], [3, 1], 18, None),
            ([3, 16, 1], [1, 1], 48, None),
            ([3, 16, 1], [8, 8], 48, None),
        ] {
            assert_eq!(shallow(parts, window, wide), want, "{parts:?} {window:?} {wide}");
        }
    }
}
