//! Why a session cannot do what it was asked.

use super::placing::PlacingError;
use anabranch_kernels::TensorSpec;
use anabranch_placement::order::ORDERS;
use anabranch_placement::place::strategy_names;
use std::io;
use std::path::PathBuf;

/// Why a model cannot be opened, prepared or run. Each kind names the file, node, device or input, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The file is no model.
    #[error(transparent)]
    Import(#[from] crate::import::ImportError),
    /// The model cannot be lowered for these inputs.
    #[error(transparent)]
    Lower(#[from] crate::lower::LowerError),
    /// The wishes about devices do not fit this machine.
    #[error(transparent)]
    Detect(#[from] crate::device::DetectError),
    /// The platform file cannot be used.
    #[error(transparent)]
    Platform(#[from] super::platform_file::PlatformError),
    /// A strategy that is not there.
    #[error(
        "there is no strategy `{0}`; known are {known}, devices' names, and plan files whose names end in .json",
        known = strategy_names().join(", ")
    )]
    Strategy(String),
    /// An order that is not there.
    #[error("there is no order `{0}`; known are {known}", known = ORDERS.join(", "))]
    Order(String),
    /// Everything was to run on the GPU, but there is none.
    #[error("--place gpu: there is no GPU; `anabranch devices` says why, --software-gpu counts a software adapter")]
    NoGpu,
    /// A plan file cannot be read.
    #[error("plan {}: {source}", path.display())]
    PlanFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A plan file does not fit the program or the devices.
    #[error("plan {}: {source}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: crate::plan_file::FileError,
    },
    /// There is no placement within the constraints.
    #[error(transparent)]
    Placing(#[from] PlacingError),
    /// The placement cannot be planned: most often memory.
    #[error(transparent)]
    Planning(#[from] crate::plan::PlanError),
    /// Placing again with smaller budgets led nowhere.
    #[error("no plan fits the devices' memory; give them more with --memory, or use more devices")]
    NoPlan,
    /// The independent checker found a fault in a plan.
    #[error("the plan is invalid, which is a fault of Anabranch: {0}")]
    Checker(String),
    /// The plan cannot be readied on the devices.
    #[error(transparent)]
    Ready(#[from] crate::execute::ExecError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] crate::execute::RunError),
    /// An input is missing.
    #[error("input `{name}` ({expected}) is not given; give it, or use --random SEED")]
    MissingInput {
        /// The input.
        name: String,
        /// Its type and shape.
        expected: String,
    },
    /// An input has another type or shape than the model wants.
    #[error("input `{name}` is {given}, but the model wants {expected}")]
    Input {
        /// The input.
        name: String,
        /// What was given.
        given: TensorSpec,
        /// What the model wants.
        expected: String,
    },
    /// There is no input of this name.
    #[error("the model has no input `{name}`; its inputs are {known}")]
    UnknownInput {
        /// The name given.
        name: String,
        /// The model's inputs.
        known: String,
    },
    /// The shape of an input is not known without the input.
    #[error("input `{name}` has the shape {dims}; give the input, or the sizes with --dim NAME=N")]
    UnknownShape {
        /// The input.
        name: String,
        /// Its dimensions as the model has them.
        dims: String,
    },
}

impl SessionError {
    /// Whether the run ended because its [`CancelToken`](crate::execute::CancelToken) was used.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Run(error) if matches!(error.kind, crate::execute::RunErrorKind::Cancelled))
    }
}
