//! The machine on which a program is placed: its devices and their known costs.

use super::described_machine::usual_limits;
use super::error::PlanningError;
use anabranch_base::error_kind::ErrorKind;
use anabranch_costs::{DeviceCosts, History, Laws, LinkCosts, MachineCosts, Predictor, median};
use anabranch_device::{CacheSummary, ComputeDevice, CpuTeam, DeviceRef, GpuOpener, Inventory};
use anabranch_ir::program::{Node, Program};
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_kernels::op::{NodeSpec, Precision};
use anabranch_kernels::{KernelError, cpu};
use anabranch_placement_core::cost::TransferCurve;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::rules::Slowdowns;
use anabranch_plan::{MachineDevice, PlanDevice, Residency};
use std::collections::BTreeSet;

/// Devices as placement sees them, and their costs.
pub struct Machine {
    /// Devices; the first is the host.
    pub devices: Vec<MachineDevice>,
    /// Limits of the GPUs among the devices.
    pub(super) gpus: Vec<GpuLimits>,
    /// Measured costs of nodes, transfers and runs.
    pub costs: MachineCosts,
    /// Laws inferred from these costs.
    pub(super) laws: Laws,
    /// GPUs that were lost: nothing is placed there.
    pub(super) lost: BTreeSet<DeviceId>,
}

impl Machine {
    /// Returns the present machine.
    pub fn present(inventory: &Inventory, known: &MachineCosts) -> Self {
        let gpus = inventory.gpus.iter().map(|gpu| GpuLimits::of(&gpu.adapter)).collect();
        let (devices, lost) = (machine_devices(inventory), BTreeSet::new());
        Self { devices, gpus, costs: known.clone(), laws: Laws::default(), lost }
    }

    /// Whether one of the devices is a GPU.
    pub fn has_gpu(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// Excludes the devices of these names: they stay in the list, but nothing is placed there.
    pub fn without(mut self, lost: &BTreeSet<String>) -> Self {
        let named = |(at, device): (usize, &MachineDevice)| lost.contains(&device.name).then_some(DeviceId(at as u32));
        self.lost = self.devices.iter().enumerate().filter_map(named).collect();
        self
    }

    /// Checks that none of the devices that nodes or tensors need was lost.
    ///
    /// # Errors
    /// If a device was lost.
    pub(super) fn has<'i>(&self, mut wanted: impl Iterator<Item = &'i DeviceId>) -> Result<(), PlanningError> {
        let Some(lost) = wanted.find(|device| self.lost.contains(device)) else { return Ok(()) };
        let name = &self.devices[lost.index()].name;
        let text = format!(
            "`{name}` was lost, but some node or tensor must be there; open the model again to use the device again"
        );
        Err(PlanningError::new(ErrorKind::Constraint, text).at_device(name))
    }

    /// Whether a device has a kernel for a node of which these inputs are constant. A GPU has it only if all GPUs do.
    pub fn supports(&self, device: DeviceId, node: &NodeSpec, constant: &[bool]) -> bool {
        match self.devices[device.index()].kind {
            DeviceKind::Cpu => cpu::prepare(node, constant).is_ok(),
            _ => self.gpus.iter().all(|limits| gpu::supports(node, constant, limits).is_ok()),
        }
    }

    /// For each node, whether every GPU of the machine has a kernel for it.
    pub fn gpu_runs(&self, program: &Program) -> Vec<bool> {
        match self.gpus.is_empty() {
            true => vec![true; program.nodes.len()],
            false => self.gpu_refusals(program).iter().map(Option::is_none).collect(),
        }
    }

    /// For each node, why a GPU has no kernel for it: one of this machine's GPUs or, if there is none, a typical GPU.
    pub fn gpu_refusals(&self, program: &Program) -> Vec<Option<KernelError>> {
        let usual = [usual_limits()];
        let gpus = if self.gpus.is_empty() { &usual[..] } else { &self.gpus };
        let refusal = |node: &Node| {
            let constants: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
            gpus.iter().find_map(|limits| gpu::supports(&node.spec, &constants, limits).err())
        };
        program.nodes.iter().map(refusal).collect()
    }

    /// Returns the slowdowns of the devices by each other; they are the first of `lanes` lanes, and further lanes slow
    /// nothing down.
    pub(super) fn slowdowns(&self, lanes: usize) -> Slowdowns {
        let key = |lane: DeviceId| self.devices.get(lane.index()).map(|device| device.key.as_str());
        let slowdown = |a: DeviceId, b: DeviceId| key(a).zip(key(b)).map(|(a, b)| self.costs.slowdown(a, b));
        Slowdowns::from_fn(lanes, |a, b| slowdown(a, b).unwrap_or(1.0))
    }

