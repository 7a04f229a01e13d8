//! The devices that a session places on: those of this machine, or those that a platform file describes.

use super::placing::{Target, link};
use super::platform_file::{DeviceEntry, LinkEntry, PlatformError, PlatformFile};
use crate::device::{CacheSummary, DeviceRef, Inventory};
use crate::profile::{DeviceCosts, LinkCosts, MachineCosts};
use crate::program::{Node, Program};
use crate::stream::StreamDevice;
use anabranch_kernels::cpu;
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_kernels::op::NodeSpec;
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// Devices as placement sees them, and what their costs are.
pub(super) struct Machine {
    /// The devices; the first is the host.
    pub(super) targets: Vec<Target>,
    /// What the GPUs among them can hold and start.
    gpus: Vec<GpuLimits>,
    /// What streaming on each device depends on.
    pub(super) streams: Vec<StreamDevice>,
    /// What nodes, transfers and runs cost there.
    pub(super) costs: MachineCosts,
}

impl Machine {
    /// The machine that is there.
    pub(super) fn present(inventory: &Inventory, known: &MachineCosts) -> Self {
        let gpus = inventory.gpus.iter().map(|gpu| GpuLimits::of(&gpu.adapter)).collect();
        let streams = inventory.devices().map(stream_device).collect();
        Self { targets: targets(inventory), gpus, streams, costs: known.clone() }
    }

    /// The machine that `file` describes, by its differences from the present one or as a whole.
    ///
    /// Each of its devices has costs of its own: a copy of those of the device that it is like, as they are in the store.
    ///
    /// # Errors
    /// If the file names what is not there, or its first device is no CPU.
    pub(super) fn imagined(
        file: &PlatformFile,
        inventory: &Inventory,
        known: &MachineCosts,
    ) -> Result<Self, PlatformError> {
        let present = Self::present(inventory, known);
        let entries = file.devices_over(&present.targets)?;
        // What a run takes beside its nodes and transfers does not depend on which devices these are.
        let costs = MachineCosts { runs: known.runs.clone(), ..MachineCosts::default() };
        let mut machine = Self { targets: Vec::new(), gpus: Vec::new(), streams: Vec::new(), costs };
        for entry in &entries {
            let like = present.streams.iter().find(|device| entry.key.as_ref() == Some(&device.key));
            machine.add_stream(entry, like);
            machine.add(entry, known);
        }
        for from in &entries {
            for to in entries.iter().filter(|to| to.name != from.name) {
                let given = file.link(&from.name, &to.name);
                machine.connect((from, to), given, known);
            }
        }
        if machine.targets.iter().any(|target| target.kind == DeviceKind::Gpu) {
            machine.gpus = if present.gpus.is_empty() { vec![usual_limits()] } else { present.gpus };
        }
        Ok(machine)
    }

    /// What streaming on a device depends on: its cores and caches are those of the device at hand that it is like.
    fn add_stream(&mut self, entry: &DeviceEntry, like: Option<&StreamDevice>) {
        self.streams.push(StreamDevice {
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
        self.targets.push(Target {
            name: entry.name.clone(),
            kind: entry.kind.unwrap_or(DeviceKind::Cpu),
            key,
            memory: entry.memory.unwrap_or(u64::MAX),
            times: entry.times,
        });
    }

    fn connect(&mut self, (from, to): (&DeviceEntry, &DeviceEntry), given: Option<&LinkEntry>, known: &MachineCosts) {
        let like = |entry: &DeviceEntry| Target {
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

    /// Whether a device has a kernel for a node some of whose inputs are constant. A GPU has it only if all GPUs do.
    pub(super) fn supports(&self, device: DeviceId, node: &NodeSpec, constant: &[bool]) -> bool {
        match self.targets[device.index()].kind {
            DeviceKind::Cpu => cpu::prepare(node, constant).is_ok(),
            _ => self.gpus.iter().all(|limits| gpu::supports(node, constant, limits).is_ok()),
        }
    }

    /// For each node, whether every GPU here has a kernel for it.
    pub(super) fn gpu_runs(&self, program: &Program) -> Vec<bool> {
        let runs = |node: &Node| {
            let constants: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
            self.gpus.iter().all(|limits| gpu::supports(&node.spec, &constants, limits).is_ok())
        };
        program.nodes.iter().map(runs).collect()
    }

    /// The bytes that each device may hold.
    pub(super) fn memory(&self) -> Vec<u64> {
        self.targets.iter().map(|target| target.memory).collect()
    }
}

/// The devices of an inventory as placement sees them.
pub(super) fn targets(inventory: &Inventory) -> Vec<Target> {
    let target = |device: DeviceRef<'_>| Target {
        name: device.name().to_owned(),
        kind: match device {
            DeviceRef::Cpu(_) => DeviceKind::Cpu,
            DeviceRef::Gpu(_) => DeviceKind::Gpu,
        },
        key: device.key().to_string(),
        memory: device.memory(),
        times: 1.0,
    };
    inventory.devices().map(target).collect()
}

/// A device as streaming sees it. A core's level 2 cache counts, or its share of one that cores have together.
fn stream_device(device: DeviceRef<'_>) -> StreamDevice {
    let (kind, threads, cache) = match device {
        DeviceRef::Cpu(cpu) => {
            let share = |cache: CacheSummary| cache.bytes / cache.cores.max(1) as u64;
            (DeviceKind::Cpu, cpu.team().len(), cpu.l2.map_or(0, share))
        }
        DeviceRef::Gpu(_) => (DeviceKind::Gpu, 1, 0),
    };
    StreamDevice { name: device.name().to_owned(), kind, key: device.key().to_string(), times: 1.0, threads, cache }
}

/// What a GPU that nobody has seen is taken to offer: what nearly all desktop GPUs do.
fn usual_limits() -> GpuLimits {
    GpuLimits { binding_bytes: 2 << 30, bindings: 16, groups: 65_535, threads: 1024, workgroup_bytes: 32 << 10 }
}
