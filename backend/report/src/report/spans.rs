//! Times of all events of a plan: predicted and measured, in one form.

use anabranch::execute::{Activity, RunOutput};
use anabranch::plan::{Plan, Route};
use anabranch::planning::{Placed, Planned};
use anabranch::program::{Origin, Program, ValueId};
use anabranch::session::{HostOperator, Part};
use anabranch_placement::graph::TaskId;
use anabranch_placement::schedule::{Schedule, Span, TransferSpan};
use serde::Serialize;

/// Ready, start and end times of an item. If it is predicted, the first two are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Times {
    /// Time at which its device or link turned to it.
    pub(super) ready: u64,
    /// Time at which all its inputs were there.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Part of the time from start to end in which it worked.
    pub(super) busy: u64,
}

impl Times {
    /// Returns the span of an operator that the host computed between two plans.
    pub(super) fn of_host_operator(step: &HostOperator) -> Self {
        let (start, busy) = (step.begun.as_nanos() as u64, step.took.as_nanos() as u64);
        Self { ready: start, start, end: start + busy, busy }
    }

    pub(super) fn later(self, by: u64) -> Self {
        Self { ready: self.ready + by, start: self.start + by, end: self.end + by, ..self }
    }
}

/// Values that each hold until the next: pairs of a time and a value, ascending.
pub(super) type Steps = Vec<[u64; 2]>;

/// Times of tasks (nodes, then the model's inputs and outputs) and of transfers.
pub(super) struct Spans {
    pub(super) tasks: Vec<Times>,
    /// By transfer; `None` if nothing is moved or it was not measured.
    pub(super) transfers: Vec<Option<Times>>,
    /// End of the last.
    pub(super) makespan: u64,
}

impl Spans {
    /// Returns the times that the plan predicts.
    pub(super) fn predicted(planned: &Planned) -> Self {
        let (plan, program, predicted) = (planned.plan(), &planned.program, planned.plan().predicted());
        let nodes = predicted.nodes.iter().zip(&predicted.busy);
        let mut tasks: Vec<Times> =
            nodes.map(|(span, busy)| Times { busy: nanoseconds(*busy), ..times(*span) }).collect();
        tasks.resize(planned.placed.schedule.tasks.len(), Times::default());
        let transfers = predicted.transfers.iter().map(|span| (span.1 > span.0).then(|| times(*span)));
        let mut spans = Self { tasks, transfers: transfers.collect(), makespan: nanoseconds(predicted.makespan) };
        spans.set_outputs(program, plan);
        spans
    }

    /// Returns the times from the events of a run of the plan. Inputs are there at the start, and outputs when their
    /// value is on the host.
    pub(super) fn measured(planned: &Planned, measured: &RunOutput) -> Self {
        let (plan, program) = (planned.plan(), &planned.program);
        let tasks = planned.placed.schedule.tasks.len();
        let mut spans =
            Self { tasks: vec![Times::default(); tasks], transfers: vec![None; plan.transfers().len()], makespan: 0 };
        for event in &measured.events {
            let times = Times { ready: event.ready, start: event.start, end: event.end, busy: event.busy() };
            match event.what {
                Activity::Node(node) => spans.tasks[node.index()] = times,
                Activity::Transfer(transfer) => spans.transfers[transfer.index()] = Some(times),
            }
            spans.makespan = spans.makespan.max(event.end);
        }
        spans.set_outputs(program, plan);
        spans.makespan = spans.makespan.max(measured.makespan.as_nanos() as u64);
        spans
    }

    /// Returns the predicted and measured times of a plan's run within a run, counted from that run's start.
    pub(super) fn of_part(part: &Part<'_>) -> [Self; 2] {
        let [foreseen, begun] = [part.foreseen, part.begun].map(|time| time.as_nanos() as u64);
        [Self::predicted(part.planned).later(foreseen), Self::measured(part.planned, part.measured).later(begun)]
    }

    /// Returns these times delayed by `by` nanoseconds.
    pub(super) fn later(mut self, by: u64) -> Self {
        self.tasks.iter_mut().chain(self.transfers.iter_mut().flatten()).for_each(|times| *times = times.later(by));
        Self { makespan: self.makespan + by, ..self }
    }

    /// Sets the times of outputs to the arrival of their values.
    fn set_outputs(&mut self, program: &Program, plan: &Plan) {
        let outputs = program.nodes.len() + program.inputs.len();
        for (index, output) in program.outputs.iter().enumerate() {
            let there = self.arrival(program, plan, output.value);
            self.tasks[outputs + index] = Times { ready: there, start: there, end: there, busy: 0 };
        }
    }

    /// Returns the time at which a value is on the host.
    fn arrival(&self, program: &Program, plan: &Plan, value: ValueId) -> u64 {
        let host = anabranch::plan::HOST;
        let sent = plan.transfers().iter().position(|transfer| transfer.value == value && transfer.to == host);
        match (sent.and_then(|at| self.transfers[at]), &program.value(value).origin) {
            (Some(times), _) => times.end,
            (None, Origin::Node(node)) => self.tasks[node.index()].end,
            (None, Origin::Input | Origin::Constant(_)) => 0,
        }
    }

    /// Returns these times as a schedule of the placement, in seconds. A streamed value counts as there when it begins
    /// to arrive, because its reader may start then.
    pub(super) fn schedule(&self, plan: &Plan, placed: &Placed) -> Schedule {
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        let span = |(task, times): (usize, &Times)| Span {
            device: placed.placement.device_of[task],
            start: seconds(times.start),
            end: seconds(times.end),
        };
        let transfer = |(index, transfer): (usize, &anabranch::plan::Transfer)| {
            let datum = placed.tasks.datum(transfer.value)?;
            let made = self.tasks[placed.tasks.graph().producer(datum).index()].end;
            let times = self.transfers[index].unwrap_or(Times { ready: made, start: made, end: made, busy: 0 });
            let end = if matches!(transfer.route, Route::Streamed(_)) { times.start } else { times.end };
            let (start, end) = (seconds(times.start), seconds(end));
            let (from, to, bytes) = (transfer.from, transfer.to, transfer.bytes);
            Some(TransferSpan { datum, from, to, bytes, send_start: start, send_end: start, start, end })
        };
        let mut transfers: Vec<_> = plan.transfers().iter().enumerate().filter_map(transfer).collect();
        transfers.sort_by_key(|sent| (sent.datum, sent.to));
        let mut order: Vec<TaskId> = (0..self.tasks.len() as u32).map(TaskId).collect();
        // Only the order of the plan distinguishes tasks that start together.
        let mut place = vec![0; self.tasks.len()];
        placed.schedule.order.iter().enumerate().for_each(|(at, task)| place[task.index()] = at);
        order.sort_by_key(|task| (self.tasks[task.index()].start, place[task.index()]));
        Schedule {
            tasks: self.tasks.iter().enumerate().map(span).collect(),
            traffic: transfers.iter().map(|sent| sent.bytes).sum(),
            transfers,
            order,
            makespan: seconds(self.makespan),
        }
    }
}

fn times((start, end): (f64, f64)) -> Times {
    let (start, end) = (nanoseconds(start), nanoseconds(end));
    Times { ready: start, start, end: end.max(start), busy: end.saturating_sub(start) }
}

/// Converts seconds to the nearest nanosecond. Invalid times become 0.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