    /// Returns the predictor of nodes on a device.
    pub(super) fn predictor<'a>(&'a self, device: &'a MachineDevice) -> Predictor<'a> {
        Predictor::sharing(&self.laws, self.costs.devices.get(&device.key), &device.key)
    }

    /// Returns the bytes that each device may hold.
    pub fn memory(&self) -> Vec<u64> {
        self.devices.iter().map(|device| device.memory.or_all()).collect()
    }

    /// Returns the bytes that limit weights in the placement; unlimited for a GPU with staged weights.
    pub(super) fn room(&self, weights: &Residency) -> Vec<u64> {
        let any = |device: &MachineDevice| *weights == Residency::Staged && device.kind == DeviceKind::Gpu;
        self.devices.iter().map(|device| if any(device) { u64::MAX } else { device.memory.or_all() }).collect()
    }

    /// Returns the devices as a plan sees them.
    pub fn plan_devices(&self) -> Vec<PlanDevice> {
        let ids = || (0..self.devices.len() as u32).map(DeviceId);
        let device = |id: DeviceId| {
            let MachineDevice { name, kind, memory, .. } = &self.devices[id.index()];
            let others = ids().filter(|other| *other != id);
            let wake = others.map(|other| self.crossing(other, id).time(0)).fold(0.0, f64::max);
            PlanDevice { name: name.clone(), kind: *kind, limit: *memory, wake_ns: (wake * 1e9) as u64 }
        };
        ids().map(device).collect()
    }

    /// Returns the link between two devices, see [`link`].
    pub(super) fn link(&self, from: DeviceId, to: DeviceId) -> LinkCosts {
        link(&self.costs, &self.devices[from.index()], &self.devices[to.index()])
    }

    /// Returns the time until a node of one device can read another device's value: the transfer, the reader's extra
    /// time, and [`Self::delay`].
    pub(super) fn crossing(&self, from: DeviceId, to: DeviceId) -> TransferCurve {
        let curve = self.link(from, to).curve();
        match [from, to].map(|end| self.devices[end.index()].kind == DeviceKind::Cpu) {
            [true, true] => curve.plus(&self.link(from, to).read_curve()),
            _ => curve.delayed(self.delay(from, to)),
        }
    }

    /// Returns the part of a transfer's time that does not occupy the link: waking the thread, or starting the GPU
    /// queue.
    pub(super) fn delay(&self, from: DeviceId, to: DeviceId) -> f64 {
        match [from, to].map(|end| self.devices[end.index()].kind == DeviceKind::Cpu) {
            [true, true] => 0.0,
            [_, true] => self.wake(),
            [_, false] => self.encode(to) + self.dispatch(to),
        }
    }

    /// Returns the host's seconds to encode a node for a device; 0 for a CPU, or if it is unknown.
    pub(super) fn encode(&self, device: DeviceId) -> f64 {
        self.known(device).map_or(0.0, |costs| seconds(&costs.encode))
    }

    /// Returns the seconds from a submission to an idle device until it starts; 0 for a CPU, or if it is unknown.
    pub(super) fn dispatch(&self, device: DeviceId) -> f64 {
        self.known(device).map_or(0.0, |costs| seconds(&costs.dispatch))
    }

    /// Returns the seconds from the arrival of a transfer until a waiting CPU device continues: the median over all
    /// kinds of runs.
    pub(super) fn wake(&self) -> f64 {
        let known = self.costs.runs.values().filter(|run| !run.wake.is_empty());
        let wakes: Vec<f64> = known.map(|run| seconds(&run.wake)).collect();
        median(&wakes).unwrap_or(0.0)
    }

    fn known(&self, device: DeviceId) -> Option<&DeviceCosts> {
        self.costs.devices.get(&self.devices[device.index()].key)
    }
}

/// Seconds of a history of submissions or wake-ups; 0 without samples.
fn seconds(history: &History) -> f64 {
    history.undisturbed().map_or(0.0, |estimate| estimate.seconds())
}

/// Least seconds of a history of overheads; 0 without samples.
pub(super) fn least_seconds(history: &History) -> f64 {
    history.least().map_or(0.0, |estimate| estimate.seconds())
}

