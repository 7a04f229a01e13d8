//! A comparison as charts and tables on one page that needs no network. If there are several models, a matrix comes
//! first.

use super::distinct::{Picture, differences, distinct};
use super::names::{DEFINITIONS, Names, agreement, by_callers};
use super::{Compared, matrix};
use crate::chart::{
    self, Axis, Bar, BarChart, Base, Format, Group, Lane, Panel, TimePanel, Timeline, html_table, plain, section,
    titled,
};
use crate::report::{RunLane, key};
use crate::run::busy;
use crate::text::{count, digits, duration, error, file_name, shortened};
use anabranch::compare::{Comparison, DeviceOutcome, Outcome};
use anabranch::device::format_bytes;
use std::collections::BTreeMap;

/// Values that differ by more than this factor are drawn on a logarithmic axis: on a linear axis the small values would
/// be a pixel long.
const WIDE: f64 = 10.0;

/// Most characters of the names above a schedule; the table has them all.
const LONGEST_NAME: usize = 90;

/// End of the schedules' axis in lengths of the shortest.
const LONGEST: f64 = 4.0;

/// Returns the page of all models.
pub fn page(all: &[Compared]) -> String {
    match all {
        [one] => {
            let facts: Vec<_> = one.facts.iter().cloned().chain([definitions()]).collect();
            chart::page(&format!("{}: configurations compared", file_name(&one.comparison.model)), &facts, &parts(one))
        }
        several => {
            let comparisons: Vec<&Comparison> = several.iter().map(|one| &one.comparison).collect();
            let explained = "median, and how many times the model's fastest it is; click a heading to sort";
            let mut all = vec![titled("All models", explained, &matrix::html(&comparisons))];
            for (one, name) in several.iter().zip(matrix::model_names(&comparisons)) {
                all.push(section(&name, &one.facts));
                all.extend(parts(one));
            }
            chart::page(&format!("{} models: configurations compared", several.len()), &[definitions()], &all)
        }
    }
}

/// Returns the page of one model that opens with these facts and this part. The facts tell whether the machine was
/// busy.
pub fn page_after(title: &str, facts: &[(&str, String)], first: String, one: &Compared) -> String {
    let busy = busy(&one.comparison.load);
    let own = one.facts.iter().filter(|(_, fact)| busy.as_ref() != Some(fact)).cloned();
    let after = section("How it was measured", &own.chain([definitions()]).collect::<Vec<_>>());
    let all: Vec<_> = [first, after].into_iter().chain(parts(one)).collect();
    chart::page(title, facts, &all)
}

fn definitions() -> (&'static str, String) {
    ("definitions", DEFINITIONS.join("; "))
}

/// Returns the charts and tables of one model.
fn parts(one: &Compared) -> Vec<String> {
    let Compared { comparison, pictures, .. } = one;
    let names = &Names::of(comparison);
    let confidence = comparison.outcomes.iter().map(|outcome| outcome.measured_ms.confidence).fold(1.0, f64::min);
    let subtitle = format!(
        "{} of each configuration in turn{}; whiskers: {:.0} % confidence interval of the median; configurations of one plan stand together",
        count(comparison.repeat, "run"),
        by_callers(comparison),
        100.0 * confidence
    );
    let makespans = |outcome: &Outcome| [outcome.predicted_ms.map(Bar::exactly), Some(measured(outcome))];
    let traffic = |outcome: &Outcome| {
        [outcome.predicted_traffic_bytes, Some(outcome.traffic_bytes)]
            .map(|bytes| bytes.map(|b| Bar::exactly(b as f64)))
    };
    let chart = Chart { comparison, names };
    let model = file_name(&comparison.model);
    let different = differences(comparison, names, pictures);
    let best = comparison.best().map_or(String::new(), |best| names.name(&best.configuration));
    let mut parts = vec![
        chart.draw("Makespan", &subtitle, &MAKESPAN, vec![chart.panel(model, makespans)]),
        titled("Configurations", "click a heading to sort", &table(comparison, names)),
    ];
    if !different.is_empty() {
        parts.push(titled(&format!("How the plan of {best} (shortest median) differs"), "", &different));
    }
    if !pictures.is_empty() {
        parts.push(schedules(comparison, names, pictures).svg());
    }
    // If nothing crosses devices, the tables say so.
    if comparison.outcomes.iter().any(|outcome| outcome.traffic_bytes > 0) {
        let panels = vec![chart.panel(model, traffic)];
        parts.push(chart.draw("Traffic", "bytes copied or streamed between devices", &TRAFFIC, panels));
    }
    parts.extend([
        chart.by_device("Utilisation", "part of the makespan in which a device runs nodes", &BUSY, |device| {
            [device.predicted_utilisation, Some(device.utilisation)].map(|part| part.map(Bar::exactly))
        }),
        chart.by_device("Memory", "peak memory, planned and measured", &MEMORY, |device| {
            [device.predicted_peak_bytes, Some(device.peak_bytes)].map(|peak| peak.map(|b| Bar::exactly(b as f64)))
        }),
    ]);
    parts
}

