//! The graph of groups: what waits for what once each group is one node.

use super::Readers;
use crate::program::{NodeId, Origin, Program};

/// Nodes in groups; a node that is in none is a group of its own.
#[derive(Clone, Debug)]
pub(super) struct Quotient<'a> {
    program: &'a Program,
    readers: &'a Readers,
    of: Vec<usize>,
    lists: Vec<Vec<NodeId>>,
}

impl<'a> Quotient<'a> {
    /// Every node by itself: group `i` is node `i`.
    pub(super) fn new(program: &'a Program, readers: &'a Readers) -> Self {
        let count = program.nodes.len();
        Self { program, readers, of: (0..count).collect(), lists: program.node_ids().map(|node| vec![node]).collect() }
    }

    /// The group of a node.
    pub(super) fn of(&self, node: NodeId) -> usize {
        self.of[node.index()]
    }

    /// The nodes of a group, ascending; empty for one that was merged into another.
    pub(super) fn nodes(&self, group: usize) -> &[NodeId] {
        &self.lists[group]
    }

    /// Makes two groups one.
    pub(super) fn merge(&mut self, into: usize, from: usize) {
        let moved = std::mem::take(&mut self.lists[from]);
        moved.iter().for_each(|node| self.of[node.index()] = into);
        self.lists[into].extend(moved);
        self.lists[into].sort_unstable();
    }

    /// A node outside of both groups through which a path leads from one of them into one of them, so that together they
    /// would wait for themselves. O(nodes + edges).
    pub(super) fn between(&self, a: usize, b: usize) -> Option<NodeId> {
        let mut seen = vec![false; self.lists.len()];
        let mut open: Vec<(usize, NodeId)> = Vec::new();
        for node in self.lists[a].iter().chain(&self.lists[b]) {
            for reader in self.following(*node).filter(|reader| ![a, b].contains(&self.of(*reader))) {
                if !std::mem::replace(&mut seen[self.of(reader)], true) {
                    open.push((self.of(reader), reader));
                }
            }
        }
        while let Some((group, first)) = open.pop() {
            for reader in self.lists[group].iter().flat_map(|node| self.following(*node)) {
                let next = self.of(reader);
                if next == a || next == b {
                    return Some(first);
                }
                if !std::mem::replace(&mut seen[next], true) {
                    open.push((next, first));
                }
            }
        }
        None
    }

    /// The groups in an order in which each comes after all that it reads from; of those that could come next, the one
    /// with the first node. `Err` names a group that waits for itself. O((nodes + edges) · log).
    pub(super) fn order(&self) -> Result<Vec<usize>, usize> {
        let mut waits = vec![0usize; self.lists.len()];
        let crossing = |node: NodeId| self.following(node).filter(move |reader| self.of(*reader) != self.of(node));
        for node in self.program.node_ids() {
            crossing(node).for_each(|reader| waits[self.of(reader)] += 1);
        }
        let first = |group: usize| self.lists[group].first().copied();
        let free = (0..self.lists.len()).filter(|group| waits[*group] == 0);
        let mut ready: std::collections::BTreeSet<(NodeId, usize)> =
            free.filter_map(|group| first(group).map(|node| (node, group))).collect();
        let mut order = Vec::new();
        while let Some((_, group)) = ready.pop_first() {
            order.push(group);
            for reader in self.lists[group].iter().flat_map(|node| crossing(*node)) {
                let next = self.of(reader);
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.extend(first(next).map(|node| (node, next)));
                }
            }
        }
        let stuck = |group: &usize| self.lists[*group].len() > 1 && self.between(*group, *group).is_some();
        match (0..self.lists.len()).find(stuck).filter(|_| waits.iter().any(|waits| *waits > 0)) {
            Some(group) => Err(group),
            None => Ok(order),
        }
    }

    /// The nodes that read what a node makes, with repeats.
    fn following(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.program.node(node).outputs.iter().flat_map(|value| self.readers.nodes(*value)).copied()
    }

    /// The nodes whose outputs a node reads, with repeats.
    pub(super) fn producers(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.program.node(node).inputs.iter().filter_map(|value| match self.program.value(*value).origin {
            Origin::Node(producer) => Some(producer),
            Origin::Input | Origin::Constant(_) => None,
        })
    }
}
