//! Common part of list schedulers: tasks get a device and a time one after the other.
//!
//! A task can start on a device when every predecessor has finished and its datum has arrived (the *maximum* over all
//! of them). It takes the first gap between the device's tasks that is long enough. The strategies differ in the next
//! task and in the score that they minimise over the devices.
//!
//! Constraints: only feasible devices with enough free memory are candidates. The members of a colocation group follow
//! the first placed member; each takes the first long enough gap when it is placed.

use super::assignment::Assignment;
use super::reason::Best;
use super::timeline::Timeline;
use super::{PlaceError, Placement, Reason, ScoreOn};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::{Schedule, Span};
use std::ops::Range;

/// Span of a task that has no device yet.
const NOWHERE: Span = Span { device: DeviceId(0), start: 0.0, end: 0.0 };

/// Partial schedule. Every task is placed after its predecessors.
pub(crate) struct PartialSchedule<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    timelines: Vec<Timeline>,
    spans: Vec<Span>,
    /// Whether each task has its span.
    placed: Vec<bool>,
    /// Arrival of the current task's inputs on each device.
    arrival: Vec<f64>,
    /// Candidates of all tasks that had a choice, one task after the other. One list is faster than a list for each
    /// task, because a strategy may discard the whole schedule.
    candidates: Vec<ScoreOn>,
    chosen: Vec<Chosen>,
    /// Whether tasks may go into gaps (default: yes); otherwise they follow everything on their device.
    pub(crate) inserts: bool,
}

/// Task that had a choice, and its part of the candidates.
struct Chosen {
    task: TaskId,
    candidates: Range<usize>,
    reason: fn(Vec<ScoreOn>) -> Reason,
}

/// Devices that a task can go to.
pub(crate) enum Choice {
    /// The only possible device: the unit's device, or its only feasible device with the reason for it.
    Forced(DeviceId, Option<Reason>),
    /// Any of these devices, ascending; never empty.
    Free(Vec<DeviceId>),
}

