//! Unrolling of a logical graph: every construct becomes its copies, and every node one drop per copy of the groups
//! around it.
//!
//! The *context* of a drop distinguishes it from the other drops of its node: the index in each group around it, from
//! the outermost inwards. Contexts are the digits of a number, so the drops of a node are adjacent. A link connects
//! drops if the context of one is a prefix of the other's; see [`Unrolling::link`] for exceptions.

use super::document::{Link, LogicalGraph};
use super::node::{Kind, LogicalNode};
use super::physical::{Drop, PhysicalGraph};
use crate::format::Refusal;

/// Most drops of a physical graph.
pub const MAX_DROPS: u64 = 1 << 20;
/// Most links of a physical graph.
pub const MAX_LINKS: u64 = 1 << 22;
/// Most gathers and group-bys whose counts depend on each other: each needs a few nested calls.
const MOST_CHAINED: usize = 200;

impl LogicalGraph {
    /// Unrolls the graph.
    ///
    /// Takes `O(drops + links)` of the result, and `O(links²)` of the logical graph's own links. Finding inputs and
    /// starts takes nodes × links for each group.
    ///
    /// # Errors
    /// Returns an error for group-bys and gathers without an input, or with an input outside the groups around them, or
    /// with inputs in different groups. Also returns an error for links between nodes whose groups do not fit, and for
    /// more than [`MAX_DROPS`] drops or [`MAX_LINKS`] links.
    pub fn unroll(&self) -> Result<PhysicalGraph, Refusal> {
        let mut unrolling = Unrolling::new(self);
        unrolling.count_all()?;
        unrolling.make_drops()?;
        unrolling.join_groups()?;
        for &link in &self.links {
            unrolling.link(link)?;
        }
        unrolling.finish()
    }
}

/// State of the computation of a construct's count.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    Unknown,
    Sought,
    Known(u64),
}

struct Unrolling<'g> {
    nodes: &'g [LogicalNode],
    links: &'g [Link],
    /// Groups around each node, from the outermost inwards.
    around: Vec<Vec<usize>>,
    /// Number of copies of each construct in each copy of the groups around it.
    counts: Vec<Count>,
    /// First drop of each node; a gather has no drop, so the first of its lists in `gathered`.
    first: Vec<usize>,
    drops: Vec<Drop>,
    arcs: Vec<(usize, usize)>,
    /// Inputs of each copy of each gather.
    gathered: Vec<Vec<usize>>,
    /// Number of inputs in all of `gathered`.
    dealt: u64,
    /// Number of constructs whose counts are being computed.
    chained: usize,
}

impl<'g> Unrolling<'g> {
    fn new(graph: &'g LogicalGraph) -> Self {
        let nodes = &graph.nodes;
        let around = |node: &LogicalNode| {
            let mut groups: Vec<usize> = std::iter::successors(node.group, |&group| nodes[group].group).collect();
            groups.reverse();
            groups
        };
        Unrolling {
            nodes,
            links: &graph.links,
            around: nodes.iter().map(around).collect(),
            counts: vec![Count::Unknown; nodes.len()],
            first: vec![0; nodes.len()],
            drops: Vec::new(),
            arcs: Vec::new(),
            gathered: Vec::new(),
            dealt: 0,
            chained: 0,
        }
    }

    fn place(&self, node: usize) -> String {
        format!("node {:?} ({})", self.nodes[node].name, self.nodes[node].key)
    }

