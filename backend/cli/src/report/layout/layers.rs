//! Which layer each node is in, and the bends of edges that pass layers.

/// Most bends of all edges together; the edges that come last are then drawn straight.
const MOST_BENDS: usize = 60_000;

/// A graph whose edges lead from one layer to the next. Vertices are the nodes, then the bends.
pub(super) struct Layered {
    pub(super) nodes: usize,
    /// By vertex.
    pub(super) layer: Vec<usize>,
    /// By vertex, its neighbours in the layer before.
    pub(super) above: Vec<Vec<usize>>,
    /// By vertex, its neighbours in the layer after.
    pub(super) below: Vec<Vec<usize>>,
    /// By node, the bends of its longest edge, from the layer after it on. Its other edges share them, as they carry one value
    /// more often than not.
    pub(super) bends: Vec<Vec<usize>>,
}

impl Layered {
    pub(super) fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let (layer, edges) = layers(nodes, edges);
        let empty = || vec![Vec::new(); nodes];
        let mut graph = Self { nodes, layer, above: empty(), below: empty(), bends: empty() };
        graph.add_bends(&edges);
        for (from, to) in edges {
            let distance = graph.layer[to] - graph.layer[from];
            match distance {
                1 => graph.join(from, to),
                _ => {
                    if let Some(bend) = graph.bends[from].get(distance - 2).copied() {
                        graph.join(bend, to);
                    }
                }
            }
        }
        graph
    }

    /// The bends of the longest edge of every node, the shortest first.
    fn add_bends(&mut self, edges: &[(usize, usize)]) {
        let mut longest = vec![0; self.nodes];
        for &(from, to) in edges {
            longest[from] = longest[from].max(self.layer[to] - self.layer[from]);
        }
        let mut sources: Vec<_> = (0..self.nodes).filter(|node| longest[*node] > 1).collect();
        sources.sort_by_key(|node| longest[*node]);
        for node in sources {
            let bends = longest[node] - 1;
            if self.layer.len() - self.nodes + bends > MOST_BENDS {
                break;
            }
            let mut last = node;
            for step in 1..=bends {
                let bend = self.layer.len();
                self.layer.push(self.layer[node] + step);
                self.above.push(Vec::new());
                self.below.push(Vec::new());
                self.join(last, bend);
                self.bends[node].push(bend);
                last = bend;
            }
        }
    }

    fn join(&mut self, from: usize, to: usize) {
        self.below[from].push(to);
        self.above[to].push(from);
    }

    pub(super) fn is_bend(&self, vertex: usize) -> bool {
        vertex >= self.nodes
    }

    pub(super) fn len(&self) -> usize {
        self.layer.len()
    }

    pub(super) fn depth(&self) -> usize {
        self.layer.iter().max().map_or(0, |last| last + 1)
    }
}

/// Each node's layer, and the edges that lead down. A node is as high as its inputs allow; one with more outputs than inputs then
/// sinks to its first reader, so that inputs stand where they are needed.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> (Vec<usize>, Vec<(usize, usize)>) {
    let mut edges: Vec<_> = edges.iter().copied().filter(|(from, to)| from != to).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut readers = vec![Vec::new(); nodes];
    let mut waits = vec![0; nodes];
    for &(from, to) in &edges {
        readers[from].push(to);
        waits[to] += 1;
    }
    let inputs = waits.clone();
    let mut layer = vec![0usize; nodes];
    let mut sorted: Vec<usize> = (0..nodes).filter(|node| waits[*node] == 0).collect();
    let mut at = 0;
    while let Some(&node) = sorted.get(at) {
        for &reader in &readers[node] {
            layer[reader] = layer[reader].max(layer[node] + 1);
            waits[reader] -= 1;
            if waits[reader] == 0 {
                sorted.push(reader);
            }
        }
        at += 1;
    }
    for &node in sorted.iter().rev() {
        let first = readers[node].iter().map(|reader| layer[*reader]).min();
        if let Some(first) = first.filter(|_| readers[node].len() > inputs[node]) {
            layer[node] = layer[node].max(first.saturating_sub(1));
        }
    }
    edges.retain(|(from, to)| layer[*from] < layer[*to]);
    (layer, edges)
}
