//! Replaces the module `gpu` in a build without the feature `gpu`. No GPU can be found or opened, so these types have
//! no values.

pub use crate::gpu_limits::{GpuLimits, Matrices};

use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Precision};
use anabranch_op::tensor::Buffer;

/// An adapter; there is none.
#[derive(Clone, Debug)]
pub enum Adapter {}

/// An opened GPU; there is none.
#[derive(Debug)]
pub enum Gpu {}

/// A buffer of a GPU; there is none.
#[derive(Clone, Debug)]
pub enum GpuBuffer {}

impl Gpu {
    /// Opens the adapter.
    ///
    /// # Errors
    /// None: there is no adapter to open.
    pub fn open(adapter: &Adapter, _: Precision) -> Result<Self, KernelError> {
        match *adapter {}
    }

    /// Creates a buffer for tensors.
    ///
    /// # Errors
    /// None: there is no GPU.
    pub fn storage(&self, _: u64) -> Result<GpuBuffer, KernelError> {
        match *self {}
    }

    /// Copies bytes to a new buffer.
    ///
    /// # Errors
    /// None: there is no GPU.
    pub fn upload(&self, _: &[u8]) -> Result<GpuBuffer, KernelError> {
        match *self {}
    }

    /// Allocates host memory for copies.
    pub fn pinned(&self, _: usize) -> Option<Buffer> {
        match *self {}
    }

    /// The limits of the adapter.
    pub fn facts(&self) -> &GpuLimits {
        match *self {}
    }

    /// Destroys the device.
    pub fn destroy(&self) {
        match *self {}
    }

    /// The first thing that went wrong.
    pub fn fault(&self) -> Option<String> {
        match *self {}
    }
}

/// Returns no key: there is no GPU.
pub fn summation(_: &NodeSpec, _: &[bool]) -> Option<Vec<usize>> {
    None
}

impl GpuLimits {
    /// The limits that `adapter` offers.
    pub fn of(adapter: &Adapter) -> Self {
        match *adapter {}
    }
}

/// Refuses every node, because this build has no kernels for GPUs.
///
/// # Errors
/// Always.
pub fn supports(node: &NodeSpec, _: &[bool], _: &GpuLimits) -> Result<(), KernelError> {
    Err(node.unsupported("this build has no kernels for GPUs; build with the feature `gpu`"))
}

/// Scratch bytes of a node's kernel: 0, because there is none.
pub fn scratch_bytes(_: &NodeSpec) -> u64 {
    0
}

/// Bytes that a node's kernel keeps: 0, because there is none.
pub fn resident_bytes(_: &NodeSpec, _: &[bool]) -> u64 {
    0
}

/// Whether a node's kernel has a status word: there is no kernel.
pub fn has_status(_: &NodeSpec, _: &[bool]) -> bool {
    false
}

/// Whether each input is read from a buffer.
pub fn binds(node: &NodeSpec, _: &[bool]) -> Vec<bool> {
    vec![true; node.inputs.len()]
}
