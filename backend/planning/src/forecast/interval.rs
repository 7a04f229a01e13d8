//! Prediction interval of a plan's run, from the uncertainties of its nodes, copies and overheads.

use super::Script;
use anabranch_costs::{CostSource, Estimate, NodeCost, NodeTime, interval};
use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::Transfer;

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

/// A node on its device: its cost, its own seconds, and the seconds of its reads.
struct Work {
    node: NodeId,
    device: DeviceId,
    cost: NodeCost,
    own: f64,
    reads: f64,
}

/// Returns the 90 % prediction interval of a plan's makespan.
pub(super) fn interval_of(makespan: f64, script: &Script<'_>, costs: &[Vec<Option<NodeCost>>]) -> Option<(f64, f64)> {
    let (program, plan, machine) = (script.program, script.plan, script.machine);
    let work = |node: NodeId| {
        let device = plan.device_of(node);
        let cost = costs[node.index()][device.index()]?;
        let [own, reads] = script.parts(node, device, &cost);
        Some(Work { node, device, cost, own, reads })
    };
    let work: Vec<Work> = program.node_ids().filter_map(work).collect();
    let nodes = work.iter().map(|work| {
        let family = program.node(work.node).spec.family().name;
        (Group::Family(work.device, family), work.own, work.cost.uncertainty)
    });
    let copies = plan.transfers().iter().filter(|transfer| transfer.moves(plan.devices()));
    let copy = |&Transfer { from, to, bytes, .. }: &Transfer| {
        let link = machine.link(from, to);
        (Group::Link(from, to), link.curve().time(bytes), Some(link.uncertainty(bytes)))
    };
    let reads = work.iter().map(|work| (Group::Reads, work.reads, Some(NodeTime::READ_UNCERTAINTY)));
    let starts = [&script.run.start, &script.run.join].map(|history| script.start(history));
    let started = |one: &Estimate, other: &Estimate| one.nanoseconds.total_cmp(&other.nanoseconds);
    let last = starts.into_iter().flatten().max_by(started);
    let ends = [(Group::Start, last), (Group::Finish, script.run.finish.least())];
    let ends = ends.into_iter().filter_map(|(group, estimate)| {
        let estimate = estimate?;
        Some((group, estimate.seconds(), Some(estimate.uncertainty)))
    });
    let is_own = |work: &&Work| matches!(work.cost.source, CostSource::Measured { .. } | CostSource::Cold { .. });
    let foreign = work.iter().filter(|work| !is_own(work)).map(|work| work.own).sum();
    interval(makespan, nodes.chain(copies.map(copy)).chain(reads).chain(ends), foreign)
}
