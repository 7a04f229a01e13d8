//! The machine that a program is placed on: its devices and what is known of their costs.

use super::described_machine::usual_limits;
use super::error::PlanningError;
use anabranch_base::error_kind::ErrorKind;
use anabranch_costs::{DeviceCosts, History, Laws, LinkCosts, MachineCosts, Predictor, median};
use anabranch_device::{CacheSummary, ComputeDevice, CpuTeam, DeviceRef, GpuOpener, Inventory};
use anabranch_ir::program::{Node, Program};
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{KernelError, cpu};
use anabranch_placement_core::cost::TransferCurve;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::rules::Slowdowns;
use anabranch_plan::{MachineDevice, PlanDevice, Residency};
use std::collections::BTreeSet;

/// Devices as placement sees them, and what their costs are.
pub struct Machine {
    /// The devices; the first is the host.
    pub devices: Vec<MachineDevice>,
    /// What the GPUs among them can hold and start.
    pub(super) gpus: Vec<GpuLimits>,
    /// What nodes, transfers and runs cost there.
    pub costs: MachineCosts,
    /// What is inferred from these costs.
    pub(super) laws: Laws,
    /// The GPUs that were lost: nothing is placed there.
    pub(super) lost: BTreeSet<DeviceId>,
}

impl Machine {
    /// The machine that is there.
    pub fn present(inventory: &Inventory, known: &MachineCosts) -> Self {
        let gpus = inventory.gpus.iter().map(|gpu| GpuLimits::of(&gpu.adapter)).collect();
        let (devices, lost) = (machine_devices(inventory), BTreeSet::new());
        Self { devices, gpus, costs: known.clone(), laws: Laws::default(), lost }
    }

    /// The same without the devices of these names, which stay in the list and get nothing.
    pub fn without(mut self, lost: &BTreeSet<String>) -> Self {
        let named = |(at, device): (usize, &MachineDevice)| lost.contains(&device.name).then_some(DeviceId(at as u32));
        self.lost = self.devices.iter().enumerate().filter_map(named).collect();
        self
    }

