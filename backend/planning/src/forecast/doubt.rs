//! Prediction interval of a plan's run, from the spreads of its nodes, copies and overheads.

use super::{Script, read_seconds};
use anabranch_costs::{CostSource, Estimate, NodeCost, interval};
use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::Transfer;

/// Spread of reads from another device's cache: kernels hide more or less of them behind arithmetic.
const READ_SPREAD: f64 = 2.0;

/// Costs that err together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Nodes of one family on one device.
    Family(DeviceId, &'static str),
    /// Copies over one link.
    Link(DeviceId, DeviceId),
    /// Reads from other devices' caches.
    Reads,
    /// Start of the threads.
    Start,
    /// End of the run.
    Finish,
}

/// Returns the 90 % prediction interval of a plan's makespan.
pub(super) fn interval_of(makespan: f64, script: &Script<'_>, costs: &[Vec<Option<NodeCost>>]) -> Option<(f64, f64)> {
    let (program, plan, machine) = (script.program, script.plan, script.machine);
    let node = |node: NodeId| {
        let device = plan.device_of(node);
        let cost = costs[node.index()][device.index()]?;
        let seconds = script.own_seconds(node, device, &cost);
        Some((Group::Family(device, program.node(node).spec.family().name), seconds, cost.spread))
    };
    let copies = plan.transfers().iter().filter(|transfer| transfer.moves(plan.devices()));
    let copy = |&Transfer { from, to, bytes, .. }: &Transfer| {
        let link = machine.link(from, to);
        (Group::Link(from, to), link.curve().time(bytes), Some(link.spread(bytes)))
    };
    let reads = script.reads.iter().map(|(node, reads)| {
        let seconds = read_seconds(&machine.costs, &machine.devices, plan.device_of(*node), reads);
        (Group::Reads, seconds, Some(READ_SPREAD))
    });
    let starts = [&script.run.start, &script.run.join].map(|history| script.start(history));
    let started = |one: &Estimate, other: &Estimate| one.nanoseconds.total_cmp(&other.nanoseconds);
    let last = starts.into_iter().flatten().max_by(started);
    let ends = [(Group::Start, last), (Group::Finish, script.run.finish.least())];
    let ends = ends.into_iter().filter_map(|(group, estimate)| {
        let estimate = estimate?;
        Some((group, estimate.nanoseconds * 1e-9, Some(estimate.spread)))
    });
    let moved = copies.map(copy).chain(reads).chain(ends);
    let foreign = program.node_ids().filter_map(|node| {
        let device = plan.device_of(node);
        let cost = costs[node.index()][device.index()]?;
        let own = matches!(cost.source, CostSource::Measured { .. } | CostSource::Cold { .. });
        (!own).then(|| script.own_seconds(node, device, &cost))
    });
    let foreign = foreign.sum();
    interval(makespan, program.node_ids().filter_map(node).chain(moved), foreign)
}
