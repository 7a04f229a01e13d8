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
//! Every device has two queues of ready tasks. One holds tasks whose inputs arrive before the device is free, by
//! offset. The other holds tasks that the device would have to wait for, by arrival and offset. A device only gets
//! busier, so a task moves at most once, from the second queue to the first. So the pair with the smallest key is at
//! the top of some queue.
//!
//! Keys only become greater, so the top that a device had when it was last looked at bounds its present top. Only the
//! devices with the smallest bound are looked at, until a bound is exact. Most entries of a queue are sorted, and few
//! are in a heap, because taking an entry from a sorted list needs no comparisons.
//!
//! Time: `O(V × devices × log V + E × devices)`. Each pair of a task and a device adds a search over the device's gaps.
//! Memory: `O(V × devices)`.

use super::list::PartialSchedule;
use super::ready_queue::{Entry, ReadyQueue};
use super::{PlaceError, Placement, Reason, ScoreOn};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{static_levels, upward_ranks};
use crate::schedule::Span;
use crate::total::Total;
use anabranch_base::quantile::{ascending, median_by_sum};
use std::cmp::Reverse;

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

struct State<'p, F> {
    problem: &'p Problem<'p>,
    pairing: &'p Pairing<F>,
    schedule: PartialSchedule<'p>,
    /// All tasks by decreasing urgency, then by id; and each task's position in that list.
    tasks: Vec<TaskId>,
    places: Vec<u32>,
    queues: Vec<ReadyQueue>,
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
            queues: Vec::new(),
            missing: graph.task_ids().map(|task| graph.predecessors(task).len()).collect(),
            arrival: vec![0.0; devices],
        };
        state.sort_sources()?;
        Ok(state)
    }

    fn sort_sources(&mut self) -> Result<(), PlaceError> {
        let mut sources = vec![Vec::new(); self.problem.platform().device_count()];
        // The least urgent task comes first: if only urgency counts, the entries are already sorted.
        for place in (0..self.tasks.len() as u32).rev() {
            let task = self.tasks[place as usize];
            if self.missing[task.index()] > 0 {
                continue;
            }
            for device in self.schedule.devices(task)? {
                sources[device.index()].push(((self.pairing.offset)(task, device), place));
            }
        }
        self.queues = sources.into_iter().map(ReadyQueue::of_sources).collect();
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
    ///
    /// A device's first entry is found again only if its key is the smallest of all, since keys only become greater.
    fn next(&mut self) -> Result<TaskId, PlaceError> {
        loop {
            let keys = self.queues.iter().filter_map(|queue| Some(queue.bound()?.key));
            let Some(least) = keys.max() else { return Err(self.refusal()) };
            let mut best = None;
            for device in self.problem.platform().device_ids() {
                if self.queues[device.index()].bound().is_some_and(|bound| bound.key == least) {
                    best = best.max(self.first(device));
                }
            }
            if let Some(entry) = best.filter(|entry| entry.key == least) {
                return Ok(self.tasks[entry.place.0 as usize]);
            }
        }
    }

    /// Returns the first entry of a device; finds it again if its task is placed elsewhere, or shares its key.
    fn first(&mut self, device: DeviceId) -> Option<Entry> {
        let queue = &self.queues[device.index()];
        let can_go = |entry: Entry| self.can_go(self.tasks[entry.place.0 as usize], device);
        if !(queue.is_exact() && queue.bound().is_some_and(can_go)) {
            self.find_first(device);
        }
        self.queues[device.index()].bound()
    }

    fn find_first(&mut self, device: DeviceId) {
        let mut queue = std::mem::take(&mut self.queues[device.index()]);
        let task = |place: u32| self.tasks[place as usize];
        queue.find_first(|place| self.can_go(task(place), device), |place| (self.pairing.offset)(task(place), device));
        self.queues[device.index()] = queue;
    }

    /// Whether `task` is not placed and can still go to `device`, which must be feasible for it.
    fn can_go(&self, task: TaskId, device: DeviceId) -> bool {
        !self.schedule.is_placed(task) && self.schedule.allows(task, device)
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
        self.find_first(span.device);
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
    use crate::cost::TimeTable;
    use crate::graph::{GraphBuilder, Task};
    use crate::loaded::{Costs, LoadedProblem};
    use crate::place::{ListScheduler, Placer};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// Places the task of the smallest key each time, as the definition has it: all ready tasks on all devices
    /// compared.
    fn place_plainly(
        problem: &Problem<'_>,
        pairing: &Pairing<impl Fn(TaskId, DeviceId) -> f64>,
    ) -> Result<Placement, PlaceError> {
        let graph = problem.graph();
        let mut schedule = PartialSchedule::new(problem)?;
        let devices = problem.platform().device_count();
        let (mut free, mut arrival) = (vec![0.0f64; devices], vec![0.0; devices]);
        for _ in graph.task_ids() {
            let mut best: Option<(f64, f64, TaskId)> = None;
            let is_ready = |task: &TaskId| graph.predecessors(*task).iter().all(|&before| schedule.is_placed(before));
            for task in graph.task_ids().filter(|&task| !schedule.is_placed(task)).filter(is_ready) {
                let candidates = schedule.devices(task)?;
                schedule.arrivals(task, &candidates, &mut arrival);
                for device in candidates {
                    let start = free[device.index()].max(arrival[device.index()]);
                    let (key, urgency) = (start + (pairing.offset)(task, device), pairing.urgency[task.index()]);
                    if best.is_none_or(|best| (key, -urgency, task) < (best.0, -best.1, best.2)) {
                        best = Some((key, urgency, task));
                    }
                }
            }
            let (.., task) = best.unwrap();
            let key = |_: &PartialSchedule<'_>, span: Span| span.start + (pairing.offset)(task, span.device);
            let span = schedule.place_by(task, key, pairing.reason)?;
            free[span.device.index()] = free[span.device.index()].max(span.end);
        }
        Ok(schedule.finish("plain"))
    }

    /// Times are whole numbers, so that many keys are equal and none is rounded.
    #[test]
    fn pairs_are_those_of_the_plain_definition() {
        arbtest::arbtest(|random| {
            let (tasks, devices) = (random.int_in_range(1..=160u32)?, random.int_in_range(1..=4usize)?);
            let mut builder = GraphBuilder::new();
            let mut needed = 0;
            for _ in 0..tasks {
                let memory = random.int_in_range(0..=9u64)?;
                needed += memory;
                builder.task(Task::new("t").with_operations(1.0).with_memory(memory));
            }
            for consumer in 1..tasks {
                for _ in 0..random.int_in_range(0..=2u8)? {
                    let producer = random.int_in_range(0..=consumer - 1)?;
                    builder.edge(TaskId(producer), TaskId(consumer), 10 * random.int_in_range(0..=9u64)?);
                }
            }
            if random.ratio(1, 2)? {
                builder.colocate(TaskId(0), TaskId(tasks - 1));
            }
            let mut times = vec![[None; 4]; tasks as usize];
            for row in &mut times {
                let sure = random.int_in_range(0..=devices - 1)?;
                for (device, time) in row[..devices].iter_mut().enumerate() {
                    let is_feasible = device == sure || random.ratio(4, 5)?;
                    *time = is_feasible.then_some(f64::from(random.int_in_range(0..=9u8)?));
                }
            }
            // Half of the problems have little memory, or too little.
            let is_tight = random.ratio(1, 2)?;
            let mut platform = vec![Device::new("d", DeviceKind::Cpu); 4];
            for device in platform.iter_mut().filter(|_| is_tight) {
                let memory = random.int_in_range(needed / devices as u64..=needed)?;
                *device = Device::new("d", DeviceKind::Cpu).with_memory(memory);
            }
            let table = TimeTable::from_fn(times.len(), 4, |task, device| times[task.index()][device.index()]).unwrap();
            let loaded = sample::on(builder.build().unwrap(), platform, MemoryRule::Resident);
            let loaded = LoadedProblem { costs: Costs::Times(table), ..loaded };
            let Ok(problem) = loaded.problem() else { return Ok(()) };
            let reason = Reason::EarliestFinish;
            let levels = static_levels(&problem, |task| problem.mean_time(task).floor());
            let level = |task: TaskId| levels[task.index()];
            let urgency = || levels.clone();
            // Memory that is too small may be noticed at another task.
            let planned = |result: Result<Placement, PlaceError>| result.ok().map(|placement| placement.planned);
            let expect = |found, expected| assert_eq!(planned(found), planned(expected));
            let pairing = Pairing { reason, offset: |_, _| 0.0, urgency: urgency() };
            expect(place_pairs(&problem, "plain", &pairing), place_plainly(&problem, &pairing));
            let offset = |task, device| problem.time(task, device);
            let pairing = Pairing { reason, offset, urgency: urgency() };
            expect(place_pairs(&problem, "plain", &pairing), place_plainly(&problem, &pairing));
            let offset = |task, device| problem.time(task, device) - level(task);
            let pairing = Pairing { reason, offset, urgency: urgency() };
            expect(place_pairs(&problem, "plain", &pairing), place_plainly(&problem, &pairing));
            Ok(())
        })
        .budget_ms(500);
    }

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
