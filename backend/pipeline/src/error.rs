//! Error of a data set that a pipeline did not accept, or at which one of its stages failed.

use anabranch_base::error_kind::ErrorKind;
use anabranch_base::quoted::Line;
use anabranch_execute::ExecError;
use anabranch_session::SessionError;
use std::fmt;

/// Error of a data set that was not accepted or did not go through a pipeline.
#[derive(Clone, Debug)]
pub struct PipelineError {
    /// Number of the data set; `None` if the error is not about a data set.
    data_set: Option<u64>,
    /// Place of the failure; `None` if no stage failed.
    place: Option<FailureSite>,
    cause: SessionError,
}

#[derive(Clone, Debug)]
struct FailureSite {
    stage: usize,
    device: String,
}

impl PipelineError {
    /// Returns the error of a stage that failed at a data set.
    pub(super) fn at(data_set: u64, stage: usize, device: &str, cause: SessionError) -> Self {
        let place = Some(FailureSite { stage, device: device.to_owned() });
        Self { data_set: Some(data_set), place, cause }
    }

    /// Returns the error of a data set that was refused. It would have had this number.
    pub(super) fn refused(data_set: u64, cause: SessionError) -> Self {
        Self { data_set: Some(data_set), place: None, cause }
    }

    /// Replaces the number of the data set by that of the caller's own numbering.
    pub fn renumbered(mut self, number: impl FnOnce(u64) -> u64) -> Self {
        self.data_set = self.data_set.map(number);
        self
    }

    /// Returns the kind of the cause.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }

    /// Returns the number, from 0, of the data set that failed or was refused.
    ///
    /// A refused data set would have had this number; the next one that is accepted has it. `None` if the pipeline was
    /// finished or cancelled.
    pub fn data_set(&self) -> Option<u64> {
        self.data_set
    }

    /// Returns the stage that failed, from 0; `None` if the data set was refused.
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
        Self { data_set: None, place: None, cause }
    }
}

impl From<ExecError> for PipelineError {
    fn from(cause: ExecError) -> Self {
        SessionError::from(cause).into()
    }
}

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(data_set) = self.data_set {
            write!(f, "sample {data_set}")?;
            if let Some(FailureSite { stage, device }) = &self.place {
                write!(f, ", stage {stage} on {}", Line(device))?;
            }
            f.write_str(": ")?;
        }
        Line(&self.cause).fmt(f)
    }
}

impl std::error::Error for PipelineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
