//! What is mapped: a chain of stages, and the data between them.

use serde::{Deserialize, Serialize};

/// How many processors can work at one stage (Benoit and Robert, *stage types*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// One: a data set may depend on what the one before it left behind.
    Monolithic,
    /// Several, each at another data set.
    #[default]
    Replicable,
    /// Several at the same data set, or each at another.
    DataParallel,
}

/// One stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// What people call it.
    pub name: String,
    /// How many processors can work at it.
    pub kind: StageKind,
    /// Seconds that one data set takes on each processor; `None` where the stage cannot run.
    pub times: Vec<Option<f64>>,
    /// The share of its time, from 0 to 1, that a data-parallel group does not divide among its processors (Amdahl's law).
    pub serial: f64,
    /// Bytes that stay where the stage runs, once for all processors of one memory.
    pub weights: u64,
    /// Bytes that the stage needs while it runs, for each processor that runs it.
    pub activations: u64,
}

impl Stage {
    /// A replicable stage without weights and activations, all of which a group would divide.
    pub fn new(name: impl Into<String>, times: Vec<Option<f64>>) -> Self {
        Stage { name: name.into(), kind: StageKind::default(), times, serial: 0.0, weights: 0, activations: 0 }
    }

    /// A stage of `work` operations on processors of these speeds, in operations a second.
    pub fn of_work(name: impl Into<String>, work: f64, speeds: &[f64]) -> Self {
        Stage::new(name, speeds.iter().map(|speed| Some(work / speed)).collect())
    }

    /// The same stage of another kind.
    pub fn with_kind(self, kind: StageKind) -> Self {
        Stage { kind, ..self }
    }

    /// The same stage, of whose time a group does not divide this share, from 0 to 1.
    pub fn with_serial(self, serial: f64) -> Self {
        Stage { serial, ..self }
    }

    /// The same stage with `weights` and `activations` in bytes.
    pub fn with_memory(self, weights: u64, activations: u64) -> Self {
        Stage { weights, activations, ..self }
    }
}

/// A chain of stages and the sizes of what passes between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// In the order of the data's way.
    pub stages: Vec<Stage>,
    /// Bytes into the first stage, between each and the next, and out of the last: one more than there are stages.
    pub data: Vec<u64>,
}

impl Stages {
    /// A chain of stages with `data[k]` bytes into stage `k`, and as many out of the last as `data` ends with.
    pub fn new(stages: Vec<Stage>, data: Vec<u64>) -> Self {
        Stages { stages, data }
    }
}
