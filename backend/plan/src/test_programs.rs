//! Small placed programs for the tests of plans and of the executor.

use super::{KernelNeeds, MachineDevice, Needs, Plan, PlanDevice, PlanError, PlanOptions, Residency};
use crate::HOST;
use crate::tasks::{NodeLimits, ProgramTasks, Residence};
use anabranch_base::memory_limit::MemoryLimit;
use anabranch_ir::program::{NodeId, Program, ValueId};
pub use anabranch_ir::testing::{Maker, add, chain, map, relu, spec};
use anabranch_kernels::KernelError;
use anabranch_kernels::op::{MatMul, Op, Reduce, ReduceKind};
use anabranch_placement_core::cost::CostTable;
use anabranch_placement_core::order::Pct;
use anabranch_placement_core::place::{Fixed, Placement, Placer};
use anabranch_placement_core::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement_core::problem::{MemoryRule, Problem};
use anabranch_placement_core::schedule::Schedule;
use anabranch_placement_core::simulate::simulate;
use arbtest::arbitrary::{Result, Unstructured};
use std::ops::Range;

/// A program with a device for each node.
#[derive(Clone)]
pub struct PlacedProgram {
    /// The program.
    pub program: Program,
    /// The devices.
    pub devices: Vec<PlanDevice>,
    /// The device of each task.
    pub placement: Placement,
    /// The simulated schedule.
    pub schedule: Schedule,
}

impl PlacedProgram {
    /// Places node `n` on device `device_of[n]`, inputs and outputs on the host; `kinds` lists the devices.
    pub fn new(program: Program, kinds: &[&str], device_of: &[u32]) -> Self {
        let residence = Residence::host(&program);
        Self::with_residence(program, kinds, device_of, &residence)
    }

    /// Places nodes as [`Self::new`] does, with inputs and outputs on the devices of `residence`.
    pub fn with_residence(program: Program, kinds: &[&str], device_of: &[u32], residence: &Residence) -> Self {
        let kind = |kind: &&str| if *kind == "cpu" { DeviceKind::Cpu } else { DeviceKind::Gpu };
        let name = |at: usize| format!("{}{at}", kinds[at]);
        let device = |at: usize| PlanDevice {
            name: name(at),
            kind: kind(&kinds[at]),
            limit: MemoryLimit::NONE,
            wake_ns: if kinds[at] == "cpu" { 5_000 } else { 100_000 },
        };
        let devices: Vec<PlanDevice> = (0..kinds.len()).map(device).collect();
        let limits = vec![NodeLimits { allowed: DeviceKinds::ALL, pinned: None, resident: 0 }; program.nodes.len()];
        let tasks = ProgramTasks::new(&program, &limits, &[], residence).expect("no colocation");
        let platform = devices.iter().map(|device| Device::new(device.name.clone(), device.kind)).collect();
        let platform = Platform::uniform(platform, 1e-5, 1e9).expect("valid");
        let costs = CostTable::from_fn(tasks.graph(), &platform, |task, _| Some(f64::from(task.0 % 3) * 1e-4));
        let costs = costs.expect("times");
        let problem = Problem::new(tasks.graph(), &platform, &costs, MemoryRule::Ignore).expect("feasible");
        let callers = residence.inputs.iter().chain(&residence.outputs).copied();
        let all = device_of.iter().map(|device| DeviceId(*device)).chain(callers).collect();
        let placement = Fixed::new(all).place(&problem).expect("feasible");
        let schedule = simulate(&problem, &placement.device_of, &Pct).expect("valid");
        Self { program, devices, placement, schedule }
    }

    /// A chain of nodes on these devices.
    pub fn chain(kinds: &[&str], device_of: &[u32], dims: &[usize]) -> Self {
        Self::new(chain(device_of.len(), dims), kinds, device_of)
    }

    /// Returns the plan, with sizes derived from the nodes' numbers.
    pub fn plan(&self, options: &PlanOptions) -> std::result::Result<Plan, PlanError> {
        self.plan_with(&Sample(&self.program), options)
    }

    /// Returns the plan with these needs of kernels, and with the times of the schedule as its forecast.
    pub fn plan_with(&self, needs: &dyn Needs, options: &PlanOptions) -> std::result::Result<Plan, PlanError> {
        let Self { program, devices, placement, schedule } = self;
        let plan = Plan::build(program, devices, placement, schedule, Vec::new(), needs, options)?;
        Ok(plan.with_times_of(schedule))
    }

    /// Moves all nodes to CPU devices.
    pub fn all_on_cpus(&self) -> Self {
        self.moved(|placed, at| placed.placement.device_of[at].0, &["cpu", "cpu", "cpu"])
    }

    /// Moves all nodes except maps from the GPUs to the host.
    pub fn maps_on_gpus(&self) -> Self {
        let device = |placed: &Self, at: usize| match &placed.program.nodes[at].spec.op {
            Op::Map(_) => placed.placement.device_of[at].0,
            _ if placed.devices[placed.placement.device_of[at].index()].kind == DeviceKind::Gpu => 0,
            _ => placed.placement.device_of[at].0,
        };
        self.moved(device, &self.kinds())
    }

