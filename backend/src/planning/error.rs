//! Why a program cannot be placed or planned.

use super::platform_file::PlatformError;
use crate::plan::PlanError;
use crate::plan_file::FileError;
use std::io;
use std::path::PathBuf;

/// Why there is no plan for a program on a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanningError {
    /// The platform file cannot be used.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Neither a strategy nor a device.
    #[error("there is no strategy and no device `{name}`; strategies are {strategies}; devices are {devices}")]
    Strategy {
        /// The name given.
        name: String,
        /// The strategies.
        strategies: String,
        /// The machine's devices.
        devices: String,
    },
    /// Everything was to run on the GPU, but there is none.
    #[error("all nodes are to run on a GPU, but there is none; the notes of the inventory say why")]
    NoGpu,
    /// A plan file cannot be read.
    #[error("plan {}: {source}", path.display())]
    PlanFile {
        /// The file.
        path: PathBuf,
        /// What the system or the parser said.
        source: io::Error,
    },
    /// A plan file does not fit the program or the devices.
    #[error("plan {}: {source}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: FileError,
    },
    /// There is no placement within the constraints.
    #[error(transparent)]
    Placing(#[from] PlacingError),
    /// The placement cannot be planned: most often memory.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Placing again with smaller budgets led nowhere.
    #[error("no plan fits the devices' memory; let the devices hold more, or use more devices")]
    NoPlan,
    /// The independent checker found a fault in a plan.
    #[error("the plan is invalid, which is a fault of Anabranch: {0}")]
    Checker(String),
}

/// A constraint that cannot be met, or a placement problem without a solution.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacingError {
    /// A pin names no device.
    #[error("nodes `{pattern}` are pinned to `{device}`, but there is no such device; the devices are {known}")]
    UnknownDevice {
        /// The pattern.
        pattern: String,
        /// The device named.
        device: String,
        /// The devices that there are.
        known: String,
    },
    /// A tensor is to stay on a device that is not there.
    #[error("`{name}` is to stay on `{device}`, but there is no such device; the devices are {known}")]
    UnknownHome {
        /// The input or output.
        name: String,
        /// The device named.
        device: String,
        /// The devices that there are.
        known: String,
    },
    /// A tensor that is to stay on a device is neither input nor output.
    #[error("`{name}` is to stay on a device, but is neither an input nor an output; these are {known}")]
    UnknownTensor {
        /// The name given.
        name: String,
        /// The program's inputs and outputs.
        known: String,
    },
    /// A pattern matches no node.
    #[error("no node's name matches `{pattern}`; a plan lists the names")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// Constraints contradict each other.
    #[error(transparent)]
    Graph(#[from] anabranch_placement::graph::GraphError),
    /// A device or link has impossible figures.
    #[error(transparent)]
    Platform(#[from] anabranch_placement::platform::PlatformError),
    /// A cost is impossible.
    #[error(transparent)]
    Cost(#[from] anabranch_placement::cost::CostError),
    /// Some node can run nowhere.
    #[error(transparent)]
    Problem(#[from] anabranch_placement::problem::ProblemError),
    /// The strategy found no placement.
    #[error(transparent)]
    Place(#[from] anabranch_placement::place::PlaceError),
    /// The placement cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] anabranch_placement::simulate::SimulateError),
    /// The independent checker found a fault in the strategy's result.
    #[error("the strategy `{strategy}` gave an invalid result, which is a fault of Anabranch: {violation}")]
    Checker {
        /// The strategy.
        strategy: &'static str,
        /// The first violation.
        violation: String,
    },
}

impl PlanningError {
    /// Whether there is no plan within the devices' memory and the constraints: another strategy may find one.
    pub fn is_infeasible(&self) -> bool {
        match self {
            Self::Placing(error) => !matches!(error, PlacingError::UnknownDevice { .. } | PlacingError::NoMatch { .. }),
            Self::Plan(_) | Self::NoPlan => true,
            _ => false,
        }
    }
}
