//! Drops: runs physical graphs of DALiuGE (Wu et al. 2017, "DALiuGE: A graph execution framework for harnessing the
//! astronomical data deluge"). Applications are shell commands or a few functions, data are files or memory.
//!
//! A [`Recipe`] is a [`PhysicalGraph`](anabranch_placement::logical::PhysicalGraph) whose applications and data are
//! known and whose files have names. [`PreparedRecipe`] compares it with the results of earlier runs in a directory. An
//! application is skipped if its command and inputs are unchanged and its outputs are still there, by checksums.
//! [`PreparedRecipe::run`] makes a [`Flow`](crate::Flow) with one node per drop. Schedulers, placement, reports and
//! cancellation are those of flows.
//!
//! **Commands are run by `sh -c` as the graph has them.** Run only graphs that you trust, as you would a makefile.
//!
//! **A failure does not spread.** The report of a failed application gives the reason and the drops that depend on it.
//! These do not run; all others do. Its outputs are removed, so that no file of a failed application is mistaken for a
//! result.
//!
//! ```
//! # mod anabranch { pub use anabranch_base::cancel::CancelToken; pub use anabranch_flow::{self as flow, drops}; }
//! use anabranch::CancelToken;
//! use anabranch::drops::{Naming, PreparedRecipe, Recipe};
//! use anabranch::flow::FlowOptions;
//! use anabranch_placement::logical::parse;
//!
//! let graph = parse("hello", br#"{"nodeDataArray": [
//!     {"key": 1, "name": "say", "category": "BashShellApp", "categoryType": "Application",
//!         "fields": [{"name": "command", "value": "echo hello > %o0"}]},
//!     {"key": 2, "name": "said", "category": "File", "categoryType": "Data", "fields": [{"name": "filepath", "value": "said.txt"}]}
//! ], "linkDataArray": [{"from": 1, "to": 2}]}"#)?.unroll()?;
//! let directory = std::env::temp_dir().join(format!("anabranch-drops-{}", std::process::id()));
//!
//! let recipe = Recipe::new(&graph, &Naming::of("hello"))?;
//! let prepared = PreparedRecipe::new(&recipe, &directory, false, &CancelToken::new())?;
//! let outcome = prepared.run(&CancelToken::new(), &|_| (), |_| Ok::<_, anabranch::drops::DropsError>(FlowOptions::default()))?;
//! assert_eq!((outcome.ran(), outcome.failures().len()), (1, 0));
//! assert_eq!(std::fs::read_to_string(directory.join("said.txt"))?, "hello\n");
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod command;
mod content;
mod function;
mod names;
mod outcome;
mod plan;
mod recipe;
mod run;
mod shell;
mod state;
#[cfg(all(test, unix))]
mod tests;

pub use names::Naming;
pub use outcome::{DropReport, Failed, Outcome};
pub use plan::{PreparedRecipe, Reason, Shell};
pub use recipe::{Recipe, read};
pub use shell::{end_all, run_command};
pub use state::DropState;

use crate::FlowError;
use anabranch_base::quoted::Line;

/// Reason why a graph of drops cannot be run. Failed applications are part of an [`Outcome`] instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DropsError {
    /// The graph, the directory or the file of states cannot be used. The text names the cause and the next step.
    #[error("{}", Line(.0))]
    Refused(String),
    /// The run was cancelled before any application began.
    #[error("the run was cancelled")]
    Cancelled,
    /// The flow could not be run.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

/// Returns a refusal with this text.
fn refused<T>(text: impl Into<String>) -> Result<T, DropsError> {
    Err(DropsError::Refused(text.into()))
}
