//! Exit codes of the command.

use std::process::ExitCode;

/// Exit code of a command that does not succeed, for scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    /// Anabranch made a mistake.
    Fault = 1,
    /// The input cannot be used.
    Input = 2,
    /// A check of the results failed.
    Unexpected = 3,
    /// The user interrupted the command: 128 and the number of SIGINT, as shells report it.
    Interrupted = 130,
}

/// All codes with their meanings. `docs/commands.md` has the same table.
const MEANINGS: [(u8, &str); 5] = [
    (0, "success"),
    (Exit::Fault as u8, "a bug in Anabranch; please report it"),
    (Exit::Input as u8, "input that cannot be used: a file, an option, a model, a limit"),
    (Exit::Unexpected as u8, "a failed check of outputs or times, or a model that does not run"),
    (Exit::Interrupted as u8, "interrupted"),
];

/// Returns the end of `anabranch --help`.
pub(super) fn help() -> String {
    let rows: String = MEANINGS.iter().map(|(code, meaning)| format!("  {code:<5}{meaning}\n")).collect();
    format!("Exit codes:\n{rows}\n{}", super::START)
}

impl Exit {
    /// Returns a rank: a command with several errors ends with the code of the highest rank.
    pub(super) fn gravity(self) -> u8 {
        match self {
            Self::Input => 0,
            Self::Unexpected => 1,
            Self::Interrupted => 2,
            Self::Fault => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
