//! A schedule of processing elements as a chart.

use super::outcome::Outcome;
use super::source::Source;
use crate::chart::{Interval, Lane, TimePanel, Timeline, amount};
use anabranch_placement::streaming::NodeId;

/// Processing elements that are drawn.
const MOST_LANES: usize = 128;

/// The first processing elements, each task from its start to its last output.
pub(super) fn chart(source: &Source, outcome: &Outcome<'_>) -> Timeline {
    let intervals = intervals(outcome);
    let makespan = outcome.makespan() as f64;
    let used = intervals.len();
    let lanes = intervals.into_iter().take(MOST_LANES).enumerate();
    let lanes = lanes.map(|(number, intervals)| Lane::of(format!("PE {number}"), intervals, makespan)).collect();
    let ends = match &outcome.streaming {
        None => Vec::new(),
        Some(streaming) => {
            let starts =
                (1..streaming.schedule.blocks().count()).map(|block| streaming.schedule.block_start(block) as f64);
            starts.chain([makespan]).collect()
        }
    };
    let mut subtitle = format!(
        "{}, {} processing elements: makespan {} time units, speedup {:.2}",
        outcome.variant.name(),
        outcome.elements,
        outcome.makespan(),
        outcome.speedup()
    );
    if used > MOST_LANES {
        subtitle.push_str(&format!("; the first {MOST_LANES} of {used} that are used"));
    }
    Timeline {
        title: source.name.clone(),
        subtitle,
        key: Vec::new(),
        marks: ends,
        marks_name: "a block has ended".into(),
        panels: vec![TimePanel::of("", lanes)],
        end: makespan,
        time: "time (units)".into(),
        format: amount,
    }
}

/// What each processing element does, by start.
fn intervals(outcome: &Outcome<'_>) -> Vec<Vec<Interval>> {
    let graph = outcome.graph;
    let mut lanes: Vec<Vec<Interval>> = Vec::new();
    let mut put = |element: usize, task: NodeId, start: u64, end: u64| {
        if lanes.len() <= element {
            lanes.resize(element + 1, Vec::new());
        }
        let tip = format!("{}: {start} to {end}", graph.node(task).name());
        lanes[element].push(Interval { start: start as f64, end: end as f64, colour: 0, tip });
    };
    match &outcome.streaming {
        Some(streaming) => {
            for block in streaming.schedule.blocks().lists() {
                for (element, &task) in block.iter().enumerate() {
                    let times = streaming.schedule.times(task);
                    put(element, task, times.start, times.last_out);
                }
            }
        }
        None => {
            for task in graph.task_ids() {
                let list = &outcome.list;
                put(list.element[task.index()] as usize, task, list.start[task.index()], list.end[task.index()]);
            }
        }
    }
    lanes.iter_mut().for_each(|lane| lane.sort_by(|one, other| one.start.total_cmp(&other.start)));
    lanes
}
