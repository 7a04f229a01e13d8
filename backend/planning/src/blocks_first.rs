//! Streaming blocks that are formed before the placement.
//!
//! Blocks of a placed program hold nodes of one device, so that a placement that divides them is never compared with a
//! placement that keeps them together. Here all nodes that could stream on the host become one node, with the predicted
//! cost of its block on each device. Strategies place these nodes as any other nodes. Nodes that the caller pins or
//! colocates join no block.

use super::blocks::BlockPlanner;
use super::constraints::Constraints;
use super::error::PlanningError;
use super::placing::Placing;
use super::request::{BlockSource, PlacementRequest};
use super::strategy::Order;
use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::place::{Placement, Reason};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use anabranch_plan::blocks::{BlockMembers, BlockNode, Contraction, Readers, block_node, chunk_rows, contract};
use std::collections::BTreeSet;

/// Placements that are planned per set of blocks.
const PLANNED: usize = 2;

/// A program whose blocks are nodes, not placed yet.
struct Formed {
    contraction: Contraction,
    groups: Vec<BlockMembers>,
}

impl BlockPlanner<'_> {
    /// Returns the best placements with blocks formed first, as requests for the original program; none if nothing
    /// could stream.
    ///
    /// # Errors
    /// If no strategy finds a placement, or a constraint cannot be met.
    pub(super) fn before_placing(
        &self,
        program: &Program,
        constraints: &Constraints,
        rule: Order,
    ) -> Result<Vec<PlacementRequest>, PlanningError> {
        let Some(formed) = self.formed(program, constraints)? else { return Ok(Vec::new()) };
        let mut placing = Placing::new(&formed.contraction.program, self.machine, constraints)?;
        for (node, block) in &formed.contraction.blocks {
            for device in (0..self.machine.devices.len() as u32).map(DeviceId) {
                placing.assume(*node, device, self.gain_on(program, block, device).map(|gain| gain.with));
            }
        }
        let readers = Readers::of(program);
        let mut different = placing.improve(&self.machine.room(&self.options.weights))?.different;
        // Only devices count here: the program is ordered again by `rule`.
        different.dedup_by(|later, earlier| later.1.device_of == earlier.1.device_of);
        let first =
            |task: TaskId| formed.contraction.members.get(task.index()).map_or(task, |nodes| TaskId(nodes[0].0));
        let request = |placement: &Placement| {
            let nodes = formed.contraction.members.iter().zip(&placement.device_of).zip(&placement.reasons);
            let (mut assignment, mut reasons) =
                (vec![HOST; program.nodes.len()], vec![Reason::Given; program.nodes.len()]);
            let mut groups = formed.groups.clone();
            for ((members, device), reason) in nodes {
                let reason = reason.renumbered(first).credited(placement.strategy);
                for member in members {
                    assignment[member.index()] = *device;
                    reasons[member.index()].clone_from(&reason);
                }
                if let Some(group) = groups.iter_mut().find(|group| group.members[0] == members[0]) {
                    group.chunk_rows = self.chunk_rows(program, &readers, members, *device);
                }
            }
            let blocks = BlockSource::Given { groups, order: None };
            PlacementRequest { blocks, ..PlacementRequest::searched(assignment, reasons, rule) }
        };
        Ok(different.into_iter().take(PLANNED).map(|(_, placement)| request(&placement)).collect())
    }

    /// Returns the program with all blocks that gain on some device.
    fn formed(&self, program: &Program, constraints: &Constraints) -> Result<Option<Formed>, PlanningError> {
        let bound = self.bound(program, constraints)?;
        // Bound nodes get imaginary devices of their own, so that they join no block.
        let device = |node: NodeId| if bound.contains(&node) { DeviceId(u32::MAX - node.0) } else { HOST };
        let device_of: Vec<DeviceId> = program.node_ids().map(device).collect();
        let devices = (0..self.machine.devices.len() as u32).map(DeviceId);
        let readers = Readers::of(program);
        let gains = |block: &BlockNode| {
            let gain = |device| self.gain_on(program, block, device).is_some_and(|gain| gain.pays());
            devices.clone().any(gain)
        };
        let mut groups = self.formed_on(program, &device_of);
        groups.retain(|group| block_node(program, &readers, &group.members, usize::MAX).is_ok_and(|b| gains(&b)));
        groups.iter_mut().for_each(|group| group.chunk_rows = usize::MAX);
        // Each block gains by itself, but together they may wait for each other: then no block is formed.
        Ok(match contract(program, &groups) {
            Ok(contraction) if !groups.is_empty() => Some(Formed { contraction, groups }),
            _ => None,
        })
    }

    /// Nodes that the caller pins or colocates.
    fn bound(&self, program: &Program, constraints: &Constraints) -> Result<BTreeSet<NodeId>, PlanningError> {
        let pinned = constraints.pinned(program, &self.machine.devices)?;
        let pinned = program.node_ids().filter(|node| pinned[node.index()].is_some());
        let together = constraints.pairs(program)?.into_iter().flat_map(|(one, other)| [one, other]);
        Ok(pinned.chain(together).collect())
    }

    fn chunk_rows(&self, program: &Program, readers: &Readers, members: &[NodeId], device: DeviceId) -> usize {
        let block = block_node(program, readers, members, usize::MAX);
        let rows = |block: BlockNode| chunk_rows(&block, self.options.chunk, &self.machine.devices[device.index()]);
        block.map_or(usize::MAX, rows)
    }
}
