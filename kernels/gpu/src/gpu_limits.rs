//! The limits of a GPU that decide whether a kernel can run on it. They are also known for a GPU that is only
//! described.

/// Limits of a GPU, readable from an adapter without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLimits {
    /// Bytes of the largest buffer that a kernel may read or write.
    pub binding_bytes: u64,
    /// Buffers that one dispatch may bind.
    pub bindings: u32,
    /// Workgroups of one dispatch in each of its dimensions.
    pub groups: u32,
    /// Threads of one workgroup.
    pub threads: u32,
    /// Bytes of memory that a workgroup shares.
    pub workgroup_bytes: u32,
    /// Matrix units, if the kernels here can use them.
    pub matrices: Option<Matrices>,
}

/// Matrix units that multiply fragments of `f16` and add them up in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Rows, columns and depth of a fragment: 8 or 16.
    pub side: u32,
    /// Threads of every subgroup, which share a fragment.
    pub subgroup: u32,
}
