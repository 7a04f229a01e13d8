//! Maximum successor rank first: run the item that frees most others, above all on idle devices (Laich 2017, section
//! 5.4).
//!
//! An item's rank is the sum over its direct successors of
//!
//! ```text
//! 1  +  1 if the successor is on another device  +  1 if it can run after this item  +  5 if also its device is idle
//! ```
//!
//! (equation 5.2). A successor can run after an item if the item brings all inputs that are still missing. A device is
//! idle if it runs nothing and has no ready item. The successors of a task are all tasks that consume its data, on any
//! device. The successors of a send are the tasks that wait for it. Equal ranks go by path computation time.
//!
//! Ranks are not recomputed for each decision: the simulator keeps them, and updates the ranks that an arrival affects.

use super::{Order, PlacedGraph, Rule, path_computation_times};

/// Order by maximum successor rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct Msr;

impl Order for Msr {
    fn name(&self) -> &'static str {
        "msr"
    }

    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule {
        Rule::SuccessorRank { otherwise: path_computation_times(placed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::order::Pct;
    use crate::platform::DeviceId;
    use crate::sample;
    use crate::simulate::simulate;

    /// The ready task with the shorter path wakes two idle devices, and goes first.
    #[test]
    fn waking_devices_comes_before_the_longest_way() {
        let loaded =
            sample::problem(sample::graph(&[1.0, 1.0, 9.0, 5.0, 5.0], &[(0, 2, 0), (1, 3, 0), (1, 4, 0)]), &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        let device_of = [0, 0, 0, 1, 2].map(DeviceId);
        let first = |order: &dyn Order| simulate(&problem, &device_of, order).unwrap().order[0];
        assert_eq!((first(&Pct), first(&Msr)), (TaskId(0), TaskId(1)));
    }
}
