//! The CPU kernels of a program, each prepared once, at its first use.
//!
//! Preparation needs only types and shapes, which is enough for plans. A kernel that runs also gets its constants in
//! the layouts that it needs; all kernels of a session share them ([`Weights`]).

use super::exec_error::ExecError;
use super::weights::{Wanted, Weights};
use super::{KernelNeeds, Needs, PackedConstant};
use anabranch_base::lock::lock;
use anabranch_ir::constant::Constant;
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::cpu::{self, CpuKernel, Packing};
use anabranch_kernels::gpu::{self, Gpu, GpuBuffer};
use anabranch_kernels::{Buffer, KernelError, Tensor};
use anabranch_placement_core::platform::DeviceKind;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Most bytes of the tables of a program's kernels together: they are kept while plans are checked for their memory.
const MOST_TABLES: usize = 2 << 30;

/// A program and its prepared kernels.
pub struct Kernels {
    program: Arc<Program>,
    weights: Arc<Weights>,
    cpu: Mutex<BTreeMap<NodeId, KernelEntry>>,
    /// Bytes of the kernels' tables.
    tables: AtomicUsize,
}

/// A CPU kernel.
enum KernelEntry {
    /// A kernel without its constants.
    Planned(Box<dyn CpuKernel>),
    /// A kernel with its constants.
    Ready { kernel: Arc<dyn CpuKernel>, packed: Vec<Arc<Buffer>> },
}

impl KernelEntry {
    fn kernel(&self) -> &dyn CpuKernel {
        match self {
            Self::Planned(kernel) => kernel.as_ref(),
            Self::Ready { kernel, .. } => kernel.as_ref(),
        }
    }
}

impl Kernels {
    /// Creates an empty set of kernels with weights of its own.
    pub fn new(program: Arc<Program>) -> Self {
        Self::with(program, Arc::default())
    }

    /// Creates an empty set of kernels that share constants with all other kernels of `weights`.
    pub fn with(program: Arc<Program>, weights: Arc<Weights>) -> Self {
        Self { program, weights, cpu: Mutex::default(), tables: AtomicUsize::new(0) }
    }

    /// Returns the program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the weights that the kernels share.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }

    /// Uses `kernel` for a node instead of the default kernel, from the next plan on.
    pub fn replace(&self, node: NodeId, kernel: Arc<dyn CpuKernel>) {
        lock(&self.cpu).insert(node, KernelEntry::Ready { kernel, packed: Vec::new() });
    }

    /// Gives the kernels of `nodes` their constants, and loads and returns the constants `values`. All are loaded
    /// together, on all processors.
    ///
    /// # Errors
    /// If there is no kernel for a node, or a constant cannot be read.
    pub fn ready(&self, nodes: &[NodeId], values: &[ValueId]) -> Result<Vec<Arc<Buffer>>, ExecError> {
        let mut kernels = lock(&self.cpu);
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut waiting = Vec::new();
        for id in nodes {
            let KernelEntry::Planned(kernel) = self.prepared(&mut kernels, *id)? else { continue };
            let first = wanted.len();
            let packing = |Packing { input, layout }: Packing| {
                let constant = self.program.constant(*self.program.node(*id).inputs.get(input)?)?.clone();
                Some(Wanted { constant, layout: Some(layout) })
            };
            wanted.extend(kernel.packings().into_iter().filter_map(packing));
            waiting.push((*id, first..wanted.len()));
        }
        let raw = values.iter().filter_map(|value| self.program.constant(*value));
        let packed = wanted.len();
        wanted.extend(raw.map(|constant| Wanted { constant: constant.clone(), layout: None }));
        let mut buffers = self.weights.on_host(&wanted)?;
        let raw = buffers.split_off(packed);
        for (id, range) in waiting {
            if let Some(KernelEntry::Planned(mut kernel)) = kernels.remove(&id) {
                let packed = buffers[range].to_vec();
                kernel.keep(&packed);
                kernels.insert(id, KernelEntry::Ready { kernel: kernel.into(), packed });
            }
        }
        Ok(raw)
    }

    /// Returns the kernel of a node with its constants.
    ///
    /// # Errors
    /// If there is no kernel, or a constant cannot be read.
    pub fn cpu(&self, node: NodeId) -> Result<Arc<dyn CpuKernel>, ExecError> {
        self.ready(&[node], &[])?;
        match lock(&self.cpu).get(&node) {
            Some(KernelEntry::Ready { kernel, .. }) => Ok(Arc::clone(kernel)),
            _ => Err(self.failed(node, KernelError::Packed { input: 0 })),
        }
    }

