//! Transfers: one for each value and each other device that reads it (send and receive insertion, Laich 2017, section
//! 2.4).

use super::stream::{self, Gang, Stream, StreamMode};
use super::uses::{Uses, origin};
use super::{PlanDevice, PlanOptions, Step};
use anabranch_ir::program::{Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::schedule::Schedule;
use std::collections::BTreeMap;
use std::fmt;

/// Index of a transfer, by its position in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u32);

impl TransferId {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// Route of a value to another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Between CPU devices of one host: the reader reads the owner's memory, and nothing is moved.
    Shared,
    /// Copied whole over a link, into memory of the target.
    Copied,
    /// In chunks of rows to its only reader, which computes each chunk while the next is in flight: over a link, or
    /// between CPU devices from the producer's ring.
    Streamed(Stream),
}

/// Transfer of one value to one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Transferred value.
    pub value: ValueId,
    /// Device that makes the value.
    pub from: DeviceId,
    /// Device that reads the value.
    pub to: DeviceId,
    /// Size of the value in bytes.
    pub bytes: u64,
    /// Route of the value.
    pub route: Route,
}

impl Transfer {
    /// Returns the stream, if the value is streamed.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.route {
            Route::Streamed(stream) => Some(stream),
            Route::Shared | Route::Copied => None,
        }
    }

    /// Whether bytes are moved over a link between its ends.
    pub fn moves(&self, devices: &[PlanDevice]) -> bool {
        [self.from, self.to].iter().any(|end| devices[end.index()].kind != DeviceKind::Cpu)
    }

    /// Whether the whole value has memory of its own on the target, a device of this kind.
    pub fn lands(&self, target: DeviceKind) -> bool {
        match self.route {
            Route::Shared => false,
            Route::Copied => true,
            Route::Streamed(_) => target != DeviceKind::Cpu,
        }
    }
}

/// Lists all transfers of a placed program, by value, then by target; none is streamed yet.
pub(super) fn all(program: &Program, devices: &[PlanDevice], device_of: &[DeviceId], uses: &Uses) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for (index, value) in program.values.iter().enumerate() {
        let id = ValueId(index as u32);
        let Some(from) = origin(program, device_of, id) else { continue };
        for readers in uses.by_device(id).filter(|readers| readers[0].0 != from) {
            let to = readers[0].0;
            let shared = [from, to].iter().all(|end| devices[end.index()].kind == DeviceKind::Cpu);
            let route = if shared { Route::Shared } else { Route::Copied };
            transfers.push(Transfer { value: id, from, to, bytes: value.spec.bytes() as u64, route });
        }
    }
    transfers
}

/// Streams the values within gangs, and the largest suitable transfer into each node outside gangs whose device waits
/// for it.
///
/// Such a node takes at most one stream: of two streams on one link, the second would wait behind the first, and the
/// node for both.
pub(super) fn stream(
    program: &Program,
    uses: &Uses,
    schedule: &Schedule,
    options: &PlanOptions,
    gangs: &[Gang],
    transfers: &mut [Transfer],
) {
    let mut together = vec![false; program.nodes.len()];
    let mut passed = BTreeMap::new();
    for gang in gangs {
        gang.members.iter().for_each(|member| together[member.index()] = true);
        passed.extend(gang.streams.iter().map(|(value, stream)| ((*value, stream.node), *stream)));
    }
    for transfer in transfers.iter_mut() {
        if let [(_, Step::Node(node))] = *uses.on(transfer.value, transfer.to)
            && let Some(stream) = passed.get(&(transfer.value, node))
        {
            transfer.route = Route::Streamed(*stream);
        }
    }
    if options.streaming == StreamMode::Off {
        return;
    }
    let worthwhile = stream::worthwhile(program, schedule, options);
    let mut best: Vec<Option<(usize, Stream)>> = vec![None; program.nodes.len()];
    for (at, transfer) in transfers.iter().enumerate().filter(|(_, t)| t.route == Route::Copied) {
        let [(_, Step::Node(node))] = *uses.on(transfer.value, transfer.to) else { continue };
        if !worthwhile[node.index()] || together[node.index()] {
            continue;
        }
        let Some(stream) = stream::into_node(program, node, transfer.value, options) else { continue };
        let place = &mut best[node.index()];
        if place.as_ref().is_none_or(|(other, _)| transfers[*other].bytes < transfer.bytes) {
            *place = Some((at, stream));
        }
    }
    for (at, stream) in best.into_iter().flatten() {
        transfers[at].route = Route::Streamed(stream);
    }
}
