//! A run of a flow over time, with the activity of each worker, as a chart and as a trace.

use crate::chart::{Interval, Lane, TimePanel, Timeline};
use crate::text::{count, duration};
use crate::trace::{Slice, Trace};
use anabranch::flow::{FlowEvent, FlowReport, Scheduler, WorkerConfig};
use serde_json::{Map, json};

/// Number of colours that distinguish neighbouring nodes or iterations.
const COLOURS: u64 = 5;

/// Returns a chart with a lane for each worker.
pub fn timeline(program: &str, scheduler: Scheduler, report: &FlowReport) -> Timeline {
    let end = report.time.as_secs_f64();
    let interval = |event: &FlowEvent| Interval {
        start: event.start as f64 / 1e9,
        end: event.end as f64 / 1e9,
        colour: (u64::from(event.node).wrapping_add(event.iteration) % COLOURS) as usize,
        tip: format!(
            "{}, iteration {}: {}",
            name(report, event),
            event.iteration,
            duration((event.end - event.start) as f64 / 1e9)
        ),
    };
    let lane = |worker: u32| {
        let intervals = report.events.iter().filter(|event| event.worker == worker).map(interval).collect();
        Lane::of(lane_name(report, worker), intervals, end)
    };
    let lanes = (0..report.workers.len() as u32).map(lane).collect();
    Timeline {
        title: format!("{program}, {} scheduler", scheduler.name()),
        subtitle: format!(
            "{} in {}, {} between machines",
            count(report.tasks(), "task"),
            duration(end),
            count(report.traffic.messages, "message")
        ),
        key: Vec::new(),
        marks: Vec::new(),
        marks_name: String::new(),
        panels: vec![TimePanel::of("", lanes)],
        end,
        time: "time since the run's start; colours tell tasks apart".into(),
        format: duration,
    }
}

/// Returns a trace with a group for each machine and a track for each worker.
pub fn trace(report: &FlowReport) -> Trace {
    let mut trace = Trace::default();
    let machines = report.workers.iter().map(|worker| worker.machine).max().map_or(0, |last| last + 1);
    let groups: Vec<_> = (0..machines).map(|machine| trace.group(&format!("machine {machine}"))).collect();
    let tracks: Vec<_> = (0..)
        .zip(&report.workers)
        .map(|(number, worker)| trace.track(groups[worker.machine as usize], &WorkerConfig::name_of(number)))
        .collect();
    for event in &report.events {
        let arguments = Map::from_iter([("iteration".to_owned(), json!(event.iteration))]);
        trace.slice(Slice {
            track: tracks[event.worker as usize],
            name: name(report, event).to_owned(),
            category: "node",
            start: event.start,
            end: event.end,
            arguments,
        });
    }
    trace
}

fn name<'a>(report: &'a FlowReport, event: &FlowEvent) -> &'a str {
    &report.nodes[event.node as usize].name
}

fn lane_name(report: &FlowReport, worker: u32) -> String {
    format!("machine {} {}", report.workers[worker as usize].machine, WorkerConfig::name_of(worker))
}
