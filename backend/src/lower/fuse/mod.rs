//! Rewrites of a lowered program that leave its results the same to within rounding and make it cheaper: each in a file
//! of its own, each over the whole program in one pass.

mod columns;
mod common;
mod epilogues;
mod factors;
mod graph;
mod maps;
mod norms;
mod operands;
mod pads;
mod rebuild;
mod reread;
mod scales;
mod slices;
#[cfg(test)]
mod tests;
mod transposes;

use super::compact::compact;
use super::fold::Folding;
use crate::names::name_fused;
use crate::program::Program;
use graph::Graph;

/// Rounds of all rewrites: what the last ones of a round join lets the first ones of the next see more. A third round
/// has found nothing in any model so far.
const ROUNDS: usize = 2;

/// The program after all rewrites. `folding` bounds the constants that they make.
pub(super) fn fuse(program: Program, folding: &mut Folding) -> Program {
    let mut graph = Graph::new(program);
    for _ in 0..ROUNDS {
        common::merge_common(&mut graph);
        maps::tidy_maps(&mut graph, folding);
        factors::move_factors(&mut graph);
        slices::slice_before_transposes(&mut graph);
        columns::cut_columns(&mut graph, folding);
        transposes::absorb_transposes(&mut graph);
        pads::absorb_pads(&mut graph);
        scales::fold_scales(&mut graph, folding);
        maps::fuse_maps(&mut graph);
        norms::recognise_norms(&mut graph);
        epilogues::fuse_epilogues(&mut graph);
    }
    let mut program = compact(graph.into_program());
    name_fused(&mut program);
    program
}
