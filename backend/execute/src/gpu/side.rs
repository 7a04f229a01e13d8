//! Objects that stay on a GPU as long as an executor: buffers, constants and compiled kernels.

use super::lost::healthy;
use super::status::StatusWords;
use crate::error::{Failure, FailureSite};
use crate::memory_accounting::MemoryAccounting;
use crate::worker_program::{DeviceProgram, HandedOut, NodeCall, Operand};
use anabranch_base::sync::{Mutex, lock};
use anabranch_kernels::gpu::{self, Buffers, Gpu, Kernel};
use anabranch_kernels::{KernelError, Tensor};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{DeviceMemory, ExecError, Kernels};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::thread;

/// Nodes for which one more thread is worth its start.
const FEW: usize = 4;

/// A GPU with all objects of a plan.
pub(crate) struct GpuSide {
    pub(crate) gpu: Arc<Gpu>,
    /// Slots, then constants, as in the worker program's cells; a GPU has no guests.
    cells: Vec<Mutex<wgpu::Buffer>>,
    /// Slots for the caller that no run had yet: the first output lies there, so that it needs no other memory.
    unused: Mutex<Vec<HandedOut>>,
    /// Kernels of each node of the device's worker program: one for the whole node, or one per chunk.
    nodes: Vec<Mutex<Vec<Kernel>>>,
    /// Status words, if a node has one.
    pub(crate) status: Option<StatusWords>,
    /// Constants shared with the other plans of its session.
    _constants: Vec<Arc<wgpu::Buffer>>,
}

/// Parts of a side under construction.
struct Making<'a> {
    gpu: &'a Gpu,
    worker_program: &'a DeviceProgram,
    kernels: &'a Kernels,
    cells: Vec<wgpu::Buffer>,
    /// One buffer for all nodes. With three in turn, 92 instead of 96 dispatches of split products waited for the ones
    /// before: wgpu puts a barrier before each change of a buffer from read to written, and it holds back all kernels.
    scratch: Option<wgpu::Buffer>,
    status: Option<StatusWords>,
}

impl GpuSide {
    /// Creates all buffers on a GPU of this name, uploads missing constants, and compiles kernels.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        name: &str,
        device: DeviceId,
        worker_program: &DeviceProgram,
        kernels: &Kernels,
        accounting: &MemoryAccounting,
        memory: &DeviceMemory,
    ) -> Result<Arc<Self>, ExecError> {
        let constants = worker_program.cells.constants.iter().map(|cell| kernels.on_gpu(&gpu, name, cell.value));
        let constants = constants.collect::<Result<Vec<_>, _>>()?;
        let slots = || worker_program.cells.slots.iter().map(|slot| slot.bytes);
        let held: u64 = slots().chain(constants.iter().map(|constant| constant.size())).sum();
        accounting.take(device, (held + memory.scratch + memory.kernels) as usize);
        let scratch = (memory.scratch > 0).then(|| gpu.storage(memory.scratch.next_multiple_of(4))).transpose();
        let scratch = scratch.map_err(|error| ExecError::without_buffer(name, "scratch memory of kernels", &error))?;
        let status = StatusWords::new(&gpu, worker_program.nodes.iter().map(|node| node.node), kernels);
        let status = status.map_err(|error| ExecError::without_buffer(name, "status words of kernels", &error))?;
        let refused = |slot, error| match worker_program.user(slot) {
            Some(node) => ExecError::kernel(kernels.program().node(node).model_name(), name, error),
            None => ExecError::unusable(name, &error),
        };
        let mut cells = Vec::with_capacity(worker_program.cells.slots.len() + constants.len());
        for (slot, size) in (0..).zip(slots()) {
            cells.push(gpu.storage(size).map_err(|error| refused(slot, error))?);
        }
        cells.extend(constants.iter().map(|constant| wgpu::Buffer::clone(constant)));
        let making = Making { gpu: &gpu, worker_program, kernels, cells, scratch, status };
        let nodes = making.compile(name)?;
        let nodes = nodes.into_iter().map(Mutex::new).collect();
        let Making { cells, status, .. } = making;
        let cells = cells.into_iter().map(Mutex::new).collect();
        gpu.poll(None).map_err(|error| ExecError::unusable(name, &error))?;
        let unused = Mutex::new(worker_program.handed_out.clone());
        Ok(Arc::new(Self { gpu, cells, unused, nodes, status, _constants: constants }))
    }

    /// The buffer of a cell in this run.
    pub(crate) fn cell(&self, cell: u32) -> wgpu::Buffer {
        lock(&self.cells[cell as usize]).clone()
    }

    /// Returns the buffer of the slot that holds this output, if no run had it yet; once.
    pub(crate) fn unused_slot(&self, output: u32) -> Option<wgpu::Buffer> {
        let mut unused = lock(&self.unused);
        let at = unused.iter().position(|slot| slot.output == output)?;
        Some(self.cell(unused.swap_remove(at).cell))
    }

    /// The kernels of a node, by its place in the worker program.
    pub(crate) fn kernels(&self, node: usize) -> MutexGuard<'_, Vec<Kernel>> {
        lock(&self.nodes[node])
    }

    /// Makes slots the caller's buffers; takes time only for those that are other buffers.
    pub(crate) fn take_over(&self, slots: impl Iterator<Item = (u32, wgpu::Buffer)>) {
        lock(&self.unused).clear();
        let change = |(cell, to): (u32, wgpu::Buffer)| {
            let held = &mut *lock(&self.cells[cell as usize]);
            (*held != to).then(|| (std::mem::replace(held, to.clone()), to))
        };
        let changes: Vec<_> = slots.filter_map(change).collect();
        if !changes.is_empty() {
            for node in &self.nodes {
                lock(node).iter_mut().for_each(|kernel| kernel.rebind(&self.gpu, &changes));
            }
        }
    }

    /// Checks that no fault was reported to the GPU's handlers.
    pub(crate) fn healthy(&self, place: FailureSite) -> Result<(), Failure> {
        healthy(&self.gpu, place)
    }
}

