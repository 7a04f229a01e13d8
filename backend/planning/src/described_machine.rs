//! The machine that a platform file describes, as placement sees it.

use super::error::PlanningError;
use super::machine::{Machine, link, machine_devices};
use super::platform_file::{DeviceEntry, LinkEntry, PlatformFile};
use anabranch_costs::{DeviceCosts, Laws, LinkCosts, MachineCosts};
use anabranch_device::Inventory;
use anabranch_kernels::gpu::GpuLimits;
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::MachineDevice;
use std::collections::BTreeSet;

impl PlatformFile {
    /// Returns the file that names all devices of the machine that this one describes, also those that it leaves as
    /// they are.
    ///
    /// # Errors
    /// If the file names something unknown, or its first device is not a CPU.
    pub fn resolved(&self, inventory: &Inventory) -> Result<Self, PlanningError> {
        let devices = self.devices_over(&machine_devices(inventory))?;
        Ok(Self { devices, extends: false, remove: Vec::new(), ..self.clone() })
    }
}

impl Machine {
    /// Returns the machine that `file` describes, as a whole or by its differences from the present machine.
    ///
    /// Each device gets costs of its own: a copy of the stored costs of the device that it is like.
    ///
    /// # Errors
    /// If the file names something unknown, or its first device is not a CPU.
    pub fn described(file: &PlatformFile, inventory: &Inventory, known: &MachineCosts) -> Result<Self, PlanningError> {
        let present = Self::present(inventory, known);
        let entries = file.devices_over(&present.devices)?;
        // The overhead of runs does not depend on the devices.
        let costs = MachineCosts { runs: known.runs.clone(), ..MachineCosts::default() };
        let mut machine =
            Self { devices: Vec::new(), gpus: Vec::new(), costs, laws: Laws::default(), lost: BTreeSet::new() };
        for entry in &entries {
            machine.add(entry, &present.devices, known);
        }
        for from in &entries {
            for to in entries.iter().filter(|to| to.name != from.name) {
                let given = file.link(&from.name, &to.name);
                machine.connect(from, to, given, known);
            }
        }
        if machine.devices.iter().any(|device| device.kind == DeviceKind::Gpu) {
            machine.gpus = if present.gpus.is_empty() { vec![usual_limits()] } else { present.gpus };
        }
        Ok(machine)
    }

    /// Adds a device. Its cores and caches are those of the present device that it is like.
    fn add(&mut self, entry: &DeviceEntry, present: &[MachineDevice], known: &MachineCosts) {
        let mut device = entry.machine_device();
        if let Some(like) = present.iter().find(|device| entry.key.as_ref() == Some(&device.key)) {
            (device.threads, device.cache) = (like.threads, like.cache);
        }
        let measured = entry.key.as_ref().and_then(|like| known.devices.get(like)).cloned().unwrap_or_default();
        // Edited rates describe another device than the one whose times were measured.
        let costs = match entry.rates {
            Some(rates) if measured.rates != Some(rates) => {
                DeviceCosts { rates: Some(rates), ..DeviceCosts::default() }
            }
            _ => measured,
        };
        self.costs.devices.insert(device.key.clone(), costs);
        self.devices.push(device);
    }

    fn connect(&mut self, from: &DeviceEntry, to: &DeviceEntry, given: Option<&LinkEntry>, known: &MachineCosts) {
        let (from_own, to_own) = (from.machine_device(), to.machine_device());
        let like = |entry: &DeviceEntry, own: &MachineDevice| {
            let key = entry.key.clone().unwrap_or_else(|| own.key.clone());
            MachineDevice { key, ..own.clone() }
        };
        let (from_like, to_like) = (like(from, &from_own), like(to, &to_own));
        let found = link(known, &from_like, &to_like);
        let costs = match given {
            None => found,
            Some(given) => LinkCosts::affine(given.latency.unwrap_or(found.latency), given.rate.unwrap_or(found.rate)),
        };
        let (from, to) = (from_own.key, to_own.key);
        let slowdown = known.slowdowns.get(&MachineCosts::slowdown_key(&from_like.key, &to_like.key));
        self.costs
            .slowdowns
            .extend(slowdown.map(|slowdown| (MachineCosts::slowdown_key(&from, &to), slowdown.clone())));
        self.costs.links.insert(MachineCosts::link_key(&from, &to), costs);
    }
}

/// Assumed limits of an unknown GPU: nearly all desktop GPUs offer these.
pub(super) fn usual_limits() -> GpuLimits {
    GpuLimits {
        binding_bytes: 2 << 30,
        bindings: 16,
        groups: 65_535,
        threads: 1024,
        workgroup_bytes: 32 << 10,
        matrices: None,
    }
}
