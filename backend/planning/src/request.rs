//! Request for a placement: from a strategy's name or a plan file to the placer, the order and the blocks.

use super::error::PlanningError;
use super::machine::Machine;
use super::strategy::{Order, Strategy};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::files;
use anabranch_base::suggest::did_you_mean;
use anabranch_device::GPU_HINT;
use anabranch_ir::program::Program;
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::place::{
    Fixed, PlaceError, Placement, Placer, Reason, form_of_name, strategy_by_name, strategy_names,
};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::problem::Problem;
use anabranch_plan::blocks::BlockMembers;
use anabranch_plan::plan_file::PlanFile;
use anabranch_plan::{HOST, PlanDevice, PlanOptions, Residency};
use std::path::{Path, PathBuf};

/// Reason for the nodes that a GPU cannot run, if all nodes are to run on it.
const NO_KERNEL: Reason = Reason::Rule("the GPU that was named has no kernel for this node");

/// A choice of placement, order and streaming of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChoice {
    /// Strategy that decides on which devices nodes run.
    pub strategy: Strategy,
    /// Rule that selects among a device's ready nodes. A plan file brings its own order.
    pub order: Order,
    /// Options of the plan, such as its streaming.
    pub plan: PlanOptions,
}

/// Placer of the nodes, and the order in which each device then runs its tasks.
pub struct PlacementRequest {
    /// Strategy, or a given assignment.
    pub placer: Box<dyn Placer>,
    /// Rule that selects among a device's ready tasks.
    pub rule: Order,
    /// Order of all tasks that replaces the rule.
    pub order: Option<Vec<TaskId>>,
    /// Source of the streaming blocks.
    pub blocks: BlockSource,
}

/// Source of a device's streaming blocks.
pub enum BlockSource {
    /// Blocks are formed by the options of the plan.
    Formed,
    /// Blocks of a plan file, if it has a list of blocks; else as by the options.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Content of the file.
        plan: Box<PlanFile>,
    },
    /// Blocks that are given.
    Given {
        /// Nodes of each block.
        groups: Vec<BlockMembers>,
        /// Order of all tasks of the contracted program, if there is one.
        order: Option<Vec<TaskId>>,
    },
}

impl PlacementRequest {
    /// Translates `choice` for a program on a machine.
    ///
    /// # Errors
    /// If the choice names something unknown, or a plan file that cannot be read or does not fit.
    pub(super) fn of(program: &Program, machine: &Machine, choice: &PlanChoice) -> Result<Self, PlanningError> {
        let formed = |placer| Self::formed(placer, choice.order);
        match &choice.strategy {
            Strategy::Algorithm(algorithm) => algorithm_placer(machine, algorithm.name()).map(formed),
            Strategy::Exact { .. } => algorithm_placer(machine, &choice.strategy.to_string()).map(formed),
            Strategy::Split => {
                let problem = "the strategy `split` places the parts of a batch, but no batch is divided; divide one, \
                               as in batch=auto, or use another strategy";
                Err(PlanningError::new(ErrorKind::Constraint, problem.to_owned()))
            }
            Strategy::Device(name) => single_device(program, machine, name).map(formed),
            Strategy::PlanFile(path) => Self::from_file(program, machine, path, choice.order),
        }
    }

    /// Requests that nodes follow `assignment`, with blocks as by the options.
    pub fn fixed(assignment: Vec<DeviceId>, rule: Order) -> Self {
        Self::formed(Box::new(FixedNodes { name: "fixed", device_of: assignment, reasons: None }), rule)
    }

    /// Requests that nodes follow a search's assignment, with its reasons.
    pub(super) fn searched(assignment: Vec<DeviceId>, reasons: Vec<Reason>, rule: Order) -> Self {
        Self::formed(Box::new(FixedNodes { name: "auto", device_of: assignment, reasons: Some(reasons) }), rule)
    }

    /// Requests that nodes follow an assignment that a rule made, with blocks as by the options.
    pub(super) fn split(assignment: Vec<DeviceId>, reason: Reason, rule: Order) -> Self {
        let reasons = Some(vec![reason; assignment.len()]);
        Self::formed(Box::new(FixedNodes { name: "split", device_of: assignment, reasons }), rule)
    }

    /// Requests that a strategy places the nodes, with blocks as by the options.
    pub(super) fn formed(placer: Box<dyn Placer>, rule: Order) -> Self {
        Self { placer, rule, order: None, blocks: BlockSource::Formed }
    }