    /// Whether the devices that nodes or tensors have to be on are all there.
    ///
    /// # Errors
    /// If one was lost.
    pub(super) fn has<'i>(&self, mut wanted: impl Iterator<Item = &'i DeviceId>) -> Result<(), PlanningError> {
        let Some(lost) = wanted.find(|device| self.lost.contains(device)) else { return Ok(()) };
        let name = &self.devices[lost.index()].name;
        let text =
            format!("`{name}` was lost, and some node or tensor has to be there; open the model again to try it anew");
        Err(PlanningError::new(ErrorKind::Constraint, text).at_device(name))
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
        match self.gpus.is_empty() {
            true => vec![true; program.nodes.len()],
            false => self.gpu_refusals(program).iter().map(Option::is_none).collect(),
        }
    }

    /// For each node, why a GPU has no kernel for it: one of those that are there, or where there is none, a usual one.
    pub fn gpu_refusals(&self, program: &Program) -> Vec<Option<KernelError>> {
        let usual = [usual_limits()];
        let gpus = if self.gpus.is_empty() { &usual[..] } else { &self.gpus };
        let refusal = |node: &Node| {
            let constants: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
            gpus.iter().find_map(|limits| gpu::supports(&node.spec, &constants, limits).err())
        };
        program.nodes.iter().map(refusal).collect()
    }

    /// What the devices take from each other, as the first of `lanes` of which the others take nothing.
    pub(super) fn slowdowns(&self, lanes: usize) -> Slowdowns {
        let key = |lane: DeviceId| self.devices.get(lane.index()).map(|device| device.key.as_str());
        let slowdown = |a: DeviceId, b: DeviceId| key(a).zip(key(b)).map(|(a, b)| self.costs.slowdown(a, b));
        Slowdowns::from_fn(lanes, |a, b| slowdown(a, b).unwrap_or(1.0))
    }

    /// What predicts nodes on a device.
    pub(super) fn predictor<'a>(&'a self, device: &'a MachineDevice) -> Predictor<'a> {
        Predictor::sharing(&self.laws, self.costs.devices.get(&device.key), &device.key)
    }

    /// The bytes that each device may hold.
    pub fn memory(&self) -> Vec<u64> {
        self.devices.iter().map(|device| device.memory).collect()
    }

    /// The bytes that placement counts weights against: of a GPU to which they are sent, any.
    pub(super) fn room(&self, weights: &Residency) -> Vec<u64> {
        let any = |device: &MachineDevice| *weights == Residency::Staged && device.kind == DeviceKind::Gpu;
        self.devices.iter().map(|device| if any(device) { u64::MAX } else { device.memory }).collect()
    }

    /// The devices as a plan sees them.
    pub fn plan_devices(&self) -> Vec<PlanDevice> {
        let ids = || (0..self.devices.len() as u32).map(DeviceId);
        let device = |id: DeviceId| {
            let MachineDevice { name, kind, memory, .. } = &self.devices[id.index()];
            let others = ids().filter(|other| *other != id);
            let wake = others.map(|other| self.crossing(other, id).time(0)).fold(0.0, f64::max);
            PlanDevice { name: name.clone(), kind: *kind, limit: Some(*memory), wake_ns: (wake * 1e9) as u64 }
        };
        ids().map(device).collect()
    }

    /// The link between two devices, see [`link`].
    pub(super) fn link(&self, from: DeviceId, to: DeviceId) -> LinkCosts {
        link(&self.costs, &self.devices[from.index()], &self.devices[to.index()])
    }

    /// How long it takes until a node of one device can read what a node of another has made: the transfer, what the
    /// reader takes longer for it, and [`Self::delay`].
    pub(super) fn crossing(&self, from: DeviceId, to: DeviceId) -> TransferCurve {
        let curve = self.link(from, to).curve();
        match [from, to].map(|end| self.devices[end.index()].kind == DeviceKind::Cpu) {
            [true, true] => curve.plus(&self.link(from, to).read_curve()),
            _ => curve.delayed(self.delay(from, to)),
        }
    }

    /// What of a crossing keeps no link: the waking of the thread or the start of the queue that waits for it.
    pub(super) fn delay(&self, from: DeviceId, to: DeviceId) -> f64 {
        match [from, to].map(|end| self.devices[end.index()].kind == DeviceKind::Cpu) {
            [true, true] => 0.0,
            [_, true] => self.wake(),
            [_, false] => self.encode(to) + self.dispatch(to),
        }
    }

    /// Seconds that the host takes to encode a node for a device; 0 for a CPU, and where nobody knows.
    pub(super) fn encode(&self, device: DeviceId) -> f64 {
        self.known(device).map_or(0.0, |costs| seconds(&costs.encode))
    }

    /// Seconds from the submission of nodes to an idle device until that begins, likewise.
    pub(super) fn dispatch(&self, device: DeviceId) -> f64 {
        self.known(device).map_or(0.0, |costs| seconds(&costs.dispatch))
    }

    /// Seconds from the arrival of a transfer until a CPU device that waits for it goes on: the median over all kinds of runs.
    pub(super) fn wake(&self) -> f64 {
        let known = self.costs.runs.values().filter(|run| !run.wake.is_empty());
        let wakes: Vec<f64> = known.map(|run| seconds(&run.wake)).collect();
        median(&wakes).unwrap_or(0.0)
    }

    fn known(&self, device: DeviceId) -> Option<&DeviceCosts> {
        self.costs.devices.get(&self.devices[device.index()].key)
    }
}

/// What a history of submissions or of waking says; 0 where it says nothing.
fn seconds(history: &History) -> f64 {
    history.undisturbed().map_or(0.0, |estimate| estimate.nanoseconds * 1e-9)
}

/// What a history of runs says that every run takes; 0 where it says nothing.
pub(super) fn least_seconds(history: &History) -> f64 {
    history.least().map_or(0.0, |estimate| estimate.nanoseconds * 1e-9)
}

/// The devices of an inventory as placement sees them. A thread's share of its core's level 2 cache counts, or of one that cores have together.
pub fn machine_devices(inventory: &Inventory) -> Vec<MachineDevice> {
    let described = |device: DeviceRef<'_>| {
        let (kind, threads, cache) = match device {
            DeviceRef::Cpu(cpu) => {
                let threads = cpu.team().len();
                let sharers = |cache: CacheSummary| cache.cores.max(1) * threads.div_ceil(cpu.cores.max(1)).max(1);
                (DeviceKind::Cpu, threads, cpu.l2.map_or(0, |cache| cache.bytes / sharers(cache) as u64))
            }
            DeviceRef::Gpu(_) => (DeviceKind::Gpu, 1, 0),
        };
        let (name, key) = (device.name().to_owned(), device.key().to_owned());
        MachineDevice { name, kind, key, memory: device.memory(), times: 1.0, threads, cache }
    };
    inventory.devices().map(described).collect()
}

/// The devices of an inventory to run on, in the same order.
pub fn compute_devices(inventory: &Inventory) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone())),
    };
    inventory.devices().map(device).collect()
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
