//! The CPU kernels of a program, each prepared once, when it is first asked for.
//!
//! Preparing packs weights. Plans ask for the sizes, executors for the kernels, and several plans of one program share
//! them.

use crate::plan::{KernelNeeds, Needs};
use crate::program::{NodeId, Program};
use anabranch_kernels::cpu::{self, CpuKernel};
use anabranch_kernels::{KernelError, Tensor, gpu};
use anabranch_placement::platform::DeviceKind;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A program and its prepared kernels.
pub struct Kernels {
    program: Arc<Program>,
    cpu: Mutex<BTreeMap<NodeId, Arc<dyn CpuKernel>>>,
}

impl Kernels {
    /// No kernels yet.
    pub fn new(program: Arc<Program>) -> Self {
        Self { program, cpu: Mutex::default() }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Uses `kernel` for a node in the place of the one that would be prepared for it, from the next plan on.
    pub fn replace(&self, node: NodeId, kernel: Arc<dyn CpuKernel>) {
        self.cpu.lock().unwrap_or_else(PoisonError::into_inner).insert(node, kernel);
    }

    /// The kernel of a node, prepared if it has not been yet.
    ///
    /// # Errors
    /// If there is none.
    pub fn cpu(&self, node: NodeId) -> Result<Arc<dyn CpuKernel>, KernelError> {
        // A kernel is only inserted whole, so the map is sound even if a preparation panicked.
        let mut kernels = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&node) {
            return Ok(Arc::clone(kernel));
        }
        let kernel: Arc<dyn CpuKernel> = cpu::prepare(&self.program.node(node).spec, &self.constants(node))?.into();
        kernels.insert(node, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// For each input of a node, its value if that is a constant, under the shape in which the node reads it.
    pub(super) fn constants(&self, node: NodeId) -> Vec<Option<Tensor>> {
        let node = self.program.node(node);
        let read = |(input, spec): (&_, &anabranch_kernels::TensorSpec)| {
            let constant = self.program.constant(*input)?;
            Some(constant.reshaped(spec.shape.clone()).unwrap_or_else(|_| constant.clone()))
        };
        node.inputs.iter().zip(&node.spec.inputs).map(read).collect()
    }

    fn constant(&self, node: NodeId) -> Vec<bool> {
        self.program.node(node).inputs.iter().map(|input| self.program.constant(*input).is_some()).collect()
    }
}

impl Needs for Kernels {
    fn needs(&self, node: NodeId, kind: DeviceKind) -> Result<KernelNeeds, KernelError> {
        let spec = &self.program.node(node).spec;
        if kind == DeviceKind::Cpu {
            let kernel = self.cpu(node)?;
            let (resident, scratch) = (kernel.resident_bytes() as u64, kernel.scratch_bytes() as u64);
            return Ok(KernelNeeds { resident, scratch, reads: vec![true; spec.inputs.len()] });
        }
        let constant = self.constant(node);
        Ok(KernelNeeds {
            resident: gpu::resident_bytes(spec, &constant),
            scratch: gpu::scratch_bytes(spec),
            reads: gpu::binds(spec, &constant),
        })
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prepared = self.cpu.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Kernels").field("nodes", &self.program.nodes.len()).field("prepared", &prepared).finish()
    }
}