    /// Whether the request leaves the streaming open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.blocks, BlockSource::Formed)
    }

    /// Returns the options of a plan; a file may set the weights that stay on GPUs.
    pub(super) fn options(&self, options: &PlanOptions, devices: &[PlanDevice]) -> PlanOptions {
        let listed = match &self.blocks {
            BlockSource::File { plan, .. } if options.weights == Residency::Auto => plan.weights(devices),
            _ => None,
        };
        let mut options = options.clone();
        if let Some(listed) = listed {
            options.weights = listed;
        }
        options
    }

    fn from_file(program: &Program, machine: &Machine, path: &Path, rule: Order) -> Result<Self, PlanningError> {
        let text = files::read(path, files::MOST_BYTES).map_err(|error| PlanningError::plan_file(path, error))?;
        let refused =
            |problem| PlanningError::plan_file(path, format!("{problem}; `anabranch place -o FILE` writes one"));
        let plan: PlanFile = serde_json::from_slice(&text).map_err(|error| refused(files::json_problem(&error)))?;
        let devices = machine.plan_devices();
        let assignment = plan.assignment(program, &devices);
        let assignment = assignment.map_err(|error| PlanningError::plan_file(path, error))?;
        let order = plan.order(program, &devices, &assignment);
        let blocks = BlockSource::File { path: path.to_owned(), plan: Box::new(plan) };
        let placer = Box::new(FixedNodes { name: "fixed", device_of: assignment, reasons: None });
        Ok(Self { placer, rule, order, blocks })
    }
}

fn algorithm_placer(machine: &Machine, name: &str) -> Result<Box<dyn Placer>, PlanningError> {
    if name == "gpu" && !machine.devices.iter().any(|device| device.kind == DeviceKind::Gpu) {
        let text = format!("no GPU for all nodes: the machine has none, or GPUs are turned off{GPU_HINT}");
        return Err(PlanningError::new(ErrorKind::NoGpu, text));
    }
    strategy_by_name(name).ok_or_else(|| unknown(machine, name))
}

fn single_device(program: &Program, machine: &Machine, name: &str) -> Result<Box<dyn Placer>, PlanningError> {
    let only = machine.devices.iter().position(|device| device.name == name);
    let only = only.ok_or_else(|| unknown(machine, name))?;
    let cpu = machine.devices[only].kind == DeviceKind::Cpu;
    let placed = |runs: bool| if cpu || runs { (DeviceId(only as u32), Reason::Given) } else { (HOST, NO_KERNEL) };
    let (device_of, reasons) = machine.gpu_runs(program).into_iter().map(placed).unzip();
    Ok(Box::new(FixedNodes { name: "fixed", device_of, reasons: Some(reasons) }))
}

fn unknown(machine: &Machine, name: &str) -> PlanningError {
    if let Some(form) = form_of_name(name) {
        return PlanningError::new(ErrorKind::Strategy, format!("there is no strategy `{name}`: {form}"));
    }
    let devices: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
    let meant = did_you_mean(name, strategy_names().into_iter().chain(devices.iter().copied()));
    let (strategies, devices) = (strategy_names().join(", "), devices.join(", "));
    let text = format!(
        "there is no strategy or device `{name}`{meant}; the strategies are {strategies}; the devices are {devices}{}",
        if name.starts_with("gpu") { GPU_HINT } else { "" }
    );
    PlanningError::new(ErrorKind::Strategy, text)
}

/// Places nodes as assigned, and the following inputs and outputs on the devices to which they are pinned.
struct FixedNodes {
    name: &'static str,
    /// Device of each node.
    device_of: Vec<DeviceId>,
    /// Reason of each node, if there are reasons besides the assignment.
    reasons: Option<Vec<Reason>>,
}

impl Placer for FixedNodes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let callers = problem.graph().tasks().iter().skip(self.device_of.len()).map(|task| task.pinned.unwrap_or(HOST));
        let placement = Fixed::new(self.device_of.iter().copied().chain(callers).collect()).place(problem)?;
        let mut reasons = placement.reasons;
        for (reason, known) in reasons.iter_mut().zip(self.reasons.iter().flatten()) {
            reason.clone_from(known);
        }
        Ok(Placement { strategy: self.name, reasons, ..placement })
    }
}
