//! Record of a plan that lost against a better plan.

use serde::{Deserialize, Serialize};

/// A plan that the strategy `auto` considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CandidatePlan {
    /// Origin of its placement.
    ///
    /// It is a strategy, the search (`auto`), or the search after blocks were formed (`blocks first`). A prefix marks
    /// streamed weights (`staged heft`) or changes that made it fit (`repaired heft`).
    pub name: String,
    /// Whether the plan streams anything.
    pub streamed: bool,
    /// Predicted time in seconds.
    #[serde(rename = "makespan_s")]
    pub makespan: f64,
}

impl CandidatePlan {
    /// Creates a record of a plan by its name, streaming and predicted seconds.
    pub fn new(name: String, streamed: bool, makespan: f64) -> Self {
        Self { name, streamed, makespan }
    }
}
