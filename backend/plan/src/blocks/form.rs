//! Forms blocks: largest possible groups of nodes on one device that stream into each other.
//!
//! The method follows SB-LTS (De Matteis 2023, section 4.1): tasks join the current block in order of their levels as
//! long as the block's volume does not grow. Here the goal is to save memory traffic. Edges are therefore taken in the
//! order of their bytes, and the groups at both ends of an edge are merged if the result is still a block.

use super::chunk::chunk_budget;
use super::node::divides;
use super::quotient::Quotient;
use super::{BlockMembers, BlockNode, Readers, block_node, chunk_rows};
use crate::{ChunkRule, MachineDevice, StreamMode};
use anabranch_base::interruption;
use anabranch_ir::program::{NodeId, Program};
use anabranch_kernels::op::NodeSpec;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::cmp::Reverse;

/// Most nodes of a block: in larger blocks a chunk has long left the fastest cache, and kernels become long.
const MOST_MEMBERS: usize = 32;

/// Input for the forming of blocks.
pub struct Forming<'a> {
    /// Placed program.
    pub program: &'a Program,
    /// Device of each node.
    pub device_of: &'a [DeviceId],
    /// All devices.
    pub devices: &'a [MachineDevice],
    /// Mode of streaming. Under [`StreamMode::Auto`], no block is formed if a single row exceeds the cache.
    pub mode: StreamMode,
    /// Rule for the size of chunks.
    pub chunk: ChunkRule,
    /// Whether a device has a kernel for a block with these constant inputs.
    pub supports: &'a dyn Fn(DeviceId, &NodeSpec, &[bool]) -> bool,
}

/// The blocks of a placed program, by their first nodes: all that can stream together on one device does. Empty under
/// [`StreamMode::Off`], and fewer than could be if the caller is interrupted. O(e · (n + e)) at worst for n nodes and e
/// edges that could stream: a group grows at most `MOST_MEMBERS` times, and an edge is tried again only if a group at
/// its ends has grown.
pub fn form(forming: &Forming<'_>) -> Vec<BlockMembers> {
    if forming.mode == StreamMode::Off {
        return Vec::new();
    }
    let readers = Readers::of(forming.program);
    let groups = Quotient::new(forming.program, &readers);
    let mut growth = Growth { forming, readers: &readers, groups, careful: false };
    growth.grow();
    // Kernels of growing blocks would be prepared again for each node, so that only the final blocks are checked for
    // kernels. If a block has no kernel, its nodes grow again with a check at each step.
    let (supported, refused): (Vec<_>, Vec<_>) = growth.blocks().partition(|block| growth.is_supported(block));
    if refused.is_empty() {
        return supported.into_iter().map(members).collect();
    }
    let mut groups = Quotient::new(forming.program, &readers);
    for block in &supported {
        block.members[1..].iter().for_each(|node| groups.merge(block.members[0].index(), node.index()));
    }
    let mut growth = Growth { groups, careful: true, ..growth };
    growth.grow();
    growth.blocks().map(members).collect()
}

fn members(block: BlockNode) -> BlockMembers {
    BlockMembers { chunk_rows: block.chunk_rows(), members: block.members }
}

struct Growth<'a> {
    forming: &'a Forming<'a>,
    readers: &'a Readers,
    groups: Quotient<'a>,
    /// Whether two groups are merged only if their device has a kernel for the result.
    careful: bool,
}

impl Growth<'_> {
    /// Merges groups until no merge is possible.
    fn grow(&mut self) {
        let mut edges: Vec<_> = self.edges().into_iter().map(|(_, from, to)| (from, to, [0; 2])).collect();
        // Joining two groups can make a join possible that was not before: a diamond's second branch.
        while edges.iter_mut().fold(false, |joined, (from, to, tried)| self.try_join(*from, *to, tried) || joined) {}
    }

    /// Joins the groups of two nodes if they can be and have not been `tried` with so many nodes: what other groups do
    /// makes a refusal no better.
    fn try_join(&mut self, from: NodeId, to: NodeId, tried: &mut [usize; 2]) -> bool {
        let sizes = [from, to].map(|node| self.groups.nodes(self.groups.of(node)).len());
        if *tried == sizes || interruption::is_due() {
            return false;
        }
        *tried = sizes;
        self.join(from, to)
    }

    /// Edges between nodes that could be members of one block, ordered by falling bytes.
    fn edges(&self) -> Vec<(Reverse<usize>, NodeId, NodeId)> {
        let program = self.forming.program;
        let part: Vec<bool> =
            program.nodes.iter().map(|n| divides(n).is_some() || n.spec.accumulated_rows().is_some()).collect();
        let mut edges = Vec::new();
        for to in program.node_ids().filter(|node| part[node.index()]) {
            for from in self.groups.producers(to).filter(|node| part[node.index()]) {
                if self.forming.device_of[from.index()] == self.forming.device_of[to.index()] {
                    let bytes = program.value(program.node(from).outputs[0]).spec.bytes();
                    edges.push((Reverse(bytes), from, to));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// Merges the groups of two nodes, if the result is a block.
    fn join(&mut self, from: NodeId, to: NodeId) -> bool {
        let (a, b) = (self.groups.of(from), self.groups.of(to));
        if a == b {
            return false;
        }
        let members = [self.groups.nodes(a), self.groups.nodes(b)].concat();
        if members.len() > MOST_MEMBERS {
            return false;
        }
        let Some(block) = self.block(&members) else { return false };
        if self.groups.between(a, b).is_some() || self.careful && !self.is_supported(&block) {
            return false;
        }
        self.groups.merge(a.min(b), a.max(b));
        true
    }

    /// Block of nodes on one device, if they form a block.
    fn block(&self, members: &[NodeId]) -> Option<BlockNode> {
        let Forming { program, devices, .. } = *self.forming;
        let device = devices.get(self.device(members).index())?;
        let mut block = block_node(program, self.readers, members, usize::MAX).ok()?;
        let crowded = device.kind == DeviceKind::Cpu && block.row_bytes() > chunk_budget(device);
        if crowded && self.forming.mode == StreamMode::Auto {
            return None;
        }
        block.set_chunk_rows(chunk_rows(&block, self.forming.chunk, device));
        Some(block)
    }

    /// Whether the device of a block has a kernel for it.
    fn is_supported(&self, block: &BlockNode) -> bool {
        let constant: Vec<bool> =
            block.inputs.iter().map(|input| self.forming.program.constant(*input).is_some()).collect();
        (self.forming.supports)(self.device(&block.members), &block.spec, &constant)
    }

    fn device(&self, members: &[NodeId]) -> DeviceId {
        self.forming.device_of[members[0].index()]
    }

    /// Blocks of all groups of several nodes.
    fn blocks(&self) -> impl Iterator<Item = BlockNode> {
        let lists = self.forming.program.node_ids().map(|node| self.groups.nodes(node.index()));
        lists.filter(|list| list.len() > 1).filter_map(|list| self.block(list))
    }
}
