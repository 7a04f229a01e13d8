//! Errors of flows.

use super::allocation::AllocationError;
use anabranch_placement_core::place::PlaceError;
use anabranch_placement_core::problem::ProblemError;

/// Reason why a flow could not be run, or not to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum FlowError {
    /// A function panicked.
    #[error("node {node:?} panicked in iteration {iteration}: {message}")]
    Panicked {
        node: String,
        /// Counted from 0.
        iteration: u64,
        message: String,
    },
    /// The run was cancelled by its token.
    #[error("the flow was cancelled")]
    Cancelled,
    /// A source had fewer items than another.
    #[error(
        "source {ended:?} ended after {items} items, but source {other:?} already had {more}, so nodes that read \
         both would wait forever; give both the same number of items (`take` ends an iterator)"
    )]
    Uneven { ended: String, items: u64, other: String, more: u64 },
    /// A node reads a port of another flow.
    #[error("node number {node} reads a port of another flow; give it ports of its own flow")]
    Foreign { node: usize },
    /// Two nodes have the same name.
    #[error("two nodes are called {node:?}; give each node a name of its own")]
    TwoOfOneName { node: String },
    /// A node reads no port.
    #[error("node {node:?} reads no port, so it would never start; make it a source or a feeder, or give it a port")]
    NoInput { node: String },
    /// A weight is not valid.
    #[error("node {node:?} has weight {weight}; a weight is finite and not negative")]
    Weight { node: String, weight: f64 },
    /// A node is pinned to a worker that does not exist.
    #[error(
        "node {node:?} is pinned to worker {worker}, but the workers are 0 to {last}; pin it to one of these or run with more"
    )]
    UnknownWorker { node: String, worker: u32, last: u32 },
    /// A node is bound to a machine that does not exist.
    #[error(
        "node {node:?} is bound to machine {machine}, but the machines are 0 to {last}; bind it to one of these or run with more"
    )]
    UnknownMachine { node: String, machine: u32, last: u32 },
    /// A node's pin and machine contradict each other.
    #[error(
        "node {node:?} is pinned to worker {worker}, but bound to machine {machine}, which does not have this \
         worker; drop one of them"
    )]
    PinElsewhere { node: String, worker: u32, machine: u32 },
    /// Options are not valid.
    #[error("{0}")]
    Options(String),
    /// The flow is not a problem that can be placed.
    #[error("the flow cannot be placed: {0}")]
    Problem(#[from] ProblemError),
    /// A strategy found no placement.
    #[error("the flow cannot be placed: {0}")]
    Place(#[from] PlaceError),
    /// An allocation does not fit.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// A thread could not be started.
    #[error("worker {worker} could not be started: {reason}; run with fewer workers")]
    NoThread { worker: u32, reason: String },
}