/// Returns the measured schedules of all plans on one time axis, the fastest first.
fn schedules(comparison: &Comparison, names: &Names, pictures: &BTreeMap<usize, Picture>) -> Timeline {
    let mut plans = distinct(comparison, names);
    plans.sort_by(|(_, one), (_, other)| one.measured_ms.median.total_cmp(&other.measured_ms.median));
    let drawn = plans.iter().filter_map(|(name, outcome)| Some((name, outcome, pictures.get(&outcome.plan?)?)));
    let drawn: Vec<_> = drawn.collect();
    let ends = || drawn.iter().map(|(_, _, picture)| picture.ends[1]);
    // A slow plan would leave no room for the fast ones.
    let end = ends().fold(0.0, f64::max).min(LONGEST * ends().filter(|end| *end > 0.0).fold(f64::INFINITY, f64::min));
    let panel = |(name, outcome, picture): &(&String, &&Outcome, &Picture)| {
        let lane = |(name, [_, measured]): &RunLane| {
            let mut lane = Lane::of(name.clone(), measured.clone(), picture.ends[1]);
            lane.intervals.retain(|interval| interval.start < end);
            lane
        };
        let busy = picture.lanes.iter().filter(|(_, [_, measured])| !measured.is_empty());
        let beyond = if picture.ends[1] > end { ", goes on beyond the axis" } else { "" };
        let median = milliseconds(outcome.measured_ms.median);
        let heading = format!("{}: median {median}{beyond}", shortened(name, LONGEST_NAME));
        TimePanel::of(&heading, busy.map(lane).collect())
    };
    Timeline {
        title: "Schedules".into(),
        subtitle: "the profiled run of each plan that is nearest to its median, all on one axis of time; beside each device, how busy it was"
            .into(),
        key: key(drawn.iter().flat_map(|(_, _, picture)| &picture.lanes)),
        marks: Vec::new(),
        marks_name: String::new(),
        panels: drawn.iter().map(panel).collect(),
        end,
        time: "time since the run's start".into(),
        format: duration,
    }
}

/// Name of a column, and its cell for an item.
type Column<T> = (&'static str, fn(&T) -> String);

/// Columns of the table, after the configurations' names.
const COLUMNS: [Column<Outcome>; 10] = [
    ("predicted", |outcome| or_dash(outcome.predicted_ms, milliseconds)),
    ("measured", |outcome| milliseconds(outcome.measured_ms.median)),
    ("at least", |outcome| milliseconds(outcome.measured_ms.low)),
    ("at most", |outcome| milliseconds(outcome.measured_ms.high)),
    ("error", |outcome| or_dash(outcome.error_percent, error)),
    ("nodes off", |outcome| or_dash(outcome.node_error_percent, whole_percent)),
    ("links off", |outcome| or_dash(outcome.link_error_percent, whole_percent)),
    ("traffic", |outcome| format_bytes(outcome.traffic_bytes)),
    ("placing", |outcome| or_dash(outcome.place_ms, milliseconds)),
    ("outputs", |outcome| agreement(outcome).to_owned()),
];

fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("–".into(), text)
}

fn table(comparison: &Comparison, names: &Names) -> String {
    let row = |(name, outcome): (String, &Outcome)| {
        std::iter::once(name).chain(COLUMNS.map(|(_, value)| value(outcome))).collect()
    };
    let head: Vec<&str> = std::iter::once("configuration").chain(COLUMNS.map(|(name, _)| name)).collect();
    html_table(&head, &distinct(comparison, names).into_iter().map(row).collect::<Vec<_>>())
}

