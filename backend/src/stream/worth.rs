//! What a block gains: its time as one node against the times of its members.

use super::{BlockNode, StreamDevice};
use crate::profile::{CostSource, CostStore, NodeCost, Rates};
use crate::program::{NodeId, Program, ValueId};
use anabranch_placement::platform::DeviceKind;

/// What a block must save of its members' time to be streamed: predictions are not better than this.
const MARGIN: f64 = 0.05;

/// How much faster bytes come from the core's own cache than from memory, at least: a read of cached bytes is charged this
/// part of what memory takes. Taken from the measured times of blocks (see `bench/benches/streaming.rs`).
const CACHED_SHARE: f64 = 0.5;

/// Predicted times of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Of its members, one after the other: the sum of their predicted times.
    pub without: NodeCost,
    /// Of the block: measured before, else derived.
    pub with: NodeCost,
}

impl Worth {
    /// Predicts a block on a device.
    ///
    /// Without a history of the block, a member takes what it takes alone, less what its traffic with other members took to
    /// and from memory, but never less than its arithmetic; and all start once. Tensors that fit the device's own caches
    /// anyway save nothing. O(members + edges).
    pub fn of(program: &Program, block: &BlockNode, device: &StreamDevice, store: &CostStore) -> Self {
        let Self { without, with } = Self::at_hand(program, block, device, store);
        let there = |cost: NodeCost| NodeCost { seconds: cost.seconds * device.times, ..cost };
        Self { without: there(without), with: there(with) }
    }

    /// On the device whose costs are filed.
    fn at_hand(program: &Program, block: &BlockNode, device: &StreamDevice, store: &CostStore) -> Self {
        let alone: Vec<NodeCost> =
            block.members.iter().map(|node| store.predict(&device.key, &program.node(*node).spec)).collect();
        let without = NodeCost { seconds: alone.iter().map(|cost| cost.seconds).sum(), source: weakest(&alone) };
        if store.node(&device.key, &block.spec.key()).is_some() {
            return Self { without, with: store.predict(&device.key, &block.spec) };
        }
        let rates = store.devices.get(&device.key).and_then(|costs| costs.rates);
        let source = if rates.is_some() { CostSource::Roofline } else { CostSource::Assumed };
        let rates = rates.unwrap_or(Rates::ASSUMED);
        let unbounded = Rates { bandwidth: f64::INFINITY, launch: 0.0, ..rates };
        let streamed = |(node, cost): (&NodeId, &NodeCost)| {
            let arithmetic = unbounded.predict(&program.node(*node).spec);
            let saved = saved_bytes(program, block, *node, device) / rates.bandwidth + rates.launch;
            (cost.seconds - saved).max(arithmetic).max(0.0)
        };
        let seconds = rates.launch + block.members.iter().zip(&alone).map(streamed).sum::<f64>();
        Self { without, with: NodeCost { seconds, source } }
    }

    /// Whether streaming is predicted to gain clearly.
    pub fn pays(&self) -> bool {
        self.with.seconds < (1.0 - MARGIN) * self.without.seconds
    }
}

/// Bytes that a member need not bring from or to memory. What others than members want is still written.
fn saved_bytes(program: &Program, block: &BlockNode, node: NodeId, device: &StreamDevice) -> f64 {
    let node = program.node(node);
    let bytes = |value: &&ValueId| program.value(**value).spec.bytes() as u64;
    // Between two kernels of one device a small tensor stays in the cores' caches as it is.
    let cached = if device.kind == DeviceKind::Cpu { device.room() * device.threads as u64 } else { 0 };
    let inside = |value: &&ValueId| block.members.iter().any(|member| program.node(*member).outputs.contains(value));
    let read = node.inputs.iter().filter(inside);
    let written = node.outputs.iter().filter(|value| !block.outputs.contains(value));
    let saved: u64 = read.chain(written).map(|value| bytes(&value)).filter(|bytes| *bytes > cached).sum();
    let share = if device.kind == DeviceKind::Cpu { 1.0 - CACHED_SHARE } else { 1.0 };
    saved as f64 * share
}

/// What a sum of costs rests on: the weakest of its parts.
fn weakest(costs: &[NodeCost]) -> CostSource {
    let rank = |source: &CostSource| match source {
        CostSource::Assumed => (0, 0),
        CostSource::Roofline => (1, 0),
        CostSource::Measured { samples } => (2, *samples),
    };
    costs.iter().map(|cost| cost.source).min_by_key(rank).unwrap_or(CostSource::Assumed)
}
