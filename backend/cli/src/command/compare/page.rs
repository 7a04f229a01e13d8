//! `--html FILE`: a comparison as charts and tables on one page that needs no network.

use super::{Column, ERRORS, Names, agreement};
use crate::chart::{Bar, BarChart, Format, Group, Panel, html_table, page};
use crate::command::table::{digits, duration, error};
use anabranch::compare::{Comparison, DeviceOutcome, Outcome};
use anabranch::device::format_bytes;

/// The page. `facts` are names and values that stand at its head.
pub(super) fn html(comparison: &Comparison, names: &Names, facts: &[(&str, String)]) -> String {
    let confidence = comparison.outcomes.iter().map(|outcome| outcome.measured_ms.confidence).fold(1.0, f64::min);
    let subtitle = format!(
        "{} runs of each way in turn; whiskers: where the median is with {:.0} % confidence",
        comparison.repeat,
        100.0 * confidence
    );
    let makespans = |outcome: &Outcome| [outcome.predicted_ms.map(Bar::exactly), Some(measured(outcome))];
    let traffic = |outcome: &Outcome| {
        [outcome.predicted_traffic_bytes, Some(outcome.traffic_bytes)]
            .map(|bytes| bytes.map(|b| Bar::exactly(b as f64)))
    };
    let chart = Chart { comparison, names };
    let charts = [
        chart.draw("Makespan", &subtitle, ("makespan", milliseconds), vec![chart.panel(&comparison.model, makespans)]),
        table(comparison, names),
        chart.draw(
            "Traffic",
            "bytes copied or streamed between devices",
            ("traffic", bytes),
            vec![chart.panel(&comparison.model, traffic)],
        ),
        chart.by_device(
            "Utilisation",
            "part of the makespan in which a device runs nodes",
            ("busy", percent),
            |device| [device.predicted_utilisation, Some(device.utilisation)].map(|part| part.map(Bar::exactly)),
        ),
        chart.by_device("Memory", "peak of what plans take, and of what was taken", ("peak memory", bytes), |device| {
            [device.predicted_peak_bytes, Some(device.peak_bytes)].map(|peak| peak.map(|b| Bar::exactly(b as f64)))
        }),
    ];
    let facts: Vec<_> = facts.iter().cloned().chain([("errors", ERRORS.to_owned())]).collect();
    page(&format!("{}: ways to place it", comparison.model), &facts, &charts)
}

/// The columns of the table beside the ways' names.
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
    let row = |outcome: &Outcome| {
        std::iter::once(names.name(&outcome.way)).chain(COLUMNS.map(|(_, value)| value(outcome))).collect()
    };
    let head: Vec<&str> = std::iter::once("way").chain(COLUMNS.map(|(name, _)| name)).collect();
    html_table(&head, &comparison.outcomes.iter().map(row).collect::<Vec<_>>())
}

fn measured(outcome: &Outcome) -> Bar {
    let median = outcome.measured_ms;
    Bar { mean: median.median, whisker: (median.low, median.high) }
}

/// Predicted beside measured, way by way.
struct Chart<'a> {
    comparison: &'a Comparison,
    names: &'a Names,
}

impl Chart<'_> {
    fn panel(&self, title: &str, bars: impl Fn(&Outcome) -> [Option<Bar>; 2]) -> Panel {
        let group = |outcome: &Outcome| Group { name: self.names.name(&outcome.way), bars: bars(outcome).to_vec() };
        Panel { title: title.to_owned(), groups: self.comparison.outcomes.iter().map(group).collect(), limit: None }
    }

    fn by_device(
        &self,
        title: &str,
        subtitle: &str,
        value: (&str, Format),
        bars: impl Fn(&DeviceOutcome) -> [Option<Bar>; 2],
    ) -> String {
        let panel = |(at, device): (usize, &anabranch::plan::PlanDevice)| {
            self.panel(&device.name, |outcome| outcome.devices.get(at).map_or([None, None], &bars))
        };
        self.draw(title, subtitle, value, self.comparison.devices.iter().enumerate().map(panel).collect())
    }

    fn draw(&self, title: &str, subtitle: &str, (value, format): (&str, Format), panels: Vec<Panel>) -> String {
        let chart = BarChart {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            value: value.to_owned(),
            format,
            logarithmic: false,
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
