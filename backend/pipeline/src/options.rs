//! Options for choosing and running a pipeline.

use super::mapping::StageMapping;
use anabranch_execute::RunOptions;
use anabranch_placement::pipeline::Goal;
use anabranch_session::StatePair;
use std::num::NonZeroUsize;

/// Options of a [`Pipeline`](super::Pipeline). Start from [`Default`] and set the fields that differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PipelineOptions {
    /// Goal of the choice. Default: the least period.
    pub goal: Goal,
    /// Mappings to choose from. Default: all.
    pub among: Among,
    /// Number of data sets that may wait before each stage, per device of the stage, and behind the last. At least 1.
    /// Default: 2.
    ///
    /// More data sets even out times that vary, but take memory and latency. Small data sets less than 0.2 ms apart are
    /// handed on several at a time; more of these may wait.
    pub capacity: NonZeroUsize,
    /// Whether stages may be data-parallel: several cores of one CPU device work at each data set together. Default:
    /// true.
    pub data_parallel: bool,
    /// Whether costs are measured first. Default: true.
    ///
    /// Measuring takes some ten runs of the model on one core, and as many on all cores of each CPU device together.
    pub measure: bool,
    /// Outputs of a data set that are inputs of the next one of its sequence. Default: none.
    ///
    /// The stage that reads such a state keeps it, on one device. States are not among the results.
    pub state: Vec<StatePair>,
    /// Number of sequences that are in the pipeline at a time: data set `n` belongs to sequence `n` modulo this number.
    /// Each has a state of its own. Default: 1.
    pub sequences: NonZeroUsize,
    /// Options of each stage's runs.
    pub run: RunOptions,
}

/// Mappings to choose from.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Among {
    /// All mappings below, and stages that may be replicated or data-parallel.
    #[default]
    All,
    /// All devices together, one data set at a time, as in [`Session::run`](anabranch_session::Session::run).
    Together,
    /// A whole copy of the model on each of this many cores. Default: all cores.
    Replicated(Option<NonZeroUsize>),
    /// The whole model on this many cores of one CPU device, which work at each data set together. Default: all cores
    /// of the device that has most.
    DataParallel(Option<NonZeroUsize>),
    /// Stages on one device each.
    Pipelined,
    /// This mapping alone.
    Given(StageMapping),
}

impl Default for PipelineOptions {
    fn default() -> Self {
        let capacity = NonZeroUsize::MIN.saturating_add(1);
        let (goal, among, run) = (Goal::Period, Among::All, RunOptions::default());
        let (state, sequences) = (Vec::new(), NonZeroUsize::MIN);
        Self { goal, among, capacity, data_parallel: true, measure: true, state, sequences, run }
    }
}

impl PipelineOptions {
    /// Sets the goal (default: the least period).
    pub fn with_goal(self, goal: Goal) -> Self {
        Self { goal, ..self }
    }

    /// Sets the mappings to choose from (default: all).
    pub fn with_among(self, among: Among) -> Self {
        Self { among, ..self }
    }

    /// Sets the number of data sets that may wait before each stage, per device of the stage (default: 2).
    pub fn with_capacity(self, capacity: NonZeroUsize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets whether stages may be data-parallel (default: true).
    pub fn with_data_parallel(self, data_parallel: bool) -> Self {
        Self { data_parallel, ..self }
    }

    /// Sets whether costs are measured first (default: true).
    pub fn with_measuring(self, measure: bool) -> Self {
        Self { measure, ..self }
    }

    /// Binds outputs of a data set to inputs of the next one of its sequence (default: none), and sets the number of
    /// sequences (default: 1). [`Session::state_pairs`](anabranch_session::Session::state_pairs) makes pairs of
    /// patterns.
    pub fn with_state(self, state: Vec<StatePair>, sequences: NonZeroUsize) -> Self {
        Self { state, sequences, ..self }
    }

    /// Sets the options of the stages' runs.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }
}
