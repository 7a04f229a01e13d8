//! What a placement is asked to be: from a strategy's name or a plan file to who places, in which order, with which blocks.

use super::error::PlanningError;
use super::machine::Machine;
use super::strategy::{Order, Strategy};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::files;
use anabranch_base::suggest::did_you_mean;
use anabranch_device::GPU_HINT;
use anabranch_ir::program::Program;
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::place::{Fixed, PlaceError, Placement, Placer, Reason, strategy_by_name, strategy_names};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::problem::Problem;
use anabranch_plan::blocks::BlockMembers;
use anabranch_plan::plan_file::PlanFile;
use anabranch_plan::{HOST, PlanDevice, PlanOptions, Residency};
use std::path::{Path, PathBuf};

/// One way to place, order and stream a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChoice {
    /// Who decides where nodes run.
    pub strategy: Strategy,
    /// Which of a device's ready nodes goes first. A plan file brings its own order along.
    pub order: Order,
    /// What is streamed.
    pub plan: PlanOptions,
}

/// Who places, and in which order each device then runs its tasks.
pub struct PlacementRequest {
    /// The strategy, or a given assignment.
    pub placer: Box<dyn Placer>,
    /// Which of a device's ready tasks goes first.
    pub rule: Order,
    /// An order of all tasks to follow in the place of the rule.
    pub order: Option<Vec<TaskId>>,
    /// Which nodes stream into each other.
    pub blocks: BlockSource,
}

/// Who says which nodes of a device are streaming blocks.
pub enum BlockSource {
    /// The options of plans.
    Formed,
    /// A plan file, if it says anything about blocks; else the options.
    File {
        /// Where it is.
        path: PathBuf,
        /// What it says.
        plan: PlanFile,
    },
    /// These.
    Given {
        /// The nodes of each block.
        groups: Vec<BlockMembers>,
        /// An order of all tasks of the contracted program, if there is one.
        order: Option<Vec<TaskId>>,
    },
}

impl PlacementRequest {
    /// What `choice` means for a program on a machine.
    ///
    /// # Errors
    /// If it names what is not there, or a plan file that cannot be read or does not fit.
    pub(super) fn of(program: &Program, machine: &Machine, choice: &PlanChoice) -> Result<Self, PlanningError> {
        let formed = |placer| Self::formed(placer, choice.order);
        match &choice.strategy {
            Strategy::Algorithm(algorithm) => algorithm_placer(machine, algorithm.name()).map(formed),
            Strategy::Device(name) => single_device(program, machine, name).map(formed),
            Strategy::PlanFile(path) => Self::from_file(program, machine, path, choice.order),
        }
    }

    /// Nodes where `assignment` puts them, with nothing streamed but what options form.
    pub fn fixed(assignment: Vec<DeviceId>, rule: Order) -> Self {
        Self::formed(Box::new(FixedNodes { name: "fixed", device_of: assignment, reasons: None }), rule)
    }

    /// Nodes where a search has put them, and why.
    pub(super) fn searched(assignment: Vec<DeviceId>, reasons: Vec<Reason>, rule: Order) -> Self {
        Self::formed(Box::new(FixedNodes { name: "auto", device_of: assignment, reasons: Some(reasons) }), rule)
    }

    /// As a strategy places, with nothing streamed but what options form.
    pub(super) fn formed(placer: Box<dyn Placer>, rule: Order) -> Self {
        Self { placer, rule, order: None, blocks: BlockSource::Formed }
    }

    /// Whether it is left open what is streamed.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.blocks, BlockSource::Formed)
    }

    /// Options of a plan: a file that says so has its own weights on GPUs.
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
        let blocks = BlockSource::File { path: path.to_owned(), plan };
        let placer = Box::new(FixedNodes { name: "fixed", device_of: assignment, reasons: None });
        Ok(Self { placer, rule, order, blocks })
    }
}

fn algorithm_placer(machine: &Machine, name: &'static str) -> Result<Box<dyn Placer>, PlanningError> {
    if name == "gpu" && !machine.devices.iter().any(|device| device.kind == DeviceKind::Gpu) {
        let text = format!("all nodes are to run on a GPU, but there is none, or none was looked for{GPU_HINT}");
        return Err(PlanningError::new(ErrorKind::NoGpu, text));
    }
    strategy_by_name(name).ok_or_else(|| unknown(machine, name))
}

fn single_device(program: &Program, machine: &Machine, name: &str) -> Result<Box<dyn Placer>, PlanningError> {
    let only = machine.devices.iter().position(|device| device.name == name);
    let only = only.ok_or_else(|| unknown(machine, name))?;
    let cpu = machine.devices[only].kind == DeviceKind::Cpu;
    let device = |runs: &bool| if cpu || *runs { DeviceId(only as u32) } else { HOST };
    let device_of = machine.gpu_runs(program).iter().map(device).collect();
    Ok(Box::new(FixedNodes { name: "fixed", device_of, reasons: None }))
}

fn unknown(machine: &Machine, name: &str) -> PlanningError {
    let devices: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
    let meant = did_you_mean(name, strategy_names().into_iter().chain(devices.iter().copied()));
    let (strategies, devices) = (strategy_names().join(", "), devices.join(", "));
    let text = format!(
        "there is no strategy and no device `{name}`{meant}; strategies are {strategies}; devices are {devices}{}",
        if name.starts_with("gpu") { GPU_HINT } else { "" }
    );
    PlanningError::new(ErrorKind::Strategy, text)
}

/// Nodes as assigned; inputs and outputs, which come after them, where they are pinned.
struct FixedNodes {
    name: &'static str,
    /// By node.
    device_of: Vec<DeviceId>,
    /// By node, if there are others than that they were given.
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
