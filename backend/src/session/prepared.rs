//! A model compiled for one set of input shapes: lowered, placed, planned, and ready to run.

use super::error::SessionError;
use super::forecast::{Known, forecast};
use super::machine::Machine;
use super::options::{Place, PlanChoice};
use super::placing::{GivenFile, Placed, Placing, Target, Wish, WishedBlocks, Wishes};
use super::streaming::{Streamed, Streaming};
use crate::device::{DeviceRef, Inventory};
use crate::execute::{ComputeDevice, CpuTeam, DevicePool, Executor, GpuOpener, Kernels};
use crate::plan::{Plan, PlanDevice, PlanError, PlanFile, PlanOptions};
use crate::program::{NodeId, Program};
use crate::stream::{Group, StreamedBlock};
use crate::tasks::HOST;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::order::order_by_name;
use anabranch_placement::place::{Fixed, Placer, strategy_by_name};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::fs;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often a plan that is too large for a device is placed again with a smaller budget there.
const ATTEMPTS: usize = 8;

/// A program with its plan: nothing is taken on any device yet.
pub struct Planned {
    /// The lowered program, whose streaming blocks are nodes.
    pub program: Arc<Program>,
    /// Its streaming blocks, by their nodes.
    pub blocks: Vec<StreamedBlock>,
    /// The placement, its predicted costs and its predicted schedule.
    pub placed: Placed,
    /// How long placing and planning took.
    pub place_time: Duration,
    /// The device of each task of the program before its blocks were made.
    pub(super) device_of: Vec<DeviceId>,
    /// The nodes of that program that are its blocks.
    pub(super) groups: Vec<Group>,
    plan: Arc<Plan>,
    kernels: Arc<Kernels>,
}

/// A program with its plan and the executor that runs it.
pub struct Prepared {
    planned: Arc<Planned>,
    pub(super) executor: Executor,
    /// Whether a run has been made: the first is cold.
    pub(super) warm: AtomicBool,
}

/// A model lowered for one set of input shapes: what all its plans share.
pub(super) struct Lowered {
    pub(super) kernels: Arc<Kernels>,
}

impl Planned {
    /// What every device and link will do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether a run of the other does the same on the same devices in the same order.
    pub fn is_same_plan(&self, other: &Self) -> bool {
        let nodes = |planned: &Self| planned.program.nodes.len();
        let same = |node: NodeId| {
            let (ours, theirs) = (self.program.node(node), other.program.node(node));
            ours.name == theirs.name
                && ours.spec == theirs.spec
                && self.plan.device_of(node) == other.plan.device_of(node)
        };
        nodes(self) == nodes(other)
            && self.program.node_ids().all(same)
            && self.plan.steps() == other.plan.steps()
            && self.plan.transfers() == other.plan.transfers()
    }

    /// The block that a node is, if it is one.
    pub fn block(&self, node: NodeId) -> Option<&StreamedBlock> {
        self.blocks.iter().find(|block| block.node == node)
    }

    /// Readies the devices.
    pub(super) fn ready(self: &Arc<Self>, pool: &Arc<DevicePool>) -> Result<Prepared, SessionError> {
        let executor = Executor::new(Arc::clone(&self.plan), Arc::clone(&self.kernels), pool)?;
        Ok(Prepared { planned: Arc::clone(self), executor, warm: AtomicBool::new(false) })
    }
}

impl Prepared {
    /// The plan that is ready.
    pub fn planned(&self) -> &Arc<Planned> {
        &self.planned
    }
}

impl Deref for Prepared {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        &self.planned
    }
}

impl Lowered {
    pub(super) fn new(program: Program) -> Self {
        Self { kernels: Arc::new(Kernels::new(Arc::new(program))) }
    }

    pub(super) fn program(&self) -> &Arc<Program> {
        self.kernels.program()
    }

    /// The problem of placing it on a machine.
    pub(super) fn placing<'a>(&'a self, machine: &'a Machine, wishes: &Wishes) -> Result<Placing<'a>, SessionError> {
        let runs = machine.gpu_runs(self.program());
        Ok(Placing::new(self.program(), &machine.targets, &machine.costs, wishes, &|node: NodeId| runs[node.index()])?)
    }
}

/// The devices of an inventory to run on, in the same order.
pub(super) fn devices(inventory: &Inventory) -> Arc<DevicePool> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone())),
    };
    DevicePool::new(inventory.devices().map(device).collect())
}

/// Places and plans a lowered program on a machine.
pub(super) fn plan(
    lowered: &Lowered,
    (machine, wishes): (&Machine, &Wishes),
    (wish, options): (&Wish, &PlanOptions),
) -> Result<Planned, SessionError> {
    let started = Instant::now();
    let placing = lowered.placing(machine, wishes)?;
    let streaming = Streaming::new(machine, options);
    let (made, plan) = Fitting { lowered, placing, wish, streaming, machine, options }.plan()?;
    let Made { streamed: Streamed { program, placed, groups, blocks, .. }, device_of, kernels } = made;
    if let Some(violation) = crate::plan::check(&program, &plan).first() {
        return Err(SessionError::Checker(format!("{violation:?}")));
    }
    let place_time = started.elapsed();
    Ok(Planned { program, blocks, placed, place_time, device_of, groups, plan: Arc::new(plan), kernels })
}

/// The problem of placing a lowered program, with nothing placed yet.
pub(super) fn problem(lowered: &Lowered, machine: &Machine, wishes: &Wishes) -> Result<LoadedProblem, SessionError> {
    Ok(lowered.placing(machine, wishes)?.problem(&machine.memory())?)
}

/// All that decides a plan.
struct Fitting<'a> {
    lowered: &'a Lowered,
    placing: Placing<'a>,
    wish: &'a Wish,
    streaming: Streaming<'a>,
    machine: &'a Machine,
    options: &'a PlanOptions,
}

