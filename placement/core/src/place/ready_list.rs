//! List schedulers that choose the pair of a ready task and a device with the smallest key.
//!
//! A key is the time when the task could start after everything on the device, plus an offset of the pair. Min-min, ETF
//! and DLS differ in that offset. The task of the chosen pair then searches gaps on all of its devices, as in HEFT. It
//! never starts later there than in the pair.
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
use crate::schedule::Span;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Differences between the schedulers of this family.
pub(crate) struct Pairing<F> {
    /// Makes a reason of the devices and their keys, best first.
    pub(crate) reason: fn(Vec<ScoreOn>) -> Reason,
    /// Term added to a start time; smaller keys go first.
    pub(crate) offset: F,
    /// Urgency of each task; of equal keys the greatest urgency goes first.
    pub(crate) urgency: Vec<f64>,
}

/// Places every task by `pairing`.
///
/// # Errors
/// Returns an error if no feasible device has enough free memory for some unit.
pub(crate) fn place_pairs(
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
    placed: Vec<bool>,
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
            placed: vec![false; graph.task_count()],
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
            let counts = |place| !self.placed[task(place).index()] && self.schedule.allows(task(place), device);
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
        let stuck = graph.task_ids().filter(|&task| !self.placed[task.index()] && self.missing[task.index()] == 0);
        let errors = stuck.filter_map(|task| self.schedule.choice(task).err());
        errors.into_iter().next().expect("a ready task without an entry has no device with enough memory")
    }

    fn place(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let pairing = self.pairing;
        let key = |_: &PartialSchedule<'_>, span: Span| span.start + (pairing.offset)(task, span.device);
        let span = self.schedule.place_by(task, key, pairing.reason)?;
        self.placed[task.index()] = true;
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
