//! Order of an existing schedule, such as the one that a list scheduler planned while it placed: as a preference, or
//! strictly.

use super::{Order, PlacedGraph, Rule};
use crate::graph::TaskId;

/// Order that runs the first ready task of a given sequence. A send goes before every task, so that other devices never
/// wait for it.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    sequence: &'a [TaskId],
}

impl<'a> Planned<'a> {
    /// Follows `sequence`; tasks that are not in it come last.
    pub fn new(sequence: &'a [TaskId]) -> Self {
        Planned { sequence }
    }
}

impl Order for Planned<'_> {
    fn name(&self) -> &'static str {
        "planned"
    }

    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule {
        Rule::Greatest(ranks(placed, self.sequence))
    }
}

/// Order that runs the tasks of each device exactly in the given sequence: a device waits for its next task. Sends go
/// before every task.
#[derive(Debug, Clone, Copy)]
pub struct InOrder<'a> {
    sequence: &'a [TaskId],
}

impl<'a> InOrder<'a> {
    /// Follows `sequence`; tasks that are not in it come last.
    pub fn new(sequence: &'a [TaskId]) -> Self {
        InOrder { sequence }
    }
}

impl Order for InOrder<'_> {
    fn name(&self) -> &'static str {
        "in order"
    }

    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule {
        Rule::InOrder(ranks(placed, self.sequence))
    }
}

/// Returns the rank of each item: greater for earlier tasks of the sequence, and greatest for a send.
fn ranks(placed: &PlacedGraph<'_>, sequence: &[TaskId]) -> Vec<f64> {
    let mut priority = vec![f64::NEG_INFINITY; placed.problem().graph().task_count()];
    for (place, task) in sequence.iter().enumerate() {
        if let Some(priority) = priority.get_mut(task.index()) {
            *priority = -(place as f64);
        }
    }
    let rank = |item| placed.task(item).map_or(f64::INFINITY, |task| priority[task.index()]);
    (0..placed.item_count()).map(rank).collect()
}
