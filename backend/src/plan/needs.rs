//! What kernels take of a device's memory beside the values that they read and write.

use crate::program::NodeId;
use anabranch_kernels::KernelError;
use anabranch_placement::platform::DeviceKind;

/// What one node's kernel takes on its device. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelNeeds {
    /// Kept between runs: packed weights, tables.
    pub resident: u64,
    /// Used while the node runs, and shared by all nodes of the device.
    pub scratch: u64,
    /// For each input, whether the kernel reads the tensor itself. A constant that it packed it does not need again.
    pub reads: Vec<bool>,
}

/// Who knows what kernels need.
pub trait Needs {
    /// What the kernel of `node` needs on a device of this kind.
    ///
    /// # Errors
    /// If there is no such kernel.
    fn needs(&self, node: NodeId, kind: DeviceKind) -> Result<KernelNeeds, KernelError>;
}
