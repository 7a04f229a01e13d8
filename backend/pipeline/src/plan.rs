//! Plan of a pipeline, with its predictions.

use super::choice::Candidate;
use super::costs::StageCosts;
use super::mapping::{On, StageMapping};
use super::teams::group_name;
use serde::Serialize;

/// Plan of a pipeline, with its predictions. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelinePlan {
    /// Description of how the mapping was found.
    pub how: String,
    /// The stages, in the order in which data passes them.
    pub stages: Vec<StagePlan>,
    /// Predicted time between results.
    pub period: f64,
    /// Predicted time from the start of a data set to its result.
    pub latency: f64,
    /// Measured time to hand over a data set, per stage. Contained in the period and the latency.
    pub handover: f64,
    /// Most bytes that each device of the session holds for the pipeline: weights, the stages' own memory, and on the
    /// host the data sets in flight.
    pub held: Vec<(String, u64)>,
    /// Most bytes in flight: values that wait or pass stages, and memory kept for the next data sets.
    pub in_flight: u64,
    /// Mappings that were considered, the best by prediction first.
    pub candidates: Vec<Tried>,
    /// The mapping, in a form that can be read again.
    #[serde(skip)]
    pub mapping: StageMapping,
}

/// Plan of a stage. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StagePlan {
    /// Devices of the stage: more than one if it is replicated. Cores that work at each data set together are one
    /// device, as in `cpu0.0+cpu0.1`.
    pub devices: Vec<String>,
    /// Names of the stage's nodes.
    pub nodes: Vec<String>,
    /// Time of a data set on each of its devices.
    pub seconds: Vec<f64>,
    /// Whether its devices take data sets in turn. Otherwise the next free device takes the next data set.
    pub in_turn: bool,
    /// Bytes of a data set before the stage.
    pub bytes_in: u64,
    /// Bytes of the states that it keeps, of all sequences.
    pub state: u64,
}

/// A mapping that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Description of how it was found.
    pub how: String,
    /// Devices of each of its stages, as in [`StagePlan::devices`]; empty if all devices work together.
    pub devices: Vec<Vec<String>>,
    /// Predicted seconds between results.
    pub period: f64,
    /// Predicted seconds from the start of a data set to its result.
    pub latency: f64,
    /// Reason why it was not taken, if its prediction was better than that of the mapping that was.
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
