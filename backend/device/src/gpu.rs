//! A GPU device: one adapter of wgpu, with the facts that kernels and placement need.
#![forbid(unsafe_code)]

use super::pci::PciAddress;
use anabranch_kernels::gpu::Adapter;
use serde::Serialize;
use std::fmt;

/// Kind of GPU behind an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuKind {
    /// A card with its own memory.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A part of a GPU, assigned to a virtual machine.
    Virtual,
    /// A program on the CPU that acts as a GPU (llvmpipe).
    Software,
    /// A kind that the driver does not report.
    Other,
}

impl GpuKind {
    /// Whether the GPU's memory is the host's.
    pub fn shares_host_memory(self) -> bool {
        matches!(self, Self::Integrated | Self::Software)
    }

    #[cfg(feature = "gpu")]
    pub(super) fn of(device_type: wgpu::DeviceType) -> Self {
        match device_type {
            wgpu::DeviceType::DiscreteGpu => Self::Discrete,
            wgpu::DeviceType::IntegratedGpu => Self::Integrated,
            wgpu::DeviceType::VirtualGpu => Self::Virtual,
            wgpu::DeviceType::Cpu => Self::Software,
            wgpu::DeviceType::Other => Self::Other,
        }
    }
}

/// Formats the kind in a word, as in JSON.
impl fmt::Display for GpuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Source of the size of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemorySource {
    /// Part of the heap that buffers fill; what other programs use of it is not known.
    Heaps,
    /// Part of what other programs leave of the heap that buffers fill.
    Budget,
    /// The shared host memory, limited by the size of the heap that buffers fill.
    Host,
    /// Size of the largest buffer only: the memory is at least this large.
    Limits,
    /// Given by the user.
    Override,
}

/// Optional features that kernels or the runtime use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuFeatures {
    /// Time stamps in command buffers.
    pub timestamp_query: bool,
    /// 16-bit floats in shaders.
    pub shader_f16: bool,
    /// 64-bit floats in shaders.
    pub shader_f64: bool,
    /// 64-bit integers in shaders.
    pub shader_int64: bool,
    /// Operations among the threads of a subgroup.
    pub subgroup: bool,
    /// Small parameters without a buffer.
    pub immediates: bool,
    /// Storage buffers that the host can map.
    pub mappable_primary_buffers: bool,
    /// Compiled pipelines that can be stored.
    pub pipeline_cache: bool,
    /// Matrix units.
    pub cooperative_matrix: bool,
}

#[cfg(feature = "gpu")]
impl GpuFeatures {
    pub(super) fn of(features: wgpu::Features) -> Self {
        let has = |feature| features.contains(feature);
        Self {
            timestamp_query: has(wgpu::Features::TIMESTAMP_QUERY),
            shader_f16: has(wgpu::Features::SHADER_F16),
            shader_f64: has(wgpu::Features::SHADER_F64),
            shader_int64: has(wgpu::Features::SHADER_INT64),
            subgroup: has(wgpu::Features::SUBGROUP),
            immediates: has(wgpu::Features::IMMEDIATES),
            mappable_primary_buffers: has(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
            pipeline_cache: has(wgpu::Features::PIPELINE_CACHE),
            cooperative_matrix: has(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
        }
    }
}

/// The limits that bound kernels and buffers. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuLimits {
    /// Size of a buffer.
    pub buffer: u64,
    /// Size of the part of a storage buffer that a shader can access.
    pub storage_binding: u64,
    /// Storage buffers that one shader can access.
    pub storage_buffers: u32,
    /// Alignment of a storage binding's offset.
    pub storage_alignment: u32,
    /// Memory of a workgroup.
    pub workgroup_storage: u32,
    /// Threads of a workgroup.
    pub workgroup_threads: u32,
    /// Threads of a workgroup along x, y and z.
    pub workgroup_size: [u32; 3],
    /// Workgroups of a dispatch along each axis.
    pub workgroups: u32,
    /// Size of immediates; 0 without them.
    pub immediates: u32,
}

#[cfg(feature = "gpu")]
impl GpuLimits {
    pub(super) fn of(limits: &wgpu::Limits) -> Self {
        Self {
            buffer: limits.max_buffer_size,
            storage_binding: limits.max_storage_buffer_binding_size,
            storage_buffers: limits.max_storage_buffers_per_shader_stage,
            storage_alignment: limits.min_storage_buffer_offset_alignment,
            workgroup_storage: limits.max_compute_workgroup_storage_size,
            workgroup_threads: limits.max_compute_invocations_per_workgroup,
            workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            workgroups: limits.max_compute_workgroups_per_dimension,
            immediates: limits.max_immediate_size,
        }
    }
}

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuDevice {
    /// Name in plans and on the command line: `gpu0`, `gpu1`, …
    pub name: String,
    /// Identity for the cost store.
    pub key: String,
    /// The adapter's name.
    pub description: String,
    /// Kind of GPU.
    pub kind: GpuKind,
    /// Maker, as the backend numbers it (the PCI vendor if there is one).
    pub vendor: u32,
    /// Model, as the backend numbers it.
    pub device: u32,
    /// Interface to the driver: `vulkan`, `metal`, `dx12`, `gl`.
    pub backend: String,
    /// Name of the driver.
    pub driver: String,
    /// Version of the driver, in the driver's words.
    pub driver_info: String,
    /// Bytes of memory that the device may fill, at the time of the search. If the kind shares the host's memory, these
    /// are the CPUs' bytes, too.
    pub memory: u64,
    /// Source of `memory`.
    pub memory_source: MemorySource,
    /// Address on the PCI bus.
    pub pci: Option<PciAddress>,
    /// Nearest NUMA node.
    pub numa: Option<u32>,
    /// Names of the CPU devices near the GPU; all of them if their distances are unknown.
    pub near: Vec<String>,
    /// Least and greatest number of threads of a subgroup.
    pub subgroup_size: [u32; 2],
    /// Optional features.
    pub features: GpuFeatures,
    /// Limits.
    pub limits: GpuLimits,
    /// Handle that opens the GPU.
    #[serde(skip)]
    pub adapter: Adapter,
}
