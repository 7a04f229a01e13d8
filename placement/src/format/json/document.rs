//! The document as serde sees it.

use crate::platform::DeviceKind;
use crate::problem::MemoryRule;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A matrix whose entries may be missing.
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
    pub(super) only_on: BTreeMap<u32, Vec<u32>>,
    #[serde(default)]
    pub(super) memory_rule: RulePart,
    pub(super) bytes_a_unit: Option<f64>,
    #[serde(default)]
    pub(super) figures: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) task_ids: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphPart {
    pub(super) tasks: Vec<TaskPart<'static>>,
    #[serde(default)]
    pub(super) data: Vec<DatumPart>,
    #[serde(default)]
    pub(super) colocated: Vec<Vec<u32>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskPart<'a> {
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<Vec<DeviceKind>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned: Option<u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) memory: u64,
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(super) operations: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatumPart {
    pub(super) producer: u32,
    pub(super) bytes: u64,
    pub(super) consumers: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformPart {
    pub(super) devices: Vec<DevicePart<'static>>,
    pub(super) latency: Option<Matrix>,
    pub(super) rate: Option<Matrix>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DevicePart<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) kind: DeviceKind,
    #[serde(default)]
    pub(super) memory: Option<u64>,
    #[serde(default = "one")]
    pub(super) speed: f64,
}

/// [`MemoryRule`] by name.
#[derive(Serialize, Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(super) enum RulePart {
    SizeEstimate,
    #[default]
    Resident,
    Ignore,
}

impl From<RulePart> for MemoryRule {
    fn from(part: RulePart) -> Self {
        match part {
            RulePart::SizeEstimate => MemoryRule::SizeEstimate,
            RulePart::Resident => MemoryRule::Resident,
            RulePart::Ignore => MemoryRule::Ignore,
        }
    }
}

impl From<MemoryRule> for RulePart {
    fn from(rule: MemoryRule) -> Self {
        match rule {
            MemoryRule::SizeEstimate => RulePart::SizeEstimate,
            MemoryRule::Resident => RulePart::Resident,
            MemoryRule::Ignore => RulePart::Ignore,
        }
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_nothing(value: &f64) -> bool {
    *value == 0.0
}

fn one() -> f64 {
    1.0
}
