//! Graphs of three numerical algorithms.

use super::{GenerateError, Grain, check_size};
use crate::graph::{DatumId, GraphBuilder, TaskGraph, TaskId};

/// Generates a tree of recursive calls, each of which splits its elements into two halves, and then the butterflies.
/// Task `i` of a level needs tasks `i` and `i ^ 2^level` of the level before. A call on `m` elements is `m` pieces of
/// work, a butterfly is one piece.
pub(super) fn fast_fourier_transform(points: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    if !points.is_power_of_two() {
        let expected = "a power of two";
        return Err(GenerateError::Parameter { parameter: "points", value: points.into(), expected });
    }
    let levels = points.trailing_zeros();
    let (calls, butterflies) = (2 * u128::from(points) - 1, u128::from(points) * u128::from(levels));
    check_size(calls + butterflies, calls + 2 * butterflies)?;
    let mut builder = GraphBuilder::new();
    for level in 0..=levels {
        for call in 0..1u32 << level {
            builder.task(grain.task(format!("call {level}.{call}"), u64::from(points >> level)));
        }
    }
    // Breadth first: the parent of `n` is `(n - 1) / 2`, and its two halves are different data.
    for call in 1..2 * points - 1 {
        let half = u64::from(points >> (call + 1).ilog2());
        builder.edge(TaskId((call - 1) / 2), TaskId(call), grain.size(half));
    }
    let mut above: Vec<DatumId> =
        (0..points).map(|leaf| builder.datum(TaskId(points - 1 + leaf), grain.bytes)).collect();
    for level in 0..levels {
        let datum = |number: u32| above[number as usize];
        let mut below = Vec::with_capacity(points as usize);
        for number in 0..points {
            let task = builder.task(grain.task(format!("butterfly {level}.{number}"), 1));
            builder.consume(datum(number), task);
            builder.consume(datum(number ^ (1 << level)), task);
            below.push(builder.datum(task, grain.bytes));
        }
        above = below;
    }
    Ok(builder.build()?)
}

/// Generates a pivot task, which divides, for each column `k`, and an update of each column to its right. With `m − k`
/// elements the pivot is that many pieces of work, and an update twice as many. An update feeds the next update of its
/// column, or that column's pivot.
pub(super) fn gaussian_elimination(order: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    if order < 2 {
        let expected = "at least 2";
        return Err(GenerateError::Parameter { parameter: "order", value: order.into(), expected });
    }
    let square = u128::from(order) * u128::from(order);
    check_size((square + u128::from(order) - 2) / 2, square)?;
    let mut builder = GraphBuilder::new();
    let mut columns: Vec<Option<DatumId>> = vec![None; order as usize];
    for pivot in 0..order - 1 {
        let elements = u64::from(order - 1 - pivot);
        let task = builder.task(grain.task(format!("pivot {pivot}"), elements));
        if let Some(column) = columns[pivot as usize] {
            builder.consume(column, task);
        }
        let multipliers = builder.datum(task, grain.size(elements));
        for column in pivot + 1..order {
            let update = builder.task(grain.task(format!("update {pivot}.{column}"), 2 * elements));
            builder.consume(multipliers, update);
            if let Some(before) = columns[column as usize] {
                builder.consume(before, update);
            }
            columns[column as usize] = Some(builder.datum(update, grain.size(elements)));
        }
    }
    Ok(builder.build()?)
}

/// Generates the steps: factor the diagonal tile, solve the tiles below it, update the tiles to the right of these. The
/// unit of work is a third of the cube of a tile's width. A factorisation is one piece, a triangular solve and a
/// symmetric update are three, a product is six.
pub(super) fn cholesky(tiles: u32, grain: &Grain) -> Result<TaskGraph, GenerateError> {
    let count = u128::from(tiles);
    let tasks = count * (count + 1) * (count + 2) / 6;
    check_size(tasks, 3 * tasks)?;
    let mut builder = GraphBuilder::new();
    let mut content: Vec<Option<DatumId>> = vec![None; (tiles as usize) * (tiles as usize)];
    let place = |row: u32, column: u32| row as usize * tiles as usize + column as usize;
    let mut step = |name: String, pieces, reads: &[Option<DatumId>]| {
        let task = builder.task(grain.task(name, pieces));
        reads.iter().flatten().for_each(|&datum| builder.consume(datum, task));
        Some(builder.datum(task, grain.bytes))
    };
    for pivot in 0..tiles {
        let diagonal = place(pivot, pivot);
        content[diagonal] = step(format!("factor {pivot}"), 1, &[content[diagonal]]);
        for row in pivot + 1..tiles {
            let solved = place(row, pivot);
            content[solved] = step(format!("solve {row},{pivot}"), 3, &[content[diagonal], content[solved]]);
        }
        for row in pivot + 1..tiles {
            let (left, own) = (content[place(row, pivot)], place(row, row));
            content[own] = step(format!("square {row}.{pivot}"), 3, &[left, content[own]]);
            for column in pivot + 1..row {
                let (right, own) = (content[place(column, pivot)], place(row, column));
                content[own] = step(format!("product {row},{column}.{pivot}"), 6, &[left, right, content[own]]);
            }
        }
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(graph: &TaskGraph, name: &str) -> TaskId {
        graph.task_ids().find(|&task| graph.task(task).name == name).unwrap()
    }

    fn predecessors(graph: &TaskGraph, name: &str) -> Vec<String> {
        let before = graph.predecessors(by_name(graph, name)).iter();
        before.map(|&task| graph.task(task).name.clone()).collect()
    }

    #[test]
    fn tasks_wait_for_what_the_algorithms_need() {
        let grain = Grain { operations: 2.0, bytes: 8 };
        let fft = fast_fourier_transform(4, &grain).unwrap();
        assert_eq!(predecessors(&fft, "butterfly 0.1"), ["call 2.0", "call 2.1"]);
        assert_eq!(predecessors(&fft, "butterfly 1.0"), ["butterfly 0.0", "butterfly 0.2"]);
        let root = by_name(&fft, "call 0.0");
        assert_eq!((fft.task(root).operations, fft.outputs(root).len(), fft.bytes(fft.outputs(root)[0])), (8.0, 2, 16));

        let gauss = gaussian_elimination(4, &grain).unwrap();
        assert_eq!(predecessors(&gauss, "update 1.3"), ["update 0.3", "pivot 1"]);
        assert_eq!(predecessors(&gauss, "pivot 1"), ["update 0.1"]);
        let update = by_name(&gauss, "update 0.2");
        assert_eq!((gauss.task(update).operations, gauss.bytes(gauss.outputs(update)[0])), (12.0, 24));

        let cholesky = cholesky(3, &grain).unwrap();
        assert_eq!(predecessors(&cholesky, "product 2,1.0"), ["solve 1,0", "solve 2,0"]);
        assert_eq!(predecessors(&cholesky, "solve 2,1"), ["product 2,1.0", "factor 1"]);
        assert_eq!(predecessors(&cholesky, "factor 2"), ["square 2.1"]);
        assert_eq!(cholesky.task(by_name(&cholesky, "product 2,1.0")).operations, 12.0);
    }
}
