//! What lives on a GPU for as long as an executor: buffers, constants and compiled kernels.

use super::lost::failure;
use crate::execute::error::{ExecError, Failure, Place};
use crate::execute::kernels::Kernels;
use crate::execute::ledger::Ledger;
use crate::execute::script::{DeviceScript, NodeScript, Operand};
use anabranch_kernels::gpu::{self, Buffers, Gpu, Kernel};
use anabranch_kernels::{Buffer, KernelError};
use anabranch_placement::platform::DeviceId;
use std::sync::Arc;

/// Constants are uploaded in pieces of this many bytes, because wgpu stages each piece.
const PIECE: usize = 8 << 20;

/// A GPU with all that a plan puts there.
pub(in crate::execute) struct GpuSide {
    pub(in crate::execute) gpu: Arc<Gpu>,
    pub(in crate::execute) slots: Vec<wgpu::Buffer>,
    /// By node of the device's script.
    pub(in crate::execute) nodes: Vec<NodeKernels>,
}

/// A node's kernel: for the whole of it, or one for each chunk.
pub(in crate::execute) struct NodeKernels {
    pub(in crate::execute) whole: Option<Kernel>,
    pub(in crate::execute) chunks: Vec<Kernel>,
}

/// What a side needs beside its script.
pub(in crate::execute) struct Extra<'a> {
    pub(in crate::execute) ledger: &'a Ledger,
    /// Bytes of scratch memory.
    pub(in crate::execute) scratch: u64,
    /// Bytes that the compiled kernels keep for themselves.
    pub(in crate::execute) kernels: u64,
}

/// The parts of a side while it is made.
struct Making<'a> {
    gpu: &'a Gpu,
    script: &'a DeviceScript,
    kernels: &'a Kernels,
    /// Slots, then constants, as the script's cells; no GPU has guests.
    cells: Vec<wgpu::Buffer>,
    scratch: Option<wgpu::Buffer>,
}

impl GpuSide {
    /// Makes all buffers on a GPU of this name, uploads constants and compiles kernels.
    pub(in crate::execute) fn new(
        gpu: Arc<Gpu>,
        name: &str,
        device: DeviceId,
        script: &DeviceScript,
        kernels: &Kernels,
        extra: &Extra<'_>,
    ) -> Result<Arc<Self>, ExecError> {
        let refused = |source| ExecError::Device { device: name.to_owned(), source: Box::new(source) };
        let slots = script.cells.slots.iter().map(|slot| slot.bytes);
        let constants = script.cells.constants.iter().map(|constant| padded(constant.buffer.len()));
        let sizes: Vec<u64> = slots.chain(constants).collect();
        let held: u64 = sizes.iter().sum::<u64>() + extra.scratch + extra.kernels;
        extra.ledger.take(device, held as usize);
        let scratch = (extra.scratch > 0).then(|| storage(&gpu, extra.scratch.next_multiple_of(4)));
        let cells = sizes.iter().map(|size| storage(&gpu, *size)).collect();
        let making = Making { gpu: &gpu, script, kernels, cells, scratch };
        making.upload_constants().map_err(refused)?;
        let nodes = making.compile(name)?;
        let mut slots = making.cells;
        slots.truncate(script.cells.slots.len());
        gpu.poll(None).map_err(refused)?;
        Ok(Arc::new(Self { gpu, slots, nodes }))
    }

    /// Whether nothing has been reported to the GPU's handlers.
    pub(in crate::execute) fn healthy(&self, place: Place) -> Result<(), Failure> {
        match self.gpu.fault() {
            None => Ok(()),
            Some(fault) => Err(failure(&self.gpu, place, KernelError::Gpu(fault))),
        }
    }
}

impl Making<'_> {
    fn upload_constants(&self) -> Result<(), KernelError> {
        let first = self.script.cells.first_constant();
        for (constant, target) in self.script.cells.constants.iter().zip(&self.cells[first..]) {
            self.upload(&constant.buffer, target)?;
        }
        Ok(())
    }

    fn upload(&self, constant: &Buffer, target: &wgpu::Buffer) -> Result<(), KernelError> {
        for (at, piece) in constant.bytes().chunks(PIECE).enumerate() {
            let offset = (at * PIECE) as u64;
            if piece.len() % 4 == 0 {
                self.gpu.queue().write_buffer(target, offset, piece);
            } else {
                let mut words = piece.to_vec();
                words.resize(piece.len().next_multiple_of(4), 0);
                self.gpu.queue().write_buffer(target, offset, &words);
            }
            self.gpu.queue().submit([]);
            self.gpu.poll(None)?;
        }
        Ok(())
    }

    fn compile(&self, device: &str) -> Result<Vec<NodeKernels>, ExecError> {
        let compiled = |node: &NodeScript| {
            self.compile_node(node).map_err(|source| ExecError::Kernel {
                node: self.kernels.program().node(node.node).name.clone(),
                device: device.to_owned(),
                source: Box::new(source),
            })
        };
        self.script.nodes.iter().map(compiled).collect()
    }

    fn compile_node(&self, node: &NodeScript) -> Result<NodeKernels, KernelError> {
        let spec = &self.kernels.program().node(node.node).spec;
        let constants = self.kernels.constants(node.node);
        let buffer = |cell: u32| &self.cells[cell as usize];
        // An operand of no bytes is not read, or is empty, and then no dispatch reads it.
        let read = |operand: &Operand| (operand.bytes > 0).then(|| buffer(operand.cell));
        let inputs: Vec<_> = self.script.operands(&node.inputs).iter().map(read).collect();
        let outputs: Vec<_> = self.script.operands(&node.outputs).iter().map(|o| buffer(o.cell)).collect();
        let buffers = Buffers { inputs: &inputs, outputs: &outputs, scratch: self.scratch.as_ref() };
        let compile = |rows| gpu::compile(self.gpu, spec, &constants, &buffers, rows);
        Ok(match &node.streaming {
            None => NodeKernels { whole: Some(compile(None)?), chunks: Vec::new() },
            Some(streaming) => {
                let cut = &streaming.cut;
                let rows = |chunk| node.own_rows(cut, &cut.rows_of(chunk));
                let chunks = (0..cut.chunks()).map(|chunk| compile(Some(rows(chunk))));
                NodeKernels { whole: None, chunks: chunks.collect::<Result<_, _>>()? }
            }
        })
    }
}

/// The size of a buffer for so many bytes.
fn padded(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(4)
}

fn storage(gpu: &Gpu, size: u64) -> wgpu::Buffer {
    gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}
