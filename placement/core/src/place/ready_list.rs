//! List schedulers that choose the pair of a ready task and a device with the smallest key.
//!
//! A key is the time when the task could start after everything on the device, plus an offset of the pair. The task of
//! the chosen pair then searches gaps on all of its devices, as in HEFT. It never starts later there than in the pair.
//!
//! The offset of *min-min* is the time of the task, and that of *ETF* is 0. *DLS* takes the highest dynamic level, with
//! the generalisation to unrelated devices (Sih & Lee 1993, section 3):
//!
//! ```text
//! DL(t, d) = SL(t) − start(t, d) + Δ(t, d)        Δ(t, d) = E(t) − time(t, d)
//! ```
//!
//! `E` is the median of a task's times over its feasible devices (the mean of the middle two if their number is even).
//! `SL` is the sum of `E` on the longest path to a sink, without transfers. The paper's terms for descendants and for
//! scarce devices are left out: constraints define where a task cannot run.
//!
//! On equal keys the more urgent task goes first, then the smaller task id: in min-min by upward rank, in ETF by the
//! mean time of the longest path to a sink without transfers, in DLS by `SL`. Of a task's devices, equal in their keys,
//! the one where it ends first wins. The papers have no gaps, and the processors of ETF's paper are identical.
//!
//! Every device has two heaps of ready tasks. One holds tasks whose inputs arrive before the device is free, by offset.
//! The other holds tasks that the device would have to wait for, by arrival and offset. A device only gets busier, so a
//! task moves at most once, from the second heap to the first. So the pair with the smallest key is at the top of some
//! heap. Sources are ready from the start, so each device sorts them once instead of using a heap.
//!
//! Time: `O(V × devices × log V + E × devices)`. Each pair of a task and a device adds a search over the device's gaps.
//! Memory: `O(V × devices)`.

use super::list::PartialSchedule;
use super::{PlaceError, Placement, Reason, ScoreOn};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{static_levels, upward_ranks};
use crate::schedule::Span;
use crate::total::Total;
use anabranch_base::quantile::{ascending, median_by_sum};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Key by which a pair is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pair {
    /// Finish of the task (min-min).
    Finish,
    /// Start of the task (ETF).
    Start,
    /// Negative dynamic level (DLS).
    DynamicLevel,
}

/// Places every task by the keys of `pair`.
///
/// # Errors
/// Returns an error if no feasible device has enough free memory for some unit.
pub(super) fn place(problem: &Problem<'_>, strategy: &'static str, pair: Pair) -> Result<Placement, PlaceError> {
    match pair {
        Pair::Finish => {
            let (offset, urgency) = (|task, device| problem.time(task, device), upward_ranks(problem));
            place_pairs(problem, strategy, &Pairing { reason: Reason::EarliestFinish, offset, urgency })
        }
        Pair::Start => {
            let urgency = static_levels(problem, |task| problem.mean_time(task));
            let reason = |candidates| Reason::Smallest { what: "start", candidates };
            place_pairs(problem, strategy, &Pairing { reason, offset: |_, _| 0.0, urgency })
        }
        Pair::DynamicLevel => {
            let medians: Vec<f64> = problem.graph().task_ids().map(|task| median_time(problem, task)).collect();
            let levels = static_levels(problem, |task| medians[task.index()]);
            let urgency = levels.clone();
            let offset =
                |task: TaskId, device| problem.time(task, device) - medians[task.index()] - levels[task.index()];
            let reason = |candidates| Reason::Smallest { what: "negative dynamic level", candidates };
            place_pairs(problem, strategy, &Pairing { reason, offset, urgency })
        }
    }
}

/// Returns the median time of a task over its feasible devices.
fn median_time(problem: &Problem<'_>, task: TaskId) -> f64 {
    let feasible = problem.feasible(problem.graph().unit(task));
    let times: Vec<f64> = feasible.map(|device| problem.time(task, device)).collect();
    median_by_sum(&ascending(&times)).expect("each unit has a feasible device")
}

/// Differences between the schedulers of this family.
struct Pairing<F> {
    /// Makes a reason of the devices and their keys, best first.
    reason: fn(Vec<ScoreOn>) -> Reason,
    /// Term added to a start time; smaller keys go first.
    offset: F,
    /// Urgency of each task; of equal keys the greatest urgency goes first.
    urgency: Vec<f64>,
}

