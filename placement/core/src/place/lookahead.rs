//! HEFT with lookahead: each task on the device where its successors could finish first (Bittencourt, Sakellariou &
//! Madeira 2010).
//!
//! Tasks go by decreasing upward rank. The task is tried on each feasible device with enough free memory. For each try,
//! each of its successors finds the device where it would finish first, given everything that is placed by then. The
//! task goes where the last of these finishes is earliest. A successor's inputs from tasks without a device count as
//! available. A task without successors goes where it finishes first itself.
//!
//! Constraints: a successor of the same colocation group is tried on the same device only. A successor whose group has
//! a device is tried on this device only. Memory is that before the current task.
//!
//! Choices that the text leaves open: on a tie the device where the task itself finishes first is taken.
//!
//! Time: `O(V log V + E × devices²)` in the worst case, with a search over gaps in each step. A device is abandoned as
//! soon as some successor cannot finish before the last successor on the best device; so few devices need the full
//! search.

use super::list::PartialSchedule;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{by_decreasing_rank, upward_ranks};
use crate::schedule::Span;

/// The lookahead strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lookahead;

impl Placer for Lookahead {
    fn name(&self) -> &'static str {
        "lookahead"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut schedule = PartialSchedule::new(problem)?;
        let mut arrivals = Arrivals::new(problem);
        for task in by_decreasing_rank(problem, &upward_ranks(problem)) {
            let children = arrivals.children(&schedule, task);
            let mut best = f64::INFINITY;
            let last_finish = |schedule: &PartialSchedule<'_>, span: Span| {
                let finish = children.iter().try_fold(span.end, |latest, child| {
                    let finish = child.finish(problem, schedule, span, best);
                    (finish <= best).then(|| latest.max(finish))
                });
                best = finish.map_or(best, |finish| finish.min(best));
                finish.unwrap_or(f64::INFINITY)
            };
            let span = schedule.place_by(task, last_finish, |mut candidates| {
                candidates.retain(|on| on.score.is_finite());
                Reason::Smallest { what: "last finish of a successor", candidates }
            })?;
            arrivals.send(task, span);
        }
        Ok(schedule.finish(self.name()))
    }
}

/// Successor of the current task.
struct Child<'s> {
    task: TaskId,
    /// Devices that it can go to, unless it must follow the current task.
    devices: Vec<DeviceId>,
    follows: bool,
    /// Arrival of its inputs from placed tasks, by device; empty if there are none.
    arrival: &'s [f64],
    /// Bytes of each of its inputs from the current task.
    inputs: Vec<u64>,
    shortest: f64,
}

impl Child<'_> {
    /// Returns its earliest finish with its parent at `span`; any value greater than `enough` if it does not finish by
    /// `enough`.
    fn finish(&self, problem: &Problem<'_>, schedule: &PartialSchedule<'_>, span: Span, enough: f64) -> f64 {
        let at_least = span.end + self.shortest;
        if at_least > enough {
            return at_least;
        }
        let here = [span.device];
        let mut earliest = f64::INFINITY;
        for &device in if self.follows { &here[..] } else { &self.devices } {
            let duration = problem.time(self.task, device);
            let before = self.arrival.get(device.index()).copied().unwrap_or(0.0);
            if before.max(span.end) + duration >= earliest {
                continue;
            }
            let arrive = |&bytes: &u64| span.end + problem.transfer_time(bytes, span.device, device);
            let ready = self.inputs.iter().map(arrive).fold(before, f64::max);
            // The parent ends before its child can start, so the parent's slot does not shorten the child's gaps.
            if ready + duration < earliest {
                earliest = earliest.min(schedule.earliest(device, ready, duration) + duration);
            }
        }
        earliest
    }
}

/// Arrival of inputs on each device, for tasks without a span.
struct Arrivals<'p> {
    problem: &'p Problem<'p>,
    /// Arrivals by task; empty before any of its predecessors is placed, and again once the task itself is placed.
    rows: Vec<Vec<f64>>,
}

impl<'p> Arrivals<'p> {
    fn new(problem: &'p Problem<'p>) -> Self {
        Arrivals { problem, rows: vec![Vec::new(); problem.graph().task_count()] }
    }

    /// Returns the successors of `task`.
    fn children(&self, schedule: &PartialSchedule<'_>, task: TaskId) -> Vec<Child<'_>> {
        let graph = self.problem.graph();
        let unit = graph.unit(task);
        graph.successors(task).iter().map(|&child| self.child(schedule, task, unit, child)).collect()
    }

    fn child(&self, schedule: &PartialSchedule<'_>, parent: TaskId, unit: UnitId, task: TaskId) -> Child<'_> {
        let graph = self.problem.graph();
        // If there are no devices, placing the successor itself will fail with an error.
        let devices = schedule.devices(task).unwrap_or_default();
        let times = devices.iter().map(|&device| self.problem.time(task, device));
        let inputs = graph.inputs(task).iter().filter(|&&datum| graph.producer(datum) == parent);
        Child {
            task,
            shortest: times.reduce(f64::min).unwrap_or(0.0),
            devices,
            follows: graph.unit(task) == unit,
            arrival: &self.rows[task.index()],
            inputs: inputs.map(|&datum| graph.bytes(datum)).collect(),
        }
    }

    /// Records that `task` runs at `span`.
    fn send(&mut self, task: TaskId, span: Span) {
        let graph = self.problem.graph();
        self.rows[task.index()] = Vec::new();
        for &datum in graph.outputs(task) {
            let there = |device| span.end + self.problem.transfer_time(graph.bytes(datum), span.device, device);
            let times: Vec<f64> = self.problem.platform().device_ids().map(there).collect();
            for consumer in graph.consumers(datum) {
                let row = &mut self.rows[consumer.index()];
                row.resize(times.len(), 0.0);
                row.iter_mut().zip(&times).for_each(|(arrival, time)| *arrival = arrival.max(*time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// HEFT would put task 0 on device 0, where it ends first; its successor then waits for the transfer.
    #[test]
    fn the_successor_decides() {
        let times = [[2.0, 4.0], [20.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 2], &[(0, 1, 50)]), &times);
        let problem = loaded.problem().unwrap();
        let placement = Lookahead.place(&problem).unwrap();
        assert_eq!(placement.device_of, [DeviceId(1); 2]);
        let Reason::Smallest { candidates, .. } = &placement.reasons[0] else { panic!("no candidates") };
        assert_eq!(candidates.iter().map(|on| on.score).collect::<Vec<_>>(), [7.0, 10.0]);
    }
}
