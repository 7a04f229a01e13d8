//! Gain of a block: its time as one node against the sum of its members' times.

use super::BlockNode;
use super::chunk::chunk_budget;
use crate::MachineDevice;
use anabranch_costs::{CostSource, NodeCost, Predictor, Rates};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::DeviceKind;

/// Least share of its members' time that a block must save to be streamed: predictions are not more precise.
const MARGIN: f64 = 0.05;

/// Share of the memory's time that bytes from the core's own cache take.
///
/// Chains of 2 to 8 simple nodes with a sum were measured to run 2.5 to 4.2 times as fast in a block
/// (`bench/KERNELS.md`, streaming blocks). If only their first input comes from memory, this is a share of 0.19 to
/// 0.26.
const CACHED_SHARE: f64 = 0.25;

/// Predicted times of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockGain {
    /// Sum of the predicted times of its members, one after the other.
    pub without: NodeCost,
    /// Time of the block: measured before, else derived.
    pub with: NodeCost,
}

impl BlockGain {
    /// Predicts a block on a device.
    ///
    /// If the block has no history, a member takes its time alone less its memory traffic with other members, but at
    /// least the time of its arithmetic. All members together start once. Tensors that fit the device's own caches
    /// anyway save nothing. Threads share a block's chunks, so that a few chunks may leave some threads idle.
    /// O(members + edges).
    pub fn of(program: &Program, block: &BlockNode, device: &MachineDevice, known: &Predictor<'_>) -> Self {
        let Self { without, with } = Self::at_hand(program, block, device, known);
        Self { without: without.times(device.times), with: with.times(device.times) }
    }

    /// Predicts a block on the device whose costs are stored.
    fn at_hand(program: &Program, block: &BlockNode, device: &MachineDevice, predictor: &Predictor<'_>) -> Self {
        let alone: Vec<NodeCost> =
            block.members.iter().map(|node| predictor.predict(&program.node(*node).spec)).collect();
        let seconds = alone.iter().map(|cost| cost.seconds).sum();
        let uncertainty = widest(&alone);
        let without = NodeCost { seconds, uncertainty, source: weakest(&alone) };
        let with = predictor.predict(&block.spec);
        if matches!(with.source, CostSource::Measured { .. }) {
            return Self { without, with };
        }
        let rates = predictor.rates();
        let source = if rates.is_some() { CostSource::Roofline } else { CostSource::Assumed };
        let rates = rates.unwrap_or(Rates::ASSUMED);
        let unbounded = Rates { bandwidth: f64::INFINITY, launch: 0.0, ..rates };
        let streamed = |(node, cost): (&NodeId, &NodeCost)| {
            let arithmetic = unbounded.predict(&program.node(*node).spec);
            let saved = saved_bytes(program, block, *node, device) / rates.bandwidth + rates.launch;
            (cost.seconds - saved).max(arithmetic).max(0.0)
        };
        let work = block.members.iter().zip(&alone).map(streamed).sum::<f64>();
        let seconds = rates.launch + work * idle_factor(block, device);
        Self { without, with: NodeCost { seconds, uncertainty, source } }
    }

    /// Whether streaming is predicted to gain clearly.
    pub fn pays(&self) -> bool {
        self.with.seconds < (1.0 - MARGIN) * self.without.seconds
    }
}

/// Factor by which a block takes longer because its chunks do not divide evenly among the threads; 1 on a GPU, which
/// does not cut blocks.
fn idle_factor(block: &BlockNode, device: &MachineDevice) -> f64 {
    if device.kind != DeviceKind::Cpu {
        return 1.0;
    }
    let chunks = block.rows().div_ceil(block.chunk_rows().max(1)).max(1);
    let threads = device.threads.max(1);
    (chunks.div_ceil(threads) * threads) as f64 / chunks as f64
}

