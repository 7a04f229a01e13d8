//! Product of two square matrices by blocks: fork and join.

use super::Program;
use crate::{Collected, Flow};
use anabranch_base::random::SplitMix64;
use std::sync::Arc;

/// Two matrices of `size` × `size`, row by row, and the side of a block.
#[derive(Clone, Debug)]
pub struct Matmul {
    a: Vec<f32>,
    b: Vec<f32>,
    size: usize,
    block: usize,
}

impl Matmul {
    /// Makes two matrices of random numbers from -1 to 1, in blocks of at most `block` rows and columns, at least one.
    pub fn random(size: usize, block: usize, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut matrix = || (0..size * size).map(|_| (random.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
        let (a, b) = (matrix(), matrix());
        Matmul { a, b, size, block: block.max(1) }
    }

    /// Returns the columns of one block of `b`, from `first` on, row by row.
    fn columns(&self, first: usize) -> Vec<f32> {
        let last = (first + self.block).min(self.size);
        self.b.chunks(self.size.max(1)).flat_map(|row| &row[first..last]).copied().collect()
    }

    /// Copies a block to its position in the product.
    fn place(&self, product: &mut [f32], row: usize, column: usize, block: &[f32]) {
        let width = self.block.min(self.size - column);
        for (offset, values) in block.chunks(width).enumerate() {
            product[(row + offset) * self.size + column..][..width].copy_from_slice(values);
        }
    }

    fn starts(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        (0..self.size).step_by(self.block)
    }
}

impl Program for Matmul {
    type Answer = Vec<f32>;

    fn name(&self) -> &'static str {
        "matmul"
    }

    /// Builds the flow: a feeder for each panel of rows of `a` and of columns of `b`, a node for each block of the
    /// product, and a node that assembles them.
    fn flow(&self) -> (Flow<'_>, Collected<Vec<f32>>) {
        let mut flow = Flow::new();
        let panel_bytes = 4 * (self.block * self.size) as u64;
        let rows: Vec<_> = self.a.chunks((self.block * self.size).max(1)).map(Arc::<[f32]>::from).collect();
        let rows = rows
            .into_iter()
            .enumerate()
            .map(|(at, rows)| flow.feeder(format!("rows {at}"), rows).weight(0.0).bytes(panel_bytes));
        let rows: Vec<_> = rows.collect();
        let columns = self.starts().map(|first| (first / self.block, Arc::<[f32]>::from(self.columns(first))));
        let columns =
            columns.map(|(at, columns)| flow.feeder(format!("columns {at}"), columns).weight(0.0).bytes(panel_bytes));
        let columns: Vec<_> = columns.collect();
        let mut blocks = Vec::with_capacity(rows.len() * columns.len());
        for (row, a) in rows.iter().enumerate() {
            for (column, b) in columns.iter().enumerate() {
                let size = self.size;
                let block =
                    flow.node(format!("block {row},{column}"), (a, b), move |(a, b)| Arc::new(product(&a, &b, size)));
                let seconds = 1e-10 * (2 * self.block * self.block * self.size) as f64;
                blocks.push(block.weight(seconds).bytes(4 * (self.block * self.block) as u64));
            }
        }
        if blocks.is_empty() {
            blocks.push(flow.feeder("nothing", Arc::default()));
        }
        let whole = flow.node("whole", &blocks[..], |blocks| {
            let mut whole = vec![0.0; self.size * self.size];
            let places = self.starts().flat_map(|row| self.starts().map(move |column| (row, column)));
            places.zip(blocks).for_each(|((row, column), block)| self.place(&mut whole, row, column, &block));
            whole
        });
        let whole = whole.weight(1e-9 * (self.size * self.size) as f64).bytes(4 * (self.size * self.size) as u64);
        let whole = flow.collect("kept", &whole);
        (flow, whole)
    }

    fn sequential(&self) -> Vec<f32> {
        product(&self.a, &self.b, self.size)
    }
}

/// Returns the product of some rows and some columns of `depth` numbers each, both row by row.
///
/// Each sum goes from the first to the last number, so that its bits do not depend on blocks.
fn product(a: &[f32], b: &[f32], depth: usize) -> Vec<f32> {
    if depth == 0 {
        return Vec::new();
    }
    let width = b.len() / depth;
    let mut product = vec![0.0; a.len() / depth * width];
    for (row, sums) in a.chunks(depth).zip(product.chunks_mut(width)) {
        for (factor, others) in row.iter().zip(b.chunks(width)) {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += factor * other);
        }
    }
    product
}
