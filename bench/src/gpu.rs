//! Node with its buffers, ready to run on a GPU.

use crate::nodes::values;
use anabranch_kernels::gpu::{Buffers, Gpu, Kernel, StatusWord, binds, compile, scratch_bytes};
use anabranch_kernels::op::{NodeSpec, Precision};
use anabranch_kernels::{KernelError, Tensor};
use std::time::{Duration, Instant};

/// Dispatches in one submission: enough to hide the cost of a submission, few enough to wait for.
const BATCH: u64 = 64;

/// Returns the adapter to measure, and prints its name: a real one if there is one, else the software adapter, whose
/// speed means nothing.
pub fn adapter() -> Option<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    let adapter = adapters.into_iter().next()?;
    println!("GPU: {} ({})", adapter.get_info().name, adapter.get_info().driver_info);
    Some(adapter)
}

/// Returns the opened [`adapter`].
pub fn open() -> Option<Gpu> {
    Gpu::open(&adapter()?, Precision::F32).ok()
}

/// Compiled kernel and the buffers for which it was compiled.
pub struct GpuRun<'a> {
    gpu: &'a Gpu,
    kernel: Kernel,
    bytes: u64,
}

impl<'a> GpuRun<'a> {
    /// Compiles `node` without constant inputs.
    ///
    /// # Errors
    /// If the GPU cannot run the node.
    pub fn new(gpu: &'a Gpu, node: &NodeSpec) -> Result<Self, KernelError> {
        let bound = binds(node, &vec![false; node.inputs.len()]);
        let tensors = node.inputs.iter().map(values);
        let inputs: Vec<_> = tensors.zip(bound).map(|(tensor, bound)| bound.then(|| filled(gpu, &tensor))).collect();
        let outputs: Vec<_> = node.outputs.iter().map(|spec| buffer(gpu, spec.bytes() as u64)).collect();
        let scratch = Some(scratch_bytes(node)).filter(|bytes| *bytes > 0).map(|bytes| buffer(gpu, bytes));
        let status = buffer(gpu, 4);
        let buffers = Buffers {
            inputs: &inputs.iter().map(Option::as_ref).collect::<Vec<_>>(),
            outputs: &outputs.iter().collect::<Vec<_>>(),
            scratch: scratch.as_ref(),
            status: Some(StatusWord { buffer: &status, word: 0 }),
        };
        let kernel = compile(gpu, node, &vec![None; node.inputs.len()], &buffers, None)?;
        let specs = node.inputs.iter().chain(&node.outputs);
        Ok(Self { gpu, kernel, bytes: specs.map(|spec| spec.bytes() as u64).sum() })
    }

    /// Returns the bytes read and written once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time of `runs` runs, one after the other, submitted in batches, including the wait for them.
    pub fn time(&self, runs: u64) -> Duration {
        let started = Instant::now();
        let mut left = runs;
        while left > 0 {
            let batch = left.min(BATCH);
            let mut encoder = self.gpu.device().create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                (0..batch).for_each(|_| self.kernel.encode(&mut pass));
            }
            self.gpu.queue().submit([encoder.finish()]);
            while !self.gpu.poll(Some(Duration::from_secs(60))).expect("the GPU works") {}
            left -= batch;
        }
        started.elapsed()
    }
}

fn buffer(gpu: &Gpu, bytes: u64) -> wgpu::Buffer {
    gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: bytes.next_multiple_of(4).max(4),
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn filled(gpu: &Gpu, tensor: &Tensor) -> wgpu::Buffer {
    let buffer = buffer(gpu, tensor.bytes().len() as u64);
    gpu.queue().write_buffer(&buffer, 0, tensor.bytes());
    buffer
}
