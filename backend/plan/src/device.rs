//! A device as a plan sees it.

use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use serde::{Deserialize, Serialize};

/// The device that holds the program's inputs and outputs: the first CPU device.
pub const HOST: DeviceId = DeviceId(0);

/// Kernels in a command buffer of a GPU at most, so that the device begins while the next ones are encoded.
pub const GPU_BATCH: usize = 32;

/// A device as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDevice {
    /// Its name, unique among the devices.
    pub name: String,
    /// Its kind. CPU devices share one memory: tensors pass between them without a copy.
    pub kind: DeviceKind,
    /// The most bytes that the plan may take of its memory.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<u64>,
    /// Nanoseconds from when a chunk has come until the device goes on that waits for it.
    #[serde(default)]
    pub wake_ns: u64,
}

/// A device as placement sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineDevice {
    /// Name within its machine: `cpu0`, `gpu0`.
    pub name: String,
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// What its costs are filed under.
    pub key: String,
    /// Bytes that a plan may use there.
    pub memory: u64,
    /// What the times filed under the key are multiplied by; 1 for a device that is there.
    pub times: f64,
    /// Threads that compute at a time; 1 for a GPU.
    pub threads: usize,
    /// Bytes of cache that one thread has for itself: its core's level 2, or its share of it. 0 where unknown.
    pub cache: u64,
}
