//! Compiled pipelines, kept by their source so that nodes with the same code share them.

use super::device::Gpu;
use anabranch_op::error::KernelError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// Most pipelines that are kept. Kernels keep the pipelines that they use in any case. Sizes are part of many sources,
/// so that a model with inputs of ever new sizes never stops making pipelines.
const MOST: usize = 1024;

/// A pipeline, or the reason why there is none; empty while the first thread that wants it compiles it.
type Compiled = Arc<OnceLock<Result<wgpu::ComputePipeline, KernelError>>>;

#[derive(Default)]
pub(crate) struct Pipelines {
    layouts: Mutex<BTreeMap<Signature, Layouts>>,
    kept: Mutex<Kept<Compiled>>,
    compilations: AtomicUsize,
}

impl Pipelines {
    pub(crate) fn layouts(&self, device: &wgpu::Device, signature: Signature) -> Layouts {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        layouts.entry(signature).or_insert_with(|| create_layouts(device, signature)).clone()
    }

    /// Returns the pipeline of a shader whose entry point is `main`. The first call for a source compiles it, which
    /// takes milliseconds. Other threads compile other sources meanwhile, and wait for this one.
    ///
    /// # Errors
    /// If the driver refuses the shader, or has no memory for it. It is compiled again at the next call.
    pub(crate) fn pipeline(
        &self,
        gpu: &Gpu,
        label: &str,
        source: &str,
        layouts: &Layouts,
    ) -> Result<wgpu::ComputePipeline, KernelError> {
        let compiled = self.kept().get(source);
        let result = compiled.get_or_init(|| {
            self.compilations.fetch_add(1, Ordering::Relaxed);
            gpu.guarded(label, || Ok(compile(gpu.device(), label, source, layouts)))
        });
        if result.is_err() {
            self.kept().forget(source, |entry| Arc::ptr_eq(entry, &compiled));
        }
        result.clone()
    }

    /// Returns the number of compilations so far.
    pub(crate) fn compilations(&self) -> usize {
        self.compilations.load(Ordering::Relaxed)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<Compiled>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entries that were used last, at most [`MOST`].
#[derive(Default)]
struct Kept<T> {
    /// Entries with the number of their last use.
    entries: BTreeMap<String, (u64, T)>,
    uses: u64,
}

impl<T: Clone + Default> Kept<T> {
    /// Returns the entry of a source, new if it is not kept. O(log n), or O(n) if another entry has to go.
    fn get(&mut self, source: &str) -> T {
        self.uses += 1;
        if let Some((used, entry)) = self.entries.get_mut(source) {
            *used = self.uses;
            return entry.clone();
        }
        if self.entries.len() >= MOST
            && let Some((oldest, _)) = self.entries.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = oldest.clone();
            self.entries.remove(&oldest);
        }
        let entry = T::default();
        self.entries.insert(source.to_owned(), (self.uses, entry.clone()));
        entry
    }

    /// Drops the entry of a source if it is this one: another thread may have replaced it meanwhile.
    fn forget(&mut self, source: &str, is_it: impl Fn(&T) -> bool) {
        if self.entries.get(source).is_some_and(|(_, entry)| is_it(entry)) {
            self.entries.remove(source);
        }
    }
}

fn compile(device: &wgpu::Device, label: &str, source: &str, layouts: &Layouts) -> wgpu::ComputePipeline {
    #[cfg(test)]
    super::corpus::shader(label, source);
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // SAFETY: every access stays checked. Only the passes of loops are not counted any more. All loops of this
    // crate end: each approaches a bound that it does not change by at least 1 per pass.
    let module = unsafe {
        let mut checks = wgpu::ShaderRuntimeChecks::checked();
        checks.force_loop_bounding = false;
        device.create_shader_module_trusted(descriptor, checks)
    };
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
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
    })
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

#[cfg(test)]
mod tests {
    use super::super::testing::open;
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    const SOURCE: &str = "@group(0) @binding(0) var<uniform> parameters: vec4<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1) fn main() { y[0] = parameters.x; }";

    #[test]
    fn threads_that_want_one_pipeline_compile_it_once() {
        let gpu = open();
        let layouts = gpu.pipelines().layouts(gpu.device(), Signature { reads: 0, writes: 1 });
        let together = Barrier::new(8);
        thread::scope(|scope| {
            let wanted = || {
                together.wait();
                gpu.pipelines().pipeline(&gpu, "one", SOURCE, &layouts).expect("the shader is valid")
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(wanted)).collect();
            let pipelines: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            assert!(pipelines.iter().all(|pipeline| *pipeline == pipelines[0]));
        });
        assert_eq!(gpu.pipeline_count(), 1);
    }

    #[test]
    fn an_invalid_shader_is_an_error_for_all_who_want_it() {
        let gpu = open();
        let layouts = gpu.pipelines().layouts(gpu.device(), Signature { reads: 0, writes: 1 });
        for _ in 0..2 {
            let invalid = "@compute @workgroup_size(1) fn other() {}";
            let error = gpu.pipelines().pipeline(&gpu, "invalid", invalid, &layouts).expect_err("there is no main");
            assert!(error.to_string().contains("invalid"), "{error}");
        }
        assert_eq!(gpu.fault(), None, "the caller has the error");
    }

    #[test]
    fn the_entries_used_last_are_kept() {
        let mut kept: Kept<Arc<()>> = Kept::default();
        let name = |at: usize| format!("{at}");
        let first = kept.get("0");
        let second = kept.get("1");
        for at in 2..MOST {
            kept.get(&name(at));
        }
        assert!(Arc::ptr_eq(&kept.get("0"), &first), "all have a place");
        kept.get("another");
        assert!(Arc::ptr_eq(&kept.get("0"), &first), "it was used after the others");
        assert!(!Arc::ptr_eq(&kept.get("1"), &second), "it had to go");
        assert_eq!(kept.entries.len(), MOST);
    }
}
