//! Errors of making a plan.

use super::holding::Holding;
use anabranch_base::bytes::{exact_bytes, format_bytes};
use anabranch_base::quoted::Line;
use anabranch_kernels::KernelError;

/// Reason that there is no plan for a program on these devices under this placement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PlanError {
    /// Devices, placement or order with which the program cannot run.
    #[error("{}", Line(.0))]
    Unfit(String),
    /// A node without a kernel on its device.
    #[error("node {node:?} cannot run on {device:?}: {source}; place it elsewhere")]
    Kernel { node: String, device: String, source: Box<KernelError> },
    /// A device is too small.
    #[error(transparent)]
    Memory(Box<MemoryShortage>),
}

/// Shortage of a device's memory for a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device:?} has {} for this plan, but the plan needs {}, of which {} are weights, and {node:?} is the first \
     node that does not fit; give the device more memory, use more devices, or place with `auto`",
    exact_bytes(*available), exact_bytes(*needed), format_bytes(*resident)
)]
pub struct MemoryShortage {
    /// Name of the device.
    pub device: String,
    /// First node, in the total order, whose memory exceeds the limit.
    pub node: String,
    /// Peak of the plan on the device, in bytes.
    pub needed: u64,
    /// Part of the peak that stays there between runs: constants and packed weights.
    pub resident: u64,
    /// Limit of the device, in bytes.
    pub available: u64,
    /// Items in the device's memory.
    pub holdings: Vec<Holding>,
    /// Peak of the plan on each device, in bytes.
    pub peaks: Vec<u64>,
}
