//! Document structure for serde.

use crate::graph::{Task, TaskId};
use crate::platform::{Device, DeviceId};
use crate::problem::MemoryRule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Matrix whose entries may be missing.
pub(super) type Matrix = Vec<Vec<Option<f64>>>;

/// A graph, a platform, or a problem, which has both. Without a platform, there are no times.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    /// Name of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = super::FORMAT)))]
    pub(super) format: String,
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = super::VERSION)))]
    pub(super) version: u64,
    /// Name of the problem (default: the name of the file).
    pub(super) name: Option<String>,
    /// Unit of all times, such as `s` or `ms` (default: unknown).
    pub(super) time_unit: Option<String>,
    /// Graph to place. Without a graph, the file is a platform.
    pub(super) graph: Option<GraphPart>,
    /// Devices and links. Without a platform, the file is a graph.
    pub(super) platform: Option<PlatformPart>,
    /// `times[task][device]`: time of a task on a device, or null if it cannot run there (default: operations over
    /// speed).
    pub(super) times: Option<Matrix>,
    /// `uncertainties[task][device]`: a factor of at least 1, so that the task's time lies from `time / factor` to
    /// `time · factor` in nine cases of ten; null if it is unknown (default: unknown).
    pub(super) uncertainties: Option<Matrix>,
    /// By the position of a task, the devices that may run it (default: all that `allowed` and `times` admit).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<TaskId, Vec<DeviceId>>"))]
    pub(super) only_on: BTreeMap<TaskId, BTreeSet<DeviceId>>,
    /// Bytes that count against the memory of a device.
    #[serde(default)]
    pub(super) memory_rule: MemoryRule,
    /// Bytes per unit of size in the file that this file was converted from (default: 1).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub(super) bytes_a_unit: Option<f64>,
    /// Further numbers, by name.
    #[serde(default)]
    pub(super) figures: BTreeMap<String, f64>,
    /// Number of each task in the original file, which assignments use (default: its position).
    #[serde(default)]
    pub(super) task_ids: Vec<u64>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct GraphPart {
    /// The tasks. Other members name a task by its position in this list, from 0.
    pub(super) tasks: Vec<Task>,
    /// Data that tasks pass to each other.
    #[serde(default)]
    pub(super) data: Vec<DatumPart>,
    /// Groups of tasks that must share a device.
    #[serde(default)]
    pub(super) colocated: Vec<Vec<TaskId>>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct DatumPart {
    /// Task that makes it.
    pub(super) producer: TaskId,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Tasks that read it.
    pub(super) consumers: Vec<TaskId>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformPart {
    /// The devices. Other members name a device by its position in this list, from 0.
    pub(super) devices: Vec<Device>,
    /// Links that transfers share, instead of `latency` and `rate` (default: each pair has a link of its own).
    pub(super) network: Option<NetworkPart>,
    /// `latency[from][to]`: time before the first byte moves (default: 0). The diagonal is ignored.
    pub(super) latency: Option<Matrix>,
    /// `rate[from][to]`: bytes per time unit, or null for no limit (default: no limit). The diagonal is ignored.
    pub(super) rate: Option<Matrix>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkPart {
    /// The links, by name. Under contention, a link carries one transfer at a time.
    pub(super) links: Vec<LinkPart>,
    /// `routes[from][to]`: names of the links that a transfer uses. The diagonal is ignored.
    pub(super) routes: Vec<Vec<Vec<String>>>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct LinkPart {
    /// Name of the link.
    pub(super) name: String,
    /// Time before the first byte moves (default: 0).
    #[serde(default)]
    pub(super) latency: f64,
    /// Bytes per time unit, or null for no limit (default: no limit).
    #[serde(default)]
    pub(super) rate: Option<f64>,
}
