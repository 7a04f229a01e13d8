//! Device memory that kernels need besides the values that they read and write.

use super::{PlanDevice, PlanError};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::KernelError;
use anabranch_kernels::cpu::Layout;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::sync::Arc;

/// Memory that one node's kernel needs on its device, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelNeeds {
    /// Memory kept between runs for this node alone: tables.
    pub resident: u64,
    /// Constants that are kept in their own layouts. Nodes that need a constant in the same layout share it.
    pub packed: Vec<PackedConstant>,
    /// Memory used while the node runs, and shared by all nodes of the device.
    pub scratch: u64,
    /// For each input, whether the kernel reads the tensor itself. A kernel no longer needs a constant that it has
    /// packed.
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
    /// Value of the constant.
    pub value: ValueId,
    /// Layout of the kernel.
    pub layout: Layout,
}

/// Source of the kernels' needs.
pub trait Needs {
    /// Returns the needs of the kernel of `node` on a device of this kind.
    ///
    /// # Errors
    /// If there is no such kernel.
    fn needs(&self, node: NodeId, kind: DeviceKind) -> Result<KernelNeeds, KernelError>;
}

/// Returns the needs of all nodes on their devices.
///
/// # Errors
/// If there is no kernel for a node on its device.
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
