//! Maximum successor rank first: run the item that sets most others free, idle devices' above all (Laich 2017, section 5.4).
//!
//! An item's rank is the sum over its direct successors of
//!
//! ```text
//! 1  +  1 if the successor is on another device  +  1 if it can run after this item  +  5 if also its device is idle
//! ```
//!
//! (equation 5.2). A successor can run after an item where the item brings all inputs that are still missing. A device is idle
//! where it runs nothing and has nothing ready. The successors of a task are all tasks that consume its data, wherever they
//! are; those of a send are the tasks that wait for it. Equal ranks go by path computation time.
//!
//! A decision over `r` ready items with `s` successors in all takes `O(r + s)`, because any of their ranks may have changed
//! since the last one. Where thousands of items are ready on one device together, this is what a simulation spends its time on.

use super::{Flow, Item, Moment, Order, Rule, path_computation_times};
use crate::graph::TaskId;
use crate::platform::DeviceId;

/// Points for a successor that an idle device could start at once.
const WAKES_DEVICE: f64 = 5.0;

/// The MSR order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Msr;

impl Order for Msr {
    fn name(&self) -> &'static str {
        "msr"
    }

    fn rule(&self, flow: &Flow<'_>) -> Rule {
        Rule::Score { score: successor_rank, otherwise: path_computation_times(flow) }
    }
}

fn successor_rank(flow: &Flow<'_>, moment: &dyn Moment, item: Item) -> f64 {
    let graph = flow.problem().graph();
    let device = flow.device(item);
    match item {
        Item::Send(send) => {
            flow.sends().receivers(send).iter().map(|&receiver| points(flow, moment, device, receiver, 1)).sum()
        }
        Item::Task(task) => graph
            .successors(task)
            .iter()
            .map(|&successor| points(flow, moment, device, successor, brought(flow, task, successor)))
            .sum(),
    }
}

/// Number of the successor's inputs that `task` produces.
fn brought(flow: &Flow<'_>, task: TaskId, successor: TaskId) -> u32 {
    let graph = flow.problem().graph();
    match graph.outputs(task) {
        [_] => 1,
        _ => graph.inputs(successor).iter().filter(|&&datum| graph.producer(datum) == task).count() as u32,
    }
}

fn points(flow: &Flow<'_>, moment: &dyn Moment, device: DeviceId, successor: TaskId, brought: u32) -> f64 {
    let target = flow.device_of(successor);
    let other_device = f64::from(u8::from(target != device));
    let freed = moment.missing(successor) == brought;
    let woken = freed && moment.is_idle(target);
    1.0 + other_device + f64::from(u8::from(freed)) + if woken { WAKES_DEVICE } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::order::{Pct, SendCosts};
    use crate::problem::{MemoryRule, Problem};
    use crate::sample;
    use crate::simulate::{SimulateOptions, simulate};

    struct Fixed {
        missing: Vec<u32>,
        idle: DeviceId,
    }

    impl Moment for Fixed {
        fn missing(&self, task: TaskId) -> u32 {
            self.missing[task.index()]
        }

        fn is_idle(&self, device: DeviceId) -> bool {
            device == self.idle
        }
    }

    /// Task 0 has a local successor with another input, two remote ones that it frees, and one that it feeds twice.
    #[test]
    fn ranks_are_those_of_the_equation() {
        let edges = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (0, 4, 2), (5, 1, 1)];
        let graph = sample::graph(&[1.0; 6], &edges);
        let platform = sample::platform(&[1.0; 3]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let device_of = [0, 0, 1, 2, 0, 0].map(DeviceId);
        let flow = Flow::new(&problem, &device_of, SendCosts::THESIS);
        let moment = Fixed { missing: vec![0, 2, 1, 1, 2, 0], idle: DeviceId(2) };
        let rank = |item| successor_rank(&flow, &moment, item);
        // 1 for the local one, 1 + 1 + 1, 1 + 1 + 1 + 5, 1 + 1.
        assert_eq!(rank(Item::Task(TaskId(0))), 1.0 + 3.0 + 8.0 + 2.0);
        assert_eq!(rank(Item::Task(TaskId(5))), 1.0);
        assert_eq!(rank(Item::Send(0)), 3.0);
        assert_eq!(rank(Item::Send(1)), 8.0);
    }

    /// Of two ready tasks the one with the shorter way wakes two idle devices.
    #[test]
    fn waking_devices_comes_before_the_longest_way() {
        let graph = sample::graph(&[1.0, 1.0, 9.0, 5.0, 5.0], &[(0, 2, 0), (1, 3, 0), (1, 4, 0)]);
        let platform = sample::platform(&[1.0; 3]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let device_of = [0, 0, 0, 1, 2].map(DeviceId);
        let first =
            |order: &dyn Order| simulate(&problem, &device_of, order, &SimulateOptions::default()).unwrap().order[0];
        assert_eq!((first(&Pct), first(&Msr)), (TaskId(0), TaskId(1)));
    }
}
