//! A worker's failure, before names are added.

use anabranch_ir::program::NodeId;
use anabranch_plan::{ExecError, TransferId};
use std::any::Any;

/// Node or transfer at which a worker failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FailureSite {
    Node(NodeId),
    Transfer(TransferId),
    /// Between nodes and transfers.
    #[default]
    Nowhere,
}

/// A worker's failure, before names are added.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ExecError,
    pub(super) place: FailureSite,
}

impl Failure {
    pub(super) fn at(place: FailureSite, error: impl Into<ExecError>) -> Self {
        Self { error: error.into(), place }
    }

    /// Creates the failure of a panic from its payload.
    pub(super) fn panic(place: FailureSite, payload: &(dyn Any + Send)) -> Self {
        Self::at(place, ExecError::panicked(payload))
    }

    pub(super) fn internal(what: &str) -> Self {
        ExecError::internal(what).into()
    }

    /// Notes that the node is the last of this many kernels that a GPU was given together, each of which may be the
    /// cause.
    pub(super) fn among(mut self, kernels: usize) -> Self {
        self.error = self.error.among(kernels);
        self
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::at(FailureSite::Nowhere, error)
    }
}