/// A placed program with its kernels, and the devices of the tasks before blocks were made.
struct Made {
    streamed: Streamed,
    device_of: Vec<DeviceId>,
    kernels: Arc<Kernels>,
}

impl Fitting<'_> {
    /// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
    /// stays there. If nothing fits, the first shortage is the error.
    fn plan(&self) -> Result<(Made, Plan), SessionError> {
        let devices = plan_devices(&self.machine.targets);
        let mut budgets = self.machine.memory();
        let mut first = None;
        for _ in 0..ATTEMPTS {
            let placed = match self.placing.place(self.wish, &budgets) {
                Ok(placed) => placed,
                Err(error) => return Err(first.unwrap_or_else(|| error.into())),
            };
            let device_of = placed.placement.device_of.clone();
            let streamed = self.streamed(placed, &budgets)?;
            let kernels = match Arc::ptr_eq(self.lowered.program(), &streamed.program) {
                true => Arc::clone(&self.lowered.kernels),
                false => Arc::new(Kernels::new(Arc::clone(&streamed.program))),
            };
            let Streamed { program, placed, reasons, .. } = &streamed;
            let chosen = (&placed.placement, &placed.schedule);
            let result = Plan::build(program, &devices, chosen, reasons.clone(), kernels.as_ref(), self.options);
            let shortage = match result {
                Ok(plan) => {
                    let known = Known { targets: &self.machine.targets, costs: self.placing.known() };
                    let predicted = forecast(program, &plan, &placed.costs, &known);
                    return Ok((Made { streamed, device_of, kernels }, plan.with_prediction(predicted)));
                }
                Err(PlanError::Memory(shortage)) => shortage,
                Err(error) => return Err(error.into()),
            };
            let Some(short) = devices.iter().position(|device| device.name == shortage.device) else { break };
            let resident = placed.resident(short);
            budgets[short] = resident.min(budgets[short]).saturating_sub(shortage.needed - shortage.available);
            first.get_or_insert(PlanError::Memory(shortage).into());
        }
        Err(first.unwrap_or(SessionError::NoPlan))
    }

    /// The placed program with its blocks contracted, or as it is.
    fn streamed(&self, placed: Placed, budgets: &[u64]) -> Result<Streamed, SessionError> {
        let program = self.lowered.program();
        let reasons = reasons(program, &placed);
        let streamed = self.streaming.stream(program, (&placed, &reasons), budgets, self.wish)?;
        let (groups, blocks) = (Vec::new(), Vec::new());
        Ok(streamed.unwrap_or_else(|| Streamed { program: Arc::clone(program), placed, reasons, groups, blocks }))
    }
}

/// The devices as a plan sees them.
pub(super) fn plan_devices(targets: &[Target]) -> Vec<PlanDevice> {
    let device =
        |target: &Target| PlanDevice { name: target.name.clone(), kind: target.kind, limit: Some(target.memory) };
    targets.iter().map(device).collect()
}

/// A sentence for each node on why it is where it is.
fn reasons(program: &Program, placed: &Placed) -> Vec<String> {
    let explained = |reason: &anabranch_placement::place::Reason| {
        reason.explained(placed.tasks.graph(), &placed.platform).to_string()
    };
    placed.placement.reasons.iter().take(program.nodes.len()).map(explained).collect()
}

/// Who places: a strategy by name, a device's name, or the assignment and order of a plan file.
pub(super) fn wish(lowered: &Lowered, machine: &Machine, choice: &PlanChoice) -> Result<Wish, SessionError> {
    let rule = order_by_name(&choice.order).ok_or_else(|| SessionError::Order(choice.order.clone()))?;
    let program = lowered.program();
    let path = match &choice.place {
        Place::Strategy(name) => {
            let (placer, blocks) = (strategy(lowered, machine, name)?, WishedBlocks::Formed);
            return Ok(Wish { placer, rule, order: None, blocks });
        }
        Place::File(path) => path,
    };
    let unreadable = |source| SessionError::PlanFile { path: path.clone(), source };
    let text = fs::read(path).map_err(unreadable)?;
    let plan: PlanFile = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    let devices = plan_devices(&machine.targets);
    let unfit = |source| SessionError::Plan { path: path.clone(), source };
    let assignment = plan.assignment(program, &devices).map_err(unfit)?;
    let order = plan.order(program, &devices, &assignment);
    let blocks = WishedBlocks::Listed(GivenFile { path: path.clone(), plan });
    Ok(Wish { placer: fixed(program, assignment), rule, order, blocks })
}

fn strategy(lowered: &Lowered, machine: &Machine, name: &str) -> Result<Box<dyn Placer>, SessionError> {
    let targets = &machine.targets;
    if name == "gpu" && !targets.iter().any(|target| target.kind == DeviceKind::Gpu) {
        return Err(SessionError::NoGpu);
    }
    if let Some(placer) = strategy_by_name(name) {
        return Ok(placer);
    }
    let only = targets.iter().position(|target| target.name == name);
    let only = only.ok_or_else(|| SessionError::Strategy(name.to_owned()))?;
    let cpu = targets[only].kind == DeviceKind::Cpu;
    let device = |runs: &bool| if cpu || *runs { DeviceId(only as u32) } else { HOST };
    Ok(fixed(lowered.program(), machine.gpu_runs(lowered.program()).iter().map(device).collect()))
}

/// Nodes as assigned; inputs and outputs on the host.
fn fixed(program: &Program, mut assignment: Vec<DeviceId>) -> Box<dyn Placer> {
    assignment.resize(program.nodes.len() + program.inputs.len() + program.outputs.len(), HOST);
    Box::new(Fixed::new(assignment))
}
