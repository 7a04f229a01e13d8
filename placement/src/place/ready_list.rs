//! List schedulers that choose a task and a device together: of all ready tasks and their devices, the pair of the smallest key.
//!
//! A key is the time when the task could start after everything that is on the device, plus an offset of the pair; min-min, ETF
//! and DLS differ in that offset. Once a pair has been chosen its task looks for gaps, as in HEFT, on all of its devices:
//! it never starts later there than the pair promised.
//!
//! Every device has two heaps of ready tasks: those whose inputs are there before the device is free, by offset, and those that
//! it would have to wait for, by arrival and offset. A device gets busier only, so a task moves at most once, from the second to
//! the first, and the pair of the smallest key is at the top of some heap. Sources are ready from the start, so that each device
//! has them sorted once, in the place of a heap.
//!
//! Time: `O(V × devices × log V + E × devices)`, and for each task and device a search over that device's gaps. Memory:
//! `O(V × devices)`.

use super::list::{Choice, ListSchedule};
use super::{PlaceError, Placement, Reason, ScoreOn};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What distinguishes a scheduler of this family.
pub(crate) trait Pairing {
    /// What is added to a start time; smaller keys go first.
    fn offset(&self, task: TaskId, device: DeviceId) -> f64;

    /// Which of equal keys goes first: the greatest.
    fn urgency(&self, task: TaskId) -> f64;

    /// Makes a reason of the devices and their keys, best first.
    fn reason(&self, candidates: Vec<ScoreOn>) -> Reason;
}

/// Places every task by `pairing`.
///
/// # Errors
/// Where no feasible device has room for some unit.
pub(crate) fn place_pairs(
    problem: &Problem<'_>,
    strategy: &'static str,
    pairing: &impl Pairing,
) -> Result<Placement, PlaceError> {
    let mut state = State::new(problem, pairing)?;
    for _ in problem.graph().task_ids() {
        let task = state.next()?;
        state.place(task)?;
    }
    Ok(state.schedule.finish(strategy))
}

/// A ready task on one device. The greatest entry goes first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    key: f64,
    urgency: f64,
    task: TaskId,
    /// When its inputs are on the device.
    arrival: f64,
    offset: f64,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (other, self);
        one.key.total_cmp(&other.key).then(other.urgency.total_cmp(&one.urgency)).then(one.task.cmp(&other.task))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The ready tasks of one device. Entries of tasks that have gone elsewhere stay until they come up.
#[derive(Debug, Clone, Default)]
struct Queue {
    /// When all that is on the device ends.
    free: f64,
    /// By decreasing offset, so that the next is at the end.
    sources: Vec<Source>,
    /// By offset.
    arrived: BinaryHeap<Entry>,
    /// By arrival plus offset, as if the device were free by then.
    awaited: BinaryHeap<Entry>,
}

/// A source on one device.
#[derive(Debug, Clone, Copy)]
struct Source {
    offset: f64,
    /// Its place in [`State::sources`].
    place: u32,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        if entry.arrival <= self.free {
            self.arrived.push(Entry { key: entry.offset, ..entry });
        } else {
            self.awaited.push(Entry { key: entry.arrival + entry.offset, ..entry });
        }
    }

    /// The entry of the smallest key among those that still `count`, with that key.
    fn first(&mut self, sources: &[Entry], counts: impl Fn(TaskId) -> bool) -> Option<Entry> {
        while self.sources.pop_if(|source| !counts(sources[source.place as usize].task)).is_some() {}
        while let Some(entry) = self.awaited.peek().copied()
            && (entry.arrival <= self.free || !counts(entry.task))
        {
            self.awaited.pop();
            if counts(entry.task) {
                self.push(entry);
            }
        }
        while self.arrived.peek().is_some_and(|entry| !counts(entry.task)) {
            self.arrived.pop();
        }
        let source = self.sources.last().map(|source| Entry {
            key: self.free + source.offset,
            offset: source.offset,
            ..sources[source.place as usize]
        });
        let arrived = self.arrived.peek().map(|entry| Entry { key: self.free + entry.offset, ..*entry });
        source.max(arrived).max(self.awaited.peek().copied())
    }
}

