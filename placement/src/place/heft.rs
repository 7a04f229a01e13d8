//! HEFT: each task where it would finish first, the most urgent task first (Topcuoglu 2002, section 4.2; Laich 2017, section 4.3).
//!
//! Tasks go by decreasing upward rank. On each feasible device a task can start when every predecessor has finished and its
//! datum has arrived (the *maximum* over all of them), in the first gap between the tasks already there that is long enough.
//! It goes where it then finishes first; of equals, to the smallest device id.
//!
//! Constraints: means and searches range over feasible devices with room; the members of a colocation group follow the one
//! that is placed first, each in the gap that it finds when its turn comes.
//!
//! Time: `O(V log V + E × devices)`, and for each task and device a search over that device's gaps.

use super::assignment::Assignment;
use super::reason::Best;
use super::timeline::{Slot, Timeline};
use super::{FinishOn, PlaceError, Placement, Placer, Reason};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::rank::{by_decreasing_rank, upward_ranks};
use crate::schedule::{Schedule, Span, TransferSpan};
use crate::transfer::Sends;

/// The HEFT strategy. Its [`Placement::planned`] is the schedule that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heft;

impl Placer for Heft {
    fn name(&self) -> &'static str {
        "heft"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut state = State::new(problem)?;
        for task in by_decreasing_rank(problem, &upward_ranks(problem)) {
            state.place(task)?;
        }
        Ok(state.finish(self.name()))
    }
}

struct State<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    timelines: Vec<Timeline>,
    spans: Vec<Span>,
    /// When the inputs of the task in hand are there; by device.
    arrival: Vec<f64>,
}

impl<'p> State<'p> {
    fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let devices = problem.platform().device_count();
        let nowhere = Span { device: DeviceId(0), start: 0.0, end: 0.0 };
        Ok(State {
            problem,
            assignment: Assignment::new(problem)?,
            timelines: vec![Timeline::new(); devices],
            spans: vec![nowhere; problem.graph().task_count()],
            arrival: vec![0.0; devices],
        })
    }

    /// Decides where `task` runs, unless its unit is decided already, and when. Its predecessors must have been placed.
    fn place(&mut self, task: TaskId) -> Result<(), PlaceError> {
        let unit = self.problem.graph().unit(task);
        if let Some(device) = self.assignment.device(unit) {
            self.schedule_on(task, device);
            return Ok(());
        }
        if let Some((device, reason)) = self.assignment.forced(unit) {
            self.assignment.assign(unit, task, device, reason);
            self.schedule_on(task, device);
            return Ok(());
        }
        let candidates: Vec<DeviceId> = self.assignment.candidates(unit).collect();
        self.await_inputs(task, &candidates);
        let mut best = Best::new();
        for &device in &candidates {
            let finish = self.slot(task, device).start + self.problem.time(task, device);
            best.offer(FinishOn { device, finish }, |one, other| one.finish < other.finish);
        }
        let Some(&FinishOn { device, .. }) = best.first() else {
            return Err(self.assignment.room().refusal(unit));
        };
        self.assignment.assign(unit, task, device, Reason::EarliestFinish(best.into_list()));
        self.occupy(task, device);
        Ok(())
    }

    fn schedule_on(&mut self, task: TaskId, device: DeviceId) {
        self.await_inputs(task, &[device]);
        self.occupy(task, device);
    }

    /// Computes when all inputs of `task` are on each of `devices`.
    fn await_inputs(&mut self, task: TaskId, devices: &[DeviceId]) {
        let graph = self.problem.graph();
        for device in devices {
            self.arrival[device.index()] = 0.0;
        }
        for &datum in graph.inputs(task) {
            let produced = self.spans[graph.producer(datum).index()];
            let bytes = graph.bytes(datum);
            for &device in devices {
                let there = produced.end + self.problem.transfer_time(bytes, produced.device, device);
                let arrival = &mut self.arrival[device.index()];
                *arrival = arrival.max(there);
            }
        }
    }

    fn slot(&self, task: TaskId, device: DeviceId) -> Slot {
        self.timelines[device.index()].earliest(self.arrival[device.index()], self.problem.time(task, device))
    }

    fn occupy(&mut self, task: TaskId, device: DeviceId) {
        let (slot, duration) = (self.slot(task, device), self.problem.time(task, device));
        self.timelines[device.index()].occupy(slot, duration);
        self.spans[task.index()] = Span { device, start: slot.start, end: slot.start + duration };
    }

    fn finish(self, strategy: &'static str) -> Placement {
        let mut placement = self.assignment.finish(strategy, None);
        placement.planned = Some(plan(self.problem, &placement.device_of, self.spans));
        placement
    }
}

/// The schedule of tasks at `spans`, with every transfer as soon as its datum is there.
fn plan(problem: &Problem<'_>, device_of: &[DeviceId], spans: Vec<Span>) -> Schedule {
    let graph = problem.graph();
    let sends = Sends::of(graph, device_of);
    let transfers = sends.all().iter().map(|send| {
        let start = spans[graph.producer(send.datum).index()].end;
        let end = start + problem.transfer_time(send.bytes, send.from, send.to);
        let (datum, from, to, bytes) = (send.datum, send.from, send.to, send.bytes);
        TransferSpan { datum, from, to, bytes, send_start: start, send_end: start, start, end }
    });
    let mut order = graph.topological().to_vec();
    // A stable sort: of tasks at the same instant those without duration come first, and these in topological order.
    order.sort_by(|one, other| {
        let (one, other) = (&spans[one.index()], &spans[other.index()]);
        one.start.total_cmp(&other.start).then(one.end.total_cmp(&other.end))
    });
    Schedule {
        transfers: transfers.collect(),
        order,
        makespan: spans.iter().map(|span| span.end).fold(0.0, f64::max),
        traffic: sends.traffic(),
        tasks: spans,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{CostTable, OperationsOverSpeed};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// The second input decides: a scheduler that took the minimum over predecessors would start task 2 too early.
    #[test]
    fn a_task_waits_for_its_last_input() {
        let graph = sample::graph(&[2.0, 8.0, 1.0], &[(0, 2, 0), (1, 2, 30)]);
        let platform = sample::platform(&[1.0; 2]);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let placement = Heft.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 0, 0].map(DeviceId));
        let planned = placement.planned.unwrap();
        assert_eq!(planned.tasks[2].start, 8.0);
        let finishes = [(0, 9.0), (1, 12.0)].map(|(device, finish)| FinishOn { device: DeviceId(device), finish });
        assert_eq!(placement.reasons[2], Reason::EarliestFinish(finishes.to_vec()));
    }

    #[test]
    fn a_group_follows_its_first_member_to_a_device_where_all_can_run() {
        let mut builder = sample::tasks(&[0.0; 3]);
        builder.colocate(TaskId(0), TaskId(2));
        let graph = builder.build().unwrap();
        let platform = sample::platform(&[1.0; 3]);
        let times = [[Some(3.0), Some(1.0), Some(2.0)], [Some(5.0); 3], [Some(1.0), None, Some(1.0)]];
        let costs = CostTable::from_fn(&graph, &platform, |task, device| times[task.index()][device.index()]).unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
        let placement = Heft.place(&problem).unwrap();
        assert_eq!(placement.device_of, [2, 0, 2].map(DeviceId));
        assert_eq!(placement.reasons[2], Reason::ColocatedWith(TaskId(0)));
    }
}
