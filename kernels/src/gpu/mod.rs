//! Kernels for GPUs: one `.wgsl` file and its dispatch a kernel, run through wgpu.
