//! Describes each device that plans run on: a team of CPU threads, or a GPU with the function that opens it.

use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Adapter, Gpu};
use anabranch_kernels::op::Precision;
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
    /// Processing unit of each thread; empty to leave the threads to the system.
    pub units: Vec<u32>,
    /// Factor by which nodes are slowed down, to emulate a slower device; 1 for none.
    pub slowdown: f64,
}

impl CpuTeam {
    /// Returns the factor by which nodes are slowed down, if it is above 1.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.slowdown).filter(|times| *times > 1.0)
    }
}

/// Opens a GPU: when the first plan with steps there is prepared, and again after the GPU was lost.
#[derive(Clone)]
pub struct GpuOpener {
    /// The device's name.
    pub name: String,
    open: Arc<dyn Fn() -> Result<Arc<Gpu>, KernelError> + Send + Sync>,
}

impl GpuOpener {
    /// The GPU behind an adapter, for products of this precision or of `f32`.
    pub fn new(name: impl Into<String>, adapter: Adapter, precision: Precision) -> Self {
        Self::with(name, move || Gpu::open(&adapter, precision).map(Arc::new))
    }

    /// Creates an opener that calls `open`, which may return a GPU that is already open, as long as it is not lost.
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
