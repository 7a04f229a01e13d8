//! Result of running a DALiuGE graph: the state of each drop, and the failures with their reasons.

use super::recipe::Recipe;
use super::state::DropState;
use crate::FlowReport;
use serde::Serialize;
use std::collections::BTreeSet;

/// Most names of dependents in the list of a failure.
const LISTED: usize = 5;

/// Outcome of a run. Failed applications are not an error here.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All drops, in the order of the graph.
    pub drops: Vec<DropReport>,
    /// Report of the run as a flow, if it came to its end.
    pub flow: Option<FlowReport>,
    /// Whether the run was cancelled.
    pub is_cancelled: bool,
    pub(super) failures: Vec<Failed>,
}

/// Outcome of a drop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropReport {
    /// Id of the drop.
    pub id: String,
    /// Name of the drop in the graph.
    pub name: String,
    /// Category of the drop in the graph.
    pub category: String,
    /// Whether it is an application; otherwise it holds data.
    pub application: bool,
    /// State that it reached.
    pub state: DropState,
    /// For an application: whether it was skipped, with the results of an earlier run.
    pub kept: bool,
    /// For an application that ran, or was cancelled while it ran: its time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// For completed data: their size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// For completed data: their BLAKE3 checksum, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// For a file: its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Reason of its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A drop with an error of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Name and id of the drop.
    pub drop: String,
    /// Reason of the error, with the last lines of a command below it.
    pub why: String,
    /// Names and ids of the first drops that depend on it.
    pub dependents: Vec<String>,
    /// Number of all drops that depend on it.
    pub dependent_count: usize,
}

impl DropReport {
    /// Whether it is an application that ran to its end, well or not.
    pub fn has_run(&self) -> bool {
        self.seconds.is_some() && self.state != DropState::Cancelled
    }
}

impl Outcome {
    /// Number of applications that ran to their end, well or not.
    pub fn ran(&self) -> usize {
        self.count(DropReport::has_run)
    }

    /// Number of applications that were skipped, with the results of an earlier run.
    pub fn kept(&self) -> usize {
        self.count(|drop| drop.kept)
    }

    /// Drops with errors of their own, in the order of the graph; at most a hundred.
    pub fn failures(&self) -> &[Failed] {
        &self.failures
    }

    /// Returns the run as a flow, with the operands of only those nodes that ran. Suitable for [`FlowReport::learn`].
    pub fn measured(&self) -> Option<FlowReport> {
        let mut report = self.flow.clone()?;
        let has_run = |drop: &&DropReport| drop.seconds.is_some() && drop.state == DropState::Finished;
        let ran: BTreeSet<String> =
            self.drops.iter().filter(has_run).map(|drop| format!("{} {}", drop.name, drop.id)).collect();
        for node in report.nodes.iter_mut().filter(|node| !ran.contains(&node.name)) {
            node.operands = 0;
        }
        Some(report)
    }

    fn count(&self, is_meant: impl Fn(&DropReport) -> bool) -> usize {
        self.drops.iter().filter(|drop| drop.application && is_meant(drop)).count()
    }
}

/// Returns all drops that depend on a drop, the nearest first.
pub(super) fn dependents(recipe: &Recipe, place: usize) -> Vec<usize> {
    let mut is_known = vec![false; recipe.nodes.len()];
    is_known[place] = true;
    let (mut found, mut next, mut at) = (Vec::new(), 0, place);
    loop {
        for &reader in &recipe.nodes[at].outputs {
            if !std::mem::replace(&mut is_known[reader], true) {
                found.push(reader);
            }
        }
        match found.get(next) {
            Some(&place) => (at, next) = (place, next + 1),
            None => return found,
        }
    }
}

impl Failed {
    pub(super) fn new(recipe: &Recipe, place: usize, why: String) -> Self {
        let dependents = dependents(recipe, place);
        Failed {
            drop: recipe.nodes[place].label(),
            why,
            dependent_count: dependents.len(),
            dependents: dependents.iter().take(LISTED).map(|&place| recipe.nodes[place].label()).collect(),
        }
    }
}