fn place_pairs(
    problem: &Problem<'_>,
    strategy: &'static str,
    pairing: &Pairing<impl Fn(TaskId, DeviceId) -> f64>,
) -> Result<Placement, PlaceError> {
    let mut state = State::new(problem, pairing)?;
    for _ in problem.graph().task_ids() {
        let task = state.next()?;
        state.place(task)?;
    }
    Ok(state.schedule.finish(strategy))
}

/// Ready task on one device. The greatest entry goes first: the smallest key, and of equal keys the smallest place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Reverse<Total>,
    /// Position of the task in the list of all tasks by decreasing urgency.
    place: Reverse<u32>,
    /// Arrival of its inputs on the device.
    arrival: Total,
}

impl Entry {
    fn new(key: f64, place: u32, arrival: f64) -> Self {
        Entry { key: Reverse(Total(key)), place: Reverse(place), arrival: Total(arrival) }
    }
}

/// Ready tasks of one device. Entries of tasks that were placed elsewhere stay until they reach the top.
#[derive(Debug, Clone, Default)]
struct Queue {
    /// Time when everything on the device ends.
    free: f64,
    /// Sources with their offsets as keys, ascending.
    sources: Vec<Entry>,
    /// Tasks whose inputs have arrived, by offset.
    arrived: BinaryHeap<Entry>,
    /// Tasks that the device would wait for, by arrival plus offset, as if the device were free by then.
    awaited: BinaryHeap<Entry>,
}

impl Queue {
    fn push(&mut self, offset: f64, arrival: f64, place: u32) {
        if arrival <= self.free {
            self.arrived.push(Entry::new(offset, place, arrival));
        } else {
            self.awaited.push(Entry::new(arrival + offset, place, arrival));
        }
    }

    /// Returns the entry with the smallest key among those that satisfy `counts`, with that key. `offset` returns the
    /// offset of a place.
    fn first(&mut self, counts: impl Fn(u32) -> bool, offset: impl Fn(u32) -> f64) -> Option<Entry> {
        while let Some(&Entry { arrival: Total(arrival), place: Reverse(place), .. }) = self.awaited.peek()
            && (arrival <= self.free || !counts(place))
        {
            self.awaited.pop();
            if counts(place) {
                self.push(offset(place), arrival, place);
            }
        }
        while self.arrived.peek().is_some_and(|entry| !counts(entry.place.0)) {
            self.arrived.pop();
        }
        while self.sources.pop_if(|source| !counts(source.place.0)).is_some() {}
        let arrived = self.arrived.peek().max(self.sources.last());
        let arrived = arrived.map(|entry| Entry { key: Reverse(Total(self.free + entry.key.0.0)), ..*entry });
        arrived.max(self.awaited.peek().copied())
    }
}

struct State<'p, F> {
    problem: &'p Problem<'p>,
    pairing: &'p Pairing<F>,
    schedule: PartialSchedule<'p>,
    /// All tasks by decreasing urgency, then by id; and each task's position in that list.
    tasks: Vec<TaskId>,
    places: Vec<u32>,
    queues: Vec<Queue>,
    missing: Vec<usize>,
    arrival: Vec<f64>,
}

impl<'p, F: Fn(TaskId, DeviceId) -> f64> State<'p, F> {
    fn new(problem: &'p Problem<'p>, pairing: &'p Pairing<F>) -> Result<Self, PlaceError> {
        let graph = problem.graph();
        let devices = problem.platform().device_count();
        let mut tasks: Vec<TaskId> = graph.task_ids().collect();
        tasks.sort_by_key(|task| Reverse(Total(pairing.urgency[task.index()])));
        let mut places = vec![0; tasks.len()];
        for (place, task) in (0..).zip(&tasks) {
            places[task.index()] = place;
        }
        let mut state = State {
            problem,
            pairing,
            schedule: PartialSchedule::new(problem)?,
            tasks,
            places,
            queues: vec![Queue::default(); devices],
            missing: graph.task_ids().map(|task| graph.predecessors(task).len()).collect(),
            arrival: vec![0.0; devices],
        };
        state.sort_sources()?;
        Ok(state)
    }

    fn sort_sources(&mut self) -> Result<(), PlaceError> {
        // The least urgent task comes first: if only urgency counts, the entries are already sorted.
        for place in (0..self.tasks.len() as u32).rev() {
            let task = self.tasks[place as usize];
            if self.missing[task.index()] > 0 {
                continue;
            }
            for device in self.schedule.devices(task)? {
                let key = (self.pairing.offset)(task, device);
                self.queues[device.index()].sources.push(Entry::new(key, place, 0.0));
            }
        }
        self.queues.iter_mut().for_each(|queue| queue.sources.sort_unstable());
        Ok(())
    }

