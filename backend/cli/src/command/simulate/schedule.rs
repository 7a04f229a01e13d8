//! The simulated schedule as a file.

use crate::command::schedule_file::{ScheduleFile, TaskRow, TransferRow};
use anabranch_placement::graph::Task;
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::{Span, TransferSpan};
use anabranch_report::trial::Outcome;

/// Returns every task and transfer with its times.
pub(super) fn rows(problem: &Problem<'_>, outcome: &Outcome<'_>) -> ScheduleFile {
    let (graph, schedule, platform) = (problem.graph(), &outcome.schedule, problem.platform());
    let name = |device| platform.device(device).name.clone();
    let task = |(task, span): (&Task, &Span)| TaskRow {
        task: task.name.clone(),
        device: name(span.device),
        start: span.start,
        finish: span.end,
    };
    let transfer = |sent: &TransferSpan| TransferRow {
        data: graph.task(graph.producer(sent.datum)).name.clone(),
        from: name(sent.from),
        to: name(sent.to),
        bytes: sent.bytes,
        start: sent.start,
        finish: sent.end,
    };
    let tasks = graph.tasks().iter().zip(&schedule.tasks).map(task).collect();
    let transfers = schedule.transfers.iter().map(transfer).collect();
    ScheduleFile::new(outcome.loaded.facts.time_unit.clone(), schedule.makespan, tasks, transfers)
}
