//! Times of a program's nodes in their places: what the caches of the devices add to the times of their kernels.

use super::constants::Constants;
use super::reads::{first_reads, read_seconds};
use anabranch_costs::{CostSource, MachineCosts, NodeCost, NodeTime};
use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{MachineDevice, Plan};
use std::collections::BTreeMap;

/// Finds the [`NodeTime`] of each node. Planning predicts with it, and learning finds the times of kernels with it.
pub struct NodeTimes {
    constants: Constants,
    /// Extra seconds per byte of constants that are out of cache, by device.
    misses: Vec<f64>,
    /// Whether constants are out of cache, by device, if all nodes are on that device.
    alone: Vec<bool>,
    /// Whether constants are out of cache, by device, in the plan.
    planned: Vec<bool>,
    /// Extra seconds of reads from other devices' caches, by node.
    reads: BTreeMap<NodeId, f64>,
}

impl NodeTimes {
    /// Describes the nodes of a plan.
    pub fn of(program: &Program, plan: &Plan, devices: &[MachineDevice], known: &MachineCosts) -> Self {
        let unplaced = Self::unplaced(program, devices, known);
        let planned = unplaced.constants.uncached(devices, |node| plan.device_of(node));
        let reads = first_reads(program, plan).into_iter();
        let reads = reads.map(|(node, reads)| (node, read_seconds(known, devices, plan.device_of(node), &reads)));
        Self { planned, reads: reads.collect(), ..unplaced }
    }

    /// Describes the nodes of a program that is not placed: as if all were on one device.
    pub(super) fn unplaced(program: &Program, devices: &[MachineDevice], known: &MachineCosts) -> Self {
        let constants = Constants::of(program);
        let misses = devices.iter().map(|device| known.misses(&device.key) * device.times).collect();
        let alone = constants.uncached_alone(devices);
        Self { constants, misses, planned: alone.clone(), alone, reads: BTreeMap::new() }
    }

    /// Returns the time of a node on its device.
    pub fn at(&self, node: NodeId, device: DeviceId) -> NodeTime {
        let reads = self.reads.get(&node).copied().unwrap_or(0.0);
        self.with_constants(node, device, self.planned[device.index()]).with_reads(reads)
    }

    /// Returns the time of a node if all nodes are on this device, as placement assumes.
    pub(super) fn alone(&self, node: NodeId, device: DeviceId) -> NodeTime {
        self.with_constants(node, device, self.alone[device.index()])
    }

    /// Returns a predicted cost as one of the kernel alone: times from rates contain constants that are out of cache.
    pub(super) fn kernel(&self, node: NodeId, device: DeviceId, cost: NodeCost) -> NodeCost {
        let seconds = match cost.source {
            CostSource::Scaled { .. } | CostSource::Roofline | CostSource::Assumed => {
                self.with_constants(node, device, true).remove(cost.seconds)
            }
            CostSource::Measured { .. }
            | CostSource::Cold { .. }
            | CostSource::Fitted { .. }
            | CostSource::OtherKernels { .. } => cost.seconds,
        };
        NodeCost { seconds, ..cost }
    }

    fn with_constants(&self, node: NodeId, device: DeviceId, uncached: bool) -> NodeTime {
        let seconds = if uncached { self.constants.bytes(node) * self.misses[device.index()] } else { 0.0 };
        NodeTime::default().with_misses(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::tests::{devices, known, program};
    use anabranch_costs::{LinkCosts, Sample};
    use anabranch_plan::PlanOptions;
    use anabranch_plan::test_programs::{cpu_device, random_program};

    /// Extra seconds of a matrix that is out of cache.
    const EXTRA: f64 = 2.0 * 1e-3 / 256.0;

    #[test]
    fn constants_take_longer_out_of_cache_whatever_predicts_the_kernel() {
        let (program, devices, known) = (program(), devices(1), known());
        let [times, unknown] = [&known, &MachineCosts::default()].map(|k| NodeTimes::unplaced(&program, &devices, k));
        for node in program.node_ids() {
            let seconds = |times: &NodeTimes, device| times.alone(node, DeviceId(device)).apply(1e-3);
            assert_eq!([0, 1, 2].map(|device| seconds(&times, device)), [1e-3 + EXTRA, 1e-3 + EXTRA, 1e-3]);
            assert_eq!(seconds(&unknown, 0), 1e-3);
        }
    }

    #[test]
    fn learning_removes_what_planning_adds_to_the_nodes_of_random_plans() {
        arbtest::arbtest(|u| {
            let placed = random_program(u, 3)?;
            let plan = placed.plan(&PlanOptions::default()).expect("no limit");
            let mut known = MachineCosts::default();
            let mut devices = Vec::new();
            for device in &placed.devices {
                let cache = u.int_in_range(0..=200)?;
                devices.push(MachineDevice { kind: device.kind, cache, threads: 1, ..cpu_device(&device.name) });
                let sample = Sample { nanoseconds: f64::from(u.int_in_range(1..=u32::MAX)?), cold: false, at: 0 };
                assert!(known.devices.entry(device.name.clone()).or_default().misses.add(sample));
                for other in &placed.devices {
                    let mut link = LinkCosts::affine(0.0, 1e9);
                    let sample = Sample { nanoseconds: f64::from(u.int_in_range(1..=9999u32)?), ..sample };
                    assert!(link.record_read(u.int_in_range(1..=999)?, sample));
                    known.links.insert(MachineCosts::link_key(&device.name, &other.name), link);
                }
            }
            let times = NodeTimes::of(&placed.program, &plan, &devices, &known);
            for node in placed.program.node_ids() {
                let (device, kernel) = (plan.device_of(node), f64::from(u.int_in_range(1..=u32::MAX)?) * 1e-12);
                for time in [times.at(node, device), times.alone(node, device)] {
                    let back = time.remove(time.apply(kernel));
                    assert!((back - kernel).abs() <= 1e-11 * kernel, "{time:?}: {kernel} comes back as {back}");
                }
            }
            Ok(())
        })
        .budget_ms(300);
    }

    #[test]
    fn rates_have_constants_come_from_memory() {
        let times = NodeTimes::unplaced(&program(), &devices(2), &known());
        let kernel = |source| {
            let cost = NodeCost { seconds: 1e-3, uncertainty: None, source };
            times.kernel(NodeId(0), DeviceId(0), cost).seconds
        };
        assert!((kernel(CostSource::Roofline) - (1e-3 - EXTRA)).abs() < 1e-12);
        assert!((kernel(CostSource::Scaled { nodes: 2 }) - (1e-3 - EXTRA)).abs() < 1e-12);
        assert_eq!(kernel(CostSource::Measured { samples: 3 }), 1e-3);
    }
}
