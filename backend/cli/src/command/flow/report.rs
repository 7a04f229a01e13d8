//! Times and messages of a flow's runs, as a table and as JSON.

use anabranch::compare::Median;
use anabranch::device::format_bytes;
use anabranch::flow::{FlowReport, Scheduler};
use anabranch_report::table::Table;
use anabranch_report::text::{count, digits, duration};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// All runs of a program.
pub(super) struct Report {
    pub(super) program: &'static str,
    pub(super) size: usize,
    pub(super) block: usize,
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) workers: u32,
    pub(super) machines: u32,
    pub(super) place: String,
    /// Predicted seconds of one iteration, from the weights.
    pub(super) predicted: Option<f64>,
    pub(super) placing: Duration,
    pub(super) sequential: Vec<Duration>,
    pub(super) rows: Vec<Row>,
}

/// The runs under one scheduler.
pub(super) struct Row {
    pub(super) scheduler: Scheduler,
    times: Vec<Duration>,
    /// Report of the last run.
    report: Option<FlowReport>,
}

impl Row {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Row { scheduler, times: Vec::new(), report: None }
    }

    pub(super) fn add(&mut self, report: FlowReport) {
        self.times.push(report.time);
        self.report = Some(report);
    }

    /// Returns counts of the last run: tasks, tasks stolen from another machine, times that workers fell asleep,
    /// messages and bytes.
    fn counts(&self) -> [u64; 5] {
        let Some(report) = &self.report else { return [0; 5] };
        let sum = |count: fn(&anabranch::flow::WorkerReport) -> u64| report.workers.iter().map(count).sum();
        let (stolen, sleeps) = (sum(|worker| worker.stolen), sum(|worker| worker.sleeps));
        [report.tasks(), stolen, sleeps, report.traffic.messages, report.traffic.bytes]
    }
}

/// Returns the median in seconds.
fn median(times: &[Duration]) -> f64 {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    Median::of(&seconds).map_or(0.0, |median| median.median)
}

impl Report {
    fn speedup(&self, row: &Row) -> f64 {
        median(&self.sequential) / median(&row.times)
    }

    pub(super) fn json(&self) -> Value {
        let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        let row = |row: &Row| {
            let [tasks, stolen, sleeps, messages, bytes] = row.counts();
            json!({
                "scheduler": row.scheduler.name(), "seconds": median(&row.times), "all_seconds": seconds(&row.times),
                "speedup": self.speedup(row), "tasks": tasks, "stolen": stolen, "sleeps": sleeps, "messages": messages, "bytes": bytes,
                "workers": row.report.as_ref().map(|report| &report.workers),
            })
        };
        json!({
            "program": self.program, "size": self.size, "block": self.block, "nodes": self.nodes, "edges": self.edges,
            "workers": self.workers, "machines": self.machines, "place": self.place, "placing_seconds": self.placing.as_secs_f64(),
            "predicted_seconds": self.predicted, "sequential_seconds": median(&self.sequential),
            "all_sequential_seconds": seconds(&self.sequential),
            "schedulers": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { program, size, block, nodes, edges, workers, machines, place, .. } = self;
        writeln!(
            f,
            "{program}, size {size} in blocks of {block}: {}, {}",
            count(*nodes, "node"),
            count(*edges, "edge")
        )?;
        writeln!(
            f,
            "{} on {}; placed by {place} in {}",
            count(*workers, "worker"),
            count(*machines, "machine"),
            duration(self.placing.as_secs_f64())
        )?;
        if let Some(predicted) = self.predicted {
            writeln!(f, "predicted from the nodes' weights, one iteration: {}", duration(predicted))?;
        }
        writeln!(f, "a plain loop: {}; all answers are the loop's\n", duration(median(&self.sequential)))?;
        let mut table = Table::new("scheduler | >median | >speed-up | >tasks | >stolen | >sleeps | >messages | >sent");
        for row in &self.rows {
            let [tasks, stolen, sleeps, messages, bytes] = row.counts();
            table.row([
                row.scheduler.name().to_owned(),
                duration(median(&row.times)),
                digits(self.speedup(row), 2),
                tasks.to_string(),
                stolen.to_string(),
                sleeps.to_string(),
                messages.to_string(),
                format_bytes(bytes),
            ]);
        }
        table.fmt(f)
    }
}
