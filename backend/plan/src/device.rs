//! A device as a plan sees it.

use anabranch_base::memory_limit::MemoryLimit;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use serde::{Deserialize, Serialize};

/// Device of the program's inputs and outputs: the first CPU device.
pub const HOST: DeviceId = DeviceId(0);

/// Most kernels in a command buffer of a GPU, so that the device starts while the next kernels are encoded.
pub const GPU_BATCH: usize = 32;

/// Returns the most kernels in the command buffer of this number in a run: 4, 8, 16, and then [`GPU_BATCH`]. An idle
/// device starts after few kernels.
pub fn gpu_batch(number: usize) -> usize {
    (4 << number.min(3)).min(GPU_BATCH)
}

/// A device as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDevice {
    /// Name, unique among the devices.
    pub name: String,
    /// Kind of the device. CPU devices share one memory: tensors pass between them without a copy.
    pub kind: DeviceKind,
    /// Most bytes of its memory that the plan may take.
    #[serde(rename = "limit_bytes")]
    pub limit: MemoryLimit,
    /// Nanoseconds from the arrival of a chunk until the waiting device continues.
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
    /// Key of its costs in the cost store.
    pub key: String,
    /// Bytes that a plan may use there.
    pub memory: MemoryLimit,
    /// Factor for the times stored under the key; 1 for a present device.
    pub times: f64,
    /// Number of threads that compute at the same time; 1 for a GPU.
    pub threads: usize,
    /// Bytes of cache per thread: its core's level 2, or the thread's share of it; 0 if unknown.
    pub cache: u64,
}