impl<'p> PartialSchedule<'p> {
    /// Creates a schedule without tasks.
    ///
    /// # Errors
    /// Returns an error if units with one feasible device need more memory than it has.
    pub(crate) fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let devices = problem.platform().device_count();
        Ok(PartialSchedule {
            problem,
            assignment: Assignment::new(problem)?,
            timelines: vec![Timeline::new(); devices],
            spans: vec![NOWHERE; problem.graph().task_count()],
            placed: vec![false; problem.graph().task_count()],
            arrival: vec![0.0; devices],
            candidates: Vec::new(),
            chosen: Vec::new(),
            inserts: true,
        })
    }

    /// Puts `task` on the device with the smallest `score`; on a tie, where it ends first, then on the smallest device
    /// id. `score` gets the span that the task would have on the device. `reason` makes a reason of the devices with
    /// their scores, best first.
    pub(crate) fn place_by(
        &mut self,
        task: TaskId,
        mut score: impl FnMut(&Self, Span) -> f64,
        reason: fn(Vec<ScoreOn>) -> Reason,
    ) -> Result<Span, PlaceError> {
        let devices = match self.choice(task)? {
            Choice::Forced(device, reason) => return self.place_on(task, device, reason),
            Choice::Free(devices) => devices,
        };
        self.await_inputs(task, &devices);
        let mut best = Best::new();
        for device in devices {
            let span = self.span_on(task, device);
            best.offer((score(self, span), span), |one, other| {
                one.0.total_cmp(&other.0).then(one.1.end.total_cmp(&other.1.end)).is_lt()
            });
        }
        let &(_, span) = best.first().expect("a free choice has at least one device");
        // The candidates become the reason in the end.
        self.decide(task, span.device, Some(Reason::Given))?;
        let first = self.candidates.len();
        self.candidates.extend(best.iter().map(|&(score, span)| ScoreOn { device: span.device, score }));
        self.chosen.push(Chosen { task, candidates: first..self.candidates.len(), reason });
        Ok(self.occupy(task, span))
    }

    /// Returns the smallest and the second smallest `score` of `task` over its devices, if it has two.
    ///
    /// # Errors
    /// Returns the errors of [`Self::choice`].
    pub(crate) fn best_two(
        &mut self,
        task: TaskId,
        score: impl Fn(Span) -> f64,
    ) -> Result<Option<[f64; 2]>, PlaceError> {
        let Choice::Free(devices) = self.choice(task)? else { return Ok(None) };
        self.await_inputs(task, &devices);
        let mut scores: Vec<f64> = devices.into_iter().map(|device| score(self.span_on(task, device))).collect();
        scores.sort_unstable_by(f64::total_cmp);
        Ok(scores.first().copied().zip(scores.get(1).copied()).map(|(best, second)| [best, second]))
    }

    /// Estimates the end of a task's whole unit, if the task has `span`. The other members follow one after the other
    /// on the same device, each once its inputs from placed tasks are there.
    pub(crate) fn unit_end(&self, task: TaskId, span: Span) -> f64 {
        let graph = self.problem.graph();
        let mut end = span.end;
        for &member in graph.members(graph.unit(task)).iter().filter(|&&member| member != task) {
            for &datum in graph.inputs(member).iter().filter(|&&datum| self.is_placed(graph.producer(datum))) {
                let produced = self.spans[graph.producer(datum).index()];
                let transfer = self.problem.transfer_time(graph.bytes(datum), produced.device, span.device);
                end = end.max(produced.end + transfer);
            }
            end += self.problem.time(member, span.device);
        }
        end
    }

    pub(crate) fn problem(&self) -> &'p Problem<'p> {
        self.problem
    }

    pub(crate) fn is_placed(&self, task: TaskId) -> bool {
        self.placed[task.index()]
    }

    /// Returns the devices that `task` can go to now.
    ///
    /// # Errors
    /// Returns the errors of [`Self::choice`].
    pub(crate) fn devices(&self, task: TaskId) -> Result<Vec<DeviceId>, PlaceError> {
        Ok(match self.choice(task)? {
            Choice::Forced(device, _) => vec![device],
            Choice::Free(devices) => devices,
        })
    }

    /// Returns the choice of devices that `task` can go to now.
    ///
    /// # Errors
    /// Returns an error if no feasible device has enough free memory for its unit.
    pub(crate) fn choice(&self, task: TaskId) -> Result<Choice, PlaceError> {
        let unit = self.problem.graph().unit(task);
        if let Some(device) = self.assignment.device(unit) {
            return Ok(Choice::Forced(device, None));
        }
        if let Some((device, reason)) = self.assignment.forced(unit) {
            return Ok(Choice::Forced(device, Some(reason)));
        }
        let devices: Vec<DeviceId> = self.assignment.candidates(unit).collect();
        if devices.is_empty() { Err(self.assignment.free_memory().refusal(unit)) } else { Ok(Choice::Free(devices)) }
    }

    /// Puts `task` on `device`, where it must be able to go; `reason` is that of a unit that has no device yet.
    ///
    /// # Errors
    /// As those of [`Assignment::assign`].
    pub(crate) fn place_on(
        &mut self,
        task: TaskId,
        device: DeviceId,
        reason: Option<Reason>,
    ) -> Result<Span, PlaceError> {
        self.decide(task, device, reason)?;
        self.await_inputs(task, &[device]);
        Ok(self.occupy(task, self.span_on(task, device)))
    }

    fn decide(&mut self, task: TaskId, device: DeviceId, reason: Option<Reason>) -> Result<(), PlaceError> {
        match reason {
            Some(reason) => self.assignment.assign(self.problem.graph().unit(task), task, device, reason),
            None => Ok(()),
        }
    }

    /// Computes the arrival of all inputs of `task` on each of `devices`.
    fn await_inputs(&mut self, task: TaskId, devices: &[DeviceId]) {
        let mut arrival = std::mem::take(&mut self.arrival);
        self.arrivals(task, devices, &mut arrival);
        self.arrival = arrival;
    }

    /// Writes the arrival of all inputs of `task` on each of `devices` into `arrival`, by device; other entries stay.
    pub(crate) fn arrivals(&self, task: TaskId, devices: &[DeviceId], arrival: &mut [f64]) {
        let graph = self.problem.graph();
        for device in devices {
            arrival[device.index()] = 0.0;
        }
        // The processor fetches what several inputs need at once, if nothing is computed between.
        let mut sources = [(NOWHERE, 0); 8];
        for inputs in graph.inputs(task).chunks(sources.len()) {
            for (source, &datum) in sources.iter_mut().zip(inputs) {
                *source = (self.spans[graph.producer(datum).index()], graph.bytes(datum));
            }
            for &(produced, bytes) in &sources[..inputs.len()] {
                for &device in devices {
                    let there = produced.end + self.problem.transfer_time(bytes, produced.device, device);
                    let arrival = &mut arrival[device.index()];
                    *arrival = arrival.max(there);
                }
            }
        }
    }

    fn span_on(&self, task: TaskId, device: DeviceId) -> Span {
        let duration = self.problem.time(task, device);
        let start = self.earliest(device, self.arrival[device.index()], duration);
        Span { device, start, end: start + duration }
    }

    /// Returns the start of the first gap of `device` that is long enough; without gaps, after everything there.
    pub(crate) fn earliest(&self, device: DeviceId, ready: f64, duration: f64) -> f64 {
        let timeline = &self.timelines[device.index()];
        if self.inserts { timeline.earliest(ready, duration) } else { timeline.end().max(ready) }
    }

    fn occupy(&mut self, task: TaskId, span: Span) -> Span {
        let duration = self.problem.time(task, span.device);
        self.timelines[span.device.index()].occupy(span.start, duration);
        self.spans[task.index()] = span;
        self.placed[task.index()] = true;
        span
    }

    /// Whether `task` can still go to `device`, which must be feasible for it.
    pub(crate) fn allows(&self, task: TaskId, device: DeviceId) -> bool {
        let unit = self.problem.graph().unit(task);
        match self.assignment.device(unit) {
            Some(decided) => decided == device,
            None => self.problem.only_feasible(unit).is_some() || self.assignment.free_memory().holds(unit, device),
        }
    }

    /// Returns the span of each task. Every task must have been placed.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the placement, with the schedule. Every task must have been placed.
    pub(crate) fn finish(self, strategy: &'static str) -> Placement {
        let mut placement = self.assignment.finish(strategy, None);
        for Chosen { task, candidates, reason } in self.chosen {
            placement.reasons[task.index()] = reason(self.candidates[candidates].to_vec());
        }
        placement.planned = Some(Schedule::of_spans(self.problem, self.spans));
        placement
    }
}
