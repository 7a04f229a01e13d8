//! A model that is divided over the nodes of a cluster, as a page: prediction and measurement, stages, links, and the
//! activity of each device.

use crate::chart::{self, Interval, Lane, TimePanel, Timeline, html_table, titled};
use crate::text::{count, duration};
use anabranch::device::format_bytes;
use serde::Deserialize;

/// Number of colours that distinguish neighbouring inputs.
const COLOURS: u64 = 5;

/// A pipeline over the nodes of a cluster, with its last measurements. Times in seconds.
#[derive(Clone, Debug, Deserialize)]
pub struct DividedRun {
    /// Name of the model.
    pub model: String,
    /// Goal of the division.
    pub goal: String,
    /// Description of how the division was found.
    pub how: String,
    /// Number of results.
    pub results: u64,
    /// Predicted time between results.
    pub predicted_period: f64,
    /// Measured time between results.
    pub measured_period: Option<f64>,
    /// Predicted time of an input.
    pub predicted_latency: f64,
    /// Measured times of an input: median and 95th percentile.
    pub measured_latency: Option<(f64, f64)>,
    /// Lower bound of all divisions for the goal.
    pub lower_bound: f64,
    /// The stages, by device.
    pub stages: Vec<DividedStage>,
    /// The links that values pass.
    pub links: Vec<DividedLink>,
    /// Runs of each device that were kept.
    pub lanes: Vec<DividedLane>,
    /// Lines about failures.
    pub events: Vec<String>,
}

/// A stage on one of its devices.
#[derive(Clone, Debug, Deserialize)]
pub struct DividedStage {
    /// Number of the stage.
    pub stage: usize,
    /// Device, with its node.
    pub device: String,
    /// Number of the model's nodes.
    pub nodes: usize,
    /// Bytes of its constants.
    pub weights: u64,
    /// Predicted seconds of an input.
    pub predicted: f64,
    /// Measured seconds of an input.
    pub measured: Option<f64>,
}

/// A link from one device to another.
#[derive(Clone, Debug, Deserialize)]
pub struct DividedLink {
    /// Device that sends.
    pub from: String,
    /// Device that receives.
    pub to: String,
    /// Bytes of an input.
    pub bytes: u64,
    /// Predicted seconds of an input.
    pub predicted: f64,
    /// Bytes that were sent.
    pub sent: u64,
}

/// Activity of one device.
#[derive(Clone, Debug, Deserialize)]
pub struct DividedLane {
    /// Name of the device, with its node.
    pub device: String,
    /// Number of each input, and begin and end of its run.
    pub runs: Vec<(u64, f64, f64)>,
}

/// Returns the page.
pub fn page(run: &DividedRun) -> String {
    let or_none = |seconds: Option<f64>| seconds.map_or("not measured".to_owned(), duration);
    let latency = run.measured_latency.map_or("not measured".to_owned(), |(median, late)| {
        format!("{} (median), {} (95th percentile)", duration(median), duration(late))
    });
    let facts = [
        ("goal", format!("the least {}; lower bound of all divisions {}", run.goal, duration(run.lower_bound))),
        ("found by", run.how.clone()),
        ("results", run.results.to_string()),
        ("period", format!("predicted {}, measured {}", duration(run.predicted_period), or_none(run.measured_period))),
        ("latency", format!("predicted {}, measured {latency}", duration(run.predicted_latency))),
    ];
    let mut parts = vec![
        titled("Stages", "times of one input; measured ones are means since the last division", &stages(run)),
        titled("Links", "values of one input, and all bytes since the last division", &links(run)),
        timeline(run).svg(),
    ];
    if !run.events.is_empty() {
        let rows: Vec<_> = run.events.iter().map(|event| vec![event.clone()]).collect();
        parts.push(titled("Events", "failures, and what was done", &html_table(&["event"], &rows)));
    }
    chart::page(&format!("{}: divided over a cluster", run.model), &facts, &parts)
}

fn stages(run: &DividedRun) -> String {
    let row = |stage: &DividedStage| {
        vec![
            stage.stage.to_string(),
            stage.device.clone(),
            stage.nodes.to_string(),
            format_bytes(stage.weights),
            duration(stage.predicted),
            stage.measured.map_or(String::new(), duration),
        ]
    };
    let rows: Vec<_> = run.stages.iter().map(row).collect();
    html_table(&["stage", "device", "nodes", "weights", "predicted", "measured"], &rows)
}

fn links(run: &DividedRun) -> String {
    let row = |link: &DividedLink| {
        vec![
            link.from.clone(),
            link.to.clone(),
            format_bytes(link.bytes),
            duration(link.predicted),
            format_bytes(link.sent),
        ]
    };
    let rows: Vec<_> = run.links.iter().map(row).collect();
    html_table(&["from", "to", "bytes of an input", "predicted", "bytes in all"], &rows)
}

fn timeline(run: &DividedRun) -> Timeline {
    let runs = || run.lanes.iter().flat_map(|lane| &lane.runs);
    let start = runs().map(|(_, begun, _)| *begun).fold(f64::INFINITY, f64::min);
    let end = runs().map(|(.., ended)| ended - start).fold(0.0, f64::max);
    let lane = |lane: &DividedLane| {
        let interval = |(number, begun, ended): &(u64, f64, f64)| Interval {
            start: begun - start,
            end: ended - start,
            colour: (number % COLOURS) as usize,
            tip: format!("input {number}: {}", duration(ended - begun)),
        };
        Lane::of(lane.device.clone(), lane.runs.iter().map(interval).collect(), end)
    };
    Timeline {
        title: "Devices over time".into(),
        subtitle: format!("the last {}", count(runs().count(), "run")),
        key: Vec::new(),
        marks: Vec::new(),
        marks_name: String::new(),
        panels: vec![TimePanel::of("", run.lanes.iter().map(lane).collect())],
        end,
        time: "time; colours tell inputs apart, and clocks of nodes agree to about a millisecond".into(),
        format: duration,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_stages_links_lanes_and_events() {
        let run: DividedRun = serde_json::from_value(serde_json::json!({
            "model": "chain <1>", "goal": "period", "how": "exact", "results": 7, "predicted_period": 0.002,
            "measured_period": 0.003, "predicted_latency": 0.004, "measured_latency": [0.005, 0.006], "lower_bound": 0.001,
            "stages": [{"stage": 0, "device": "node1/cpu0", "nodes": 3, "weights": 2048, "predicted": 0.002, "measured": null}],
            "links": [{"from": "outside", "to": "node1/cpu0", "bytes": 1024, "predicted": 0.0001, "sent": 7168}],
            "lanes": [{"device": "node1/cpu0", "runs": [[0, 10.0, 10.002], [1, 10.002, 10.004]]}],
            "events": ["node2 failed"]
        }))
        .expect("as Python writes it");
        let page = page(&run);
        for text in [
            "chain &lt;1&gt;",
            "predicted 2.00 ms, measured 3.00 ms",
            "node1/cpu0",
            "7 KiB",
            "input 1: 2.00 ms",
            "node2 failed",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let empty = DividedRun { lanes: Vec::new(), events: Vec::new(), ..run };
        assert!(super::page(&empty).contains("the last 0 runs"));
    }
}
