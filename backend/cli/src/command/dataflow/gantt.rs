//! A schedule of processing elements as a chart.

use super::outcome::Outcome;
use super::source::Source;
use anabranch_placement::streaming::NodeId;
use anabranch_report::chart::{Interval, Lane, Sample, TimePanel, Timeline};
use anabranch_report::text::{amount, count, file_name};

/// Most processing elements that are drawn.
const MOST_LANES: usize = 128;

/// Number of colours that distinguish neighbouring blocks.
const COLOURS: usize = 5;

/// Returns a chart of the first processing elements, each task from its start to its last output.
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
        "{}, {}: makespan {} time units, speedup {:.2}",
        outcome.variant.name(),
        count(outcome.elements, "processing element"),
        outcome.makespan(),
        outcome.speedup()
    );
    if used > MOST_LANES {
        subtitle.push_str(&format!("; the first {MOST_LANES} of {used} that are used"));
    }
    Timeline {
        title: file_name(&source.name).to_owned(),
        subtitle,
        key: key(outcome),
        marks: ends,
        marks_name: "a block has ended".into(),
        panels: vec![TimePanel::of(
            "Tasks of each processing element (PE), and the share of the time that it is busy",
            lanes,
        )],
        end: makespan,
        time: "time (units in which a task reads and writes an element)".into(),
        format: amount,
    }
}

/// Returns the meanings of the colours.
fn key(outcome: &Outcome<'_>) -> Vec<Sample> {
    let sample = |colour, name| Sample { colour, name };
    let Some(streaming) = &outcome.streaming else { return vec![sample(0, "task".into())] };
    let blocks = streaming.schedule.blocks().count();
    let name = |block: usize| match block + COLOURS < blocks {
        true => format!("blocks {}, {}, …", block + 1, block + 1 + COLOURS),
        false => format!("block {}", block + 1),
    };
    (0..blocks.min(COLOURS)).map(|block| sample(block, name(block))).collect()
}

/// Returns the intervals of each processing element, by start.
fn intervals(outcome: &Outcome<'_>) -> Vec<Vec<Interval>> {
    let graph = outcome.graph;
    let mut lanes: Vec<Vec<Interval>> = Vec::new();
    let mut put = |element: usize, task: NodeId, [start, end]: [u64; 2], block: Option<usize>| {
        if lanes.len() <= element {
            lanes.resize(element + 1, Vec::new());
        }
        let of = block.map_or(String::new(), |block| format!(" of block {}", block + 1));
        let tip = format!("{}{of}: {start} to {end}", graph.node(task).name());
        let colour = block.unwrap_or(0) % COLOURS;
        lanes[element].push(Interval { start: start as f64, end: end as f64, colour, tip });
    };
    match &outcome.streaming {
        Some(streaming) => {
            for (number, block) in streaming.schedule.blocks().lists().iter().enumerate() {
                for (element, &task) in block.iter().enumerate() {
                    let times = streaming.schedule.times(task);
                    put(element, task, [times.start, times.last_out], Some(number));
                }
            }
        }
        None => {
            for task in graph.task_ids() {
                let list = &outcome.list;
                let times = [list.start[task.index()], list.end[task.index()]];
                put(list.element[task.index()] as usize, task, times, None);
            }
        }
    }
    lanes.iter_mut().for_each(|lane| lane.sort_by(|one, other| one.start.total_cmp(&other.start)));
    lanes
}
