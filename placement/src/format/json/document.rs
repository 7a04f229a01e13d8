//! Document structure for serde.

use crate::graph::{Task, TaskId};
use crate::platform::{Device, DeviceId};
use crate::problem::MemoryRule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Matrix whose entries may be missing.
pub(super) type Matrix = Vec<Vec<Option<f64>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) name: Option<String>,
    pub(super) time_unit: Option<String>,
    pub(super) graph: Option<GraphPart>,
    pub(super) platform: Option<PlatformPart>,
    pub(super) times: Option<Matrix>,
    #[serde(default)]
    pub(super) only_on: BTreeMap<TaskId, BTreeSet<DeviceId>>,
    #[serde(default)]
    pub(super) memory_rule: MemoryRule,
    pub(super) bytes_a_unit: Option<f64>,
    #[serde(default)]
    pub(super) figures: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) task_ids: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphPart {
    pub(super) tasks: Vec<Task>,
    #[serde(default)]
    pub(super) data: Vec<DatumPart>,
    #[serde(default)]
    pub(super) colocated: Vec<Vec<TaskId>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatumPart {
    pub(super) producer: TaskId,
    pub(super) bytes: u64,
    pub(super) consumers: Vec<TaskId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformPart {
    pub(super) devices: Vec<Device>,
    pub(super) latency: Option<Matrix>,
    pub(super) rate: Option<Matrix>,
}
