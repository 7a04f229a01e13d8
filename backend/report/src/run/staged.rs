//! Weights that are sent to GPUs in each run of a plan.

use crate::text::count;
use anabranch::device::format_bytes;
use anabranch::plan::{Moved, Plan};
use anabranch::program::Program;
use serde::Serialize;
use std::fmt;

/// Weights that are sent to a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Staged {
    device: String,
    #[serde(flatten)]
    sent: Moved,
}

impl Staged {
    /// Returns those of all GPUs to which weights are sent.
    pub fn all(plan: &Plan, program: &Program) -> Vec<Self> {
        let of = |(device, sent)| Self { device: plan.device(device).name.clone(), sent };
        plan.staged(program).into_iter().map(of).collect()
    }
}

impl fmt::Display for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, sent: Moved { transfers, bytes } } = self;
        write!(
            f,
            "weights   {device} is sent {} of them in {} in each run",
            format_bytes(*bytes),
            count(*transfers, "transfer")
        )
    }
}
