//! The order of a schedule that is already there, such as the one that a list scheduler planned while it placed: as a preference, or
//! to the letter.

use super::{Order, PlacedGraph, Rule};
use crate::graph::TaskId;

/// Runs the task first that a given sequence names first. A send goes before every task, so that what others wait for is
/// never held up.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    sequence: &'a [TaskId],
}

impl<'a> Planned<'a> {
    /// Follows `sequence`; tasks that it leaves out come last.
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

/// Runs the tasks of each device exactly as a sequence names them: a device whose next task is not ready waits for it. Sends go before
/// every task.
#[derive(Debug, Clone, Copy)]
pub struct InOrder<'a> {
    sequence: &'a [TaskId],
}

impl<'a> InOrder<'a> {
    /// Follows `sequence`; tasks that it leaves out come last.
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

/// By item: greater the earlier the sequence names it, and greatest for a send.
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
