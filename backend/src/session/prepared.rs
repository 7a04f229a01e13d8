//! A model compiled for one set of input shapes: lowered, placed, planned, and ready to run.

use super::error::SessionError;
use super::options::{Place, SessionOptions};
use super::placing::{Placed, Placing, Target, Wish};
use crate::device::{DeviceRef, Inventory};
use crate::execute::{ComputeDevice, CpuTeam, Executor, GpuOpener, Kernels};
use crate::plan::{Plan, PlanDevice, PlanError, PlanFile};
use crate::profile::CostStore;
use crate::program::{NodeId, Program};
use crate::tasks::HOST;
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::{Fixed, strategy_by_name};
use anabranch_placement::platform::DeviceKind;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a plan that is too large for a device is placed again with a smaller budget there.
const ATTEMPTS: usize = 8;

/// A program with its plan and the executor that runs it.
pub struct Prepared {
    /// The lowered program.
    pub program: Arc<Program>,
    /// The placement, its predicted costs and its predicted schedule.
    pub placed: Placed,
    /// How long placing and planning took.
    pub place_time: Duration,
    pub(super) executor: Executor,
}

impl Prepared {
    /// What every device and link will do.
    pub fn plan(&self) -> &Plan {
        self.executor.plan()
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
    };
    inventory.devices().map(target).collect()
}

/// The devices of an inventory to run on, in the same order.
pub(super) fn devices(inventory: &Inventory) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone())),
    };
    inventory.devices().map(device).collect()
}

/// Places and plans `program`, and readies its executor.
pub(super) fn prepare(
    program: Program,
    inventory: &Inventory,
    store: &CostStore,
    options: &SessionOptions,
) -> Result<Prepared, SessionError> {
    let started = Instant::now();
    let program = Arc::new(program);
    let targets = targets(inventory);
    let runs = gpu_runs(&program, inventory);
    let placing = Placing::new(&program, &targets, store, &options.wishes, &|node: NodeId| runs[node.index()])?;
    let wish = wish(&program, &targets, &options.place)?;
    let kernels = Arc::new(Kernels::new(Arc::clone(&program)));
    let (placed, plan) = fitting(&placing, &wish, &targets, &program, &kernels, options)?;
    if let Some(violation) = crate::plan::check(&program, &plan).first() {
        return Err(SessionError::Checker(format!("{violation:?}")));
    }
    let place_time = started.elapsed();
    let executor = Executor::new(plan, kernels, devices(inventory))?;
    Ok(Prepared { program, placed, place_time, executor })
}

/// The problem of placing `program`, with nothing placed yet.
pub(super) fn problem(
    program: &Program,
    inventory: &Inventory,
    store: &CostStore,
    options: &SessionOptions,
) -> Result<LoadedProblem, SessionError> {
    let (targets, runs) = (targets(inventory), gpu_runs(program, inventory));
    let placing = Placing::new(program, &targets, store, &options.wishes, &|node: NodeId| runs[node.index()])?;
    let memory: Vec<u64> = targets.iter().map(|target| target.memory).collect();
    Ok(placing.problem(&memory)?)
}

/// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
/// stays there. If nothing fits, the first shortage is the error.
fn fitting(
    placing: &Placing<'_>,
    wish: &Wish,
    targets: &[Target],
    program: &Program,
    kernels: &Kernels,
    options: &SessionOptions,
) -> Result<(Placed, Plan), SessionError> {
    let devices = plan_devices(targets);
    let mut budgets: Vec<u64> = targets.iter().map(|target| target.memory).collect();
    let mut first = None;
    for _ in 0..ATTEMPTS {
        let placed = match placing.place(wish, &budgets) {
            Ok(placed) => placed,
            Err(error) => return Err(first.unwrap_or_else(|| error.into())),
        };
        let reasons = reasons(program, &placed);
        let result =
            Plan::build(program, &devices, (&placed.placement, &placed.schedule), reasons, kernels, &options.plan);
        let shortage = match result {
            Ok(plan) => return Ok((placed, plan)),
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

/// Which nodes every GPU here has a kernel for.
pub(super) fn gpu_runs(program: &Program, inventory: &Inventory) -> Vec<bool> {
    let limits: Vec<_> = inventory.gpus.iter().map(|gpu| GpuLimits::of(&gpu.adapter)).collect();
    let runs = |node: &crate::program::Node| {
        let constants: Vec<_> = node.inputs.iter().map(|input| program.constant(*input).is_some()).collect();
        limits.iter().all(|limits| gpu::supports(&node.spec, &constants, limits).is_ok())
    };
    program.nodes.iter().map(runs).collect()
}

/// Who places: a strategy by name, or the assignment and order of a plan file.
fn wish(program: &Program, targets: &[Target], place: &Place) -> Result<Wish, SessionError> {
    let path = match place {
        Place::Strategy(name) if name == "gpu" && !targets.iter().any(|target| target.kind == DeviceKind::Gpu) => {
            return Err(SessionError::NoGpu);
        }
        Place::Strategy(name) => {
            let placer = strategy_by_name(name).ok_or_else(|| SessionError::Strategy(name.clone()))?;
            return Ok(Wish { placer, order: None });
        }
        Place::File(path) => path,
    };
    let unreadable = |source| SessionError::PlanFile { path: path.clone(), source };
    let text = fs::read(path).map_err(unreadable)?;
    let file: PlanFile = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    let devices = plan_devices(targets);
    let unfit = |source| SessionError::Plan { path: path.clone(), source };
    let mut assignment = file.assignment(program, &devices).map_err(unfit)?;
    let order = file.order(program, &devices, &assignment);
    assignment.resize(program.nodes.len() + program.inputs.len() + program.outputs.len(), HOST);
    Ok(Wish { placer: Box::new(Fixed::new(assignment)), order })
}
