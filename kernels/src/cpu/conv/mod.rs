//! Two-dimensional convolutions, with an epilogue.
//!
//! A convolution is a product of the weights with the image's windows. If every window is one pixel, the image is the
//! matrix of windows. If each channel is convolved by itself or with few others, there are kernels without matrix
//! products. Windows of 3 × 3 use the Winograd algorithm if it pays. In all other cases the windows are written panel
//! by panel as the product needs them.

mod dense;
mod depthwise;
mod geometry;
mod image;
mod lines;
mod pieces;
mod shallow;
mod small;
mod winograd;

pub(super) use winograd::transform_filters;

pub(super) use geometry::{Geometry, Steps};

use super::CpuKernel;
use super::gemm::MicroKernel;
use crate::error::KernelError;
use crate::op::{Conv, NodeSpec, WinogradTile};

/// Prepares the kernel of a convolution.
pub(super) fn prepare(op: &Conv, node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    prepare_for(MicroKernel::best(), op, node, constants)
}

fn prepare_for(
    micro: &'static MicroKernel,
    op: &Conv,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    let geometry = geometry_of(op, node)?;
    let constant = constants.get(1) == Some(&true);
    if geometry.is_depthwise()
        && let Some(kernel) = depthwise::prepare(micro, geometry, node, constants)?
    {
        return Ok(kernel);
    }
    if let Some(across) = op.shallow(node)
        && let Some(kernel) = shallow::Kernel::new(geometry, across, node, constants)?
    {
        return Ok(Box::new(kernel));
    }
    if constant
        && winograd::Kernel::suits(micro)
        && let Some(winograd_tile) = WinogradTile::of(op, node)
    {
        return Ok(Box::new(winograd::Kernel::new(micro, geometry, winograd_tile, node)?));
    }
    Ok(if constant && small::Kernel::suits(micro, &geometry) {
        Box::new(small::Kernel::new(micro, geometry, node)?)
    } else {
        Box::new(dense::Kernel::new(micro, geometry, node, constant)?)
    })
}

fn geometry_of(op: &Conv, node: &NodeSpec) -> Result<Geometry, KernelError> {
    let Conv { strides, pads, dilations, group, .. } = *op;
    let steps = Steps { strides, pads, dilations };
    Geometry::new(node, node.inputs[0].shape.dims(), node.outputs[0].shape.dims(), steps, group)
}

#[cfg(test)]
mod tests;
