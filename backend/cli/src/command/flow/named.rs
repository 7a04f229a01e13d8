//! The programs by name.

use anabranch::flow::programs::{ForkJoin, Lcs, Matmul, Pipeline, Program};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum ProgramName {
    /// Longest common subsequence
    Lcs,
    /// Product of matrices
    Matmul,
    /// Integral by fork and join
    Forkjoin,
    /// Integral as a pipeline
    Pipeline,
}

/// What is to be done with a program.
pub(super) trait WithProgram {
    type Result;

    fn with<P: Program>(self, program: &P) -> Self::Result;
}

impl ProgramName {
    /// Makes the program of this size, and does that with it.
    pub(super) fn with<W: WithProgram>(self, size: usize, block: usize, seed: u64, work: W) -> W::Result {
        let parts = size.div_ceil(block.max(1));
        match self {
            ProgramName::Lcs => work.with(&Lcs::random(size, block, seed)),
            ProgramName::Matmul => work.with(&Matmul::random(size, block, seed)),
            ProgramName::Forkjoin => work.with(&ForkJoin { points: size, parts }),
            ProgramName::Pipeline => work.with(&Pipeline { points: size, parts }),
        }
    }
}
