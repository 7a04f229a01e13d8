//! Options that several commands share: rules of simulated problems, and the extent of the search.

use anabranch_placement::format::LoadedProblem;
use anabranch_placement::problem::{MemoryRule, Problem, ProblemError};
use anabranch_report::trial::rules;
use clap::{Args, ValueEnum};

/// Options of the model of links and memory.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct RuleArgs {
    /// Set the operations of a send; Laich 2017 uses 10
    #[arg(long, value_name = "OPERATIONS", default_value_t = 0.0)]
    pub(super) send_ops: f64,
    /// Let each link carry only one transfer at a time
    ///
    /// A link connects two devices in one direction. If the problem has a network, its named links carry one transfer
    /// at a time instead.
    #[arg(long)]
    pub(super) contention: bool,
    /// Count these bytes against a device's memory [default: from the file]
    #[arg(long, value_enum)]
    pub(super) memory_rule: Option<Memory>,
}

/// Bytes that count against a device's memory.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Resident bytes
    Resident,
    /// Resident bytes, and each task's inputs and outputs
    SizeEstimate,
    /// No bytes
    Ignore,
}

impl RuleArgs {
    /// Replaces the file's memory rule with that of the command line.
    pub(super) fn apply(&self, problem: &mut LoadedProblem) {
        problem.memory_rule = match self.memory_rule {
            Some(Memory::Resident) => MemoryRule::Resident,
            Some(Memory::SizeEstimate) => MemoryRule::SizeEstimate,
            Some(Memory::Ignore) => MemoryRule::Ignore,
            None => problem.memory_rule,
        };
    }

    /// Returns the problem under the rules of the command line.
    pub(super) fn problem<'a>(&self, loaded: &'a LoadedProblem) -> Result<Problem<'a>, ProblemError> {
        loaded.problem()?.under(rules(self.send_ops, self.contention))
    }
}

/// Options of the search strategy's extent.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchArgs {
    /// Let auto simulate this many placements [default: as many as take at most a minute]
    #[arg(long, value_name = "COUNT")]
    pub(super) evaluations: Option<u64>,
}
