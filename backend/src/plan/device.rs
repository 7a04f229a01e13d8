//! A device as a plan sees it.

use anabranch_placement::platform::{DeviceId, DeviceKind};

/// The device that holds the program's inputs and outputs: the first CPU device.
pub const HOST: DeviceId = DeviceId(0);

/// A device as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDevice {
    /// Its name, unique among the devices.
    pub name: String,
    /// Its kind. CPU devices share one memory: tensors pass between them without a copy.
    pub kind: DeviceKind,
    /// The most bytes that the plan may take of its memory.
    pub limit: Option<u64>,
}
