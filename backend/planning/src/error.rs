//! Errors of placing and planning a program.

use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Line;
use anabranch_placement_core::place::PlaceError;
use anabranch_placement_core::simulate::SimulateError;
use anabranch_plan::PlanError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Reason that there is no plan for a program on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(text))]
pub struct PlanningError {
    kind: ErrorKind,
    text: String,
    file: Option<PathBuf>,
    node: Option<String>,
    device: Option<String>,
}

impl PlanningError {
    pub(super) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), file: None, node: None, device: None }
    }

    /// Creates the error of a placement problem without a solution.
    pub(super) fn infeasible(error: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Infeasible, error.to_string())
    }

    /// Creates the error of a plan that a checker rejected.
    pub(super) fn invalid(violation: impl fmt::Display) -> Self {
        let text = format!("the plan is invalid, which is a bug in Anabranch; please report it: {violation}");
        Self::new(ErrorKind::Internal, text)
    }

    /// The caller wants no plan any more.
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Cancelled, "planning was interrupted")
    }

    /// No way of planning fits.
    pub fn no_plan() -> Self {
        let text = "no plan fits into the devices' memory; raise the memory limits, or use more devices";
        Self::new(ErrorKind::Memory, text)
    }

    /// Creates the error of an unusable plan file.
    pub(super) fn plan_file(path: &Path, problem: impl fmt::Display) -> Self {
        let text = format!("plan {}: {problem}", path.display());
        Self { file: Some(path.to_owned()), ..Self::new(ErrorKind::PlanFile, text) }
    }

    /// Creates the error of an invalid platform.
    pub(super) fn platform(problem: impl fmt::Display) -> Self {
        Self::new(ErrorKind::PlatformFile, format!("platform: {problem}"))
    }

    /// Creates the error of an unreadable platform file.
    pub(super) fn platform_file(path: &Path, problem: impl fmt::Display) -> Self {
        let text = format!("platform {}: {problem}", path.display());
        Self { file: Some(path.to_owned()), ..Self::new(ErrorKind::PlatformFile, text) }
    }

    pub(super) fn at_device(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the file of the plan or the platform.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(super) fn at_node(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }

    /// Returns the node that does not fit, or has no kernel.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Returns the device that is too small, or does not exist.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }
}

impl From<PlanError> for PlanningError {
    fn from(error: PlanError) -> Self {
        let (kind, node, device) = match &error {
            PlanError::Memory(shortage) => (ErrorKind::Memory, Some(&shortage.node), Some(&shortage.device)),
            PlanError::Kernel { node, device, .. } => (ErrorKind::Infeasible, Some(node), Some(device)),
            _ => (ErrorKind::Infeasible, None, None),
        };
        Self { node: node.cloned(), device: device.cloned(), ..Self::new(kind, error.to_string()) }
    }
}

impl From<SimulateError> for PlanningError {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Interrupted => Self::interrupted(),
            error => Self::infeasible(error),
        }
    }
}

impl From<PlaceError> for PlanningError {
    fn from(error: PlaceError) -> Self {
        let (kind, node, device) = match &error {
            PlaceError::InsufficientMemory { task, device, .. } => (ErrorKind::Memory, Some(task), Some(device)),
            PlaceError::Interrupted => return Self::interrupted(),
            _ => (ErrorKind::Infeasible, None, None),
        };
        Self { node: node.cloned(), device: device.cloned(), ..Self::new(kind, error.to_string()) }
    }
}