    fn unsupported<T>(&self, node: usize, what: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::Unsupported { place: self.place(node), what: what.into() })
    }

    fn count_all(&mut self) -> Result<(), Refusal> {
        (0..self.nodes.len())
            .filter(|&node| self.nodes[node].kind.is_group())
            .try_for_each(|group| self.count(group).map(drop))
    }

    /// Returns the number of copies of a construct in each copy of the groups around it.
    fn count(&mut self, group: usize) -> Result<u64, Refusal> {
        match self.counts[group] {
            Count::Known(count) => return Ok(count),
            Count::Sought => return self.unsupported(group, "fed by a group that depends on it"),
            Count::Unknown => self.counts[group] = Count::Sought,
        }
        self.chained += 1;
        if self.chained > MOST_CHAINED {
            return self.unsupported(group, format!("fed by a chain of more than {MOST_CHAINED} constructs"));
        }
        let count = match self.nodes[group].kind {
            Kind::Gather => {
                let inputs = self.inputs_of_gather(group)?;
                inputs.div_ceil(u64::from(self.nodes[group].count))
            }
            Kind::GroupBy => {
                let layers = self.layers(group)?;
                self.product(&layers)?
            }
            Kind::SubGraph => 1,
            _ => u64::from(self.nodes[group].count),
        };
        self.chained -= 1;
        self.counts[group] = Count::Known(count);
        Ok(count)
    }

    fn product(&mut self, groups: &[usize]) -> Result<u64, Refusal> {
        let mut product = 1u64;
        for &group in groups {
            product = product.saturating_mul(self.count(group)?);
        }
        if product > MAX_DROPS {
            return Err(Refusal::TooMany { what: "copies", count: product, limit: MAX_DROPS });
        }
        Ok(product)
    }

    /// Returns the node that a construct takes its inputs from.
    fn input(&self, group: usize) -> Result<usize, Refusal> {
        let link = self.links.iter().find(|link| link.to == group);
        link.map(|link| link.from).ok_or_else(|| Refusal::Missing { place: self.place(group), what: "input" })
    }

    /// Returns the groups of a node, including the node itself if it is a group.
    fn with_itself(&self, node: usize) -> Vec<usize> {
        let mut groups = self.around[node].clone();
        if self.nodes[node].kind.is_group() {
            groups.push(node);
        }
        groups
    }

    /// Rejects a further input of a gather or a group-by that does not match the first. The first input determines the
    /// number of copies, so all inputs must have as many.
    fn refuse_input(&self, from: usize, group: usize) -> Result<(), Refusal> {
        let kind = self.nodes[from].kind;
        let takes = kind == Kind::GroupBy && self.nodes[group].kind == Kind::Gather;
        if kind.is_group() && !takes {
            return self.unsupported(from, "a construct with a link; link its application");
        }
        let input = self.input(group)?;
        if self.with_itself(from) == self.with_itself(input) {
            return Ok(());
        }
        let what = format!("an input of {} in other groups than its input {}", self.place(group), self.place(input));
        self.unsupported(from, what)
    }

    /// Returns the number of inputs to a gather in each copy of the groups around it.
    fn inputs_of_gather(&mut self, gather: usize) -> Result<u64, Refusal> {
        let from = self.with_itself(self.input(gather)?);
        match from.strip_prefix(&self.around[gather][..]) {
            Some(inner) => {
                let inner = inner.to_vec();
                self.product(&inner)
            }
            None => self.unsupported(gather, "a gather whose input is not in the groups around it"),
        }
    }

    /// Returns the scatters that a group-by groups by, from the innermost outwards.
    fn layers(&mut self, group_by: usize) -> Result<Vec<usize>, Refusal> {
        let around = self.around[self.input(group_by)?].clone();
        let Some(inner) = around.strip_prefix(&self.around[group_by][..]) else {
            return self.unsupported(group_by, "a group-by whose input is not in the groups around it");
        };
        let Some(&innermost) = inner.last() else {
            return self.unsupported(group_by, "a group-by whose input is in no scatter");
        };
        if self.nodes[innermost].kind != Kind::Scatter {
            return self.unsupported(group_by, "a group-by whose input is not in a scatter");
        }
        let keys = &self.nodes[group_by].group_keys;
        if keys.is_empty() {
            return Ok(vec![innermost]);
        }
        let named = |group: &&usize| keys.contains(&self.nodes[**group].key);
        let layers: Vec<usize> = inner.iter().rev().filter(named).copied().collect();
        match layers.len() == keys.len() {
            true => Ok(layers),
            false => self.unsupported(group_by, "a group-by whose keys are not scatters around its input"),
        }
    }

    /// Returns the number of copies of each group around a node.
    fn shape(&self, node: usize) -> Vec<u64> {
        self.around[node].iter().map(|&group| self.known(group)).collect()
    }

    fn known(&self, group: usize) -> u64 {
        match self.counts[group] {
            Count::Known(count) => count,
            _ => unreachable!("all constructs were counted first"),
        }
    }

    /// Returns the total number of copies of a node.
    fn copies(&self, node: usize) -> u64 {
        self.shape(node).iter().fold(1, |product, &count| product.saturating_mul(count))
    }

    fn make_drops(&mut self) -> Result<(), Refusal> {
        for (at, node) in self.nodes.iter().enumerate() {
            let is_drop = !node.kind.is_group();
            let copies = match node.kind {
                Kind::Gather | Kind::GroupBy => self.copies(at).saturating_mul(self.known(at)),
                _ if is_drop => self.copies(at),
                _ => continue,
            };
            let each = if node.kind == Kind::GroupBy { 2 } else { 1 };
            let count = copies.saturating_mul(each).saturating_add((self.drops.len() + self.gathered.len()) as u64);
            if count > MAX_DROPS {
                return Err(Refusal::TooMany { what: "drops", count, limit: MAX_DROPS });
            }
            let mut shape = self.shape(at);
            if node.kind == Kind::Gather {
                self.first[at] = self.gathered.len();
                self.gathered.extend((0..copies).map(|_| Vec::new()));
                continue;
            }
            self.first[at] = self.drops.len();
            if !is_drop {
                shape.push(self.known(at));
            }
            let volume = if is_drop { node.volume } else { self.grouped_volume(at)? };
            for copy in 0..copies {
                let context = context(&shape, copy);
                if is_drop {
                    self.drops.push(Drop::of(node, context));
                } else {
                    // A group-by is a barrier followed by the grouped data.
                    self.arcs.push((self.drops.len(), self.drops.len() + 1));
                    self.drops.extend(Drop::group_by(node, context, volume));
                }
            }
        }
        Ok(())
    }

    /// Returns the volume of the grouped data: the input's volume for each copy of the groups around the input's own
    /// group.
    fn grouped_volume(&self, group_by: usize) -> Result<u64, Refusal> {
        let from = self.input(group_by)?;
        let outer = &self.around[from][..self.around[from].len().saturating_sub(1)];
        let copies = outer.iter().fold(1u64, |product, &group| product.saturating_mul(self.known(group)));
        Ok(self.nodes[from].volume.saturating_mul(copies))
    }

    /// Links the outputs of gathers and group-bys to the children that start them: the marked children, or else the
    /// children without an input. Links within the group are ordinary links.
    fn join_groups(&mut self) -> Result<(), Refusal> {
        for &Link { from, to, .. } in self.links.iter().filter(|link| self.nodes[link.to].kind == Kind::Gather) {
            self.gather(from, to)?;
        }
        for group in 0..self.nodes.len() {
            if !matches!(self.nodes[group].kind, Kind::Gather | Kind::GroupBy) {
                continue;
            }
            let children = || (0..self.nodes.len()).filter(|&child| self.nodes[child].group == Some(group));
            let mut starts: Vec<usize> = children().filter(|&child| self.nodes[child].starts_group).collect();
            if starts.is_empty() {
                starts = children().filter(|&child| !self.links.iter().any(|link| link.to == child)).collect();
            }
            for start in starts {
                if self.nodes[start].kind.is_group() {
                    return self.unsupported(start, "a construct that starts another; start its application instead");
                }
                for copy in 0..self.copies(start) as usize {
                    let to = self.first[start] + copy;
                    match self.nodes[group].kind {
                        Kind::Gather => {
                            let inputs = self.gathered[self.first[group] + copy].clone();
                            refuse_links((self.arcs.len() + inputs.len()) as u64)?;
                            self.arcs.extend(inputs.into_iter().map(|from| (from, to)));
                        }
                        _ => self.arcs.push((self.first[group] + 2 * copy + 1, to)),
                    }
                    refuse_links(self.arcs.len() as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Deals the drops of a node, or of a group-by, out to the copies of a gather, `count` drops to each.
    fn gather(&mut self, from: usize, gather: usize) -> Result<(), Refusal> {
        self.refuse_input(from, gather)?;
        let inputs = self.inputs_of_gather(gather)?;
        let (width, copies) = (u64::from(self.nodes[gather].count), self.known(gather));
        let outputs = self.outputs(from);
        self.dealt += outputs.len() as u64;
        refuse_links(self.dealt)?;
        for (number, drop) in outputs.into_iter().enumerate() {
            let (outer, inner) = (number as u64 / inputs.max(1), number as u64 % inputs.max(1));
            self.gathered[self.first[gather] + (outer * copies + inner / width) as usize].push(drop);
        }
        Ok(())
    }

    /// Returns the drops of a node that others read; for a group-by, the grouped data.
    fn outputs(&self, node: usize) -> Vec<usize> {
        match self.nodes[node].kind {
            Kind::GroupBy => {
                let copies = self.copies(node).saturating_mul(self.known(node)) as usize;
                (0..copies).map(|copy| self.first[node] + 2 * copy + 1).collect()
            }
            _ => (0..self.copies(node) as usize).map(|copy| self.first[node] + copy).collect(),
        }
    }

    /// Links the drops of a link's ends.
    ///
    /// * Each copy of a group-by takes the drops of its input with its index in the scatters that it groups by, within
    ///   the groups around both.
    /// * A link that closes a loop goes from each iteration to the next.
    /// * A loop-aware link goes into the first iteration only, and out of the last only.
    /// * Between nodes of different loops with equal numbers of iterations, each iteration is linked to the
    ///   corresponding one.
    fn link(&mut self, link: Link) -> Result<(), Refusal> {
        let (from, to) = (self.nodes[link.from].kind, self.nodes[link.to].kind);
        match (from, to) {
            (_, Kind::Gather) => Ok(()),
            (Kind::Gather | Kind::GroupBy, _) => {
                self.unsupported(link.to, "the target of a gather's or group-by's own link; put it into that group")
            }
            (_, Kind::GroupBy) => self.group(link),
            _ if from.is_group() => self.unsupported(link.from, "a construct with a link; link its application"),
            _ if to.is_group() => self.unsupported(link.to, "a construct with a link; link its application"),
            _ => self.join(link),
        }?;
        refuse_links(self.arcs.len() as u64)
    }

    fn group(&mut self, Link { from, to, .. }: Link) -> Result<(), Refusal> {
        self.refuse_input(from, to)?;
        let layers = self.layers(to)?;
        let (around, shape) = (self.around[from].clone(), self.shape(from));
        let outer = self.around[to].len();
        for copy in 0..self.copies(from) {
            let context = context(&shape, copy);
            let mut place = context[..outer].iter().zip(&shape).fold(0, |place, (index, count)| place * count + index);
            for layer in &layers {
                let level = around.iter().position(|group| group == layer).unwrap_or(0);
                place = place * shape[level] + context[level];
            }
            self.arcs.push((self.first[from] + copy as usize, self.first[to] + 2 * place as usize));
        }
        Ok(())
    }

    fn join(&mut self, link: Link) -> Result<(), Refusal> {
        let Link { from, to, loop_aware, closes_loop } = link;
        let (outer, inner) = (self.around[from].clone(), self.around[to].clone());
        let (from_shape, to_shape) = (self.shape(from), self.shape(to));
        if closes_loop {
            let is_loop = |&group: &usize| self.nodes[group].kind == Kind::Loop;
            if outer != inner || !outer.last().is_some_and(is_loop) {
                return self.unsupported(from, "the end of a loop that starts in another group");
            }
            let iterations = from_shape.last().copied().unwrap_or(1);
            let next = (0..self.copies(from)).filter(|copy| copy % iterations + 1 < iterations);
            let arcs: Vec<(usize, usize)> =
                next.map(|copy| (self.first[from] + copy as usize, self.first[to] + copy as usize + 1)).collect();
            self.arcs.extend(arcs);
            return Ok(());
        }
        let side_by_side = from_shape == to_shape && self.in_loops(&outer, &inner);
        let (shared, deeper, deep_shape) = match outer.len() <= inner.len() {
            true => (outer.len(), &inner, &to_shape),
            false => (inner.len(), &outer, &from_shape),
        };
        if !side_by_side && outer[..shared] != inner[..shared] {
            return self.unsupported(
                from,
                format!("linked to {}, whose groups are not around it and not in it", self.place(to)),
            );
        }
        let within: u64 = deep_shape[shared..].iter().product();
        let in_loop =
            deeper.last().filter(|&&group| loop_aware && deeper.len() > shared && self.nodes[group].kind == Kind::Loop);
        let iterations = in_loop.map(|&group| self.known(group));
        let into = outer.len() <= inner.len();
        for copy in 0..deep_shape.iter().product::<u64>() {
            let (deep, shallow) = (copy as usize, (copy / within) as usize);
            let taken = iterations.is_none_or(|count| copy % count == if into { 0 } else { count - 1 });
            if taken {
                let (from_copy, to_copy) = if into { (shallow, deep) } else { (deep, shallow) };
                self.arcs.push((self.first[from] + from_copy, self.first[to] + to_copy));
            }
        }
        Ok(())
    }

    /// Whether two nodes are in different groups that are all loops below their common groups.
    fn in_loops(&self, one: &[usize], other: &[usize]) -> bool {
        let apart = one.iter().zip(other).position(|(one, other)| one != other);
        let is_loop = |&group: &usize| self.nodes[group].kind == Kind::Loop;
        apart.is_some_and(|at| one[at..].iter().chain(&other[at..]).all(is_loop))
    }

    fn finish(mut self) -> Result<PhysicalGraph, Refusal> {
        self.arcs.sort_unstable();
        self.arcs.dedup();
        PhysicalGraph::new(self.drops, self.arcs)
    }
}

/// Rejects more links than the limit.
pub(super) fn refuse_links(count: u64) -> Result<(), Refusal> {
    if count > MAX_LINKS { Err(Refusal::TooMany { what: "links", count, limit: MAX_LINKS }) } else { Ok(()) }
}

/// Returns the digits of a copy's number.
fn context(shape: &[u64], copy: u64) -> Vec<u64> {
    let mut digits = vec![0; shape.len()];
    shape.iter().zip(&mut digits).rev().fold(copy, |rest, (&count, digit)| {
        *digit = rest % count;
        rest / count
    });
    digits
}