    /// Kinds of its devices, as for [`Self::new`].
    pub fn kinds(&self) -> Vec<&'static str> {
        self.devices.iter().map(|device| if device.kind == DeviceKind::Cpu { "cpu" } else { "gpu" }).collect()
    }

    fn moved(&self, device: impl Fn(&Self, usize) -> u32, kinds: &[&str]) -> Self {
        let device_of: Vec<u32> = (0..self.program.nodes.len()).map(|at| device(self, at)).collect();
        let home = |device: &DeviceId| if kinds[device.index()] == "gpu" { *device } else { HOST };
        let callers: Vec<DeviceId> = self.placement.device_of[device_of.len()..].iter().map(home).collect();
        let (inputs, outputs) = callers.split_at(self.program.inputs.len());
        let residence = Residence { inputs: inputs.to_vec(), outputs: outputs.to_vec() };
        Self::with_residence(self.program.clone(), kinds, &device_of, &residence)
    }

    /// Sets the memory limits of the devices.
    pub fn limited(&self, limit: impl Fn(usize) -> u64) -> Self {
        let limited = |(at, device): (usize, &PlanDevice)| PlanDevice { limit: limit(at).into(), ..device.clone() };
        Self {
            program: self.program.clone(),
            devices: self.devices.iter().enumerate().map(limited).collect(),
            placement: self.placement.clone(),
            schedule: self.schedule.clone(),
        }
    }
}

/// Nodes of each gang with more than one member.
pub fn gangs(plan: &Plan) -> Vec<Vec<NodeId>> {
    let nodes = |gang: &Range<usize>| plan.steps()[gang.clone()].iter().filter_map(|step| step.node()).collect();
    let nodes = plan.gangs().iter().map(nodes);
    nodes.filter(|nodes: &Vec<NodeId>| nodes.len() > 1).collect()
}

/// Artificial needs that differ from node to node.
struct Sample<'a>(&'a Program);

impl Needs for Sample<'_> {
    fn needs(&self, node: NodeId, _: DeviceKind) -> std::result::Result<KernelNeeds, KernelError> {
        let reads = (0..self.0.node(node).inputs.len()).map(|at| (at + node.index()) % 3 != 1).collect();
        let (resident, scratch) = (u64::from(node.0 % 4) * 10, u64::from(node.0 % 5));
        Ok(KernelNeeds { resident, packed: Vec::new(), scratch, reads })
    }
}

/// A random program of maps, row reductions and matrix products of one height, on random devices of which the first is
/// a CPU.
pub fn random_program(u: &mut Unstructured<'_>, devices: usize) -> Result<PlacedProgram> {
    let rows = u.int_in_range(1..=24)?;
    let mut maker = Maker::new();
    let mut pool: Vec<(ValueId, usize)> = Vec::new();
    for _ in 0..u.int_in_range(1..=2)? {
        let columns = u.int_in_range(1..=9)?;
        pool.push((maker.input(&[rows, columns]), columns));
    }
    for _ in 0..u.int_in_range(1..=14)? {
        let (value, columns) = *u.choose(&pool)?;
        let made = match u.int_in_range(0..=4)? {
            0 => (maker.node(relu(), &[value], &[rows, columns]), columns),
            1 => {
                let bias = maker.constant(&[columns], |at| at as f32 - 1.5);
                (maker.node(add(), &[value, bias], &[rows, columns]), columns)
            }
            2 => {
                let same: Vec<ValueId> = pool.iter().filter(|(_, c)| *c == columns).map(|(value, _)| *value).collect();
                (maker.node(add(), &[value, *u.choose(&same)?], &[rows, columns]), columns)
            }
            3 => {
                let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![1] });
                (maker.node(sum, &[value], &[rows, 1]), 1)
            }
            _ => {
                let wide = u.int_in_range(1..=9)?;
                let weights = maker.constant(&[columns, wide], |at| (at % 7) as f32 * 0.25 - 0.5);
                (maker.node(Op::MatMul(MatMul::default()), &[value, weights], &[rows, wide]), wide)
            }
        };
        pool.push(made);
    }
    let mut outputs = vec![pool[pool.len() - 1].0];
    if u.arbitrary()? {
        outputs.push(u.choose(&pool)?.0);
    }
    let program = maker.finish(&outputs);
    let mut kinds = vec!["cpu"];
    for _ in 1..devices {
        kinds.push(if u.arbitrary()? { "gpu" } else { "cpu" });
    }
    let device_of = program.nodes.iter().map(|_| u.int_in_range(0..=devices as u32 - 1)).collect::<Result<Vec<_>>>()?;
    let mut home = |_: &_| {
        let device = u.int_in_range(0..=devices - 1)?;
        Ok(if kinds[device] == "gpu" { DeviceId(device as u32) } else { HOST })
    };
    let inputs = program.inputs.iter().map(&mut home).collect::<Result<_>>()?;
    let outputs = program.outputs.iter().map(|output| home(&output.value)).collect::<Result<_>>()?;
    Ok(PlacedProgram::with_residence(program, &kinds, &device_of, &Residence { inputs, outputs }))
}

/// A random residency: some bytes on each GPU, possibly none.
pub fn random_residency(u: &mut Unstructured<'_>, placed: &PlacedProgram) -> Result<Residency> {
    let devices = (0..placed.devices.len() as u32).map(DeviceId);
    let within = devices.map(|device| Ok((device, u.int_in_range(0..=3u64)? * 60))).collect::<Result<_>>()?;
    Ok(if u.arbitrary()? { Residency::Within(within) } else { Residency::Auto })
}

/// A CPU device with two threads and 1 MiB of cache each.
pub fn cpu_device(name: &str) -> MachineDevice {
    let (kind, key) = (DeviceKind::Cpu, name.to_owned());
    MachineDevice {
        name: name.to_owned(),
        kind,
        key,
        memory: MemoryLimit::NONE,
        times: 1.0,
        threads: 2,
        cache: 1 << 20,
    }
}
