//! Demonstration programs of `anabranch flow`, by name, with their sizes.

use crate::command::CliError;
use anabranch::flow::programs::{ForkJoin, Lcs, Matmul, Pipeline, Program};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgramName {
    /// Longest common subsequence
    Lcs,
    /// Matrix multiplication
    Matmul,
    /// Integral by fork and join
    Forkjoin,
    /// Integral as a pipeline
    Pipeline,
}

/// Work on a program of any type.
pub(super) trait WithProgram {
    type Result;

    fn with<P: Program>(self, program: &P) -> Self::Result;
}

/// Most nodes of a program.
const MOST_NODES: u64 = 1 << 20;

impl ProgramName {
    /// Returns the default sizes of the program and of a block.
    pub(super) fn usual_sizes(self) -> (u64, u64) {
        match self {
            ProgramName::Lcs => (20_000, 500),
            ProgramName::Matmul => (1000, 100),
            ProgramName::Forkjoin | ProgramName::Pipeline => (20_000_000, 100_000),
        }
    }

    /// Returns the sizes of the program and of a block, if memory can hold the program.
    ///
    /// # Errors
    /// If the size is too large, the block is empty, or there are too many blocks.
    pub(super) fn checked_sizes(self, size: u64, block: u64) -> Result<(usize, usize), CliError> {
        let most = match self {
            ProgramName::Lcs => 1 << 26,
            ProgramName::Matmul => 1 << 14,
            ProgramName::Forkjoin | ProgramName::Pipeline => 1 << 40,
        };
        if size > most {
            return Err(CliError::input(format!("--size {size} is too large for this program; use at most {most}")));
        }
        if block == 0 {
            return Err(CliError::input("--block 0 is too small; use at least 1"));
        }
        let side = size.div_ceil(block);
        let nodes = match self {
            ProgramName::Lcs | ProgramName::Matmul => side.saturating_mul(side),
            ProgramName::Forkjoin => side,
            ProgramName::Pipeline => 3,
        };
        if nodes > MOST_NODES {
            return Err(CliError::input(format!(
                "--block {block} divides --size {size} into {nodes} nodes, but the limit is {MOST_NODES}; use \
                 larger blocks"
            )));
        }
        // Programs make borders of a block's size, so a block must not exceed the whole.
        Ok((size as usize, block.min(size.max(1)) as usize))
    }

    /// Makes the program of this size, and does `work` with it.
    pub(super) fn with<W: WithProgram>(self, size: usize, block: usize, seed: u64, work: W) -> W::Result {
        let parts = size.div_ceil(block);
        match self {
            ProgramName::Lcs => work.with(&Lcs::random(size, block, seed)),
            ProgramName::Matmul => work.with(&Matmul::random(size, block, seed)),
            ProgramName::Forkjoin => work.with(&ForkJoin { points: size, parts }),
            ProgramName::Pipeline => work.with(&Pipeline { points: size, parts }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_memory_are_refused_and_blocks_are_no_larger_than_the_whole() {
        for program in ProgramName::value_variants() {
            let (size, block) = program.usual_sizes();
            assert!(program.checked_sizes(size, block).is_ok(), "{program:?}");
            assert_eq!(
                program.checked_sizes(10, 1 << 40).map_err(|error| error.to_string()),
                Ok((10, 10)),
                "{program:?}"
            );
            assert!(program.checked_sizes(0, 1).is_ok(), "{program:?}");
            for (size, block) in [(1 << 63, 1), (1 << 63, 1 << 63), (u64::MAX, 1), (100, 0)] {
                assert!(program.checked_sizes(size, block).is_err(), "{program:?} of {size} by {block}");
            }
        }
    }
}
