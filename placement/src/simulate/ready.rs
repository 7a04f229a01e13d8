//! The ready items of one device, and which of them is next under a rule.

use crate::order::{Flow, Moment, Rule};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An item with the number that ranks it: greater first, then the smaller position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) rank: f64,
    pub(super) position: usize,
}

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(other.position.cmp(&self.position))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Ready items: a heap where ranks stay, a plain list where they change from decision to decision.
#[derive(Debug, Clone)]
pub(super) enum Ready {
    Heap(BinaryHeap<Ranked>),
    List(Vec<usize>),
}

/// Where [`Ready`] keeps the item that is next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) position: usize,
    place: usize,
}

impl Ready {
    pub(super) fn under(rule: &Rule) -> Self {
        match rule {
            Rule::Earliest | Rule::Greatest(_) => Ready::Heap(BinaryHeap::new()),
            Rule::Score { .. } => Ready::List(Vec::new()),
        }
    }

    pub(super) fn push(&mut self, position: usize, rule: &Rule, now: f64) {
        match self {
            Ready::List(list) => list.push(position),
            Ready::Heap(heap) => {
                let rank = if let Rule::Greatest(ranks) = rule { ranks[position] } else { -now };
                heap.push(Ranked { rank, position });
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Ready::Heap(heap) => heap.is_empty(),
            Ready::List(list) => list.is_empty(),
        }
    }

    /// The item to do next. Constant time for a heap; a list is scored from end to end.
    pub(super) fn choose(&self, rule: &Rule, flow: &Flow<'_>, moment: &dyn Moment) -> Option<Choice> {
        match self {
            Ready::Heap(heap) => heap.peek().map(|next| Choice { position: next.position, place: 0 }),
            Ready::List(list) => {
                let Rule::Score { score, otherwise } = rule else {
                    return None;
                };
                let scored = list.iter().enumerate().map(|(place, &position)| {
                    let tie = Ranked { rank: otherwise[position], position };
                    (score(flow, moment, flow.item(position)), tie, place)
                });
                let best = scored.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                best.map(|(_, tie, place)| Choice { position: tie.position, place })
            }
        }
    }

    /// Takes out what [`Ready::choose`] has just chosen.
    pub(super) fn remove(&mut self, choice: Choice) {
        match self {
            Ready::Heap(heap) => {
                heap.pop();
            }
            Ready::List(list) => {
                list.swap_remove(choice.place);
            }
        }
    }
}
