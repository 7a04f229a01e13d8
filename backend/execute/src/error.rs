//! A worker's failure, before names are put to it.

use anabranch_ir::program::NodeId;
use anabranch_plan::{ExecError, TransferId};
use std::any::Any;

/// What a worker was at when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    Node(NodeId),
    Transfer(TransferId),
    /// Between them.
    #[default]
    Nowhere,
}

/// A worker's failure, before names are put to it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ExecError,
    pub(super) place: Place,
}

impl Failure {
    pub(super) fn at(place: Place, error: impl Into<ExecError>) -> Self {
        Self { error: error.into(), place }
    }

    /// A panic's payload as a failure.
    pub(super) fn panic(place: Place, payload: &(dyn Any + Send)) -> Self {
        Self::at(place, ExecError::panicked(payload))
    }

    pub(super) fn internal(what: &str) -> Self {
        ExecError::internal(what).into()
    }

    /// The same of the last of so many kernels that a GPU was given at once, any of which may be to blame.
    pub(super) fn among(mut self, kernels: usize) -> Self {
        self.error = self.error.among(kernels);
        self
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::at(Place::Nowhere, error)
    }
}
