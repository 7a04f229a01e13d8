//! The order of the vertices within each layer, so that few edges cross.

use super::layers::Layered;

const SWEEPS: usize = 24;
/// Sweeps without improvement after which it is enough.
const PATIENCE: usize = 6;

/// The vertices of each layer, from left to right: of all sweeps' orders the one with fewest crossings.
pub(super) fn ordered(graph: &Layered) -> Vec<Vec<usize>> {
    let mut rows = first(graph);
    let (mut best, mut fewest, mut patience) = (rows.clone(), crossings(graph, &rows), PATIENCE);
    for sweep in 0..SWEEPS {
        if fewest == 0 || patience == 0 {
            break;
        }
        let mut place = places(graph, &rows);
        match sweep % 2 {
            0 => (1..rows.len()).for_each(|row| sort(&mut rows[row], &graph.above, &mut place)),
            _ => (0..rows.len().saturating_sub(1)).rev().for_each(|row| sort(&mut rows[row], &graph.below, &mut place)),
        }
        let found = crossings(graph, &rows);
        patience -= 1;
        if found < fewest {
            (best, fewest, patience) = (rows.clone(), found, PATIENCE);
        }
    }
    best
}

/// Depth first from the sources, so that what belongs together starts together.
fn first(graph: &Layered) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); graph.depth()];
    let mut seen = vec![false; graph.len()];
    for source in (0..graph.len()).filter(|vertex| graph.above[*vertex].is_empty()) {
        let mut stack = vec![source];
        while let Some(vertex) = stack.pop() {
            if !std::mem::replace(&mut seen[vertex], true) {
                rows[graph.layer[vertex]].push(vertex);
                stack.extend(graph.below[vertex].iter().rev());
            }
        }
    }
    rows
}

fn places(graph: &Layered, rows: &[Vec<usize>]) -> Vec<usize> {
    let mut place = vec![0; graph.len()];
    rows.iter().for_each(|row| row.iter().enumerate().for_each(|(at, vertex)| place[*vertex] = at));
    place
}

/// Sorts a row by the mean place of each vertex' neighbours; those without stay where they are.
fn sort(row: &mut [usize], neighbours: &[Vec<usize>], place: &mut [usize]) {
    let mean = |vertex: usize| {
        let near = &neighbours[vertex];
        match near.len() {
            0 => place[vertex] as f64,
            count => near.iter().map(|other| place[*other] as f64).sum::<f64>() / count as f64,
        }
    };
    let mut keyed: Vec<(f64, usize)> = row.iter().map(|vertex| (mean(*vertex), *vertex)).collect();
    keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (at, (_, vertex)) in keyed.into_iter().enumerate() {
        row[at] = vertex;
        place[vertex] = at;
    }
}

/// Pairs of edges that cross, counted as inversions with a tree of sums (Barth, Jünger, Mutzel 2002).
fn crossings(graph: &Layered, rows: &[Vec<usize>]) -> u64 {
    let place = places(graph, rows);
    let mut sum = 0;
    for pair in rows.windows(2) {
        let mut tree = vec![0u64; pair[1].len() + 1];
        let mut seen = 0;
        let mut ends: Vec<usize> = Vec::new();
        for vertex in &pair[0] {
            ends.clear();
            ends.extend(graph.below[*vertex].iter().map(|other| place[*other]));
            ends.sort_unstable();
            for end in &ends {
                sum += seen - up_to(&tree, *end);
            }
            for end in &ends {
                add(&mut tree, *end);
                seen += 1;
            }
        }
    }
    sum
}

fn add(tree: &mut [u64], place: usize) {
    let mut at = place + 1;
    while at < tree.len() {
        tree[at] += 1;
        at += at & at.wrapping_neg();
    }
}

fn up_to(tree: &[u64], place: usize) -> u64 {
    let (mut at, mut sum) = (place + 1, 0);
    while at > 0 {
        sum += tree[at];
        at -= at & at.wrapping_neg();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_counted_and_removed() {
        // Two rows of three, joined upside down: every pair crosses.
        let graph = Layered::new(6, &[(0, 5), (1, 4), (2, 3)]);
        assert_eq!(crossings(&graph, &[vec![0, 1, 2], vec![3, 4, 5]]), 3);
        assert_eq!(crossings(&graph, &[vec![0, 1, 2], vec![5, 4, 3]]), 0);
        assert_eq!(crossings(&graph, &ordered(&graph)), 0);
        // A complete bipartite graph of two and two cannot be drawn without one.
        let graph = Layered::new(4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
        assert_eq!(crossings(&graph, &ordered(&graph)), 1);
    }
}
