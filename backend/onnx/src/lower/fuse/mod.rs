//! Rewrites of a lowered program that make it cheaper. Each has a file of its own, runs over the whole program in one
//! pass, and can be left out alone in the search for a fault.
//!
//! The head of each file states the class of the rewrite, which says what it may change: *exact bits*, *one rounding*,
//! *order of sums* or *exact within bounds of constants*. `exact.rs` checks the first class, `tests.rs` the others;
//! `docs/accuracy.md` is for users.

mod appends;
mod columns;
mod common;
mod epilogues;
#[cfg(test)]
mod exact;
mod graph;
mod hoists;
mod maps;
mod norms;
mod operands;
mod pads;
#[cfg(test)]
mod proofs;
mod rebuild;
mod reread;
mod rewrite;
mod scales;
mod slices;
#[cfg(test)]
mod tests;
mod transposes;

pub(super) use maps::both;
pub use rewrite::{Rewrite, Rewrites, UnknownRewrite};

use super::compact::compact;
use super::fold::Folding;
use anabranch_base::interruption;
use anabranch_ir::names::name_fused;
use anabranch_ir::program::Program;
use graph::Graph;

/// Rounds of all rewrites: the last rewrites of a round give the first rewrites of the next round more to join. A third
/// round has found nothing in any model so far.
const ROUNDS: usize = 2;

/// Applies these rewrites to the program. `folding` limits the constants that they make.
pub(super) fn fuse(program: Program, rewrites: Rewrites, folding: &mut Folding) -> Program {
    if rewrites == Rewrites::NONE {
        return program;
    }
    let mut graph = Graph::new(program);
    for _ in 0..ROUNDS {
        // An interrupted lowering is discarded, so its rewrites may stop anywhere.
        rewrites.iter().take_while(|_| !interruption::is_due()).for_each(|rewrite| rewrite.apply(&mut graph, folding));
    }
    let mut program = compact(graph.into_program());
    name_fused(&mut program);
    program
}
