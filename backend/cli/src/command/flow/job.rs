//! The job of a process that is a machine of a flow.

use super::SchedulerName;
use super::named::ProgramName;
use serde::{Deserialize, Serialize};

/// Job of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) program: ProgramName,
    pub(super) size: usize,
    pub(super) block: usize,
    pub(super) seed: u64,
    pub(super) machines: u32,
    pub(super) workers_each: u32,
    pub(super) window: Option<u32>,
    pub(super) scheduler: SchedulerName,
    /// The allocation, as a list.
    pub(super) allocation: String,
    pub(super) profile: bool,
}
