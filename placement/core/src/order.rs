//! Orders: rules that choose which ready item of a device runs next.
//!
//! An [`Order`] reads a [`PlacedGraph`] once and returns a [`Rule`]; the simulator applies it at every decision. On
//! equal ranks sends come first, by datum and target, because another device waits for each of them. Tasks follow, by
//! id.

mod fifo;
mod frugal;
mod msr;
mod path;
mod placed_graph;
mod planned;

pub use fifo::{Fifo, ShuffledFifo};
pub use frugal::Frugal;
pub use msr::Msr;
pub(crate) use path::remaining_times;
pub use path::{Pct, path_computation_times};
pub use placed_graph::PlacedGraph;
pub use planned::{InOrder, Planned};

/// Scheduling strategy for the ready items of a device.
pub trait Order: Sync {
    /// Returns the short name of the order, as typed on a command line.
    fn name(&self) -> &'static str;

    /// Returns the ranks of the items of `placed`.
    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule;

    /// Whether ranks depend on sizes of data or tasks, and not only on times (default: no).
    fn uses_sizes(&self) -> bool {
        false
    }
}

/// Rule that ranks ready items. Vectors are indexed by item, see [`PlacedGraph`].
#[derive(Debug, Clone)]
pub enum Rule {
    /// The item that became ready first.
    Earliest {
        /// Seed that shuffles items that became ready at the same time; without a seed they go by the rule for ties.
        shuffle: Option<u64>,
    },
    /// The item with the greatest number.
    Greatest(Vec<f64>),
    /// The device waits for its unfinished task with the greatest number, and runs it once it is ready. Sends come
    /// first.
    InOrder(Vec<f64>),
    /// The item with the greatest successor rank at the moment of the decision (see [`Msr`]); on equal ranks the one
    /// with the greatest number.
    SuccessorRank {
        /// Numbers that break ties between ranks.
        otherwise: Vec<f64>,
    },
}

impl Rule {
    /// Returns the fixed number of an item; 0 if the rule has none.
    pub(crate) fn rank(&self, item: usize) -> f64 {
        match self {
            Rule::Earliest { .. } => 0.0,
            Rule::Greatest(ranks) | Rule::InOrder(ranks) | Rule::SuccessorRank { otherwise: ranks } => ranks[item],
        }
    }
}

/// Names of the orders that [`order_by_name`] knows.
pub const ORDERS: &[&str] = &["pct", "msr", "fifo", "frugal"];

/// Returns the order called `name`, if there is one.
pub fn order_by_name(name: &str) -> Option<Box<dyn Order>> {
    match name {
        "pct" => Some(Box::new(Pct)),
        "msr" => Some(Box::new(Msr)),
        "fifo" => Some(Box::new(Fifo)),
        "frugal" => Some(Box::new(Frugal)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_order_is_known_by_its_own_name() {
        for &name in ORDERS {
            assert_eq!(order_by_name(name).map(|order| order.name()), Some(name));
        }
        assert!(order_by_name("none").is_none());
    }
}
