//! Which nodes read what another CPU device has just made: they pay for the lines that come out of the other's cache.

use super::super::machine::link;
use crate::plan::{MachineDevice, Plan, Route, Step};
use crate::profile::MachineCosts;
use crate::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::collections::BTreeMap;

/// A value that a node is the first of its device to read, and that another CPU device has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstRead {
    /// Who made it.
    pub(crate) from: DeviceId,
    pub(crate) bytes: u64,
    /// In how many pieces it comes.
    pub(crate) pieces: usize,
}

/// The first reads of all nodes that have some. What the caller gives is not counted: from the second run on it is where it was read.
pub(crate) fn first_reads(program: &Program, plan: &Plan) -> BTreeMap<NodeId, Vec<FirstRead>> {
    let cpu = |device: DeviceId| plan.device(device).kind == DeviceKind::Cpu;
    let crossing = plan.transfers().iter().filter(|transfer| cpu(transfer.from) && cpu(transfer.to));
    let made = crossing.filter(|transfer| matches!(program.value(transfer.value).origin, Origin::Node(_)));
    let mut unread: BTreeMap<(ValueId, DeviceId), FirstRead> = made
        .map(|transfer| {
            let (bytes, pieces) = match &transfer.route {
                Route::Streamed(stream) => (stream.chunk_bytes(), stream.chunks()),
                Route::Shared | Route::Copied => (transfer.bytes, 1),
            };
            ((transfer.value, transfer.to), FirstRead { from: transfer.from, bytes, pieces })
        })
        .collect();
    let mut reads: BTreeMap<NodeId, Vec<FirstRead>> = BTreeMap::new();
    for step in plan.steps() {
        let Step::Node(node) = step else { continue };
        let device = plan.device_of(*node);
        let first = program.node(*node).inputs.iter().filter_map(|value| unread.remove(&(*value, device)));
        for read in first {
            reads.entry(*node).or_default().push(read);
        }
    }
    reads
}

/// Seconds that reads take on the device `to` of these.
pub(crate) fn read_seconds(known: &MachineCosts, devices: &[MachineDevice], to: DeviceId, reads: &[FirstRead]) -> f64 {
    let seconds = |read: &FirstRead| {
        let curve = link(known, &devices[read.from.index()], &devices[to.index()]).read_curve();
        read.pieces as f64 * curve.time(read.bytes)
    };
    reads.iter().map(seconds).sum()
}
