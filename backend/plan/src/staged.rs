//! Staged constants: weights that a GPU is sent in each run shortly before their first use, and that are freed after
//! their last use. A model larger than the GPU's memory can thus run there.
//!
//! A constant is sent while the GPU computes the readers of the constant staged before it. Memory is then needed for
//! the weights of two successive readers. If that does not fit, a constant is sent when its reader's turn comes. A
//! constant with several readers stays from the first to the last.

use super::arrival::{Ahead, Arrivals};
use super::transfer::{Route, Transfer};
use super::{HOST, KernelNeeds, PlanDevice};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Constants that stay in a GPU's memory between runs; the others are staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residency {
    /// All, if they fit. Otherwise planning compares plans with staged constants to plans in which nodes leave the GPU.
    /// A single plan keeps all.
    #[default]
    Auto,
    /// All constants.
    Resident,
    /// Only constants of less than [`Residency::LARGE`] bytes.
    Staged,
    /// On each listed GPU, this many bytes; on other GPUs, all. Among the large constants, those with a single reader
    /// are staged first, the largest before the others.
    Within(BTreeMap<DeviceId, u64>),
}

impl Residency {
    /// Constants smaller than this many bytes always stay: their transfer would take longer than their memory is worth.
    pub const LARGE: u64 = 256 << 10;

    /// Returns the bytes of constants that stay on a GPU, if they are limited.
    pub(crate) fn limit(&self, device: DeviceId) -> Option<u64> {
        match self {
            Self::Within(bytes) => bytes.get(&device).copied(),
            Self::Auto | Self::Resident | Self::Staged => None,
        }
    }

    /// Returns the most bytes of constants that stay on a GPU, and the least size of a constant that may be staged.
    fn limits(&self, device: DeviceId) -> (u64, u64) {
        match self {
            Self::Auto | Self::Resident => (u64::MAX, 0),
            Self::Staged => (0, Self::LARGE),
            Self::Within(_) => (self.limit(device).unwrap_or(u64::MAX), 0),
        }
    }
}

/// Constants that are staged.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Devices and values of the staged constants.
    of: BTreeSet<(DeviceId, ValueId)>,
    /// Bytes of the constants that stay, on each GPU with staged constants.
    stay: BTreeMap<DeviceId, u64>,
}

/// A constant that nodes of a GPU read.
#[derive(Default)]
struct Read {
    nodes: usize,
    /// Whether some kernel reads it during compilation, so that it must be there before the run.
    early: bool,
}

impl Staged {
    /// Stages the largest constants of each GPU until the rest is within its limit.
    ///
    /// Among the large constants, those with a single reader are staged first: the others are there from their first
    /// reader to their last. O(edges · log).
    pub(super) fn of(
        program: &Program,
        devices: &[PlanDevice],
        device_of: &[DeviceId],
        needs: &[KernelNeeds],
        residency: &Residency,
    ) -> Self {
        let mut read: BTreeMap<(DeviceId, ValueId), Read> = BTreeMap::new();
        for node in program.node_ids() {
            let device = device_of[node.index()];
            for (at, value) in program.node(node).inputs.iter().enumerate() {
                let read = read.entry((device, *value)).or_default();
                read.nodes += 1;
                read.early |= !needs[node.index()].is_read(at);
            }
        }
        for (at, output) in program.outputs.iter().enumerate() {
            read.remove(&(super::uses::output_device(program, device_of, at), output.value));
        }
        read.retain(|(device, value), read| {
            let gpu = devices[device.index()].kind == DeviceKind::Gpu;
            gpu && !read.early && program.constant(*value).is_some()
        });
        let bytes = |value: &ValueId| program.value(*value).spec.bytes() as u64;
        let mut staged = Self::default();
        for (index, _) in devices.iter().enumerate() {
            let device = DeviceId(index as u32);
            let (limit, least) = residency.limits(device);
            let all = read.range((device, ValueId(0))..=(device, ValueId(u32::MAX)));
            let mut all: Vec<_> = all.map(|((_, value), read)| (read.nodes > 1, bytes(value), *value)).collect();
            all.sort_unstable_by_key(|(several, bytes, value)| {
                (*bytes < Residency::LARGE, *several, Reverse(*bytes), *value)
            });
            let mut stay: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
            for (_, bytes, value) in all.into_iter().filter(|(_, bytes, _)| *bytes >= least.max(1)) {
                if stay <= limit {
                    break;
                }
                stay -= bytes;
                staged.of.insert((device, value));
                staged.stay.insert(device, stay);
            }
        }
        staged
    }

    pub(super) fn contains(&self, device: DeviceId, value: ValueId) -> bool {
        self.of.contains(&(device, value))
    }

    /// Returns the staged constants, each once, regardless of the number of its GPUs.
    pub(super) fn values(&self) -> BTreeSet<ValueId> {
        self.of.iter().map(|(_, value)| *value).collect()
    }

    /// Returns the residency that stages the same constants.
    pub(super) fn residency(&self) -> Residency {
        if self.of.is_empty() { Residency::Resident } else { Residency::Within(self.stay.clone()) }
    }

    /// Returns the transfers from the host.
    ///
    /// If `early`, each stands before the first reader of the constant that the same GPU is sent before it. Otherwise,
    /// and for the first constant, it stands before its own reader.
    pub(super) fn transfers(&self, program: &Program, arrivals: &Arrivals<'_>, early: bool) -> Ahead {
        let mut by_reader: BTreeMap<(DeviceId, usize), (NodeId, Vec<ValueId>)> = BTreeMap::new();
        for (device, value) in &self.of {
            if let Some(first) = arrivals.before(*value, *device) {
                let (_, values) = by_reader.entry((*device, arrivals.place(first))).or_insert((first, Vec::new()));
                values.push(*value);
            }
        }
        let mut ahead = Ahead::new();
        let mut last: Option<(DeviceId, NodeId)> = None;
        for ((to, _), (reader, values)) in by_reader {
            let at = last.filter(|(device, _)| early && *device == to).map_or(reader, |(_, node)| node);
            let bytes = |value: ValueId| program.value(value).spec.bytes() as u64;
            let sent = |value| Transfer { value, from: HOST, to, bytes: bytes(value), route: Route::Copied };
            ahead.entry(at).or_default().extend(values.into_iter().map(sent));
            last = Some((to, reader));
        }
        ahead
    }
}
