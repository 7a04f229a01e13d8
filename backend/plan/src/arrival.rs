//! Finds the node before which a travelling value must arrive, so that it can travel just in time.

use super::Step;
use super::order;
use super::stream::Gang;
use super::transfer::{Route, Transfer};
use super::uses::Uses;
use anabranch_ir::program::{NodeId, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::DeviceId;
use std::collections::BTreeMap;

/// Transfers by the node before which they stand; for a gang, that is its first node.
pub(super) type Ahead = BTreeMap<NodeId, Vec<Transfer>>;

/// Readers of values in an order with gangs.
pub(super) struct Arrivals<'a> {
    uses: &'a Uses,
    /// Position of each task.
    places: Vec<usize>,
    /// First member of each member's gang.
    begin: BTreeMap<NodeId, NodeId>,
}

impl<'a> Arrivals<'a> {
    pub(super) fn new(uses: &'a Uses, order: &[TaskId], gangs: &[Gang]) -> Self {
        let begin = gangs.iter().flat_map(|gang| gang.members.iter().map(|member| (*member, gang.members[0])));
        Self { uses, places: order::places(order), begin: begin.collect() }
    }

    /// Position of a node in the order.
    pub(super) fn place(&self, node: NodeId) -> usize {
        self.places[node.index()]
    }

    /// Node before which a value must be on a device; `None` if the caller receives it there.
    pub(super) fn before(&self, value: ValueId, device: DeviceId) -> Option<NodeId> {
        let readers = self.uses.on(value, device).iter();
        let nodes: Option<Vec<NodeId>> = readers.map(|(_, reader): &(_, Step)| reader.node()).collect();
        let begins = nodes?.into_iter().map(|node| self.begin.get(&node).copied().unwrap_or(node));
        begins.min_by_key(|node| self.place(*node))
    }

    /// Moves the copies that a node waits for from `transfers`, which start as soon as possible, to `ahead`, which
    /// start just in time.
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
