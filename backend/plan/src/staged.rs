//! Staged constants: weights that a GPU is sent in each run shortly before they are read, and that give way after their last use, so that
//! a model larger than the GPU's memory can run there.
//!
//! A constant is sent while the nodes compute that read the one staged before it, so that what two neighbouring readers read wants memory at a
//! time; where there is no room for that, it is sent when its reader's turn comes. One that several nodes read is there from the first to the last.

use super::arrival::{Ahead, Arrivals};
use super::transfer::{Route, Transfer};
use super::{HOST, KernelNeeds, PlanDevice};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Which constants stay in a GPU's memory between runs; the others are staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residency {
    /// All, where they fit. Where they do not, planning compares plans in which some are staged with
    /// those in which nodes leave the GPU. A plan alone keeps all.
    #[default]
    Auto,
    /// All.
    Resident,
    /// Only those of less than [`Residency::LARGE`] bytes.
    Staged,
    /// On each GPU that is named so many bytes of them: of the large ones, those go first that one node reads, the largest before. Elsewhere all.
    Within(BTreeMap<DeviceId, u64>),
}

impl Residency {
    /// What is smaller than this always stays: a transfer of its own takes longer than its memory is worth. Bytes.
    pub const LARGE: u64 = 256 << 10;

    /// How many bytes of constants stay on a GPU, if that is stated.
    pub(crate) fn limit(&self, device: DeviceId) -> Option<u64> {
        match self {
            Self::Within(bytes) => bytes.get(&device).copied(),
            Self::Auto | Self::Resident | Self::Staged => None,
        }
    }

    /// How many bytes of constants stay on a GPU at most, and the size from which on one may be staged.
    fn limits(&self, device: DeviceId) -> (u64, u64) {
        match self {
            Self::Auto | Self::Resident => (u64::MAX, 0),
            Self::Staged => (0, Self::LARGE),
            Self::Within(_) => (self.limit(device).unwrap_or(u64::MAX), 0),
        }
    }
}

/// The constants that are staged.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Where, and which.
    of: BTreeSet<(DeviceId, ValueId)>,
    /// Bytes of those that stay, on each GPU where others do not.
    stay: BTreeMap<DeviceId, u64>,
}

/// A constant that nodes of a GPU read.
#[derive(Default)]
struct Read {
    nodes: usize,
    /// Whether some kernel looks at it while it is compiled, so that it must be there before the run.
    early: bool,
}

impl Staged {
    /// Stages the largest constants of each GPU until what stays is within its limit. Of those that are large, the ones that one node reads go
    /// first: others are there from their first reader to their last. O(edges · log).
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

    /// The constants, each once however many GPUs it is sent to.
    pub(super) fn values(&self) -> BTreeSet<ValueId> {
        self.of.iter().map(|(_, value)| *value).collect()
    }

    /// What makes the same constants staged.
    pub(super) fn residency(&self) -> Residency {
        if self.of.is_empty() { Residency::Resident } else { Residency::Within(self.stay.clone()) }
    }

    /// The transfers from the host: if they are to be `early`, each goes before the first reader of the constant that the same GPU is sent
    /// before; else, and the first in any case, before its own.
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
