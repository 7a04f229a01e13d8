//! The graph of groups: dependencies between groups once each is one node.

use super::Readers;
use anabranch_ir::program::{NodeId, Origin, Program};
use std::collections::BTreeSet;

/// Nodes in groups. Other nodes are groups of their own.
#[derive(Clone, Debug)]
pub(super) struct Quotient<'a> {
    program: &'a Program,
    readers: &'a Readers,
    of: Vec<usize>,
    lists: Vec<Vec<NodeId>>,
    lasts: PrefixMaxima,
}

impl<'a> Quotient<'a> {
    /// Creates the quotient in which every node is a group: group `i` is node `i`.
    pub(super) fn new(program: &'a Program, readers: &'a Readers) -> Self {
        let count = program.nodes.len();
        let lists = program.node_ids().map(|node| vec![node]).collect();
        Self { program, readers, of: (0..count).collect(), lists, lasts: PrefixMaxima(vec![0; count]) }
    }

    /// Group of a node.
    pub(super) fn of(&self, node: NodeId) -> usize {
        self.of[node.index()]
    }

    /// Nodes of a group, ascending; empty for a group that was merged into another.
    pub(super) fn nodes(&self, group: usize) -> &[NodeId] {
        &self.lists[group]
    }

    /// Merges two groups.
    pub(super) fn merge(&mut self, into: usize, from: usize) {
        let moved = std::mem::take(&mut self.lists[from]);
        moved.iter().for_each(|node| self.of[node.index()] = into);
        self.lists[into].extend(moved);
        self.lists[into].sort_unstable();
        if let [first, .., last] = self.lists[into][..] {
            self.lasts.raise(first.index(), last.index());
        }
    }

    /// Returns a node outside both groups on a path from one of them back into one of them, so that the merged group
    /// would wait for itself.
    ///
    /// O((nodes + edges) · log) of the groups that begin before the last node of both.
    pub(super) fn between(&self, a: usize, b: usize) -> Option<NodeId> {
        // Nodes are in topological order: a path back begins before the last node of its target.
        let last = [a, b].iter().filter_map(|group| self.lists[*group].last()).map(|node| node.index()).max()?;
        let horizon = self.lasts.closed(last);
        let near = |group: usize| self.lists[group].first().is_some_and(|first| first.index() <= horizon);
        let mut seen = BTreeSet::new();
        let mut open: Vec<(usize, NodeId)> = Vec::new();
        for node in self.lists[a].iter().chain(&self.lists[b]) {
            for reader in self.following(*node) {
                let next = self.of(reader);
                if ![a, b].contains(&next) && near(next) && seen.insert(next) {
                    open.push((next, reader));
                }
            }
        }
        while let Some((group, first)) = open.pop() {
            for reader in self.lists[group].iter().flat_map(|node| self.following(*node)) {
                let next = self.of(reader);
                if next == a || next == b {
                    return Some(first);
                }
                if near(next) && seen.insert(next) {
                    open.push((next, first));
                }
            }
        }
        None
    }

    /// Orders the groups so that each comes after all groups that it reads from; among the possible next groups, the
    /// group with the first node comes next.
    ///
    /// `Err` names a group that waits for itself. O((nodes + edges) · log).
    pub(super) fn order(&self) -> Result<Vec<usize>, usize> {
        let mut waits = vec![0usize; self.lists.len()];
        let crossing = |node: NodeId| self.following(node).filter(move |reader| self.of(*reader) != self.of(node));
        for node in self.program.node_ids() {
            crossing(node).for_each(|reader| waits[self.of(reader)] += 1);
        }
        let first = |group: usize| self.lists[group].first().copied();
        let free = (0..self.lists.len()).filter(|group| waits[*group] == 0);
        let mut ready: BTreeSet<(NodeId, usize)> =
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
        if waits.iter().all(|waits| *waits == 0) {
            return Ok(order);
        }
        let stuck = |group: &usize| self.lists[*group].len() > 1 && self.between(*group, *group).is_some();
        (0..self.lists.len()).find(stuck).map_or(Ok(order), Err)
    }

    /// Nodes that read a node's outputs, with repeats.
    fn following(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.program.node(node).outputs.iter().flat_map(|value| self.readers.nodes(*value)).copied()
    }

    /// Nodes whose outputs a node reads, with repeats.
    pub(super) fn producers(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.program.node(node).inputs.iter().filter_map(|value| match self.program.value(*value).origin {
            Origin::Node(producer) => Some(producer),
            Origin::Input | Origin::Constant(_) => None,
        })
    }
}

/// Last node of a group for each first node, with the maximum over all first nodes up to a given node (Fenwick 1994).
#[derive(Clone, Debug)]
struct PrefixMaxima(Vec<usize>);

impl PrefixMaxima {
    fn raise(&mut self, first: usize, last: usize) {
        let mut at = first;
        while let Some(most) = self.0.get_mut(at) {
            *most = last.max(*most);
            at |= at + 1;
        }
    }

    /// Follows groups from `node` on: the last node of all groups that begin at or before that last node.
    fn closed(&self, node: usize) -> usize {
        let mut horizon = node;
        loop {
            let (mut most, mut at) = (horizon, horizon + 1);
            while at > 0 {
                most = most.max(self.0[at - 1]);
                at &= at - 1;
            }
            if most == horizon {
                return horizon;
            }
            horizon = most;
        }
    }
}
