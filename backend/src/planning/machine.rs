//! The machine that a program is placed on: its devices and what is known of their costs.

use crate::blocks::BlockDevice;
use crate::device::{CacheSummary, DeviceRef, Inventory};
use crate::plan::PlanDevice;
use crate::profile::{LinkCosts, MachineCosts, NodeCost, Predictor};
use crate::program::{Node, Program};
use anabranch_kernels::cpu;
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_kernels::op::NodeSpec;
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// A device as placement sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineDevice {
    /// Name within this machine: `cpu0`, `gpu0`.
    pub name: String,
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// What its costs are filed under.
    pub key: String,
    /// Bytes that a plan may use there.
    pub memory: u64,
    /// What the times filed under the key are multiplied by; 1 for a device that is there.
    pub times: f64,
}

impl MachineDevice {
    /// The predicted time of a node here, by the predictor of its key.
    pub fn predict(&self, known: &Predictor<'_>, node: &NodeSpec) -> NodeCost {
        let cost = known.predict(node);
        NodeCost { seconds: cost.seconds * self.times, ..cost }
    }
}

/// Devices as placement sees them, and what their costs are.
pub struct Machine {
    /// The devices; the first is the host.
    pub devices: Vec<MachineDevice>,
    /// What the GPUs among them can hold and start.
    pub(super) gpus: Vec<GpuLimits>,
    /// What streaming on each device depends on.
    pub(super) streams: Vec<BlockDevice>,
    /// What nodes, transfers and runs cost there.
    pub costs: MachineCosts,
}

impl Machine {
    /// The machine that is there.
    pub fn present(inventory: &Inventory, known: &MachineCosts) -> Self {
        let gpus = inventory.gpus.iter().map(|gpu| GpuLimits::of(&gpu.adapter)).collect();
        let streams = inventory.devices().map(stream_device).collect();
        Self { devices: machine_devices(inventory), gpus, streams, costs: known.clone() }
    }

    /// Whether a device has a kernel for a node some of whose inputs are constant. A GPU has it only if all GPUs do.
    pub fn supports(&self, device: DeviceId, node: &NodeSpec, constant: &[bool]) -> bool {
        match self.devices[device.index()].kind {
            DeviceKind::Cpu => cpu::prepare(node, constant).is_ok(),
            _ => self.gpus.iter().all(|limits| gpu::supports(node, constant, limits).is_ok()),
        }
    }

    /// For each node, whether every GPU here has a kernel for it.
    pub fn gpu_runs(&self, program: &Program) -> Vec<bool> {
        let runs = |node: &Node| {
            let constants: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
            self.gpus.iter().all(|limits| gpu::supports(&node.spec, &constants, limits).is_ok())
        };
        program.nodes.iter().map(runs).collect()
    }

    /// The bytes that each device may hold.
    pub fn memory(&self) -> Vec<u64> {
        self.devices.iter().map(|device| device.memory).collect()
    }

    /// The devices as a plan sees them.
    pub fn plan_devices(&self) -> Vec<PlanDevice> {
        let device = |device: &MachineDevice| PlanDevice {
            name: device.name.clone(),
            kind: device.kind,
            limit: Some(device.memory),
        };
        self.devices.iter().map(device).collect()
    }

    /// The link between two devices, see [`link`].
    pub(super) fn link(&self, from: DeviceId, to: DeviceId) -> LinkCosts {
        link(&self.costs, &self.devices[from.index()], &self.devices[to.index()])
    }
}

/// The devices of an inventory as placement sees them.
pub fn machine_devices(inventory: &Inventory) -> Vec<MachineDevice> {
    let described = |device: DeviceRef<'_>| MachineDevice {
        name: device.name().to_owned(),
        kind: match device {
            DeviceRef::Cpu(_) => DeviceKind::Cpu,
            DeviceRef::Gpu(_) => DeviceKind::Gpu,
        },
        key: device.key().to_string(),
        memory: device.memory(),
        times: 1.0,
    };
    inventory.devices().map(described).collect()
}

/// A device as streaming sees it. A core's level 2 cache counts, or its share of one that cores have together.
fn stream_device(device: DeviceRef<'_>) -> BlockDevice {
    let (kind, threads, cache) = match device {
        DeviceRef::Cpu(cpu) => {
            let share = |cache: CacheSummary| cache.bytes / cache.cores.max(1) as u64;
            (DeviceKind::Cpu, cpu.team().len(), cpu.l2.map_or(0, share))
        }
        DeviceRef::Gpu(_) => (DeviceKind::Gpu, 1, 0),
    };
    BlockDevice { name: device.name().to_owned(), kind, key: device.key().to_string(), times: 1.0, threads, cache }
}

/// The link between two devices as measured; else assumed: between CPU devices only a message and cache misses, else a bus of
/// 10 GB/s.
pub fn link(known: &MachineCosts, from: &MachineDevice, to: &MachineDevice) -> LinkCosts {
    let assumed = || match (from.kind, to.kind) {
        (DeviceKind::Cpu, DeviceKind::Cpu) => LinkCosts::affine(5e-6, 4e10),
        _ => LinkCosts::affine(3e-5, 1e10),
    };
    known.links.get(&MachineCosts::link_key(&from.key, &to.key)).cloned().unwrap_or_else(assumed)
}