    /// Returns the packed constants that the kernel of a node keeps, once it is ready.
    pub fn packed(&self, node: NodeId) -> Vec<Arc<Buffer>> {
        match lock(&self.cpu).get(&node) {
            Some(KernelEntry::Ready { packed, .. }) => packed.clone(),
            _ => Vec::new(),
        }
    }

    /// For each input of a node, its value if a GPU's kernel reads it during compilation.
    pub fn tables(&self, node: NodeId) -> Result<Vec<Option<Tensor>>, ExecError> {
        let binds = gpu::binds(&self.program.node(node).spec, &self.constant(node));
        let node = self.program.node(node);
        let table = |(at, (input, spec)): (usize, (&ValueId, &anabranch_kernels::TensorSpec))| {
            let constant = self.program.constant(*input).filter(|_| binds.get(at) == Some(&false));
            let under =
                |constant: &Constant| constant.reshaped(spec.shape.clone()).unwrap_or_else(|_| constant.clone());
            Ok(constant.map(|constant| under(constant).load()).transpose()?)
        };
        node.inputs.iter().zip(&node.spec.inputs).enumerate().map(table).collect()
    }

    /// Whether the kernel of a node on a GPU reports values in a status word.
    pub fn has_status(&self, node: NodeId) -> bool {
        gpu::has_status(&self.program.node(node).spec, &self.constant(node))
    }

    /// A constant in the memory of a GPU of this name, which all kernels of the same weights share.
    pub fn on_gpu(&self, gpu: &Arc<Gpu>, name: &str, value: ValueId) -> Result<Arc<GpuBuffer>, ExecError> {
        let constant = self.program.constant(value);
        let constant = constant.ok_or_else(|| ExecError::internal("a value is not a constant"))?;
        self.weights.on_gpu(gpu, name, (&self.program.value(value).name, constant))
    }

    /// For each input of a node, whether it is constant.
    fn constant(&self, node: NodeId) -> Vec<bool> {
        self.program.node(node).inputs.iter().map(|input| self.program.constant(*input).is_some()).collect()
    }

    fn prepared<'k>(
        &self,
        kernels: &'k mut BTreeMap<NodeId, KernelEntry>,
        node: NodeId,
    ) -> Result<&'k KernelEntry, ExecError> {
        self.planned(kernels, node).map_err(|source| self.failed(node, source))
    }

    fn planned<'k>(
        &self,
        kernels: &'k mut BTreeMap<NodeId, KernelEntry>,
        node: NodeId,
    ) -> Result<&'k KernelEntry, KernelError> {
        use std::collections::btree_map::Entry;
        Ok(match kernels.entry(node) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => {
                let spec = &self.program.node(node).spec;
                let kernel = cpu::prepare(spec, &self.constant(node))?;
                let own = kernel.resident_bytes();
                let bytes = self.tables.fetch_add(own, Ordering::Relaxed).saturating_add(own);
                if bytes > MOST_TABLES {
                    self.tables.fetch_sub(own, Ordering::Relaxed);
                    return Err(KernelError::Memory { op: spec.op.name(), what: "the tables of all nodes", bytes });
                }
                free.insert(KernelEntry::Planned(kernel))
            }
        })
    }

    fn failed(&self, node: NodeId, source: KernelError) -> ExecError {
        ExecError::kernel(self.program.node(node).model_name(), "CPU", source)
    }
}

impl Needs for Kernels {
    fn needs(&self, node: NodeId, kind: DeviceKind) -> Result<KernelNeeds, KernelError> {
        let inputs = &self.program.node(node).inputs;
        let spec = &self.program.node(node).spec;
        if kind == DeviceKind::Cpu {
            let mut kernels = lock(&self.cpu);
            let kernel = self.planned(&mut kernels, node)?.kernel();
            let packed =
                |Packing { input, layout }: Packing| Some(PackedConstant { value: *inputs.get(input)?, layout });
            return Ok(KernelNeeds {
                resident: kernel.resident_bytes() as u64,
                packed: kernel.packings().into_iter().filter_map(packed).collect(),
                scratch: kernel.scratch_bytes() as u64,
                reads: (0..inputs.len()).map(|input| kernel.reads(input)).collect(),
            });
        }
        let constant = self.constant(node);
        Ok(KernelNeeds {
            resident: gpu::resident_bytes(spec, &constant),
            packed: Vec::new(),
            scratch: gpu::scratch_bytes(spec),
            reads: gpu::binds(spec, &constant),
        })
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prepared = lock(&self.cpu).len();
        f.debug_struct("Kernels").field("nodes", &self.program.nodes.len()).field("prepared", &prepared).finish()
    }
}