struct State<'p, P> {
    problem: &'p Problem<'p>,
    pairing: &'p P,
    schedule: ListSchedule<'p>,
    /// By decreasing urgency.
    sources: Vec<Entry>,
    queues: Vec<Queue>,
    missing: Vec<usize>,
    placed: Vec<bool>,
    arrival: Vec<f64>,
}

impl<'p, P: Pairing> State<'p, P> {
    fn new(problem: &'p Problem<'p>, pairing: &'p P) -> Result<Self, PlaceError> {
        let graph = problem.graph();
        let devices = problem.platform().device_count();
        let mut state = State {
            problem,
            pairing,
            schedule: ListSchedule::new(problem)?,
            sources: Vec::new(),
            queues: vec![Queue::default(); devices],
            missing: graph.task_ids().map(|task| graph.predecessors(task).len()).collect(),
            placed: vec![false; graph.task_count()],
            arrival: vec![0.0; devices],
        };
        state.sort_sources()?;
        Ok(state)
    }

    fn sort_sources(&mut self) -> Result<(), PlaceError> {
        let tasks = self.problem.graph().task_ids().filter(|task| self.missing[task.index()] == 0);
        let entry = |task| Entry { key: 0.0, urgency: self.pairing.urgency(task), task, arrival: 0.0, offset: 0.0 };
        let mut sources: Vec<Entry> = tasks.map(entry).collect();
        sources.sort_unstable_by(|one, other| other.cmp(one));
        for (place, entry) in (0..).zip(&sources) {
            for device in self.devices(entry.task)? {
                let offset = self.pairing.offset(entry.task, device);
                self.queues[device.index()].sources.push(Source { offset, place });
            }
        }
        for queue in &mut self.queues {
            let by_offset = |one: &Source, other: &Source| other.offset.total_cmp(&one.offset);
            queue.sources.sort_unstable_by(|one, other| by_offset(one, other).then(other.place.cmp(&one.place)));
        }
        self.sources = sources;
        Ok(())
    }

    /// Where `task` can go by now.
    fn devices(&self, task: TaskId) -> Result<Vec<DeviceId>, PlaceError> {
        Ok(match self.schedule.choice(task)? {
            Choice::Forced(device, _) => vec![device],
            Choice::Free(devices) => devices,
        })
    }

    fn make_ready(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let devices = self.devices(task)?;
        self.schedule.arrivals(task, &devices, &mut self.arrival);
        let urgency = self.pairing.urgency(task);
        for device in devices {
            let offset = self.pairing.offset(task, device);
            let arrival = self.arrival[device.index()];
            self.queues[device.index()].push(Entry { key: 0.0, urgency, task, arrival, offset });
        }
        Ok(())
    }

    /// The task of the pair of the smallest key; of equals, the most urgent, the smallest task id, the smallest device id.
    fn next(&mut self) -> Result<TaskId, PlaceError> {
        let mut best: Option<Entry> = None;
        for (device, queue) in self.problem.platform().device_ids().zip(&mut self.queues) {
            let counts = |task: TaskId| !self.placed[task.index()] && self.schedule.allows(task, device);
            if let Some(entry) = queue.first(&self.sources, counts)
                && best.is_none_or(|best| entry > best)
            {
                best = Some(entry);
            }
        }
        best.map_or_else(|| Err(self.refusal()), |entry| Ok(entry.task))
    }

    /// Why no pair is left: some ready task has no device with room any more.
    fn refusal(&self) -> PlaceError {
        let graph = self.problem.graph();
        let stuck = graph.task_ids().filter(|&task| !self.placed[task.index()] && self.missing[task.index()] == 0);
        let errors = stuck.filter_map(|task| self.schedule.choice(task).err());
        errors.into_iter().next().expect("a ready task without an entry has no device with room")
    }

    fn place(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let pairing = self.pairing;
        let key = |span: crate::schedule::Span| span.start + pairing.offset(task, span.device);
        let span = self.schedule.place_by(task, |_, span| key(span), |candidates| pairing.reason(candidates))?;
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
