//! What a pipeline will do, and what is predicted of it.

use super::choice::Candidate;
use super::costs::StageCosts;
use super::mapping::{On, StageMapping};
use super::teams::group_name;
use serde::Serialize;

/// What a pipeline will do, and what is predicted of it. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelinePlan {
    /// How the mapping was found.
    pub how: String,
    /// The stages, in the order of the data's way.
    pub stages: Vec<StagePlan>,
    /// From result to result.
    pub period: f64,
    /// From the beginning of a data set to its result.
    pub latency: f64,
    /// What handing over a data set takes at each stage, as measured; part of the period and the latency.
    pub handover: f64,
    /// What each device of the session holds at most for the pipeline: weights, the stages' own memory, and on the host what is in flight.
    pub held: Vec<(String, u64)>,
    /// What is in flight between stages at most: values that wait, that pass stages, and memory that is kept for the next.
    pub in_flight: u64,
    /// The mappings that were thought of, the best by prediction first.
    pub candidates: Vec<Tried>,
    /// The mapping, to be read again.
    #[serde(skip)]
    pub mapping: StageMapping,
}

/// A stage. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StagePlan {
    /// Where it runs: more than one device for a stage that is replicated. Cores that work at each data set together are one, as in
    /// `cpu0.0+cpu0.1`.
    pub devices: Vec<String>,
    /// The nodes.
    pub nodes: Vec<String>,
    /// What a data set takes on each of its devices.
    pub seconds: Vec<f64>,
    /// Whether its devices take data sets in turn; else whichever is free takes the next.
    pub in_turn: bool,
    /// Bytes of a data set before it.
    pub bytes_in: u64,
}

/// A mapping that was thought of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// How it was found.
    pub how: String,
    /// The devices of each of its stages, as in [`StagePlan::devices`]; none where all devices work together.
    pub devices: Vec<Vec<String>>,
    /// Predicted seconds from result to result.
    pub period: f64,
    /// Predicted seconds from the beginning of a data set to its result.
    pub latency: f64,
    /// Why it was not taken, where it was better by prediction than the one that was.
    pub refused: Option<String>,
}

impl Tried {
    pub(super) fn of(candidate: &Candidate, costs: &StageCosts, refused: Option<String>) -> Self {
        let names = |on: &On| on.takers().map(|taker| group_name(taker, &costs.processors)).collect();
        let stages = candidate.stages.as_ref();
        Self {
            how: candidate.how.clone(),
            devices: stages.map_or_else(Vec::new, |stages| stages.on.iter().map(names).collect()),
            period: candidate.performance.period,
            latency: candidate.performance.latency,
            refused,
        }
    }
}