/// Returns the devices of an inventory as placement sees them.
///
/// The cache of a device is a thread's share of its core's level 2 cache, or of a level 2 cache that cores share.
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
        MachineDevice { name, kind, key, memory: device.memory().into(), times: 1.0, threads, cache }
    };
    inventory.devices().map(described).collect()
}

/// Returns the executable devices of an inventory, in the same order, for products of this precision or of `f32`.
pub fn compute_devices(inventory: &Inventory, precision: Precision) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone(), precision)),
    };
    inventory.devices().map(device).collect()
}

/// Returns the measured link between two devices, or else [`LinkCosts::assumed`].
pub fn link(known: &MachineCosts, from: &MachineDevice, to: &MachineDevice) -> LinkCosts {
    let measured = known.links.get(&MachineCosts::link_key(&from.key, &to.key)).cloned();
    let between_cpus = [from, to].iter().all(|end| end.kind == DeviceKind::Cpu);
    measured.unwrap_or_else(|| LinkCosts::assumed(between_cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Constraints, Lowered, PlanChoice, Planner, Strategy};
    use anabranch_costs::Rates;
    use anabranch_kernels::op::{MatMul, Op};
    use anabranch_plan::Weights;
    use anabranch_plan::test_programs::{Maker, cpu_device, relu};
    use std::sync::Arc;

    /// A core, and a GPU that is a hundred times faster and binds buffers of this many bytes.
    fn machine(binding_bytes: u64) -> Machine {
        let gpu = MachineDevice { kind: DeviceKind::Gpu, ..cpu_device("gpu0") };
        let mut costs = MachineCosts::default();
        for (key, speed) in [("cpu0", 1e9), ("gpu0", 1e11)] {
            let rates =
                Rates { matmul_flops: speed, conv_flops: speed, map_flops: speed, bandwidth: speed, launch: 1e-6 };
            costs.devices.insert(key.into(), DeviceCosts { rates: Some(rates), ..DeviceCosts::default() });
        }
        for (one, other) in [("cpu0", "gpu0"), ("gpu0", "cpu0")] {
            costs.links.insert(MachineCosts::link_key(one, other), LinkCosts::affine(1e-6, 1e12));
        }
        Machine {
            devices: vec![cpu_device("cpu0"), gpu],
            gpus: vec![GpuLimits { binding_bytes, ..usual_limits() }],
            costs,
            laws: Laws::default(),
            lost: Default::default(),
        }
    }

    #[test]
    fn a_product_whose_constant_no_binding_holds_is_on_a_cpu_and_says_so() {
        let mut maker = Maker::new();
        let x = maker.input(&[64, 512]);
        let hidden = maker.node(relu(), &[x], &[64, 512]);
        let vocabulary = maker.constant(&[512, 1024], |at| at as f32);
        let scores = maker.node(Op::MatMul(MatMul::default()), &[hidden, vocabulary], &[64, 1024]);
        let program = Arc::new(maker.finish(&[scores]));
        for (binding_bytes, device) in [(2 << 20, "gpu0"), ((2 << 20) - 4, "cpu0")] {
            let machine = machine(binding_bytes);
            let lowered = Lowered { program: Arc::clone(&program), weights: Arc::new(Weights::default()), rest: None };
            let planner = Planner { lowered: &lowered, machine: &machine, constraints: &Constraints::default() };
            let choice = PlanChoice { strategy: Strategy::AUTO, ..PlanChoice::default() };
            let planned = planner.plan(&choice).expect("the CPU runs every node");
            let product = planned.program.node_ids().last().expect("two nodes");
            let plan = planned.plan();
            assert_eq!(plan.device(plan.device_of(product)).name, device, "{}", plan.reason(product));
            let refusals = machine.gpu_refusals(&planned.program);
            match &refusals[product.index()] {
                None => assert_eq!(device, "gpu0"),
                Some(refusal) => {
                    let expected = "input 1 has 2097152 bytes, but the device binds at most 2097148";
                    assert!(refusal.to_string().contains(expected), "{refusal}");
                }
            }
            assert!(refusals[0].is_none(), "smaller tensors are no obstacle");
            let named = PlanChoice { strategy: Strategy::Device("gpu0".into()), ..PlanChoice::default() };
            let named = planner.plan(&named).expect("the CPU runs every node");
            let reasons = named.program.node_ids().map(|node| named.plan().reason(node).to_owned());
            let expected =
                if device == "gpu0" { "given" } else { "the GPU that was named has no kernel for this node" };
            assert_eq!(reasons.collect::<Vec<_>>(), ["given", expected]);
        }
    }
}
