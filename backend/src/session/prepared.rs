//! A model compiled for one set of input shapes: lowered, placed, planned, and ready to run.

use super::error::SessionError;
use super::machine::Machine;
<<<<<<< HEAD
use super::options::{Place, PlanChoice};
use super::placing::{Placed, Placing, Target, Wish, Wishes};
=======
use super::options::{Place, SessionOptions};
use super::placing::{Placed, Placing, Target, Wish};
use super::streaming::{Streamed, Streaming, StreamingError};
>>>>>>> 865829f (Contract nodes of one device that stream into each other to blocks; check, plan and report them)
use crate::device::{DeviceRef, Inventory};
use crate::execute::{ComputeDevice, CpuTeam, Executor, GpuOpener, Kernels};
use crate::plan::{Plan, PlanDevice, PlanError, PlanFile, PlanOptions};
use crate::program::{NodeId, Program};
use crate::stream::StreamedBlock;
use crate::tasks::HOST;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::order::order_by_name;
use anabranch_placement::place::{Fixed, Placer, strategy_by_name};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
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
    plan: Arc<Plan>,
    kernels: Arc<Kernels>,
}

/// A program with its plan and the executor that runs it.
pub struct Prepared {
    planned: Arc<Planned>,
    pub(super) executor: Executor,
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

    /// The block that a node is, if it is one.
    pub fn block(&self, node: NodeId) -> Option<&StreamedBlock> {
        self.blocks.iter().find(|block| block.node == node)
    }

    /// Readies the devices.
    pub(super) fn ready(self: &Arc<Self>, devices: &[ComputeDevice]) -> Result<Prepared, SessionError> {
        let executor = Executor::new(Arc::clone(&self.plan), Arc::clone(&self.kernels), devices.to_vec())?;
        Ok(Prepared { planned: Arc::clone(self), executor })
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
        Ok(Placing::new(self.program(), &machine.targets, &machine.store, wishes, &|node: NodeId| runs[node.index()])?)
    }
}

/// The devices of an inventory to run on, in the same order. Executors that get clones of them open each GPU once.
pub(super) fn devices(inventory: &Inventory) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::shared(gpu.name.clone(), gpu.adapter.clone())),
    };
    inventory.devices().map(device).collect()
}

/// Places and plans a lowered program on a machine.
pub(super) fn plan(
    lowered: &Lowered,
    (machine, wishes): (&Machine, &Wishes),
    (wish, options): (&Wish, &PlanOptions),
) -> Result<Planned, SessionError> {
    let started = Instant::now();
<<<<<<< HEAD
    let program = lowered.program();
    let placing = lowered.placing(machine, wishes)?;
    let (placed, plan) = fitting(&placing, wish, &machine.targets, &lowered.kernels, options)?;
    if let Some(violation) = crate::plan::check(program, &plan).first() {
        return Err(SessionError::Checker(format!("{violation:?}")));
    }
    Ok(Planned {
        program: Arc::clone(program),
        placed,
        place_time: started.elapsed(),
        plan: Arc::new(plan),
        kernels: Arc::clone(&lowered.kernels),
    })
=======
    let program = Arc::new(program);
    let (targets, runs) = (&machine.targets, machine.gpu_runs(&program));
    let placing = Placing::new(&program, targets, &machine.store, &options.wishes, &|node: NodeId| runs[node.index()])?;
    let (wish, file) = wish(&program, targets, &options.place)?;
    let streaming = Streaming::new(machine, &options.plan);
    let (made, plan) = Fitting { placing, wish, file, streaming, targets, options }.plan(&program)?;
    if let Some(violation) = crate::plan::check(&made.program, &plan).first() {
        return Err(SessionError::Checker(format!("{violation:?}")));
    }
    let Made { program, placed, blocks, kernels } = made;
    Ok(Planned { program, blocks, placed, place_time: started.elapsed(), plan: Arc::new(plan), kernels })
>>>>>>> 865829f (Contract nodes of one device that stream into each other to blocks; check, plan and report them)
}

/// The problem of placing a lowered program, with nothing placed yet.
pub(super) fn problem(lowered: &Lowered, machine: &Machine, wishes: &Wishes) -> Result<LoadedProblem, SessionError> {
    Ok(lowered.placing(machine, wishes)?.problem(&machine.memory())?)
}

