//! First in, first out: a device runs its items in the order in which they became ready (Laich 2017, section 5.2).

use super::{Flow, Order, Rule};

/// The FIFO order. Items that become ready at the same time go by id.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn rule(&self, _flow: &Flow<'_>) -> Rule {
        Rule::Earliest
    }
}
