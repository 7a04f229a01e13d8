//! Length of the longest common subsequence of two strings, by blocks of the score matrix: a wavefront.

use super::Program;
use crate::{Collected, Flow};
use anabranch_base::random::SplitMix64;
use std::sync::Arc;

/// Number of letters in random strings.
const LETTERS: u64 = 4;

/// Two strings, and the side of a block.
#[derive(Clone, Debug)]
pub struct Lcs {
    a: Vec<u8>,
    b: Vec<u8>,
    block: usize,
}

/// Scores in a row or column at the border of a block, with the score before its first.
type Border = Arc<[u32]>;

impl Lcs {
    /// Makes the problem of these strings, in blocks of at most `block` letters each way, at least one.
    pub fn new(a: Vec<u8>, b: Vec<u8>, block: usize) -> Self {
        Lcs { a, b, block: block.max(1) }
    }

    /// Makes two random strings of `size` letters.
    pub fn random(size: usize, block: usize, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut string = || (0..size).map(|_| b'a' + (random.bits() >> 32) as u8 % LETTERS as u8).collect();
        let (a, b) = (string(), string());
        Self::new(a, b, block)
    }
}

impl Program for Lcs {
    type Answer = u32;

    fn name(&self) -> &'static str {
        "lcs"
    }

    /// Builds the flow. Each block's node reads the last row of the block above and the last column of the block to the
    /// left.
    fn flow(&self) -> (Flow<'_>, Collected<u32>) {
        let mut flow = Flow::new();
        let zeros: Border = vec![0; self.block + 1].into();
        let bytes = 4 * (self.block as u64 + 1);
        let edge = flow.feeder("edge", zeros).weight(0.0).bytes(bytes);
        let mut above = vec![edge.clone(); self.b.len().div_ceil(self.block)];
        let mut left = edge.clone();
        for (row, a) in self.a.chunks(self.block).enumerate() {
            left = edge.clone();
            for (column, b) in self.b.chunks(self.block).enumerate() {
                let both = flow.node(format!("block {row},{column}"), (&above[column], &left), move |(top, left)| {
                    block(a, b, &top, &left)
                });
                let both = both.weight(seconds(a, b)).bytes(2 * bytes);
                above[column] = both.port(|both: &[Border; 2]| Arc::clone(&both[0])).bytes(bytes);
                left = both.port(|both: &[Border; 2]| Arc::clone(&both[1])).bytes(bytes);
            }
        }
        let length = flow.node("length", &left, |column| column.last().copied().unwrap_or(0)).weight(0.0);
        let length = flow.collect("kept", &length);
        (flow, length)
    }

    fn sequential(&self) -> u32 {
        let [_, right] = block(&self.a, &self.b, &vec![0; self.b.len() + 1], &vec![0; self.a.len() + 1]);
        right.last().copied().unwrap_or(0)
    }
}

/// Assumed seconds of a block, at a nanosecond per score.
fn seconds(a: &[u8], b: &[u8]) -> f64 {
    1e-9 * (a.len() * b.len()) as f64
}

/// Returns the last row and the last column of the block of `a` and `b`.
///
/// `top` is the row above it, and `left` the column to its left. Both may be longer than the block.
fn block(a: &[u8], b: &[u8], top: &[u32], left: &[u32]) -> [Border; 2] {
    let mut row = top[..=b.len()].to_vec();
    let mut right = Vec::with_capacity(a.len() + 1);
    right.push(row[b.len()]);
    for (letter, beside) in a.iter().zip(&left[1..]) {
        let mut diagonal = std::mem::replace(&mut row[0], *beside);
        let mut before = *beside;
        for (score, other) in row[1..].iter_mut().zip(b) {
            let above = *score;
            before = if letter == other { diagonal + 1 } else { above.max(before) };
            *score = before;
            diagonal = above;
        }
        right.push(before);
    }
    [row.into(), right.into()]
}