impl Making<'_> {
    /// Compiles the kernels of all nodes. From the first new pipeline on, which takes milliseconds, this happens on all
    /// processors. Returns the error of the first node that has one.
    fn compile(&self, device: &str) -> Result<Vec<Vec<Kernel>>, ExecError> {
        let nodes = &self.worker_program.nodes;
        let compiled: Vec<OnceLock<Result<Vec<Kernel>, ExecError>>> = nodes.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let step = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(node) = nodes.get(at) else { return false };
            if compiled[at].get_or_init(|| self.compile_call(node, device)).is_err() {
                // Earlier nodes are done or in work.
                next.fetch_max(nodes.len(), Ordering::Relaxed);
            }
            true
        };
        let work = || while step() {};
        // wgpu keeps some memory of each thread that ever used it, so that threads start only for new pipelines.
        let known = self.gpu.pipeline_count();
        while self.gpu.pipeline_count() == known && step() {}
        let left = nodes.len().saturating_sub(next.load(Ordering::Relaxed));
        let threads = match self.gpu.compiles_in_parallel() {
            true => thread::available_parallelism().map_or(1, NonZero::get).min(left.div_ceil(FEW)),
            false => 1,
        };
        thread::scope(|scope| {
            // If the system starts no more threads, the existing threads do the work.
            let helpers: Vec<_> =
                (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            work();
            for helper in helpers {
                helper.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        // Only nodes after an error are left out.
        compiled.into_iter().filter_map(OnceLock::into_inner).collect()
    }

    fn compile_call(&self, node: &NodeCall, device: &str) -> Result<Vec<Kernel>, ExecError> {
        let tables = self.kernels.tables(node.node)?;
        let name = self.kernels.program().node(node.node).model_name();
        self.compile_node(node, &tables).map_err(|error| ExecError::kernel(name, device, error))
    }

    fn compile_node(&self, node: &NodeCall, tables: &[Option<Tensor>]) -> Result<Vec<Kernel>, KernelError> {
        let spec = &self.kernels.program().node(node.node).spec;
        let buffer = |cell: u32| &self.cells[cell as usize];
        // An operand of 0 bytes is not read, or is empty, and then no dispatch reads it.
        let read = |operand: &Operand| (operand.bytes > 0).then(|| buffer(operand.cell));
        let mut inputs: Vec<_> = self.worker_program.operands(&node.inputs).iter().map(read).collect();
        let outputs: Vec<_> = self.worker_program.operands(&node.outputs).iter().map(|o| buffer(o.cell)).collect();
        if let Some((input, output)) = spec.in_place()
            && inputs[input] == outputs.get(output).copied()
        {
            inputs[input] = None;
        }
        let status = self.status.as_ref().and_then(|status| status.word(node.node));
        let buffers = Buffers { inputs: &inputs, outputs: &outputs, scratch: self.scratch.as_ref(), status };
        let compile = |rows| gpu::compile(self.gpu, spec, tables, &buffers, rows);
        let Some(streaming) = &node.streaming else { return Ok(vec![compile(None)?]) };
        let cut = &streaming.cut;
        (0..cut.chunks()).map(|chunk| compile(Some(node.own_rows(cut, &cut.rows_of(chunk))))).collect()
    }
}
