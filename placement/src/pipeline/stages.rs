//! Chain of stages to map, and the data between them.

use serde::{Deserialize, Serialize};

/// Number of processors that can work on one stage (Benoit and Robert, *stage types*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// One processor: an input may depend on the state that the input before it left behind.
    Monolithic,
    /// Several processors, each on another input.
    #[default]
    Replicable,
    /// Several processors on one input, or each on another.
    DataParallel,
}

/// One stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Name of the stage.
    pub name: String,
    /// Number of processors that can work on the stage.
    pub kind: StageKind,
    /// Seconds per input on each processor; `None` if the stage cannot run there.
    pub times: Vec<Option<f64>>,
    /// Share of the time, from 0 to 1, that a data-parallel group does not divide among its processors (Amdahl's law).
    pub serial: f64,
    /// Bytes that stay in memory, once for all processors of one memory.
    pub weights: u64,
    /// Bytes that each processor needs while it runs the stage.
    pub activations: u64,
}

impl Stage {
    /// Creates a replicable stage without weights and activations, and without a serial share.
    pub fn new(name: impl Into<String>, times: Vec<Option<f64>>) -> Self {
        Stage { name: name.into(), kind: StageKind::default(), times, serial: 0.0, weights: 0, activations: 0 }
    }

    /// Creates a stage of `work` operations on processors of these speeds, in operations per second.
    pub fn of_work(name: impl Into<String>, work: f64, speeds: &[f64]) -> Self {
        Stage::new(name, speeds.iter().map(|speed| Some(work / speed)).collect())
    }

    /// Sets the kind (default: replicable).
    pub fn with_kind(self, kind: StageKind) -> Self {
        Stage { kind, ..self }
    }

    /// Sets the share of the time, from 0 to 1, that a group does not divide (default: 0).
    pub fn with_serial(self, serial: f64) -> Self {
        Stage { serial, ..self }
    }

    /// Sets `weights` and `activations` in bytes (default: 0).
    pub fn with_memory(self, weights: u64, activations: u64) -> Self {
        Stage { weights, activations, ..self }
    }
}

/// Chain of stages, and the sizes of the data between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// Stages, in the order in which data pass them.
    pub stages: Vec<Stage>,
    /// Bytes into the first stage, between each stage and the next, and out of the last: one entry more than there are
    /// stages.
    pub data: Vec<u64>,
}

impl Stages {
    /// Creates a chain of stages with `data[k]` bytes into stage `k`; the last entry of `data` is the bytes of a
    /// result.
    pub fn new(stages: Vec<Stage>, data: Vec<u64>) -> Self {
        Stages { stages, data }
    }
}
