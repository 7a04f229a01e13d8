//! What a run's devices are made of.

use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Adapter, Gpu};
use std::fmt;
use std::sync::Arc;

/// A device to run on.
#[derive(Clone, Debug)]
pub enum ComputeDevice {
    /// Cores of the host.
    Cpu(CpuTeam),
    /// A GPU.
    Gpu(GpuOpener),
}

/// Cores that work as one team.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuTeam {
    /// The device's name.
    pub name: String,
    /// Threads, ≥ 1.
    pub threads: usize,
    /// The processing unit of each thread, in turn; empty to leave threads where the system puts them.
    pub units: Vec<u32>,
    /// How many times longer than it needs each node takes, to stand for a slower device; 1 for none.
    pub slowdown: f64,
}

impl CpuTeam {
    /// How many times longer than it needs each node takes, if more than once.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.slowdown).filter(|times| *times > 1.0)
    }
}

/// How a GPU is opened: when the first plan is readied that has steps there, and again after it was lost.
#[derive(Clone)]
pub struct GpuOpener {
    /// The device's name.
    pub name: String,
    open: Arc<dyn Fn() -> Result<Arc<Gpu>, KernelError> + Send + Sync>,
}

impl GpuOpener {
    /// The GPU behind an adapter.
    pub fn new(name: impl Into<String>, adapter: Adapter) -> Self {
        Self::with(name, move || Gpu::open(&adapter).map(Arc::new))
    }

    /// A GPU that `open` opens. It may give one that is open already, as long as that is not lost.
    pub fn with(
        name: impl Into<String>,
        open: impl Fn() -> Result<Arc<Gpu>, KernelError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), open: Arc::new(open) }
    }

    #[doc(hidden)]
    pub fn open(&self) -> Result<Arc<Gpu>, KernelError> {
        (self.open)()
    }
}

impl fmt::Debug for GpuOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuOpener").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ComputeDevice {
    /// The device's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Cpu(team) => &team.name,
            Self::Gpu(opener) => &opener.name,
        }
    }
}
