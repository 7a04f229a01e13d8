//! The drawing folded into columns: from the foot of one, edges go up beside it to the head of the next.

use super::layers::Layered;
use super::{GAP, LAYER_HEIGHT, Layout, NODE_HEIGHT, NODE_WIDTH};

/// Width over height that the drawing should have.
const ASPECT: f64 = 2.2;
/// Between columns, where folded edges go up.
const GUTTER: f64 = 64.0;
/// Columns at most: more are hard to follow.
const MOST_COLUMNS: usize = 16;
const MARGIN: f64 = 16.0;

struct Column {
    first: usize,
    last: usize,
    /// What is taken off `across` to come to the column's left edge, and the column's place.
    shift: f64,
    width: f64,
    left: f64,
}

/// The drawing in as many columns as come nearest to a screen's shape.
pub(super) fn folded(graph: &Layered, rows: &[Vec<usize>], across: &[f64], edges: &[(usize, usize)]) -> Layout {
    let extents: Vec<(f64, f64)> = rows.iter().map(|row| extent(graph, row, across)).collect();
    let shape = |columns: &[Column]| {
        let (width, height) = size(columns);
        (width / height / ASPECT).ln().abs()
    };
    let (mut best, mut distance) = (columns(&extents, rows, 1), f64::INFINITY);
    for count in 1..=MOST_COLUMNS.min(rows.len()) {
        let found = columns(&extents, rows, count);
        if shape(&found) < distance {
            distance = shape(&found);
            best = found;
        }
    }
    draw(graph, across, edges, &best)
}

fn extent(graph: &Layered, row: &[usize], across: &[f64]) -> (f64, f64) {
    row.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(left, right), vertex| {
        let half = if graph.is_bend(*vertex) { 4.0 } else { NODE_WIDTH / 2.0 };
        (left.min(across[*vertex] - half), right.max(across[*vertex] + half))
    })
}

/// So many columns of about as many layers; each ends, near its due place, where fewest edges pass.
fn columns(extents: &[(f64, f64)], rows: &[Vec<usize>], count: usize) -> Vec<Column> {
    let height = rows.len().div_ceil(count);
    let slack = (height / 8).min(5);
    let mut columns = Vec::new();
    let (mut first, mut left) = (0, MARGIN);
    while first < rows.len() {
        let due = first + height - 1;
        let last = match due + slack + 1 >= rows.len() {
            true => rows.len() - 1,
            false => {
                let around = due.saturating_sub(slack).max(first)..=due + slack;
                around.min_by_key(|row| (rows[*row].len() + rows[*row + 1].len(), due.abs_diff(*row))).unwrap_or(due)
            }
        };
        let edge = |take: fn(f64, f64) -> f64, part: fn(&(f64, f64)) -> f64, start| {
            extents[first..=last].iter().map(part).fold(start, take)
        };
        let (from, to) = (edge(f64::min, |e| e.0, f64::INFINITY), edge(f64::max, |e| e.1, f64::NEG_INFINITY));
        columns.push(Column { first, last, shift: from, width: to - from, left });
        left += to - from + GUTTER;
        first = last + 1;
    }
    columns
}

fn size(columns: &[Column]) -> (f64, f64) {
    let layers = columns.iter().map(|column| column.last - column.first + 1).max().unwrap_or(0);
    let width = columns.last().map_or(0.0, |column| column.left + column.width) + MARGIN;
    (width, layers as f64 * LAYER_HEIGHT + 2.0 * MARGIN)
}

fn draw(graph: &Layered, across: &[f64], edges: &[(usize, usize)], columns: &[Column]) -> Layout {
    let (width, height) = size(columns);
    let column_of = |vertex: usize| columns.partition_point(|column| column.last < graph.layer[vertex]);
    let place = |vertex: usize| {
        let column = &columns[column_of(vertex)];
        let y = MARGIN + (graph.layer[vertex] - column.first) as f64 * LAYER_HEIGHT + LAYER_HEIGHT / 2.0;
        (column.left + across[vertex] - column.shift, y)
    };
    let passed = |from: usize, to: usize| -> Vec<usize> {
        let distance = graph.layer[to].saturating_sub(graph.layer[from]);
        let bends = graph.bends[from].get(..distance.saturating_sub(1)).unwrap_or(&[]);
        std::iter::once(from).chain(bends.iter().copied()).chain([to]).collect()
    };
    let bends = |&(from, to): &(usize, usize)| {
        let vertices = passed(from, to);
        let mut points = Vec::new();
        for (at, pair) in vertices.windows(2).enumerate() {
            let (one, other) = (column_of(pair[0]), column_of(pair[1]));
            if one < other {
                points.extend(around(columns, (one, place(pair[0]).0), (other, place(pair[1]).0), lane(from)));
            }
            if at + 2 < vertices.len() {
                points.push(place(pair[1]));
            }
        }
        points
    };
    Layout { width, height, nodes: (0..graph.nodes).map(place).collect(), bends: edges.iter().map(bends).collect() }
}

/// From 0 to 1: which of the lines in a gutter an edge of this node takes, so that neighbours differ.
fn lane(node: usize) -> f64 {
    (node % 8) as f64 / 7.0
}

/// From a place at the foot of a column to one at the head of a later: below the one, up in the gutter before the other, and over it.
fn around(columns: &[Column], from: (usize, f64), to: (usize, f64), lane: f64) -> [(f64, f64); 4] {
    let foot = |column: &Column| MARGIN + (column.last - column.first + 1) as f64 * LAYER_HEIGHT;
    // What passes other columns on its way goes below all of them.
    let y = columns[from.0..to.0].iter().map(foot).fold(0.0, f64::max) - (LAYER_HEIGHT - NODE_HEIGHT) / 2.0
        + 3.0
        + 12.0 * lane;
    let x = columns[to.0].left - GAP / 2.0 - (GUTTER - GAP) * lane;
    let top = MARGIN + 2.0 + 9.0 * lane;
    [(from.1, y), (x, y), (x, top), (to.1, top)]
}
