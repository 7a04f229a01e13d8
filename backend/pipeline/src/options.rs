//! How a pipeline is chosen and run.

use super::mapping::StageMapping;
use anabranch_execute::RunOptions;
use anabranch_placement::pipeline::Goal;
use std::num::NonZeroUsize;

/// Options of a [`Pipeline`](super::Pipeline). Start from [`Default`] and name what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PipelineOptions {
    /// What is sought. Default: the least period.
    pub goal: Goal,
    /// Which mappings are sought among. Default: all.
    pub among: Among,
    /// Data sets that may wait before each stage, for each of its devices, and behind the last: 1 at least. More make up for times that
    /// differ from data set to data set, and take memory and latency. Default: 2. Small data sets that come within less than 0.2 ms are
    /// handed on several at a time, for which more may wait.
    pub capacity: NonZeroUsize,
    /// Whether stages may be data-parallel: several cores of one CPU device work at each data set together. Default: yes.
    pub data_parallel: bool,
    /// Whether costs are measured first, which takes some ten runs of the model on one core, and as many on all cores of each CPU device
    /// together. Default: yes.
    pub measure: bool,
    /// How each stage is run.
    pub run: RunOptions,
}

/// Which mappings are sought among.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Among {
    /// All of these, and stages some of which are replicated or data-parallel.
    #[default]
    All,
    /// All devices together, one data set at a time: what [`Session::run`](anabranch_session::Session::run) does.
    Together,
    /// A whole copy of the model on each of so many cores; on all if no number is given.
    Replicated(Option<NonZeroUsize>),
    /// The whole model on so many cores of one CPU device, which work at each data set together; on all of the device that has most if no
    /// number is given.
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
        Self { goal, among, capacity, data_parallel: true, measure: true, run }
    }
}

impl PipelineOptions {
    /// Seeks this.
    pub fn with_goal(self, goal: Goal) -> Self {
        Self { goal, ..self }
    }

    /// Seeks among these mappings.
    pub fn with_among(self, among: Among) -> Self {
        Self { among, ..self }
    }

    /// Lets so many data sets wait before each stage, for each of its devices.
    pub fn with_capacity(self, capacity: NonZeroUsize) -> Self {
        Self { capacity, ..self }
    }

    /// Lets stages be data-parallel, or not.
    pub fn with_data_parallel(self, data_parallel: bool) -> Self {
        Self { data_parallel, ..self }
    }

    /// Measures costs first, or not.
    pub fn with_measuring(self, measure: bool) -> Self {
        Self { measure, ..self }
    }

    /// Runs stages like this.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }
}
