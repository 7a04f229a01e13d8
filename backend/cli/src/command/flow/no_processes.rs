//! Machines as processes, on systems where no process hands sockets to another.

use super::job::Job;
use crate::command::CliError;
use anabranch::flow::{FlowError, Peers};

/// The other machines of a run: there are none.
pub(super) enum Machines {}

impl Machines {
    pub(super) fn start(_: &Job) -> Result<(Self, Peers), CliError> {
        Err(CliError::input("--processes works only on Linux; leave it out"))
    }

    pub(super) fn explain(self, _: FlowError) -> CliError {
        match self {}
    }
}
