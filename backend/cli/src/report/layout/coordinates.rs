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
        for at in 0..rows.len() {
            let row = if down { at } else { rows.len() - 1 - at };
            settle(graph, &rows[row], [down || both, !down || both], &mut x);
        }
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

/// Neighbouring vertices that are moved together.
struct Pool {
    mean: f64,
    weight: f64,
    members: usize,
}

/// Moves a row's vertices as near to the mean of their neighbours above, below or both as the distances allow: the least squares under an order, by pooling
/// adjacent violators (Barlow and others 1972).
fn settle(graph: &Layered, row: &[usize], sides: [bool; 2], x: &mut [f64]) {
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
fn preferred(graph: &Layered, vertex: usize, [above, below]: [bool; 2], x: &[f64]) -> Pool {
    let straight = |from: usize, to: usize| {
        let bends = graph.is_bend(from) && graph.is_bend(to);
        bends || graph.below[from].len() == 1 && graph.above[to].len() == 1
    };
    let pull = |from: usize, to: usize| if straight(from, to) { STRAIGHT } else { 1.0 };
    let up = graph.above[vertex].iter().filter(|_| above).map(|other| (*other, pull(*other, vertex)));
    let down = graph.below[vertex].iter().filter(|_| below).map(|other| (*other, pull(vertex, *other)));
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
