//! A model compiled for one set of input shapes: lowered, placed, planned, and ready to run.

use super::error::SessionError;
use super::machine::Machine;
use super::options::{Place, SessionOptions};
use super::placing::{Placed, Placing, Target, Wish};
use crate::device::{DeviceRef, Inventory};
use crate::execute::{ComputeDevice, CpuTeam, Executor, GpuOpener, Kernels};
use crate::plan::{Plan, PlanDevice, PlanError, PlanFile};
use crate::program::{NodeId, Program};
use crate::tasks::HOST;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::{Fixed, strategy_by_name};
use anabranch_placement::platform::DeviceKind;
use std::fs;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a plan that is too large for a device is placed again with a smaller budget there.
const ATTEMPTS: usize = 8;

/// A program with its plan.
pub struct Planned {
    /// The lowered program.
    pub program: Arc<Program>,
    /// The placement, its predicted costs and its predicted schedule.
    pub placed: Placed,
    /// How long placing and planning took.
    pub place_time: Duration,
    plan: Arc<Plan>,
    kernels: Arc<Kernels>,
}

/// A program with its plan and the executor that runs it.
pub struct Prepared {
    planned: Planned,
    pub(super) executor: Executor,
}

impl Planned {
    /// What every device and link will do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Readies the devices.
    ///
    /// # Errors
    /// If a device or a kernel cannot be readied.
    pub(super) fn ready(self, inventory: &Inventory) -> Result<Prepared, SessionError> {
        let executor = Executor::new(Arc::clone(&self.plan), Arc::clone(&self.kernels), devices(inventory))?;
        Ok(Prepared { planned: self, executor })
    }
}

impl Deref for Prepared {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        &self.planned
    }
}

/// The devices of an inventory to run on, in the same order.
pub(super) fn devices(inventory: &Inventory) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone())),
    };
    inventory.devices().map(device).collect()
}

/// Places and plans `program` on a machine.
pub(super) fn plan(program: Program, machine: &Machine, options: &SessionOptions) -> Result<Planned, SessionError> {
    let started = Instant::now();
    let program = Arc::new(program);
    let (targets, runs) = (&machine.targets, machine.gpu_runs(&program));
    let placing = Placing::new(&program, targets, &machine.store, &options.wishes, &|node: NodeId| runs[node.index()])?;
    let wish = wish(&program, targets, &options.place)?;
    let kernels = Arc::new(Kernels::new(Arc::clone(&program)));
    let (placed, plan) = fitting(&placing, &wish, targets, &program, &kernels, options)?;
    if let Some(violation) = crate::plan::check(&program, &plan).first() {
        return Err(SessionError::Checker(format!("{violation:?}")));
    }
    Ok(Planned { program, placed, place_time: started.elapsed(), plan: Arc::new(plan), kernels })
}

/// The problem of placing `program`, with nothing placed yet.
pub(super) fn problem(
    program: &Program,
    machine: &Machine,
    options: &SessionOptions,
) -> Result<LoadedProblem, SessionError> {
    let runs = machine.gpu_runs(program);
    let wishes = &options.wishes;
    let placing = Placing::new(program, &machine.targets, &machine.store, wishes, &|node| runs[node.index()])?;
    Ok(placing.problem(&machine.memory())?)
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
