//! Number of tasks that a device can choose from when it decides which one runs next (Laich 2017, figure 7.10).

use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use serde::Serialize;

/// Moment when a device starts a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Decision {
    /// Time of the decision.
    pub time: f64,
    /// Device that decides.
    pub device: DeviceId,
    /// Task that it starts.
    pub task: TaskId,
    /// Number of tasks of the device that have all their inputs and have not been started before, including this one.
    pub executable: usize,
}

/// Returns every decision of a schedule, in the order in which tasks start. `O((V + E) log (V + E))`.
pub fn decisions(problem: &Problem<'_>, schedule: &Schedule) -> Vec<Decision> {
    let mut arrivals = vec![Vec::new(); problem.platform().device_count()];
    for (task, span) in problem.graph().task_ids().zip(&schedule.tasks) {
        arrivals[span.device.index()].push(executable_from(problem, schedule, task));
    }
    arrivals.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let mut started = vec![0; arrivals.len()];
    let decide = |&task: &TaskId| {
        let span = schedule.tasks[task.index()];
        let place = span.device.index();
        let arrived = arrivals[place].partition_point(|&time| time <= span.start);
        let executable = arrived.saturating_sub(started[place]);
        started[place] += 1;
        Decision { time: span.start, device: span.device, task, executable }
    };
    schedule.order.iter().map(decide).collect()
}

/// Returns the time when the last input of `task` is on its device; 0 if it has no inputs.
fn executable_from(problem: &Problem<'_>, schedule: &Schedule, task: TaskId) -> f64 {
    let graph = problem.graph();
    let device = schedule.tasks[task.index()].device;
    let arrival = |&datum: &DatumId| {
        let producer = schedule.tasks[graph.producer(datum).index()];
        let sent = schedule.transfers.binary_search_by_key(&(datum, device), |sent| (sent.datum, sent.to));
        sent.map_or(producer.end, |place| schedule.transfers[place].end)
    };
    graph.inputs(task).iter().map(arrival).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Pct;
    use crate::sample;
    use crate::simulate::simulate;

    /// Tasks 0 to 2 wait for device 0 from the start; task 3 gets its datum from device 1 at 3, while task 0 runs.
    #[test]
    fn a_decision_counts_what_has_come_and_not_been_started() {
        let loaded = sample::problem(sample::graph(&[4.0, 3.0, 2.0, 1.0, 2.0], &[(4, 3, 10)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let device_of = [0, 0, 0, 0, 1].map(DeviceId);
        let schedule = simulate(&problem, &device_of, &Pct).unwrap();
        let found: Vec<_> =
            decisions(&problem, &schedule).iter().map(|made| (made.time, made.task.0, made.executable)).collect();
        assert_eq!(found, [(0.0, 0, 3), (0.0, 4, 1), (4.0, 1, 3), (7.0, 2, 2), (9.0, 3, 1)]);
    }
}
