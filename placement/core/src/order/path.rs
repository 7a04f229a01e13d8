//! Path computation time first: run the item with the longest path to the end (Laich 2017, section 5.3).
//!
//! If sends are items too, equation 5.1 for a task `t`, a send `s` and the device `d` of each is:
//!
//! ```text
//! PCT(t) = time(t, d) + max over local consumers c and sends s of t's data:  PCT(c), PCT(s)
//! PCT(s) = send(d) + transfer(s) + receive(to) + max over receivers c:  PCT(c)
//! ```

use super::{Order, PlacedGraph, Rule};
use crate::graph::TaskId;

/// Order with the greatest path computation time first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pct;

impl Order for Pct {
    fn name(&self) -> &'static str {
        "pct"
    }

    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule {
        Rule::Greatest(path_computation_times(placed))
    }
}

/// Returns the path computation time of every item. `O(V + E)`.
pub fn path_computation_times(placed: &PlacedGraph<'_>) -> Vec<f64> {
    longest_ways(placed, placed.send_costs().receive_operations)
}

/// Returns, for each item, the time from its start to the end of everything that depends on it, without waiting for
/// devices.
pub(crate) fn remaining_times(placed: &PlacedGraph<'_>) -> Vec<f64> {
    longest_ways(placed, 0.0)
}

fn longest_ways(placed: &PlacedGraph<'_>, receive_operations: f64) -> Vec<f64> {
    let (graph, platform, sends) = (placed.problem().graph(), placed.problem().platform(), placed.sends());
    let longest =
        |times: &[f64], tasks: &[TaskId]| tasks.iter().map(|&task| times[placed.item(task)]).fold(0.0, f64::max);
    let mut times = vec![0.0; placed.item_count()];
    for &task in graph.topological().iter().rev() {
        let mut rest: f64 = 0.0;
        for &datum in graph.outputs(task) {
            rest = rest.max(longest(&times, sends.local_consumers(datum)));
            for send in sends.of_datum(datum) {
                let receive = receive_operations / platform.device(sends.all()[send].to).speed;
                let before = placed.time(send) + placed.transfer_time(send) + receive;
                times[send] = before + longest(&times, sends.receivers(send));
                rest = rest.max(times[send]);
            }
        }
        times[placed.item(task)] = rest + placed.time(placed.item(task));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceId, DeviceKind, Platform};
    use crate::problem::{MemoryRule, Problem};
    use crate::rules::Rules;

    #[test]
    fn path_computation_times_are_those_of_the_equation() {
        let mut builder = GraphBuilder::new();
        let tasks = [20.0, 10.0, 30.0].map(|work| builder.task(Task::new("t").with_operations(work)));
        let datum = builder.datum(tasks[0], 8);
        builder.consume(datum, tasks[1]);
        builder.consume(datum, tasks[2]);
        let graph = builder.build().unwrap();
        let device = |speed| Device::new("d", DeviceKind::Cpu).with_speed(speed);
        let platform = Platform::uniform(vec![device(10.0), device(5.0)], 0.5, 4.0).unwrap();
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let device_of = [0, 0, 1].map(DeviceId);
        let cases = [(Rules::default(), [8.5, 10.5, 1.0, 6.0]), (Rules::THESIS, [11.5, 13.5, 1.0, 6.0])];
        for (rules, expected) in cases {
            let problem = problem.clone().under(rules).unwrap();
            assert_eq!(path_computation_times(&PlacedGraph::new(&problem, &device_of)), expected);
        }
    }
}