fn measured(outcome: &Outcome) -> Bar {
    let median = outcome.measured_ms;
    Bar { mean: median.median, whisker: (median.low, median.high) }
}

/// Quantity of a chart.
struct Quantity {
    name: &'static str,
    format: Format,
    base: Base,
    /// Greatest possible value, at which the axis ends.
    whole: Option<f64>,
}

const MAKESPAN: Quantity = Quantity { name: "makespan", format: milliseconds, base: Base::Ten, whole: None };
const TRAFFIC: Quantity = Quantity { name: "traffic", format: bytes, base: Base::Two, whole: None };
const MEMORY: Quantity = Quantity { name: "peak memory", format: bytes, base: Base::Two, whole: None };
const BUSY: Quantity = Quantity { name: "busy", format: percent, base: Base::Ten, whole: Some(1.0) };

/// Draws predicted beside measured values, by configuration.
struct Chart<'a> {
    comparison: &'a Comparison,
    names: &'a Names,
}

impl Chart<'_> {
    fn panel(&self, title: &str, bars: impl Fn(&Outcome) -> [Option<Bar>; 2]) -> Panel {
        let group = |(name, outcome): (String, &Outcome)| Group { name, bars: bars(outcome).to_vec() };
        let groups = distinct(self.comparison, self.names).into_iter().map(group).collect();
        Panel { title: title.to_owned(), groups, limit: None }
    }

    fn by_device(
        &self,
        title: &str,
        subtitle: &str,
        quantity: &Quantity,
        bars: impl Fn(&DeviceOutcome) -> [Option<Bar>; 2],
    ) -> String {
        let panel = |(at, device): (usize, &anabranch::plan::PlanDevice)| {
            self.panel(&device.name, |outcome| outcome.devices.get(at).map_or([None, None], &bars))
        };
        self.draw(title, subtitle, quantity, self.comparison.devices.iter().enumerate().map(panel).collect())
    }

    fn draw(&self, title: &str, subtitle: &str, quantity: &Quantity, panels: Vec<Panel>) -> String {
        let Quantity { name, format, base, whole } = *quantity;
        let axis = match whole {
            Some(whole) => Axis::UpTo(whole),
            None if is_wide(&panels) => Axis::Logarithmic,
            None => Axis::Linear,
        };
        let chart = BarChart {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            value: if axis == Axis::Logarithmic { format!("{name}, logarithmic") } else { name.to_owned() },
            format,
            axis,
            base,
            series: vec!["predicted".into(), "measured".into()],
            emphasis: false,
            missing: "not predicted".into(),
            limit: None,
            panels,
        };
        chart.svg()
    }
}

fn milliseconds(ms: f64) -> String {
    duration(ms * 1e-3)
}

fn bytes(bytes: f64) -> String {
    format_bytes(bytes as u64)
}

fn percent(part: f64) -> String {
    whole_percent(part * 100.0)
}

fn whole_percent(percent: f64) -> String {
    format!("{} %", digits(percent, 0))
}

/// Whether the values of a panel differ so much that the axis has to be logarithmic. A few that are much greater than
/// the others do not count: their bars are cut. Zeros have no place on such an axis.
fn is_wide(panels: &[Panel]) -> bool {
    let means = |panel: &Panel| {
        let bars = panel.groups.iter().flat_map(|group| &group.bars).flatten();
        plain(bars.map(|bar| bar.mean)).collect()
    };
    panels.iter().map(means).any(|means: Vec<f64>| {
        let (least, most) =
            means.iter().fold((f64::INFINITY, 0.0f64), |(low, high), mean| (low.min(*mean), high.max(*mean)));
        least > 0.0 && most > WIDE * least
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_more_than_tenfold_get_a_logarithmic_axis() {
        let panel = |means: &[f64]| Panel {
            title: String::new(),
            groups: means
                .iter()
                .map(|mean| Group { name: String::new(), bars: vec![Some(Bar::exactly(*mean))] })
                .collect(),
            limit: None,
        };
        assert!(is_wide(&[panel(&[1.0, 2.0]), panel(&[1.0, 10.1])]));
        assert!(!is_wide(&[panel(&[1.0, 10.0]), panel(&[0.0, 50.0]), panel(&[])]));
        // One bar is much longer than the others, and cut.
        assert!(!is_wide(&[panel(&[1.0, 1.2, 1.1, 200.0])]));
    }
}
