//! Windows that slide over images: the sizes that pooling and both convolutions share.

use super::Shader;
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::shape::Shape;

/// Maximum size: larger ones could overflow the shaders' signed coordinates.
const MOST: usize = 1 << 28;

/// Images of `[n, c, h, w]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) count: usize,
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Images {
    /// Returns the sizes of a shape, which was checked to have four axes.
    pub(crate) fn of(shape: &Shape) -> Self {
        let &[count, channels, height, width] = shape.dims() else { panic!("images of shape {shape}") };
        Self { count, channels, height, width }
    }

    pub(crate) fn area(&self) -> usize {
        self.height * self.width
    }
}

/// Window and its movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) size: [usize; 2],
    pub(crate) strides: [usize; 2],
    /// Padding above, left, below, right.
    pub(crate) pads: [usize; 4],
    pub(crate) dilations: [usize; 2],
}

impl Window {
    /// Rejects a window that reaches beyond what coordinates can hold.
    pub(crate) fn check(&self, node: &NodeSpec) -> Result<(), KernelError> {
        let numbers = [&self.size[..], &self.strides, &self.dilations, &self.pads];
        let small = numbers.concat().iter().all(|n| *n <= MOST);
        let reach = |axis: usize| self.size[axis].checked_mul(self.dilations[axis]).is_some_and(|n| n <= MOST);
        let images = node.inputs.iter().chain(&node.outputs).flat_map(|spec| spec.shape.dims());
        let fits = small && reach(0) && reach(1) && images.into_iter().all(|dim| *dim <= MOST);
        node.require(fits, "windows, strides, dilations and all sizes are at most 2²⁸")
    }

    /// Checks that all positions begin within the input and its padding.
    pub(crate) fn check_reach(&self, node: &NodeSpec, input: Images, output: Images) -> Result<(), KernelError> {
        let reaches = |axis: usize, size: usize, output: usize| {
            let begin = output.saturating_sub(1).saturating_mul(self.strides[axis]);
            begin < size + self.pads[axis] + self.pads[axis + 2]
        };
        let all = reaches(0, input.height, output.height) && reaches(1, input.width, output.width);
        node.require(all, "its windows begin within the padded input")
    }

    pub(crate) fn declare(&self, shader: &mut Shader<'_>) {
        let names = ["WINDOW", "STRIDE", "DILATION"];
        for (name, values) in names.into_iter().zip([self.size, self.strides, self.dilations]) {
            shader.constant(&format!("{name}_Y"), values[0]).constant(&format!("{name}_X"), values[1]);
        }
        shader.constant("PAD_TOP", self.pads[0]).constant("PAD_LEFT", self.pads[1]);
    }
}
