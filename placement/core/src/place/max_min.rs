//! Max-min: the ready task with the latest best finish, on the device of that finish (Ibarra & Kim 1977; Braun et al.
//! 2001).
//!
//! For each ready task there is a device where it finishes first after everything on the device. The task whose finish
//! there is latest is next. The texts have no gaps; here the chosen task takes the first gap that is long enough on any
//! of its devices.
//!
//! Choices that the text leaves open: on equal finishes the smaller task id wins, and of a task's devices the smaller
//! device id.
//!
//! A device only gets busier, so a task's best finish changes only when its best device gets a task. All devices are
//! compared again only if the second best has become better. Sources with equal times on equal devices form one entry,
//! because ready tasks without inputs differ in nothing else.
//!
//! Time: `O(V × ready × devices)` in the worst case, and `O(V × ready + E × devices)` if the best device mostly stays
//! the best, with equal sources counted once. Each pair of a task and a device adds a search over the device's gaps.
//! Memory: `O(V × devices)`.

use super::list::PartialSchedule;
use super::{PlaceError, Placement, Reason};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Places every task.
///
/// # Errors
/// Returns an error if no feasible device has enough free memory for some unit.
pub(super) fn place(problem: &Problem<'_>, strategy: &'static str) -> Result<Placement, PlaceError> {
    let graph = problem.graph();
    let mut state = State::new(problem)?;
    let mut missing: Vec<usize> = graph.task_ids().map(|task| graph.predecessors(task).len()).collect();
    state.make_sources_ready()?;
    while let Some(task) = state.take_last() {
        state.place(task)?;
        for &next in graph.successors(task) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                state.make_ready(next)?;
            }
        }
    }
    Ok(state.schedule.finish(strategy))
}

/// Device for a ready task.
#[derive(Debug, Clone, Copy)]
struct Site {
    device: DeviceId,
    /// Arrival of the task's inputs.
    arrival: f64,
    /// Time of the task on the device.
    time: f64,
}

/// A ready task, or several with equal sites.
struct Ready {
    /// Tasks of the entry; never empty.
    tasks: BinaryHeap<Reverse<TaskId>>,
    sites: Vec<Site>,
    /// Position of the best device in `sites`; `finish` is the task's finish there.
    best: usize,
    finish: f64,
    /// Lower bound of the finish on all other devices, now and later.
    second: f64,
}

struct State<'p> {
    problem: &'p Problem<'p>,
    schedule: PartialSchedule<'p>,
    /// Time when everything on each device ends.
    free: Vec<f64>,
    ready: Vec<Ready>,
    arrival: Vec<f64>,
}

impl<'p> State<'p> {
    fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let devices = problem.platform().device_count();
        Ok(State {
            problem,
            schedule: PartialSchedule::new(problem)?,
            free: vec![0.0; devices],
            ready: Vec::new(),
            arrival: vec![0.0; devices],
        })
    }

    fn make_sources_ready(&mut self) -> Result<(), PlaceError> {
        let graph = self.problem.graph();
        let mut alike: BTreeMap<Vec<(DeviceId, u64)>, BinaryHeap<Reverse<TaskId>>> = BTreeMap::new();
        for task in graph.task_ids().filter(|task| graph.predecessors(*task).is_empty()) {
            let time = |device| (device, self.problem.time(task, device).to_bits());
            alike.entry(self.schedule.devices(task)?.into_iter().map(time).collect()).or_default().push(Reverse(task));
        }
        for (times, tasks) in alike {
            let site = |(device, time)| Site { device, arrival: 0.0, time: f64::from_bits(time) };
            self.push(tasks, times.into_iter().map(site).collect());
        }
        Ok(())
    }

    fn make_ready(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let devices = self.schedule.devices(task)?;
        self.schedule.arrivals(task, &devices, &mut self.arrival);
        let arrival = |device: DeviceId| self.arrival[device.index()];
        let site = |device| Site { device, arrival: arrival(device), time: self.problem.time(task, device) };
        let sites = devices.into_iter().map(site).collect();
        self.push(BinaryHeap::from([Reverse(task)]), sites);
        Ok(())
    }

    fn push(&mut self, tasks: BinaryHeap<Reverse<TaskId>>, sites: Vec<Site>) {
        let mut ready = Ready { tasks, sites, best: 0, finish: 0.0, second: 0.0 };
        ready.look_again(&self.free);
        self.ready.push(ready);
    }

    /// Removes and returns the ready task with the latest best finish, if any is left.
    fn take_last(&mut self) -> Option<TaskId> {
        let later = |one: &Ready, other: &Ready| {
            one.finish > other.finish || one.finish == other.finish && one.first() < other.first()
        };
        let last = (0..self.ready.len())
            .reduce(|last, place| if later(&self.ready[place], &self.ready[last]) { place } else { last })?;
        let Reverse(task) = self.ready[last].tasks.pop()?;
        if self.ready[last].tasks.is_empty() {
            self.ready.swap_remove(last);
        }
        Some(task)
    }

    fn place(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let span = self.schedule.place_by(task, |_, span| span.end, Reason::EarliestFinish)?;
        let free = &mut self.free[span.device.index()];
        *free = free.max(span.end);
        for ready in &mut self.ready {
            if ready.sites[ready.best].device == span.device {
                ready.update(&self.free);
            }
        }
        Ok(())
    }
}

impl Ready {
    fn first(&self) -> Option<TaskId> {
        self.tasks.peek().map(|&Reverse(task)| task)
    }

    fn finish_at(&self, place: usize, free: &[f64]) -> f64 {
        let site = self.sites[place];
        site.arrival.max(free[site.device.index()]) + site.time
    }

    /// Updates the entry after only its best device has become busier.
    fn update(&mut self, free: &[f64]) {
        self.finish = self.finish_at(self.best, free);
        if self.finish > self.second {
            self.look_again(free);
        }
    }

    fn look_again(&mut self, free: &[f64]) {
        (self.finish, self.second) = (f64::INFINITY, f64::INFINITY);
        for place in 0..self.sites.len() {
            let finish = self.finish_at(place, free);
            if finish < self.finish {
                self.second = self.finish;
                (self.best, self.finish) = (place, finish);
            } else if finish < self.second {
                self.second = finish;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{ListScheduler, Placer};
    use crate::sample;

    #[test]
    fn long_tasks_go_first() {
        let loaded = sample::problem(sample::graph(&[4.0, 1.0, 2.0, 2.0], &[]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let placement = ListScheduler::MAX_MIN.place(&problem).unwrap();
        assert_eq!(placement.device_of, [0, 0, 1, 1].map(DeviceId));
        assert_eq!(placement.planned.unwrap().makespan, 5.0);
    }
}
