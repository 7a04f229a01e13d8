//! What became of a run's drops.

use super::recipe::Recipe;
use super::state::State;
use crate::FlowReport;
use serde::Serialize;
use std::collections::BTreeSet;

/// Names of dependents that a failure lists.
const LISTED: usize = 5;

/// What a run has done. That applications failed is no error here.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All drops, in the order of the graph.
    pub drops: Vec<DropReport>,
    /// The run as a flow, if it came to its end.
    pub flow: Option<FlowReport>,
    /// Whether it was cancelled.
    pub is_cancelled: bool,
    pub(super) failures: Vec<Failed>,
}

/// What became of a drop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropReport {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Its category in the graph.
    pub category: String,
    /// Whether it runs; otherwise it holds data.
    pub application: bool,
    /// The state that it reached.
    pub state: State,
    /// Of an application: whether it was kept as an earlier run had left it.
    pub kept: bool,
    /// Of an application that ran, or began to and was cancelled: how long, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Of completed data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of completed data: BLAKE3, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why it has an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A drop with an error of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its name and id.
    pub drop: String,
    /// Why; the last lines of a command stand below.
    pub why: String,
    /// The names and ids of the first drops that depend on it.
    pub dependents: Vec<String>,
    /// How many depend on it in all.
    pub dependent_count: usize,
}

impl DropReport {
    /// Whether it is an application that ran to its end, whatever came of it.
    pub fn has_run(&self) -> bool {
        self.seconds.is_some() && self.state != State::Cancelled
    }
}

impl Outcome {
    /// Applications that ran to their end, whatever came of it.
    pub fn ran(&self) -> usize {
        self.count(DropReport::has_run)
    }

    /// Applications that were kept as an earlier run had left them.
    pub fn kept(&self) -> usize {
        self.count(|drop| drop.kept)
    }

    /// Drops with errors of their own, in the order of the graph; the first hundred.
    pub fn failures(&self) -> &[Failed] {
        &self.failures
    }

    /// The run as a flow, with the operands of those nodes alone that ran: what is worth learning
    /// ([`FlowReport::learn`]).
    pub fn measured(&self) -> Option<FlowReport> {
        let mut report = self.flow.clone()?;
        let has_run = |drop: &&DropReport| drop.seconds.is_some() && drop.state == State::Finished;
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

/// All drops that depend on one, the nearest first.
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