<<<<<<< HEAD
/// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
/// stays there. If nothing fits, the first shortage is the error.
fn fitting(
    placing: &Placing<'_>,
    wish: &Wish,
    targets: &[Target],
    kernels: &Kernels,
    options: &PlanOptions,
) -> Result<(Placed, Plan), SessionError> {
    let (program, devices) = (kernels.program(), plan_devices(targets));
    let mut budgets: Vec<u64> = targets.iter().map(|target| target.memory).collect();
    let mut first = None;
    for _ in 0..ATTEMPTS {
        let placed = match placing.place(wish, &budgets) {
            Ok(placed) => placed,
            Err(error) => return Err(first.unwrap_or_else(|| error.into())),
        };
        let reasons = reasons(program, &placed);
        let result = Plan::build(program, &devices, (&placed.placement, &placed.schedule), reasons, kernels, options);
        let shortage = match result {
            Ok(plan) => return Ok((placed, plan)),
            Err(PlanError::Memory(shortage)) => shortage,
            Err(error) => return Err(error.into()),
        };
        let Some(short) = devices.iter().position(|device| device.name == shortage.device) else { break };
        let resident = placed.resident(short);
        budgets[short] = resident.min(budgets[short]).saturating_sub(shortage.needed - shortage.available);
        first.get_or_insert(PlanError::Memory(shortage).into());
=======
/// All that decides a plan.
struct Fitting<'a> {
    placing: Placing<'a>,
    wish: Wish,
    file: Option<GivenFile>,
    streaming: Streaming<'a>,
    targets: &'a [Target],
    options: &'a SessionOptions,
}

/// A placed program, its blocks and its kernels.
struct Made {
    program: Arc<Program>,
    placed: Placed,
    blocks: Vec<StreamedBlock>,
    kernels: Arc<Kernels>,
}

impl Fitting<'_> {
    /// Places until the plan fits every device: where one is over its limit, the next attempt gets that much less for what
    /// stays there. If nothing fits, the first shortage is the error.
    fn plan(&self, program: &Arc<Program>) -> Result<(Made, Plan), SessionError> {
        let devices = plan_devices(self.targets);
        let mut budgets: Vec<u64> = self.targets.iter().map(|target| target.memory).collect();
        let mut kernels = Arc::new(Kernels::new(Arc::clone(program)));
        let mut first = None;
        for _ in 0..ATTEMPTS {
            let placed = match self.placing.place(&self.wish, &budgets) {
                Ok(placed) => placed,
                Err(error) => return Err(first.unwrap_or_else(|| error.into())),
            };
            let Streamed { program, placed, reasons, blocks } = self.streamed(program, placed, &budgets)?;
            if !Arc::ptr_eq(kernels.program(), &program) {
                kernels = Arc::new(Kernels::new(Arc::clone(&program)));
            }
            let chosen = (&placed.placement, &placed.schedule);
            let result = Plan::build(&program, &devices, chosen, reasons, kernels.as_ref(), &self.options.plan);
            let shortage = match result {
                Ok(plan) => return Ok((Made { program, placed, blocks, kernels }, plan)),
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
    fn streamed(&self, program: &Arc<Program>, placed: Placed, budgets: &[u64]) -> Result<Streamed, SessionError> {
        let reasons = reasons(program, &placed);
        let file = self.file.as_ref();
        let streamed = self.streaming.stream(program, (&placed, &reasons), budgets, file.map(|file| &file.plan));
        let streamed = streamed.map_err(|error| match (error, file) {
            (StreamingError::File(source), Some(file)) => SessionError::Plan { path: file.path.clone(), source },
            (StreamingError::File(source), None) => SessionError::Checker(source.to_string()),
            (StreamingError::Session(error), _) => error,
        })?;
        Ok(streamed.unwrap_or_else(|| Streamed { program: Arc::clone(program), placed, reasons, blocks: Vec::new() }))
>>>>>>> 865829f (Contract nodes of one device that stream into each other to blocks; check, plan and report them)
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

<<<<<<< HEAD
/// Who places: a strategy by name, a device's name, or the assignment and order of a plan file.
pub(super) fn wish(lowered: &Lowered, machine: &Machine, choice: &PlanChoice) -> Result<Wish, SessionError> {
    let rule = order_by_name(&choice.order).ok_or_else(|| SessionError::Order(choice.order.clone()))?;
    let program = lowered.program();
    let path = match &choice.place {
        Place::Strategy(name) => return Ok(Wish { placer: strategy(lowered, machine, name)?, rule, order: None }),
=======
/// A plan file, and where it is.
struct GivenFile {
    path: PathBuf,
    plan: PlanFile,
}

/// Who places: a strategy by name, or the assignment and order of a plan file.
fn wish(program: &Program, targets: &[Target], place: &Place) -> Result<(Wish, Option<GivenFile>), SessionError> {
    let path = match place {
        Place::Strategy(name) if name == "gpu" && !targets.iter().any(|target| target.kind == DeviceKind::Gpu) => {
            return Err(SessionError::NoGpu);
        }
        Place::Strategy(name) => {
            let placer = strategy_by_name(name).ok_or_else(|| SessionError::Strategy(name.clone()))?;
            return Ok((Wish { placer, order: None }, None));
        }
>>>>>>> 865829f (Contract nodes of one device that stream into each other to blocks; check, plan and report them)
        Place::File(path) => path,
    };
    let unreadable = |source| SessionError::PlanFile { path: path.clone(), source };
    let text = fs::read(path).map_err(unreadable)?;
<<<<<<< HEAD
    let file: PlanFile = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    let devices = plan_devices(&machine.targets);
    let unfit = |source| SessionError::Plan { path: path.clone(), source };
    let assignment = file.assignment(program, &devices).map_err(unfit)?;
    let order = file.order(program, &devices, &assignment);
    Ok(Wish { placer: fixed(program, assignment), rule, order })
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
=======
    let plan: PlanFile = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    let devices = plan_devices(targets);
    let unfit = |source| SessionError::Plan { path: path.clone(), source };
    let mut assignment = plan.assignment(program, &devices).map_err(unfit)?;
    let order = plan.order(program, &devices, &assignment);
    assignment.resize(program.nodes.len() + program.inputs.len() + program.outputs.len(), HOST);
    let wish = Wish { placer: Box::new(Fixed::new(assignment)), order };
    Ok((wish, Some(GivenFile { path: path.clone(), plan })))
>>>>>>> 865829f (Contract nodes of one device that stream into each other to blocks; check, plan and report them)
}
