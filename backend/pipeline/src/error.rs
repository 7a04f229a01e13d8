//! Error of a data set that a pipeline did not accept, or at which one of its stages failed.

use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Line;
use anabranch_execute::ExecError;
use anabranch_session::SessionError;
use std::fmt;

/// Error of a data set that was not accepted or did not go through a pipeline.
#[derive(Clone, Debug)]
pub struct PipelineError {
    /// Place of the failure; `None` if the data set was not accepted.
    place: Option<FailureSite>,
    cause: SessionError,
}

#[derive(Clone, Debug)]
struct FailureSite {
    data_set: u64,
    stage: usize,
    device: String,
}

impl PipelineError {
    /// Returns the error of a stage that failed at a data set.
    pub(super) fn at(data_set: u64, stage: usize, device: &str, cause: SessionError) -> Self {
        Self { place: Some(FailureSite { data_set, stage, device: device.to_owned() }), cause }
    }

    /// Replaces the number of the data set by that of the caller's own numbering.
    pub fn renumbered(mut self, number: impl FnOnce(u64) -> u64) -> Self {
        if let Some(place) = &mut self.place {
            place.data_set = number(place.data_set);
        }
        self
    }

    /// Returns the kind of the cause.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }

    /// Returns the number of the data set, from 0, at which a stage failed; `None` if it was not accepted.
    pub fn data_set(&self) -> Option<u64> {
        self.place.as_ref().map(|place| place.data_set)
    }

    /// Returns the stage, from 0.
    pub fn stage(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.stage)
    }

    /// Returns the device of the stage.
    pub fn device(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.device.as_str())
    }

    /// Returns the node that failed, if a node was running.
    pub fn node(&self) -> Option<&str> {
        self.cause.node()
    }

    /// Returns the error of the stage.
    pub fn cause(&self) -> &SessionError {
        &self.cause
    }
}

impl From<SessionError> for PipelineError {
    fn from(cause: SessionError) -> Self {
        Self { place: None, cause }
    }
}

impl From<ExecError> for PipelineError {
    fn from(cause: ExecError) -> Self {
        SessionError::from(cause).into()
    }
}

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => Line(&self.cause).fmt(f),
            Some(FailureSite { data_set, stage, device }) => {
                write!(f, "sample {data_set}, stage {stage} on {}: {}", Line(device), Line(&self.cause))
            }
        }
    }
}

impl std::error::Error for PipelineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
