//! Orders: which of the ready items of a device runs next.
//!
//! An [`Order`] looks at a [`PlacedGraph`] once and gives a [`Rule`]; the simulator applies it at every decision. Ties of ranks go to
//! sends, by datum and target, because another device waits for each of them, and then to tasks, by id.

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

/// A scheduling strategy for what is ready on a device.
pub trait Order: Sync {
    /// Its short name, as typed on a command line.
    fn name(&self) -> &'static str;

    /// How it ranks the items of `placed`.
    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule;
}

/// How ready items are ranked. Vectors are indexed by item, see [`PlacedGraph`].
#[derive(Debug, Clone)]
pub enum Rule {
    /// The item that became ready first.
    Earliest {
        /// Seed of the order in which those go that became ready at the same time.
        shuffle: u64,
    },
    /// The item of the greatest number.
    Greatest(Vec<f64>),
    /// Of all tasks of the device that have not run the one of the greatest number, once it is ready; sends before.
    InOrder(Vec<f64>),
    /// The item of the greatest successor rank at the moment of the decision (see [`Msr`]), and among these of the greatest
    /// number.
    SuccessorRank {
        /// Breaks ties between ranks.
        otherwise: Vec<f64>,
    },
}

impl Rule {
    /// The number of an item, where it has one that stays.
    pub(crate) fn rank(&self, item: usize) -> f64 {
        match self {
            Rule::Earliest { .. } => 0.0,
            Rule::Greatest(ranks) | Rule::InOrder(ranks) | Rule::SuccessorRank { otherwise: ranks } => ranks[item],
        }
    }
}

/// Every order that [`order_by_name`] knows.
pub const ORDERS: &[&str] = &["pct", "msr", "fifo", "frugal"];

/// The order called `name`, if there is one.
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
