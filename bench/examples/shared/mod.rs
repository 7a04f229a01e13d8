//! Shared code of the examples that run models of a directory: flags for devices and inputs.

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::{Inputs, Session};
use anabranch_bench::models::{inputs_beside, with_random};
use anabranch_bench::turns::Failure;
use clap::Args;
use std::path::Path;

/// Devices and inputs
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Cores that make one CPU device: machine, package, numa, l3 or core
    #[arg(long, default_value = "core")]
    cpu_devices: CpuGranularity,
    /// Count a software Vulkan adapter as a GPU
    #[arg(long)]
    software_gpu: bool,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Size of all symbolic dimensions without an input next to the model
    #[arg(long, default_value_t = 1)]
    size: usize,
}

impl Common {
    /// Returns the devices to look for.
    pub(crate) fn devices(&self) -> DetectOptions {
        DetectOptions::default().with_software_gpu(self.software_gpu).with_cpu_granularity(self.cpu_devices)
    }

    /// Returns the inputs in the `.npz` next to the model (members `in__NAME`), and random ones for missing inputs.
    pub(crate) fn inputs(&self, session: &Session, file: &Path) -> Result<Inputs, Failure> {
        with_random(session, inputs_beside(file)?.unwrap_or_default(), self.size, self.seed)
    }
}

/// Returns a model's name: that of its file.
pub(crate) fn name(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
