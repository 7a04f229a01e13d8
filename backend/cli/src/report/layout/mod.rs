//! A layered drawing of a directed acyclic graph, after Sugiyama, Tagawa and Toda 1981: layers, order within layers by
//! barycentres, coordinates by least squares; then folded into columns like a newspaper, because the graphs of models are long
//! and narrow and screens are not.
//!
//! It is ours because `rust-sugiyama` 0.4 goes as deep into the stack as a graph is long: a chain of 100,000 nodes ends the process.
//! Equal graphs give equal drawings. O(s · (v + e) log v) for s sweeps over v nodes and bends and e pieces of edges.

mod coordinates;
mod fold;
mod layers;
mod order;

use layers::Layered;

/// Where everything is, in pixels at full size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layout {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// By node, its centre.
    pub(crate) nodes: Vec<(f64, f64)>,
    /// By edge, the points between its ends through which it goes.
    pub(crate) bends: Vec<Vec<(f64, f64)>>,
}

pub(crate) const NODE_WIDTH: f64 = 156.0;
pub(crate) const NODE_HEIGHT: f64 = 34.0;
/// From one layer to the next.
const LAYER_HEIGHT: f64 = 66.0;
/// Between neighbours in a layer.
const GAP: f64 = 22.0;

/// Draws the graph with `nodes` nodes and these edges (from, to). Edges that would close a cycle are drawn, but do not count.
pub(crate) fn layout(nodes: usize, edges: &[(usize, usize)]) -> Layout {
    if nodes == 0 {
        return Layout::default();
    }
    let graph = Layered::new(nodes, edges);
    let rows = order::ordered(&graph);
    let across = coordinates::across(&graph, &rows);
    fold::folded(&graph, &rows, &across, edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(layout: &Layout) -> usize {
        let mut nodes = layout.nodes.clone();
        nodes.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut found = 0;
        for (at, one) in nodes.iter().enumerate() {
            let near = nodes[at + 1..].iter().take_while(|other| other.0 - one.0 < NODE_WIDTH);
            found += near.filter(|other| (other.1 - one.1).abs() < NODE_HEIGHT).count();
        }
        found
    }

    #[test]
    fn edges_lead_down_and_nodes_do_not_overlap() {
        let edges = [(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (4, 3)];
        let layout = layout(5, &edges);
        assert!(edges.iter().all(|(from, to)| layout.nodes[*from].1 < layout.nodes[*to].1), "{layout:?}");
        assert_eq!(overlaps(&layout), 0);
        assert_eq!(layout.bends[5].len(), 2, "the long edge passes two layers");
        assert!(layout.bends[..5].iter().all(Vec::is_empty));
    }

    #[test]
    fn a_large_graph_is_drawn_without_overlaps_and_always_alike() {
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let edges: Vec<_> = (1..3000)
            .flat_map(|to: usize| {
                let near = to.saturating_sub(1 + random(to.min(20)));
                [(near, to), (random(to), to)]
                    .into_iter()
                    .take(1 + usize::from(to.is_multiple_of(3)))
                    .collect::<Vec<_>>()
            })
            .collect();
        let one = layout(3000, &edges);
        assert_eq!(overlaps(&one), 0);
        assert_eq!(one, layout(3000, &edges));
        let inside = |(x, y): &(f64, f64)| (0.0..=one.width).contains(x) && (0.0..=one.height).contains(y);
        assert!(one.nodes.iter().chain(one.bends.iter().flatten()).all(inside));
    }

    #[test]
    fn a_long_chain_is_folded_and_cycles_do_no_harm() {
        let edges: Vec<_> = (0..99).map(|node| (node, node + 1)).collect();
        let chain = layout(100, &edges);
        assert!(chain.width > chain.height, "{} × {}", chain.width, chain.height);
        assert_eq!(overlaps(&chain), 0);
        let cycle = layout(3, &[(0, 1), (1, 2), (2, 0), (1, 1)]);
        assert_eq!(overlaps(&cycle), 0);
        assert_eq!(layout(0, &[]), Layout::default());
    }
}
