//! The machine that a platform file describes, as placement sees it.

use super::machine::{Machine, MachineDevice, link};
use super::platform_file::{DeviceEntry, LinkEntry, PlatformError, PlatformFile};
use crate::blocks::BlockDevice;
use crate::device::Inventory;
use crate::profile::{DeviceCosts, LinkCosts, MachineCosts};
use anabranch_kernels::gpu::GpuLimits;
use anabranch_placement::platform::DeviceKind;

impl Machine {
    /// The machine that `file` describes, by its differences from the present one or as a whole.
    ///
    /// Each of its devices has costs of its own: a copy of those of the device that it is like, as they are in the store.
    ///
    /// # Errors
    /// If the file names what is not there, or its first device is no CPU.
    pub fn described(file: &PlatformFile, inventory: &Inventory, known: &MachineCosts) -> Result<Self, PlatformError> {
        let present = Self::present(inventory, known);
        let entries = file.devices_over(&present.devices)?;
        // What a run takes beside its nodes and transfers does not depend on which devices these are.
        let costs = MachineCosts { runs: known.runs.clone(), ..MachineCosts::default() };
        let mut machine = Self { devices: Vec::new(), gpus: Vec::new(), streams: Vec::new(), costs };
        for entry in &entries {
            let like = present.streams.iter().find(|device| entry.key.as_ref() == Some(&device.key));
            machine.add_stream(entry, like);
            machine.add(entry, known);
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

    /// What streaming on a device depends on: its cores and caches are those of the device at hand that it is like.
    fn add_stream(&mut self, entry: &DeviceEntry, like: Option<&BlockDevice>) {
        self.streams.push(BlockDevice {
            name: entry.name.clone(),
            kind: entry.kind.unwrap_or(DeviceKind::Cpu),
            key: entry.own_key(),
            times: entry.times,
            threads: like.map_or(1, |device| device.threads),
            cache: like.map_or(0, |device| device.cache),
        });
    }

    fn add(&mut self, entry: &DeviceEntry, known: &MachineCosts) {
        let key = entry.own_key();
        let like = entry.key.as_ref().and_then(|like| known.devices.get(like)).cloned();
        let mut costs: DeviceCosts = like.unwrap_or_default();
        if entry.rates.is_some() {
            costs.rates = entry.rates;
        }
        self.costs.devices.insert(key.clone(), costs);
        self.devices.push(MachineDevice {
            name: entry.name.clone(),
            kind: entry.kind.unwrap_or(DeviceKind::Cpu),
            key,
            memory: entry.memory.unwrap_or(u64::MAX),
            times: entry.times,
        });
    }

    fn connect(&mut self, from: &DeviceEntry, to: &DeviceEntry, given: Option<&LinkEntry>, known: &MachineCosts) {
        let like = |entry: &DeviceEntry| MachineDevice {
            name: entry.name.clone(),
            kind: entry.kind.unwrap_or(DeviceKind::Cpu),
            key: entry.key.clone().unwrap_or_else(|| entry.own_key()),
            memory: 0,
            times: 1.0,
        };
        let (from_like, to_like) = (like(from), like(to));
        let found = link(known, &from_like, &to_like);
        let costs = match given {
            None => found,
            Some(given) => LinkCosts::affine(given.latency.unwrap_or(found.latency), given.rate.unwrap_or(found.rate)),
        };
        let (from, to) = (from.own_key(), to.own_key());
        let slowdown = known.slowdowns.get(&MachineCosts::slowdown_key(&from_like.key, &to_like.key));
        self.costs
            .slowdowns
            .extend(slowdown.map(|slowdown| (MachineCosts::slowdown_key(&from, &to), slowdown.clone())));
        self.costs.links.insert(MachineCosts::link_key(&from, &to), costs);
    }
}

/// What a GPU that nobody has seen is taken to offer: what nearly all desktop GPUs do.
fn usual_limits() -> GpuLimits {
    GpuLimits { binding_bytes: 2 << 30, bindings: 16, groups: 65_535, threads: 1024, workgroup_bytes: 32 << 10 }
}
