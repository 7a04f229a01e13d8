//! First in, first out: a device runs its items in the order in which they became ready (Laich 2017, section 5.2).
//!
//! The text does not order items that become ready at the same time, as all consumers and sends of a task's data. Here
//! they follow the rule of all orders for ties (see [the module](super)): sends first, then tasks by id.
//! [`ShuffledFifo`] has other orders, and its range over several seeds shows what this choice does.

use super::{Order, PlacedGraph, Rule};

/// First-in-first-out order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

/// First-in-first-out order with this seed for items that become ready together.
#[derive(Debug, Clone, Copy)]
pub struct ShuffledFifo(pub u64);

impl Order for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn rule(&self, _placed: &PlacedGraph<'_>) -> Rule {
        Rule::Earliest { shuffle: None }
    }
}

impl Order for ShuffledFifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn rule(&self, _placed: &PlacedGraph<'_>) -> Rule {
        Rule::Earliest { shuffle: Some(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::order::{Pct, Planned};
    use crate::platform::DeviceId;
    use crate::sample;
    use crate::simulate::simulate;

    /// Task 2 is ready before task 3, which has the longer path; both wait for task 0 to end.
    #[test]
    fn what_was_ready_first_runs_first() {
        let loaded = sample::problem(sample::graph(&[4.0, 1.0, 1.0, 1.0, 9.0], &[(1, 3, 0), (3, 4, 0)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let device_of = [0, 1, 0, 0, 0].map(DeviceId);
        let run = |order: &dyn Order| {
            let schedule = simulate(&problem, &device_of, order).unwrap();
            schedule.device_orders(2)[0].iter().map(|task| task.0).collect::<Vec<_>>()
        };
        // Tasks 0 and 2 are ready together: the smaller id goes first, or the shuffle decides.
        assert_eq!(run(&Fifo), [0, 2, 3, 4]);
        let firsts: Vec<u32> = (0..16).map(|seed| run(&ShuffledFifo(seed))[0]).collect();
        assert!(firsts.contains(&0) && firsts.contains(&2), "{firsts:?}");
        assert_eq!(run(&ShuffledFifo(3)), run(&ShuffledFifo(3)));
        assert_eq!(run(&Pct), [0, 3, 4, 2]);
        assert_eq!(run(&Planned::new(&[2, 0, 3, 1, 4].map(TaskId))), [2, 0, 3, 4]);
    }
}
