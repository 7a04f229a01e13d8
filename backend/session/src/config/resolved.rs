//! The configuration of a session with a value for each option: the result of [`SessionConfig::resolve`].
//!
//! [`SessionConfig::resolve`]: crate::SessionConfig::resolve

use crate::OnDeviceLoss;
use anabranch_costs::CostStore;
use anabranch_device::{DetectError, DetectOptions, GpuDevice, Inventory};
use anabranch_kernels::gpu::GpuLimits;
use anabranch_kernels::op::Precision;
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::PlanOptions;
use anabranch_planning::{Constraints, Order, PlanChoice, PlanningError, PlatformFile, Strategy};
use std::collections::BTreeMap;

/// Options of a [`Session`](crate::Session), from a [`SessionConfig`](crate::SessionConfig).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResolvedConfig {
    /// Devices to use, and the number of threads of each CPU device.
    pub devices: DetectOptions,
    /// Strategy that decides on which devices nodes run. Default: HEFT, or the parts of a divided batch.
    pub strategy: Strategy,
    /// Rule that selects among a device's ready nodes. Default: PCT.
    pub order: Order,
    /// Pins and colocations.
    pub constraints: Constraints,
    /// Sizes of dimensions that no input's shape binds, by symbol (`batch`) or by input and axis (`x[1]`).
    pub dims: BTreeMap<String, usize>,
    /// Positions that costs take caches of keys and values to hold. A run may have any other number. Default: their
    /// capacity.
    pub cached: Option<usize>,
    /// Rewrites that fuse neighbouring operators into one node (default: all).
    pub fuse: Rewrites,
    /// Arithmetic of matrix products on GPUs with matrix units (default: `f32`). A session on other GPUs takes `f32`.
    pub precision: Precision,
    /// Options of plans, such as streaming.
    pub plan: PlanOptions,
    /// Whether GPUs copy from and to memory of the host by themselves, if they can. Default: yes.
    pub pinned: bool,
    /// Costs to predict with; [`Session::learn`](crate::Session::learn) adds to them.
    pub costs: CostStore,
    /// Devices to plan for instead of the present devices; runs always use the present devices.
    pub platform: Option<PlatformFile>,
    /// Number of plans that are kept ready, at least 1; the least recently used is dropped first. Default: 8.
    ///
    /// Each set of input shapes, with the elements of inputs that decide further shapes, has its own plan.
    pub plan_capacity: usize,
    /// Whether to calibrate devices without calibrated rates before the first placement, which takes about a second per
    /// device. Otherwise, rates are assumed until [`Session::calibrate`](crate::Session::calibrate) measures them.
    /// Default: no.
    pub calibrate: bool,
    /// Limits beyond which a model is rejected.
    pub limits: Limits,
    /// Behaviour of a run that loses a GPU. Default: it fails.
    pub on_device_loss: OnDeviceLoss,
}

impl ResolvedConfig {
    /// Detects the devices. Memory limits of devices of the platform file hold there, and for devices of these names
    /// here.
    pub(crate) fn detected(
        &mut self,
        detect: fn(&DetectOptions) -> Result<Inventory, DetectError>,
    ) -> Result<Inventory, DetectError> {
        let Some(file) = &mut self.platform else { return detect(&self.devices) };
        let is_described = |(name, _): &(String, u64)| file.devices.iter().any(|entry| entry.name == *name);
        let (described, own) = self.devices.memory_overrides.iter().cloned().partition::<Vec<_>, _>(is_described);
        let known: Vec<_> = file.devices.iter().map(|entry| entry.name.as_str()).collect();
        let known = format!("; the platform file describes {}", known.join(", "));
        let here = DetectOptions { memory_overrides: own, ..self.devices.clone() };
        let mut inventory = detect(&here).map_err(|error| error.with(&known))?;
        for (name, bytes) in described {
            file.devices.iter_mut().filter(|entry| entry.name == name).for_each(|entry| entry.memory = Some(bytes));
            if inventory.device(&name).is_some() {
                inventory.set_memory(&name, bytes)?;
            }
        }
        Ok(inventory)
    }

    /// Returns the precision of matrix products: the one asked for if plans are for GPUs of this machine that all have
    /// matrix units, else `f32` and a note on why.
    pub(crate) fn settled_precision(&self, inventory: &Inventory) -> (Precision, Option<String>) {
        let asked = self.precision;
        if asked.is_full() {
            return (asked, None);
        }
        let lacks = |gpu: &&GpuDevice| GpuLimits::of(&gpu.adapter).matrices.is_none();
        let why = match (&self.platform, inventory.gpus.iter().find(lacks)) {
            (Some(_), _) => "a platform file does not state which GPUs have matrix units".to_owned(),
            (None, Some(gpu)) => format!(
                "{} ({}) has no matrix units for f16 with subgroups of one size, or no driver for them",
                gpu.name, gpu.description
            ),
            (None, None) if inventory.gpus.is_empty() => "there is no GPU".to_owned(),
            (None, None) => return (asked, None),
        };
        (Precision::F32, Some(format!("matrix products are computed in f32, not in {asked}: {why}")))
    }

    /// Checks that the strategy can place the parts of a divided batch.
    pub(crate) fn verify_split(&self) -> Result<(), PlanningError> {
        self.constraints.split.as_ref().map_or(Ok(()), |split| split.verify(&self.strategy))
    }

    /// Returns the choice for the session's own plans.
    pub fn choice(&self) -> PlanChoice {
        PlanChoice { strategy: self.strategy.clone(), order: self.order, plan: self.plan.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionConfig;
    use anabranch_device::detect_cpus;

    #[test]
    fn products_are_in_f32_without_a_gpu_and_a_note_says_so() {
        let cpus = detect_cpus(&DetectOptions::default()).expect("this machine");
        for (precision, noted) in [(Precision::F16, true), (Precision::F16x3, true), (Precision::F32, false)] {
            let options = SessionConfig::default().with_precision(precision).resolve();
            let (settled, note) = options.settled_precision(&cpus);
            assert_eq!((settled, note.is_some()), (Precision::F32, noted));
            if let Some(note) = note {
                let name = precision.name();
                assert_eq!(note, format!("matrix products are computed in f32, not in {name}: there is no GPU"));
            }
        }
    }
}
