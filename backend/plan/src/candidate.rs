//! What is kept of a plan that another was preferred to.

use serde::{Deserialize, Serialize};

/// A plan that the strategy `auto` considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CandidatePlan {
    /// Where its placement is from: a strategy, the search (`auto`), the search after blocks were formed
    /// (`blocks first`), or one of these whose weights are sent (`staged heft`) or that was changed so that it fits (`repaired heft`).
    pub name: String,
    /// Whether anything is streamed in it.
    pub streamed: bool,
    /// What it was forecast to take, in seconds.
    #[serde(rename = "makespan_s")]
    pub makespan: f64,
}

impl CandidatePlan {
    /// A plan of this name, streamed or not, that was forecast to take so many seconds.
    pub fn new(name: String, streamed: bool, makespan: f64) -> Self {
        Self { name, streamed, makespan }
    }
}
