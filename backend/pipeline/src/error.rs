//! Why a pipeline ends before its data sets do: the data set, the stage, the device and, below, the node.

use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Line;
use anabranch_execute::ExecError;
use anabranch_session::SessionError;
use std::fmt;

/// Why a data set did not go through a pipeline, or was not taken.
#[derive(Clone, Debug)]
pub struct PipelineError {
    /// Where it happened; `None` if the data set was not taken at all.
    place: Option<Place>,
    cause: SessionError,
}

#[derive(Clone, Debug)]
struct Place {
    data_set: u64,
    stage: usize,
    device: String,
}

impl PipelineError {
    /// A failure of a stage at a data set.
    pub(super) fn at(data_set: u64, stage: usize, device: &str, cause: SessionError) -> Self {
        Self { place: Some(Place { data_set, stage, device: device.to_owned() }), cause }
    }

    /// The same of data sets that somebody else numbers.
    pub fn renumbered(mut self, number: impl FnOnce(u64) -> u64) -> Self {
        if let Some(place) = &mut self.place {
            place.data_set = number(place.data_set);
        }
        self
    }

    /// What it comes from.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }

    /// The number of the data set, from 0, at which a stage failed; `None` where one was not taken.
    pub fn data_set(&self) -> Option<u64> {
        self.place.as_ref().map(|place| place.data_set)
    }

    /// The stage, from 0.
    pub fn stage(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.stage)
    }

    /// The device that the stage was on.
    pub fn device(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.device.as_str())
    }

    /// The node, if one was at work.
    pub fn node(&self) -> Option<&str> {
        self.cause.node()
    }

    /// What went wrong there.
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
            Some(Place { data_set, stage, device }) => {
                write!(f, "data set {data_set}, stage {stage} on {}: {}", Line(device), Line(&self.cause))
            }
        }
    }
}

impl std::error::Error for PipelineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
