//! Dispatches of a node, recorded once for fixed buffers and encoded at every run.

use super::device::Gpu;
use super::limits::{Matrices, THREADS};
use super::shader::Shader;
use super::{Buffers, Recipe, StatusWord};
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::tensor::Tensor;
use std::ops::Range;

/// All dispatches of a node over fixed buffers, ready to be encoded any number of times.
#[derive(Debug)]
pub struct Kernel {
    dispatches: Vec<Dispatch>,
}

#[derive(Debug)]
struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    /// Buffers in the order of their bindings; the parameters come first.
    bound: Vec<wgpu::Buffer>,
    bindings: wgpu::BindGroup,
    grid: [u32; 3],
}

impl Kernel {
    /// Writes the dispatches into `pass`. wgpu's barriers order consecutive dispatches that touch the same buffer.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        for dispatch in &self.dispatches {
            let [x, y, z] = dispatch.grid;
            pass.set_pipeline(&dispatch.pipeline);
            pass.set_bind_group(0, &dispatch.bindings, &[]);
            pass.dispatch_workgroups(x, y, z);
        }
    }

    /// Makes the kernel use the second buffer of each pair instead of the first, which has the same tensor; takes
    /// microseconds. All change at once, so that buffers may change places.
    pub fn rebind(&mut self, gpu: &Gpu, changes: &[(wgpu::Buffer, wgpu::Buffer)]) {
        let changed = |bound: &wgpu::Buffer| changes.iter().find(|(from, _)| from == bound).map(|(_, to)| to);
        let is_changed = |dispatch: &&mut Dispatch| dispatch.bound.iter().any(|bound| changed(bound).is_some());
        for dispatch in self.dispatches.iter_mut().filter(is_changed) {
            for bound in &mut dispatch.bound {
                *bound = changed(bound).unwrap_or(bound).clone();
            }
            dispatch.bindings = bind(gpu.device(), &dispatch.layout, &dispatch.bound);
        }
    }

    /// Workgroups of all dispatches.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> u64 {
        self.dispatches.iter().map(|dispatch| dispatch.grid.map(u64::from).iter().product::<u64>()).sum()
    }

    pub(crate) fn empty() -> Self {
        Self { dispatches: Vec::new() }
    }
}

fn bind(device: &wgpu::Device, layout: &wgpu::BindGroupLayout, bound: &[wgpu::Buffer]) -> wgpu::BindGroup {
    let entries: Vec<_> = bound
        .iter()
        .zip(0..)
        .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
}

/// Recorder of the dispatches of a recipe.
pub(crate) struct Recorder<'a> {
    gpu: &'a Gpu,
    node: &'a NodeSpec,
    constants: &'a [Option<Tensor>],
    buffers: &'a Buffers<'a>,
    rows: Option<Range<usize>>,
    dispatches: Vec<Dispatch>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        gpu: &'a Gpu,
        node: &'a NodeSpec,
        constants: &'a [Option<Tensor>],
        buffers: &'a Buffers<'a>,
        rows: Option<Range<usize>>,
    ) -> Self {
        Self { gpu, node, constants, buffers, rows, dispatches: Vec::new() }
    }

    /// Records all of `recipe`'s dispatches.
    pub(crate) fn finish(mut self, recipe: &Recipe<'_>) -> Result<Kernel, KernelError> {
        (recipe.record)(&mut self)?;
        Ok(Kernel { dispatches: self.dispatches })
    }

    pub(crate) fn input(&self, index: usize) -> Result<&'a wgpu::Buffer, KernelError> {
        let found = self.buffers.inputs.get(index).copied().flatten();
        found.ok_or_else(|| self.error(format!("input {index} has no buffer")))
    }

    /// Whether the node's output takes the memory of an input ([`NodeSpec::in_place`]).
    pub(crate) fn is_in_place(&self) -> bool {
        let given = |input: usize| self.buffers.inputs.get(input).copied().flatten();
        self.node.in_place().is_some_and(|(input, _)| given(input).is_none())
    }

    pub(crate) fn output(&self, index: usize) -> Result<&'a wgpu::Buffer, KernelError> {
        let found = self.buffers.outputs.get(index).copied();
        found.ok_or_else(|| self.error(format!("output {index} has no buffer")))
    }

    pub(crate) fn scratch(&self) -> Result<&'a wgpu::Buffer, KernelError> {
        self.buffers.scratch.ok_or_else(|| self.error("a scratch buffer is needed".into()))
    }

    pub(crate) fn status(&self) -> Result<StatusWord<'a>, KernelError> {
        self.buffers.status.ok_or_else(|| self.error("a status word is needed".into()))
    }

    /// Returns the matrix units of the device.
    pub(crate) fn matrices(&self) -> Result<Matrices, KernelError> {
        self.gpu.facts().matrices.ok_or_else(|| self.error("the device has no matrix units".into()))
    }

    pub(crate) fn constant(&self, index: usize) -> Result<&'a Tensor, KernelError> {
        let found = self.constants.get(index).and_then(Option::as_ref);
        found.ok_or_else(|| self.error(format!("input {index} is not constant")))
    }

    /// Returns the rows to compute of a node that has `rows` rows in all.
    pub(crate) fn rows(&self, rows: usize) -> Range<usize> {
        self.rows.clone().unwrap_or(0..rows)
    }

    /// Returns a buffer that the kernel keeps, with the content `words`.
    pub(crate) fn resident(&self, words: &[u32]) -> wgpu::Buffer {
        let buffer = self.upload(words, wgpu::BufferUsages::STORAGE);
        #[cfg(test)]
        super::corpus::resident(&buffer, words);
        buffer
    }

    /// Records one dispatch of `groups` workgroups, spread over two dimensions of the grid if needed; none for 0.
    pub(crate) fn dispatch(&mut self, shader: &Shader<'_>, groups: usize) -> Result<(), KernelError> {
        if groups == 0 {
            return Ok(());
        }
        let grid = self.gpu.facts().grid(groups as u64);
        let grid = grid.ok_or_else(|| self.error(format!("the device cannot start {groups} workgroups")))?;
        let device = self.gpu.device();
        let signature = shader.signature();
        let layouts = self.gpu.pipelines().layouts(device, signature);
        let pipeline = self.gpu.pipelines().pipeline(self.gpu, shader.name(), &shader.source(), &layouts)?;
        let uniform = self.upload(&shader.parameters(), wgpu::BufferUsages::UNIFORM);
        let bound: Vec<_> = std::iter::once(&uniform).chain(shader.buffers()).cloned().collect();
        let bindings = bind(device, &layouts.bindings, &bound);
        #[cfg(test)]
        super::corpus::dispatch(shader, grid);
        self.dispatches.push(Dispatch { pipeline, layout: layouts.bindings, bound, bindings, grid });
        Ok(())
    }

    /// Records a [`dispatch`](Self::dispatch) with one thread for each of `count` elements.
    pub(crate) fn dispatch_each(&mut self, shader: &Shader<'_>, count: usize) -> Result<(), KernelError> {
        self.dispatch(shader, count.div_ceil(THREADS as usize))
    }

    /// Returns a driver's error as one of this node.
    pub(crate) fn error(&self, reason: String) -> KernelError {
        KernelError::Gpu(format!("{}: {reason}", self.node.op.name()))
    }

    /// Returns a new buffer of these words. The next submission uploads the data.
    fn upload(&self, words: &[u32], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        // A uniform struct's size is a multiple of 16 bytes.
        let size = (words.len() as u64 * 4).next_multiple_of(16).max(16);
        let buffer = self.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(self.node.op.name()),
            size,
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.gpu.queue().write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        buffer
    }
}
