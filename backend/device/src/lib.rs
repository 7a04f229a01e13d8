//! Devices of this machine: its CPU devices, its GPUs, and their distances.
//!
//! [`detect`] takes the inventory once, at the start. CPUs come from hwloc (or from `/sys` if hwloc fails), GPUs from
//! wgpu, and the CPUs near a GPU from its PCI address. A machine without a GPU is a normal machine: the inventory then
//! holds CPU devices and one note that says why.

#[cfg(feature = "gpu")]
mod adapters;
pub mod affinity;
mod backend;
#[cfg(all(test, any(feature = "gpu", feature = "hwloc")))]
mod child;
mod compute;
mod cpu;
mod cpulist;
#[cfg(feature = "gpu")]
mod duplicates;
mod gpu;
mod granularity;
#[cfg(feature = "gpu")]
mod graphics;
#[cfg(feature = "gpu")]
mod heaps;
mod host;
#[cfg(feature = "hwloc")]
mod hwloc;
mod inventory;
mod key;
mod memory;
mod pci;
mod sysfs;
mod topology;
#[cfg(feature = "gpu")]
mod vulkan;

pub use anabranch_base::bytes::{SizeError, exact_bytes, format_bytes, parse_bytes, parse_memory_override};
pub use backend::GpuBackend;
pub use compute::{ComputeDevice, CpuTeam, GpuOpener};
pub use cpu::{CpuDevice, CpuGranularity};
pub use cpulist::format_list;
pub use gpu::{GpuDevice, GpuFeatures, GpuKind, GpuLimits, MemorySource};
pub use host::Host;
pub use inventory::{DetectError, DetectOptions, DeviceRef, Inventory, detect};
pub use inventory::{GPU_HINT, detect_cpus, drivers};
pub use pci::PciAddress;
pub use topology::{CacheSummary, NumaNode, Source};
