//! PEFT: each task where its finish plus the optimistic time of the rest is smallest (Arabnejad & Barbosa 2014).
//!
//! The optimistic cost table holds the least remaining time for each task and device, without the loads of devices
//! (equation 6 of the paper):
//!
//! ```text
//! OCT(t, p) = max over successors s of:  min over devices q of:  OCT(s, q) + time(s, q) + (q = p ? 0 : mean transfer)
//! ```
//!
//! The ready task with the greatest mean of its row is next. It goes to the device with the smallest sum of its finish
//! time and its entry of the table, into the first gap that is long enough.
//!
//! Constraints: minima and means range over feasible devices.
//!
//! Choices that the text leaves open: equal ranks go in topological order; on equal sums, the earlier finish wins.
//!
//! Time: `O(V log V + E × devices)`, because the minimum over `q` is either at `p` or the minimum over all devices with
//! a transfer. Each pair of a task and a device adds a search over the device's gaps. Memory: `O(V × devices)`.

use super::frontier::by_priority;
use super::list::PartialSchedule;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// The PEFT strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peft;

impl Placer for Peft {
    fn name(&self) -> &'static str {
        "peft"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let table = OptimisticCosts::of(problem);
        let ranks: Vec<f64> = problem.graph().task_ids().map(|task| table.mean(problem, task)).collect();
        let mut schedule = PartialSchedule::new(problem)?;
        for task in by_priority(problem.graph(), &ranks) {
            let reason = |candidates| Reason::Smallest { what: "finish plus optimistic rest", candidates };
            let score = |span: crate::schedule::Span| span.end + table.entry(task, span.device);
            schedule.place_by(task, |_, span| score(span), reason)?;
        }
        Ok(schedule.finish(self.name()))
    }
}

/// Optimistic cost table, by task, then device. Entries of infeasible devices are meaningless.
struct OptimisticCosts {
    devices: usize,
    costs: Vec<f64>,
}

impl OptimisticCosts {
    fn of(problem: &Problem<'_>) -> Self {
        let graph = problem.graph();
        let devices = problem.platform().device_count();
        let mut table = OptimisticCosts { devices, costs: vec![0.0; graph.task_count().saturating_mul(devices)] };
        // Least remaining time from the start of each task, on each device, and the minimum over its devices.
        let mut left = vec![f64::INFINITY; table.costs.len()];
        let mut least = vec![0.0; graph.task_count()];
        for &task in graph.topological().iter().rev() {
            let row = task.index() * devices..(task.index() + 1) * devices;
            for &datum in graph.outputs(task) {
                table.follow(problem, datum, row.start, &left, &least);
            }
            for device in problem.feasible(graph.unit(task)) {
                left[row.start + device.index()] = table.entry(task, device) + problem.time(task, device);
            }
            least[task.index()] = left[row].iter().copied().fold(f64::INFINITY, f64::min);
        }
        table
    }

    /// Raises the row that begins at `row` to the needs of the consumers of `datum`.
    fn follow(&mut self, problem: &Problem<'_>, datum: DatumId, row: usize, left: &[f64], least: &[f64]) {
        let transfer = problem.mean_transfer_time(problem.graph().bytes(datum));
        for consumer in problem.graph().consumers(datum) {
            let elsewhere = least[consumer.index()] + transfer;
            let here = &left[consumer.index() * self.devices..][..self.devices];
            for (cost, here) in self.costs[row..row + self.devices].iter_mut().zip(here) {
                *cost = cost.max(here.min(elsewhere));
            }
        }
    }

    fn entry(&self, task: TaskId, device: DeviceId) -> f64 {
        self.costs[task.index() * self.devices + device.index()]
    }

    /// Mean over the task's feasible devices, of which there is at least one.
    fn mean(&self, problem: &Problem<'_>, task: TaskId) -> f64 {
        let feasible = problem.feasible(problem.graph().unit(task));
        let (sum, count) =
            feasible.fold((0.0, 0.0), |(sum, count), device| (sum + self.entry(task, device), count + 1.0));
        sum / count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Task 1 is fast on device 1 only, and its input is large: task 0 is better there, although it finishes later.
    #[test]
    fn a_task_goes_where_its_successor_is_cheap() {
        let times = [[2.0, 4.0], [20.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 2], &[(0, 1, 50)]), &times);
        let problem = loaded.problem().unwrap();
        let table = OptimisticCosts::of(&problem);
        assert_eq!(table.costs, [8.0, 3.0, 0.0, 0.0]);
        let placement = Peft.place(&problem).unwrap();
        assert_eq!(placement.device_of, [DeviceId(1); 2]);
        assert_eq!(placement.planned.unwrap().makespan, 7.0);
    }
}