/// Memory traffic in bytes that a member saves. Outputs that nodes outside the block read are still written.
fn saved_bytes(program: &Program, block: &BlockNode, node: NodeId, device: &MachineDevice) -> f64 {
    let node = program.node(node);
    let bytes = |value: &&ValueId| program.value(**value).spec.bytes() as u64;
    // Between two kernels of one device, a small tensor stays in the cores' caches even without a block.
    let cached = if device.kind == DeviceKind::Cpu { chunk_budget(device) * device.threads as u64 } else { 0 };
    let inside = |value: &&ValueId| block.members.iter().any(|member| program.node(*member).outputs.contains(value));
    let read = node.inputs.iter().filter(inside);
    let written = node.outputs.iter().filter(|value| !block.outputs.contains(value));
    let saved: u64 = read.chain(written).map(|value| bytes(&value)).filter(|bytes| *bytes > cached).sum();
    let share = if device.kind == DeviceKind::Cpu { 1.0 - CACHED_SHARE } else { 1.0 };
    saved as f64 * share
}

/// Weakest source among several costs, which is the source of their sum.
fn weakest(costs: &[NodeCost]) -> CostSource {
    let rank = |source: &CostSource| match source {
        CostSource::Assumed => (0, 0),
        CostSource::Roofline => (1, 0),
        CostSource::Scaled { .. } | CostSource::OtherKernels { .. } => (2, 0),
        CostSource::Fitted { .. } => (3, 0),
        CostSource::Cold { samples } => (4, *samples),
        CostSource::Measured { samples } => (5, *samples),
    };
    costs.iter().map(|cost| cost.source).min_by_key(rank).unwrap_or(CostSource::Assumed)
}

/// Uncertainty of a sum of costs, if all its parts err in the same direction.
fn widest(costs: &[NodeCost]) -> Option<f64> {
    costs.iter().map(|cost| cost.uncertainty).reduce(|a, b| Some(a?.max(b?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::{Readers, block_node};
    use super::*;
    use crate::test_programs::chain;
    use crate::test_programs::cpu_device;
    use anabranch_costs::{DeviceCosts, MachineCosts, Sample};

    const RATES: Rates = Rates { matmul_flops: 1e11, conv_flops: 1e11, map_flops: 1e11, bandwidth: 1e10, launch: 1e-6 };

    /// Three element-wise nodes in a row on `rows` rows of 256 elements, as a block whose chunks hold a quarter of the
    /// rows.
    fn gain(rows: usize, threads: usize, change: impl Fn(&mut MachineCosts, &Program, &BlockNode)) -> BlockGain {
        let program = chain(3, &[rows, 256]);
        let members = [0, 1, 2].map(NodeId);
        let chunk_rows = rows * 256 / 4;
        let block = block_node(&program, &Readers::of(&program), &members, chunk_rows).expect("a block");
        let device = MachineDevice { threads, cache: 2 << 20, ..cpu_device("cpu") };
        let mut store = MachineCosts::default();
        store.devices.insert("cpu".into(), DeviceCosts { rates: Some(RATES), ..DeviceCosts::default() });
        change(&mut store, &program, &block);
        BlockGain::of(&program, &block, &device, &Predictor::new(store.devices.get("cpu")))
    }

    #[test]
    fn large_chains_pay_and_small_ones_only_save_starts() {
        // 64 MiB: each node takes 13.4 ms; four of six passes over memory are served from cache.
        let large = gain(1 << 16, 2, |_, _, _| {});
        assert!(large.pays() && large.with.seconds < 0.6 * large.without.seconds, "{large:?}");
        assert!(large.with.seconds > 0.4 * large.without.seconds, "{large:?}");
        // 1 MiB stays in the two cores' caches.
        let small = gain(1 << 10, 2, |_, _, _| {});
        assert!(!small.pays(), "{small:?}");
        // Eight threads share four chunks.
        assert!(!gain(1 << 16, 8, |_, _, _| {}).pays());
    }

    #[test]
    fn what_was_measured_decides() {
        let sample = |seconds: f64| Sample { nanoseconds: seconds * 1e9, cold: false, at: 0 };
        let measured = |seconds: f64| {
            gain(1 << 10, 2, move |store, program, block| {
                program.nodes.iter().for_each(|node| assert!(store.record("cpu", &node.spec, sample(1e-3))));
                assert!(store.record("cpu", &block.spec, sample(seconds)));
            })
        };
        assert!((measured(2e-3).without.seconds - 3e-3).abs() < 1e-9);
        assert_eq!(measured(2e-3).with.source, CostSource::Measured { samples: 1 });
        assert!(measured(2e-3).pays() && !measured(2.9e-3).pays());
    }
}
