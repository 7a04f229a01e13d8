//! Convolutions with constant weights that CPUs compute with the Winograd algorithm: a function of their shapes.
//!
//! F(m × m, 3 × 3) computes tiles of m × m outputs. It needs (m + 2)² instead of 9 m² products for each input and
//! output channel (Lavin and Gray 2015, section 4.1). In return, it has transforms, more weights, and tiles beyond the
//! image's edge.

use super::{Conv, NodeSpec};
use serde::{Deserialize, Serialize};

/// Size of a tile: outputs computed at once along each axis of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[doc(hidden)]
pub enum WinogradTile {
    /// F(2 × 2, 3 × 3).
    Two,
    /// F(4 × 4, 3 × 3).
    Four,
}

/// Products that take as long as reading a weight from memory.
const WEIGHT: f64 = 10.0;

/// Products that take as long as transforming one value of a channel, or of an output channel, at one position.
const TRANSFORM: f64 = 20.0;

/// Products that take as long as writing an element of a window.
const WINDOW: f64 = 12.0;

/// Multiplications that take as long as starting and ending the matrix product of one position.
const START: f64 = 8_000.0;

/// Minimum input and output channels: fewer leave vectors empty.
const LEAST: usize = 16;

/// Maximum numbers in the transformed inputs of a block, and so of a row of tiles: 4 MiB.
const ROW: usize = 1 << 20;

impl WinogradTile {
    /// Returns the outputs along each axis of a tile.
    #[inline]
    pub fn outputs(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Returns the products for all outputs of a tile, for each input and output channel.
    #[inline]
    pub fn positions(self) -> usize {
        (self.outputs() + 2) * (self.outputs() + 2)
    }

    /// Returns the tile size for a convolution with constant weights, or `None` if direct convolution is predicted to
    /// be faster.
    pub fn of(op: &Conv, node: &NodeSpec) -> Option<Self> {
        let dims = |tensor: Option<&crate::TensorSpec>| <[usize; 4]>::try_from(tensor?.shape.dims()).ok();
        let ([maps, channels, high, wide], output) = (dims(node.inputs.get(1))?, dims(node.outputs.first())?);
        let empty = output.contains(&0) || dims(node.inputs.first())?.contains(&0);
        let near = op.strides == [1, 1] && op.dilations == [1, 1];
        let maps = maps / op.group.max(1);
        if !near || [high, wide] != [3, 3] || channels.min(maps) < LEAST || empty {
            return None;
        }
        // Groups are alike, so the cost of one decides.
        let sizes = [output[0], channels, maps];
        let size = [output[2], output[3]];
        let [two, four] = [Self::Two, Self::Four].map(|how| {
            let fits = output[3].div_ceil(how.outputs()) <= how.most_tiles(channels);
            if fits { cost(Some(how), sizes, size) } else { f64::INFINITY }
        });
        // The larger tile has more than twice the weights, so it must save at least a tenth.
        let (least, chosen) = if four < 0.9 * two { (four, Self::Four) } else { (two, Self::Two) };
        (least < 0.9 * cost(None, sizes, size)).then_some(chosen)
    }

    /// Returns the number of tiles whose transformed inputs of `channels` channels stay in the core's own caches.
    pub fn most_tiles(self, channels: usize) -> usize {
        ROW / self.positions().saturating_mul(channels).max(1)
    }

    /// Returns the number of tiles of `images` images of this many rows and columns.
    pub(crate) fn tiles(self, images: usize, size: [usize; 2]) -> usize {
        size.iter().fold(images, |tiles, size| tiles.saturating_mul(size.div_ceil(self.outputs())))
    }
}

/// Returns the approximate cost of a convolution, in products that take as long.
fn cost(how: Option<WinogradTile>, [images, channels, maps]: [usize; 3], size: [usize; 2]) -> f64 {
    let [channels, maps] = [channels, maps].map(|size| size as f64);
    let weights = channels * maps;
    match how {
        None => {
            let pixels = images as f64 * size[0] as f64 * size[1] as f64;
            9.0 * (pixels * channels * (maps + WINDOW) + WEIGHT * weights)
        }
        Some(winograd_tile) => {
            let tiles = winograd_tile.tiles(images, size) as f64;
            let transforms = TRANSFORM * (channels + maps);
            winograd_tile.positions() as f64 * (tiles * (weights + transforms) + WEIGHT * weights + START)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::{DType, Shape, TensorSpec};

    fn chosen(
        images: usize,
        [channels, maps]: [usize; 2],
        size: usize,
        change: impl Fn(&mut Conv),
    ) -> Option<WinogradTile> {
        let mut op = Conv { strides: [1; 2], pads: [1; 4], dilations: [1; 2], group: 1, epilogue: None };
        change(&mut op);
        let spec = |dims: [usize; 4]| TensorSpec::new(DType::F32, Shape::new(dims).expect("small"));
        let inputs = vec![spec([images, channels, size, size]), spec([maps, channels, 3, 3])];
        let outputs = vec![spec([images, maps, size, size])];
        WinogradTile::of(&op, &NodeSpec { op: Op::Conv(op.clone()), inputs, outputs })
    }

    #[test]
    fn tiles_are_large_where_images_are() {
        let plain = |images, channels, size| chosen(images, channels, size, |_| ());
        for (images, channels, size, want) in [
            (1, [48, 48], 24, Some(WinogradTile::Four)),
            (1, [32, 32], 20, Some(WinogradTile::Four)),
            (1, [160, 160], 16, Some(WinogradTile::Four)),
            (1, [192, 192], 10, Some(WinogradTile::Two)),
            (1, [96, 96], 6, Some(WinogradTile::Two)),
            // Images share their weights.
            (8, [96, 96], 12, Some(WinogradTile::Four)),
            (1, [32, 32], 28, Some(WinogradTile::Four)),
            // Few tiles for the start-up cost of each position.
            (1, [16, 16], 7, None),
            // Few pixels for the weights; empty vectors; no pixels.
            (1, [320, 320], 4, None),
            (1, [8, 64], 40, None),
            (1, [64, 8], 40, None),
            (0, [64, 64], 40, None),
            // Rows of tiles that are too large.
            (1, [512, 16], 400, None),
            (1, [64, 64], 1920, Some(WinogradTile::Two)),
        ] {
            assert_eq!(plain(images, channels, size), want, "{images} of {channels:?}, {size}²");
        }
    }

    #[test]
    fn only_near_windows_are_filtered() {
        assert!(chosen(1, [64, 64], 24, |_| ()).is_some());
        assert_eq!(chosen(1, [64, 64], 24, |op| op.strides = [1, 2]), None);
        assert_eq!(chosen(1, [64, 64], 24, |op| op.dilations = [2, 1]), None);
    }

    #[test]
    fn groups_are_convolutions_by_themselves() {
        let chosen =
            |channels: usize, maps: usize, group: usize| chosen(1, [channels, maps], 24, |op| op.group = group);
        assert_eq!(chosen(32, 128, 4), chosen(32, 32, 1));
        // The second number of the weights is the channels of a group.
        assert_eq!([chosen(64, 60, 4), chosen(15, 64, 2)], [None, None], "empty vectors");
    }
}
