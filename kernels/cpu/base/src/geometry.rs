//! Sizes of a convolution, checked, and positions of its window.

use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;

/// Geometry of a convolution of images of `channels × size` to images of `maps × output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of images.
    pub images: usize,
    /// Channels of an input image.
    pub channels: usize,
    /// Rows and columns of an input image.
    pub size: [usize; 2],
    /// Channels of an output image.
    pub maps: usize,
    /// Rows and columns of an output image.
    pub output: [usize; 2],
    /// Rows and columns of the window.
    pub window: [usize; 2],
    /// Parameters of the window.
    pub steps: Steps,
    /// Number of groups of channels.
    pub group: usize,
}

/// Movement and extent of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Rows and columns from one position to the next.
    pub strides: [usize; 2],
    /// Rows and columns of zeros above, left, below, right.
    pub pads: [usize; 4],
    /// Rows and columns from one of the window's elements to the next.
    pub dilations: [usize; 2],
}

impl Geometry {
    /// Returns the geometry of a convolution from tensor `input` to tensor `output`, both `[n, c, h, w]`. The second
    /// input of `node` are the weights `[maps, channels / group, kh, kw]`.
    ///
    /// # Errors
    /// If the shapes or parameters do not fit together.
    pub fn new(
        node: &NodeSpec,
        input: &[usize],
        output: &[usize],
        steps: Steps,
        group: usize,
    ) -> Result<Self, KernelError> {
        let weights = node.inputs[1].shape.dims();
        let (&[images, channels, height, width], &[maps, _, rows, columns], &[_, _, oh, ow]) = (input, weights, output)
        else {
            return Err(node.invalid("required: its tensors have four dimensions"));
        };
        let size = [height, width];
        for (axis, (window, expected)) in [(rows, oh), (columns, ow)].into_iter().enumerate() {
            let positions = steps.positions(axis, size[axis], window);
            node.require(positions == Some(expected), "its output has one element for each position of the window")?;
        }
        Ok(Self { images, channels, size, maps, output: [oh, ow], window: [rows, columns], steps, group })
    }

    /// Returns the geometry of one image of these channels and this size, with as many outputs as fit.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_image([channels, maps, group]: [usize; 3], size: [usize; 2], window: [usize; 2], steps: Steps) -> Self {
        let output = [0, 1].map(|axis| steps.positions(axis, size[axis], window[axis]).expect("a window that fits"));
        Self { images: 1, channels, size, maps, output, window, steps, group }
    }

    /// Returns the weights' groups, output channels of a group, input channels of a group, and taps.
    pub fn weights(&self) -> [usize; 4] {
        [self.group, self.group_maps(), self.group_channels(), self.taps()]
    }

    /// Returns the rows of the product that computes one group: channels of the output.
    #[inline]
    pub fn group_maps(&self) -> usize {
        self.maps / self.group
    }

    /// Returns the channels of the input that one group reads.
    #[inline]
    pub fn group_channels(&self) -> usize {
        self.channels / self.group
    }

    /// Returns the input channel that an output channel of a [depthwise](Self::is_depthwise) convolution reads.
    #[inline]
    pub fn read_by(&self, map: usize) -> usize {
        // Most input channels have one output channel, and a division takes as long as a short row.
        if self.maps == self.channels { map } else { map / (self.maps / self.channels) }
    }

    /// Returns the elements of the window in one channel.
    #[inline]
    pub fn taps(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Returns the steps of the product that computes one group: the elements of a window.
    #[inline]
    pub fn depth(&self) -> usize {
        self.taps() * self.group_channels()
    }

    /// Returns the elements of a channel of the input.
    #[inline]
    pub fn plane(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Returns the elements of a channel of the output.
    #[inline]
    pub fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Whether each output element is a combination of the input elements at the same position.
    #[inline]
    pub fn is_pointwise(&self) -> bool {
        self.window == [1, 1] && self.steps.strides == [1, 1] && self.steps.pads == [0; 4]
    }

    /// Whether each of several channels is convolved by itself.
    pub fn is_depthwise(&self) -> bool {
        self.group == self.channels && (self.channels > 1 || self.maps == 1)
    }
}

impl Steps {
    /// Returns how many positions a window of `window` elements has over `size` elements; `None` if it does not fit or
    /// the sizes overflow.
    fn positions(&self, axis: usize, size: usize, window: usize) -> Option<usize> {
        let padded = size.checked_add(self.pads[axis])?.checked_add(self.pads[axis + 2])?;
        let extent = (window - 1).checked_mul(self.dilations[axis])?.checked_add(1)?;
        // Offsets within the padded input must fit signed arithmetic.
        isize::try_from(padded).ok()?;
        Some(padded.checked_sub(extent)? / self.strides[axis] + 1)
    }

    /// Returns the positions `first..end` at which the window's element `tap` along an axis lies inside of `size`
    /// elements, and the element that it covers at position `first`.
    #[inline]
    pub fn inside(&self, axis: usize, tap: usize, size: usize, positions: usize) -> (usize, usize, usize) {
        let (stride, offset, pad) = (self.strides[axis], tap * self.dilations[axis], self.pads[axis]);
        let first = pad.saturating_sub(offset).div_ceil(stride).min(positions);
        // Position p covers element p · stride + offset − pad, which must be below `size`.
        let end = (size + pad).saturating_sub(offset).div_ceil(stride).clamp(first, positions);
        (first, end, if first < end { first * stride + offset - pad } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_inside_are_those_of_the_definition() {
        for (size, window, stride, dilation, before, after) in [
            (7, 3, 1, 1, 1, 1),
            (8, 3, 2, 1, 0, 1),
            (5, 4, 3, 2, 4, 3),
            (1, 1, 1, 1, 0, 0),
            (2, 5, 1, 1, 4, 4),
            (3, 2, 1, 9, 9, 9),
        ] {
            let steps = Steps { strides: [stride, 1], pads: [before, 0, after, 0], dilations: [dilation, 1] };
            let positions = steps.positions(0, size, window).expect("fits");
            for tap in 0..window {
                let covered: Vec<_> = (0..positions)
                    .filter_map(|p| Some((p, (p * stride + tap * dilation).checked_sub(before)?)))
                    .filter(|(_, element)| *element < size)
                    .collect();
                let (first, end, element) = steps.inside(0, tap, size, positions);
                let found: Vec<_> = (first..end).map(|p| (p, element + (p - first) * stride)).collect();
                assert_eq!(found, covered, "size {size}, window {window}, tap {tap}");
            }
        }
    }

    #[test]
    fn windows_that_do_not_fit_have_no_position() {
        let steps = Steps { strides: [1, 1], pads: [0; 4], dilations: [usize::MAX, 2] };
        assert_eq!(steps.positions(0, 5, 3), None);
        assert_eq!(steps.positions(1, 4, 3), None);
        assert_eq!(steps.positions(1, 5, 3), Some(1));
    }
}
