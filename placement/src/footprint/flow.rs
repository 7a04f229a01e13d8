//! Maximum flow by Dinic's algorithm (Dinitz 1970): layers by breadth first search, blocking flows along them.
//!
//! `O(V² E)` at worst. The networks of [antichains](super::antichain) take some ten phases of `O(E)` each in practice.
//! `O(V + E)` memory.

/// Flow network. An arc and its reverse are adjacent: the reverse of arc `a` is `a ^ 1`.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    heads: Vec<u32>,
    /// Residual capacity of each arc.
    rests: Vec<u64>,
    /// Arcs of each vertex.
    arcs: Vec<Vec<u32>>,
}

/// Capacity of arcs without a bound.
pub(super) const UNBOUNDED: u64 = u64::MAX / 2;

impl Network {
    pub(super) fn new(vertices: usize) -> Self {
        Network { heads: Vec::new(), rests: Vec::new(), arcs: vec![Vec::new(); vertices] }
    }

    /// Adds an arc; its number is even.
    pub(super) fn arc(&mut self, from: usize, to: usize, capacity: u64) -> usize {
        let arc = self.heads.len();
        self.heads.extend([to as u32, from as u32]);
        self.rests.extend([capacity, 0]);
        self.arcs[from].push(arc as u32);
        self.arcs[to].push(arc as u32 + 1);
        arc
    }

    /// Returns the flow on an arc.
    pub(super) fn carried(&self, arc: usize) -> u64 {
        self.rests[arc ^ 1]
    }

    /// Sends as much as possible, or until `enough` is sent; returns the amount.
    pub(super) fn send(&mut self, source: usize, sink: usize, enough: u64) -> u64 {
        let mut sent = 0;
        while sent < enough {
            let layers = self.layers(source);
            if layers[sink] == u32::MAX {
                break;
            }
            sent += self.block(source, sink, &layers, enough - sent);
        }
        sent
    }

    /// Returns the vertices that more flow from `source` could reach.
    pub(super) fn reached(&self, source: usize) -> Vec<bool> {
        self.layers(source).into_iter().map(|layer| layer != u32::MAX).collect()
    }

    /// Returns the distance of each vertex from `source` along arcs with residual capacity.
    fn layers(&self, source: usize) -> Vec<u32> {
        let mut layers = vec![u32::MAX; self.arcs.len()];
        layers[source] = 0;
        let mut queue = vec![source];
        let mut next = 0;
        while let Some(&vertex) = queue.get(next) {
            next += 1;
            for &arc in &self.arcs[vertex] {
                let head = self.heads[arc as usize] as usize;
                if self.rests[arc as usize] > 0 && layers[head] == u32::MAX {
                    layers[head] = layers[vertex] + 1;
                    queue.push(head);
                }
            }
        }
        layers
    }

    /// Sends along paths from layer to layer until each is blocked. Depth first without recursion, because chains are
    /// long.
    fn block(&mut self, source: usize, sink: usize, layers: &[u32], most: u64) -> u64 {
        let mut tried = vec![0usize; self.arcs.len()];
        let (mut way, mut sent): (Vec<usize>, u64) = (Vec::new(), 0);
        while sent < most {
            let vertex = way.last().map_or(source, |&arc| self.heads[arc] as usize);
            if vertex == sink {
                let amount = way.iter().map(|&arc| self.rests[arc]).min().unwrap_or(0).min(most - sent);
                for &arc in &way {
                    self.rests[arc] -= amount;
                    self.rests[arc ^ 1] += amount;
                }
                sent += amount;
                let full = way.iter().position(|&arc| self.rests[arc] == 0).unwrap_or(way.len());
                way.truncate(full);
            } else if let Some(&arc) = self.arcs[vertex].get(tried[vertex]) {
                let arc = arc as usize;
                let head = self.heads[arc] as usize;
                if self.rests[arc] > 0 && layers[head] == layers[vertex] + 1 {
                    way.push(arc);
                } else {
                    tried[vertex] += 1;
                }
            } else {
                match way.pop() {
                    Some(arc) => tried[self.heads[arc ^ 1] as usize] += 1,
                    None => break,
                }
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second path has to undo the flow that the first one sent through the middle.
    #[test]
    fn what_was_sent_is_sent_elsewhere_where_that_makes_room() {
        let mut network = Network::new(4);
        let arcs = [(0, 1, 3), (0, 2, 2), (1, 2, 5), (1, 3, 2), (2, 3, 3)].map(|(a, b, most)| network.arc(a, b, most));
        assert_eq!(network.send(0, 3, 1), 1);
        assert_eq!(network.send(0, 3, u64::MAX), 4);
        let into: u64 = [arcs[3], arcs[4]].iter().map(|&arc| network.carried(arc)).sum();
        assert_eq!((into, network.reached(0)), (5, vec![true, false, false, false]));
    }
}
