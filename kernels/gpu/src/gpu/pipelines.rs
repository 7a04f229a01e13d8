//! Compiled pipelines, kept by their source so that nodes with the same code share them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Number of storage buffers that a shader binds: those it reads, then those it writes. Its parameters come before
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature {
    pub(crate) reads: u32,
    pub(crate) writes: u32,
}

#[derive(Clone)]
pub(crate) struct Layouts {
    pub(crate) bindings: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

#[derive(Default)]
pub(crate) struct Pipelines {
    layouts: Mutex<BTreeMap<Signature, Layouts>>,
    pipelines: Mutex<BTreeMap<String, wgpu::ComputePipeline>>,
}

impl Pipelines {
    pub(crate) fn layouts(&self, device: &wgpu::Device, signature: Signature) -> Layouts {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        layouts.entry(signature).or_insert_with(|| create_layouts(device, signature)).clone()
    }

    /// Returns the pipeline of a shader whose entry point is `main`. The first call for a source compiles it, which
    /// takes milliseconds; other threads may compile meanwhile. Errors go to the caller's error scope.
    pub(crate) fn pipeline(
        &self,
        device: &wgpu::Device,
        label: &str,
        source: String,
        layouts: &Layouts,
    ) -> wgpu::ComputePipeline {
        let known = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner).get(&source).cloned();
        if let Some(pipeline) = known {
            return pipeline;
        }
        #[cfg(test)]
        super::corpus::shader(label, &source);
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(label),
            source: wgpu::ShaderSource::Wgsl(source.as_str().into()),
        };
        // SAFETY: every access stays checked. Only the passes of loops are not counted any more. All loops of this
        // crate end: each approaches a bound that it does not change by at least 1 per pass.
        let module = unsafe {
            let mut checks = wgpu::ShaderRuntimeChecks::checked();
            checks.force_loop_bounding = false;
            device.create_shader_module_trusted(descriptor, checks)
        };
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout: Some(&layouts.pipeline),
            module: &module,
            entry_point: Some("main"),
            // Every kernel writes workgroup memory before it reads it.
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.entry(source).or_insert(pipeline).clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn create_layouts(device: &wgpu::Device, signature: Signature) -> Layouts {
    let kind = |binding: u32| match binding {
        0 => wgpu::BufferBindingType::Uniform,
        b if b <= signature.reads => wgpu::BufferBindingType::Storage { read_only: true },
        _ => wgpu::BufferBindingType::Storage { read_only: false },
    };
    let entries: Vec<_> = (0..=signature.reads + signature.writes)
        .map(|binding| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty: kind(binding), has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    let bindings = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bindings)],
        immediate_size: 0,
    });
    Layouts { bindings, pipeline }
}
