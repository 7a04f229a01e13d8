//! Why a plan cannot be made.

use super::holding::Holding;
use anabranch_base::bytes::{exact_bytes, format_bytes};
use anabranch_base::quoted::Line;
use anabranch_kernels::KernelError;

/// Why there is no plan for a program on these devices under this placement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PlanError {
    /// Devices, placement or order are not such that the program can run.
    #[error("{}", Line(.0))]
    Unfit(String),
    /// A node without a kernel on its device.
    #[error("node {node:?} cannot run on {device:?}: {source}; place it elsewhere")]
    Kernel { node: String, device: String, source: Box<KernelError> },
    /// A device is too small.
    #[error(transparent)]
    Memory(Box<MemoryShortage>),
}

/// What a plan puts on a device does not fit there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device:?} has {} for this plan, which needs {} there, {} of that for weights: {node:?} is the first node that does not fit; \
     give the device more memory, use further devices, or let `auto` look for a placement",
    exact_bytes(*available), exact_bytes(*needed), format_bytes(*resident)
)]
pub struct MemoryShortage {
    /// The device's name.
    pub device: String,
    /// The first node, in the total order, whose memory goes over the limit.
    pub node: String,
    /// The plan's peak on the device, in bytes.
    pub needed: u64,
    /// Of these, what stays there between runs: constants and packed weights.
    pub resident: u64,
    /// The device's limit, in bytes.
    pub available: u64,
    /// What takes the device's memory.
    pub holdings: Vec<Holding>,
    /// The plan's peak on each device, in bytes.
    pub peaks: Vec<u64>,
}