    fn make_ready(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let devices = self.schedule.devices(task)?;
        self.schedule.arrivals(task, &devices, &mut self.arrival);
        let place = self.places[task.index()];
        for device in devices {
            let offset = (self.pairing.offset)(task, device);
            self.queues[device.index()].push(offset, self.arrival[device.index()], place);
        }
        Ok(())
    }

    /// Returns the task of the pair with the smallest key; on a tie, the most urgent task, the smallest task id, the
    /// smallest device id.
    fn next(&mut self) -> Result<TaskId, PlaceError> {
        let mut best: Option<Entry> = None;
        for (device, queue) in self.problem.platform().device_ids().zip(&mut self.queues) {
            let task = |place: u32| self.tasks[place as usize];
            let counts = |place| !self.schedule.is_placed(task(place)) && self.schedule.allows(task(place), device);
            if let Some(entry) = queue.first(counts, |place| (self.pairing.offset)(task(place), device))
                && best.is_none_or(|best| entry > best)
            {
                best = Some(entry);
            }
        }
        best.map_or_else(|| Err(self.refusal()), |entry| Ok(self.tasks[entry.place.0 as usize]))
    }

    /// Returns the reason why no pair is left: some ready task has no device with enough free memory.
    fn refusal(&self) -> PlaceError {
        let graph = self.problem.graph();
        let stuck = graph.task_ids().filter(|&task| !self.schedule.is_placed(task) && self.missing[task.index()] == 0);
        let mut errors = stuck.filter_map(|task| self.schedule.choice(task).err());
        errors.next().expect("a ready task without an entry has no device with enough memory")
    }

    fn place(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let pairing = self.pairing;
        let key = |_: &PartialSchedule<'_>, span: Span| span.start + (pairing.offset)(task, span.device);
        let span = self.schedule.place_by(task, key, pairing.reason)?;
        let queue = &mut self.queues[span.device.index()];
        queue.free = queue.free.max(span.end);
        for &next in self.problem.graph().successors(task) {
            self.missing[next.index()] -= 1;
            if self.missing[next.index()] == 0 {
                self.make_ready(next)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{ListScheduler, Placer};
    use crate::sample;

    /// The short tasks fill both devices before the long one starts; max-min avoids this.
    #[test]
    fn short_tasks_go_first() {
        let loaded = sample::problem(sample::graph(&[4.0, 1.0, 2.0, 2.0], &[]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let planned = ListScheduler::MIN_MIN.place(&problem).unwrap().planned.unwrap();
        assert_eq!(planned.order, [1, 2, 3, 0].map(TaskId));
        assert_eq!(planned.makespan, 6.0);
    }

    /// All sources could start at once: the one with the longest path goes first, to the faster device.
    #[test]
    fn of_equal_starts_the_higher_level_goes_first() {
        let loaded = sample::problem(sample::graph(&[2.0, 4.0, 2.0, 6.0], &[(2, 3, 0)]), &[1.0, 2.0]);
        let problem = loaded.problem().unwrap();
        let placement = ListScheduler::ETF.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 0, 1, 1].map(DeviceId));
        let starts: Vec<f64> = placement.planned.unwrap().tasks.iter().map(|span| span.start).collect();
        assert_eq!(starts, [4.0, 0.0, 0.0, 1.0]);
    }

    /// Both tasks prefer device 0; it goes to the task that loses more elsewhere.
    #[test]
    fn a_device_goes_to_the_task_that_gains_most_from_it() {
        let times = [[2.0, 4.0, 4.0], [1.0, 9.0, 3.0]];
        let loaded = sample::timed(sample::graph(&[0.0; 2], &[]), &times);
        let problem = loaded.problem().unwrap();
        assert_eq!([0, 1].map(|task| median_time(&problem, TaskId(task))), [4.0, 3.0]);
        let placement = ListScheduler::DLS.place(&problem).unwrap();
        assert_eq!(placement.device_of, [DeviceId(0); 2]);
        let Reason::Smallest { candidates, .. } = &placement.reasons[0] else { panic!("no candidates") };
        assert_eq!(candidates[0], ScoreOn { device: DeviceId(0), score: -6.0 });
        assert_eq!(placement.planned.unwrap().makespan, 3.0);
    }
}
