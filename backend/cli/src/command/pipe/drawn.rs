//! Times at which each device worked on each data set: as a chart, on a page, and as a trace.

use super::report::Report;
use super::rounds::Ran;
use anabranch::pipeline::{MeasuredReplica, StageSpan};
use anabranch_report::chart::{Interval, Lane, Sample, TimePanel, Timeline, escaped, page as chart_page};
use anabranch_report::text::{duration, file_name};
use anabranch_report::trace::{Slice, SliceId, Trace};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of data sets that are drawn: the last ones.
const DRAWN: u64 = 60;

/// Number of colours that distinguish neighbouring data sets.
const COLOURS: u64 = 5;

/// Returns the devices of all stages, with the indices of their stages.
fn replicas(ran: &Ran) -> impl Iterator<Item = (usize, &MeasuredReplica)> {
    let stages = ran.measured.stages.iter().enumerate();
    stages.flat_map(|(at, stage)| stage.devices.iter().map(move |replica| (at, replica)))
}

/// A device of a stage, and the times at which it worked.
type Drawn<'a> = (usize, &'a MeasuredReplica, Vec<StageSpan>);

/// Returns the spans of the drawn data sets, and the start of the first.
fn drawn(ran: &Ran) -> (Vec<Drawn<'_>>, Duration) {
    let first = ran.measured.data_sets.saturating_sub(DRAWN);
    let of = |replica: &MeasuredReplica| {
        replica.spans.iter().filter(|span| span.data_set >= first).copied().collect::<Vec<_>>()
    };
    let lanes: Vec<_> = replicas(ran).map(|(at, replica)| (at, replica, of(replica))).collect();
    let begun = lanes.iter().flat_map(|(_, _, spans)| spans).map(|span| span.start).min().unwrap_or_default();
    (lanes, begun)
}

/// Returns a chart with a lane for each device of each stage.
pub(super) fn timeline(report: &Report, ran: &Ran) -> Timeline {
    let (lanes, begun) = drawn(ran);
    let since = |at: Duration| at.saturating_sub(begun).as_secs_f64();
    let end = lanes.iter().flat_map(|(_, _, spans)| spans).map(|span| since(span.end)).fold(0.0, f64::max);
    let interval = |span: &StageSpan| Interval {
        start: since(span.start),
        end: since(span.end),
        colour: (span.data_set % COLOURS) as usize,
        tip: format!("sample {}: {}", span.data_set, duration((span.end - span.start).as_secs_f64())),
    };
    let lane = |(at, replica, spans): &Drawn<'_>| {
        Lane::of(format!("stage {at} on {}", replica.device), spans.iter().map(interval).collect(), end)
    };
    Timeline {
        title: format!("{}: the last samples", file_name(&report.model)),
        subtitle: report.headline(),
        key: key(&lanes),
        marks: Vec::new(),
        marks_name: String::new(),
        panels: vec![TimePanel::of("", lanes.iter().map(lane).collect())],
        end,
        time: "time since the first of them was begun with".into(),
        format: duration,
    }
}

/// Returns the meanings of the colours, which repeat over the data sets.
fn key(lanes: &[Drawn<'_>]) -> Vec<Sample> {
    let mut sets: Vec<u64> = lanes.iter().flat_map(|(_, _, spans)| spans).map(|span| span.data_set).collect();
    sets.sort_unstable();
    sets.dedup();
    let several = sets.len() > COLOURS as usize;
    let name =
        |set: u64| if several { format!("samples {set}, {}, …", set + COLOURS) } else { format!("sample {set}") };
    let first = sets.into_iter().take(COLOURS as usize);
    first.map(|set| Sample { colour: (set % COLOURS) as usize, name: name(set) }).collect()
}

/// Returns a page with the figures and the chart.
pub(super) fn page(report: &Report, ran: &Ran) -> String {
    let text = report.to_string();
    let facts: Vec<(&str, String)> = vec![
        ("mapping", ran.plan.how.clone()),
        ("result", report.headline()),
        ("predicted", format!("one every {}, latency {}", duration(ran.plan.period), duration(ran.plan.latency))),
    ];
    let table = format!("<pre>{}</pre>", escaped(&text));
    chart_page(&format!("Pipeline of {}", file_name(&report.model)), &facts, &[timeline(report, ran).svg(), table])
}

/// Returns a trace with a track for each device of each stage, and arrows along each data set.
pub(super) fn trace(ran: &Ran) -> Trace {
    let (lanes, begun) = drawn(ran);
    let mut trace = Trace::default();
    let group = trace.group("pipeline");
    let mut last: BTreeMap<u64, SliceId> = BTreeMap::new();
    for (at, replica, spans) in lanes {
        let track = trace.track(group, &format!("stage {at} on {}", replica.device));
        for span in spans {
            let nanoseconds = |time: Duration| time.saturating_sub(begun).as_nanos() as u64;
            let slice = trace.slice(Slice {
                track,
                name: format!("sample {}", span.data_set),
                category: "stage",
                start: nanoseconds(span.start),
                end: nanoseconds(span.end),
                arguments: serde_json::Map::new(),
            });
            if let Some(before) = last.insert(span.data_set, slice) {
                trace.flow("sample", before, slice);
            }
        }
    }
    trace
}
