//! Two-dimensional convolutions, with an epilogue.
//!
//! A convolution is a product of the weights with the image's windows. If every window is one pixel, the image is the
//! matrix of windows. If each channel is convolved by itself or with few others, there are kernels without matrix
//! products. Windows of 3 × 3 use the Winograd algorithm if it pays. In all other cases the windows are written panel
//! by panel as the product needs them.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface.

mod conv_transpose;
mod dense;
mod depthwise;
mod image;
mod lines;
mod pieces;
mod shallow;
mod small;
#[cfg(test)]
mod testing;
mod winograd;

use anabranch_cpu_base::CpuKernel;
use anabranch_cpu_base::gemm::MicroKernel;
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_map::Epilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Conv, NodeSpec, Op, WinogradTile};

/// Builds the kernel for a node that fits its op's definition.
///
/// # Errors
/// If no kernel of this crate computes the node.
pub fn prepare(node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    match &node.op {
        Op::Conv(op) => prepare_for(MicroKernel::best(), op, node, constants),
        Op::ConvTranspose(op) => conv_transpose::prepare(node, op, constants),
        _ => Err(node.unsupported("it is not a convolution of floats")),
    }
}

/// Returns a key of the order in which the sums of a convolution are computed: convolutions that differ in their
/// numbers of images only give the same bits for an image if they have the same key. `None` if no numbers of images are
/// known to do so.
pub fn summation(node: &NodeSpec, constants: &[bool]) -> Option<Vec<usize>> {
    let Op::Conv(op) = &node.op else { return None };
    let (_, mut key) = chosen(MicroKernel::best(), op, node, constants).ok()?;
    // A scale is rounded together with a bias if the operands of the epilogue do not vary within a plane. If there is a
    // single image, operands that vary from image to image do not vary at all.
    let is_scaled = Epilogue::of(node).ok()?.is_some_and(|epilogue| epilogue.is_scaled());
    key.push(usize::from(is_scaled && node.inputs[0].shape.dims()[0] == 1));
    Some(key)
}

fn prepare_for(
    micro: &'static MicroKernel,
    op: &Conv,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    chosen(micro, op, node, constants).map(|(kernel, _)| kernel)
}

/// Returns the kernel of a convolution, and a key of the order of its sums without the epilogue.
fn chosen(
    micro: &'static MicroKernel,
    op: &Conv,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<(Box<dyn CpuKernel>, Vec<usize>), KernelError> {
    let geometry = geometry_of(op, node)?;
    let constant = constants.get(1) == Some(&true);
    if geometry.is_depthwise()
        && let Some(kernel) = depthwise::prepare(micro, geometry, node, constants)?
    {
        return Ok((kernel, vec![0]));
    }
    if constant
        && winograd::Kernel::suits(micro)
        && let Some(tile) = WinogradTile::of(op, node)
    {
        let kernel = winograd::Kernel::new(micro, geometry, tile, node)?;
        let key = vec![2, tile.outputs(), kernel.block_rows()];
        return Ok((Box::new(kernel), key));
    }
    if let Some(across) = op.shallow(node)
        && let Some(kernel) = shallow::Kernel::new(geometry, across, node, constants)?
    {
        return Ok((Box::new(kernel), vec![1, across as usize]));
    }
    if let Some(kernel) = depthwise::prepare_groups(geometry, node, constants)? {
        return Ok((kernel, vec![5]));
    }
    if constant && small::Kernel::suits(micro, &geometry) {
        return Ok((Box::new(small::Kernel::new(micro, geometry, node)?), vec![3]));
    }
    let kernel = dense::Kernel::new(micro, geometry, node, constant)?;
    let key = vec![4, usize::from(kernel.is_halved())];
    Ok((Box::new(kernel), key))
}

fn geometry_of(op: &Conv, node: &NodeSpec) -> Result<Geometry, KernelError> {
    let Conv { strides, pads, dilations, group, .. } = *op;
    let steps = Steps { strides, pads, dilations };
    Geometry::new(node, node.inputs[0].shape.dims(), node.outputs[0].shape.dims(), steps, group)
}

#[cfg(test)]
mod tests;
