//! How far right each vertex stands: near its neighbours, with room between those of one layer.

use super::layers::Layered;
use super::{GAP, NODE_WIDTH};

const SWEEPS: usize = 48;
/// Of these, the last so many look both up and down.
const LAST: usize = 24;
/// Room for an edge that passes a layer.
const BEND_WIDTH: f64 = 8.0;
/// How much more it counts that an edge is straight, or two nodes that have nobody else are above each other.
const STRAIGHT: f64 = 8.0;

/// By vertex, the middle, from 0 for the leftmost edge on.
pub(super) fn across(graph: &Layered, rows: &[Vec<usize>]) -> Vec<f64> {
    let mut x = vec![0.0; graph.len()];
    for row in rows {
        let offsets = offsets(graph, row);
        let middle = offsets.last().copied().unwrap_or(0.0) / 2.0;
        row.iter().zip(&offsets).for_each(|(vertex, offset)| x[*vertex] = offset - middle);
    }
    for sweep in 0..SWEEPS {
        let both = sweep + LAST >= SWEEPS;
        let down = sweep % 2 == 0;
        let order: Vec<_> = if down { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
        order
            .into_iter()
            .for_each(|row| settle(graph, &rows[row], Sides { above: down || both, below: !down || both }, &mut x));
    }
    let left = |vertex: usize| x[vertex] - width(graph, vertex) / 2.0;
    let least = (0..graph.len()).map(left).fold(f64::INFINITY, f64::min);
    x.iter().map(|x| x - least).collect()
}

fn width(graph: &Layered, vertex: usize) -> f64 {
    if graph.is_bend(vertex) { BEND_WIDTH } else { NODE_WIDTH }
}

/// The least distance of each vertex of a row from the first.
fn offsets(graph: &Layered, row: &[usize]) -> Vec<f64> {
    let mut offset = 0.0;
    let mut last = None;
    row.iter()
        .map(|vertex| {
            if let Some(last) = last {
                offset += (width(graph, last) + width(graph, *vertex)) / 2.0 + GAP;
            }
            last = Some(*vertex);
            offset
        })
        .collect()
}

/// Which neighbours a row is moved towards.
#[derive(Clone, Copy)]
struct Sides {
    above: bool,
    below: bool,
}

/// Neighbouring vertices that are moved together.
struct Pool {
    mean: f64,
    weight: f64,
    members: usize,
}

/// Moves a row's vertices as near to their neighbours' mean as the distances allow: the least squares under an order, by pooling
/// adjacent violators (Barlow and others 1972).
fn settle(graph: &Layered, row: &[usize], sides: Sides, x: &mut [f64]) {
    let offsets = offsets(graph, row);
    let mut pools: Vec<Pool> = Vec::with_capacity(row.len());
    for (vertex, offset) in row.iter().zip(&offsets) {
        let preferred = preferred(graph, *vertex, sides, x);
        let mut pool = Pool { mean: preferred.mean - offset, ..preferred };
        while let Some(before) = pools.pop_if(|before| before.mean > pool.mean) {
            let weight = before.weight + pool.weight;
            let mean = (before.mean * before.weight + pool.mean * pool.weight) / weight;
            pool = Pool { mean, weight, members: before.members + pool.members };
        }
        pools.push(pool);
    }
    let places = pools.iter().flat_map(|pool| std::iter::repeat_n(pool.mean, pool.members));
    for ((vertex, offset), place) in row.iter().zip(&offsets).zip(places) {
        x[*vertex] = place + offset;
    }
}

/// The weighted mean of a vertex' neighbours.
fn preferred(graph: &Layered, vertex: usize, sides: Sides, x: &[f64]) -> Pool {
    let alone = |from: usize, to: usize| graph.below[from].len() == 1 && graph.above[to].len() == 1;
    let bends = |other: usize| graph.is_bend(vertex) && graph.is_bend(other);
    let pull = |straight: bool| if straight { STRAIGHT } else { 1.0 };
    let up = graph.above[vertex]
        .iter()
        .filter(|_| sides.above)
        .map(|other| (*other, pull(bends(*other) || alone(*other, vertex))));
    let down = graph.below[vertex]
        .iter()
        .filter(|_| sides.below)
        .map(|other| (*other, pull(bends(*other) || alone(vertex, *other))));
    let (sum, weight) =
        up.chain(down).fold((0.0, 0.0), |(sum, weight), (other, pull)| (sum + pull * x[other], weight + pull));
    let (mean, weight) = if weight > 0.0 { (sum / weight, weight) } else { (x[vertex], 0.05) };
    Pool { mean, weight, members: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_stands_over_the_middle_of_its_children() {
        let graph = Layered::new(4, &[(0, 1), (0, 2), (0, 3)]);
        let x = across(&graph, &[vec![0], vec![1, 2, 3]]);
        assert!((x[0] - x[2]).abs() < 1.0, "{x:?}");
        assert!((x[2] - x[1] - NODE_WIDTH - GAP).abs() < 1e-9);
        assert_eq!(x[1], NODE_WIDTH / 2.0);
    }
}
