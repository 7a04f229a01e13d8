//! What kernels take of a device's memory beside the values that they read and write.

use super::{PlanDevice, PlanError};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::KernelError;
use anabranch_kernels::cpu::Layout;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::sync::Arc;

/// What one node's kernel takes on its device. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelNeeds {
    /// Kept between runs for this node alone: tables.
    pub resident: u64,
    /// Constants that are kept in layouts of their own. Nodes that want one in the same layout share it.
    pub packed: Vec<PackedConstant>,
    /// Used while the node runs, and shared by all nodes of the device.
    pub scratch: u64,
    /// For each input, whether the kernel reads the tensor itself. A constant that it packed it does not need again.
    pub reads: Vec<bool>,
}

impl KernelNeeds {
    /// Whether the kernel reads the tensor of an input itself.
    pub fn is_read(&self, input: usize) -> bool {
        self.reads.get(input).copied().unwrap_or(true)
    }
}

/// A constant in the layout of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedConstant {
    /// The constant.
    pub value: ValueId,
    /// Its layout.
    pub layout: Layout,
}

/// Who knows what kernels need.
pub trait Needs {
    /// What the kernel of `node` needs on a device of this kind.
    ///
    /// # Errors
    /// If there is no such kernel.
    fn needs(&self, node: NodeId, kind: DeviceKind) -> Result<KernelNeeds, KernelError>;
}

/// What all nodes need where they are.
///
/// # Errors
/// If there is no kernel for a node there.
pub(super) fn all(
    program: &Program,
    devices: &[PlanDevice],
    device_of: &[DeviceId],
    needs: &dyn Needs,
) -> Result<Arc<[KernelNeeds]>, PlanError> {
    let of = |node: NodeId| {
        let device = &devices[device_of[node.index()].index()];
        needs.needs(node, device.kind).map_err(|source| PlanError::Kernel {
            node: program.node(node).name.clone(),
            device: device.name.clone(),
            source: Box::new(source),
        })
    };
    program.node_ids().map(of).collect()
}
