//! Before which node what travels has to be there, so that it can go just in time.

use super::Step;
use super::order;
use super::stream::Gang;
use super::transfer::{Route, Transfer};
use super::uses::Uses;
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::DeviceId;
use std::collections::BTreeMap;

/// Transfers by the node that they go before, which is the first of its gang if it is in one.
pub(super) type Ahead = BTreeMap<NodeId, Vec<Transfer>>;

/// The readers of values in an order with gangs.
pub(super) struct Arrivals<'a> {
    uses: &'a Uses,
    /// By task.
    places: Vec<usize>,
    /// The first member of each member's gang.
    begin: BTreeMap<NodeId, NodeId>,
}

impl<'a> Arrivals<'a> {
    pub(super) fn new(uses: &'a Uses, order: &[TaskId], gangs: &[Gang]) -> Self {
        let begin = gangs.iter().flat_map(|gang| gang.members.iter().map(|member| (*member, gang.members[0])));
        Self { uses, places: order::places(order), begin: begin.collect() }
    }

    /// Where a node stands in the order.
    pub(super) fn place(&self, node: NodeId) -> usize {
        self.places[node.index()]
    }

    /// The node before which a value has to be on a device; none if the caller receives it there.
    pub(super) fn before(&self, value: ValueId, device: DeviceId) -> Option<NodeId> {
        let readers = self.uses.on(value, device).iter();
        let nodes: Option<Vec<NodeId>> = readers.map(|(_, reader): &(_, Step)| reader.node()).collect();
        let begins = nodes?.into_iter().map(|node| self.begin.get(&node).copied().unwrap_or(node));
        begins.min_by_key(|node| self.place(*node))
    }

    /// Moves the copies that a node waits for from `transfers`, which go as soon as they can, to those that go just in time.
    pub(super) fn delay(&self, transfers: &mut Vec<Transfer>, ahead: &mut Ahead) {
        transfers.retain(|transfer| {
            let reader = self.before(transfer.value, transfer.to).filter(|_| transfer.route == Route::Copied);
            reader.is_none_or(|reader| {
                ahead.entry(reader).or_default().push(transfer.clone());
                false
            })
        });
    }
}
