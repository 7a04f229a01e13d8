//! The findings of the demo as a table and sentences, for a terminal and for the page.

use super::{Elsewhere, Findings, Limited, ROUNDS, SLOWDOWN};
use anabranch::compare::{Comparison, DYNAMIC, Outcome};
use anabranch::device::{Inventory, format_bytes};
use anabranch_report::chart::{html_table, titled};
use anabranch_report::comparison::{Compared, page_after};
use anabranch_report::run::busy;
use anabranch_report::table::Table;
use anabranch_report::text::{digits, duration, error};
use std::fmt::Write;
use std::path::Path;

const HEAD: [&str; 8] = [
    "configuration",
    "predicted first",
    "measured",
    "error",
    "predicted after learning",
    "measured",
    "error",
    "speed-up",
];

/// The text of the demo.
pub(super) struct Story {
    /// A line for each device.
    devices: Vec<String>,
    /// A row for each configuration, the fastest first.
    rows: Vec<[String; 8]>,
    /// Conclusions from the rows: topic and sentence.
    findings: Vec<(&'static str, String)>,
}

impl Story {
    pub(super) fn of(found: &Findings, inventory: &Inventory) -> Self {
        let single = fastest_device(&found.after, inventory);
        let again = |place: &str| of_configuration(&found.after, place);
        let mut outcomes: Vec<[Option<&Outcome>; 2]> =
            found.before.outcomes.iter().map(|before| [Some(before), again(&before.configuration.place)]).collect();
        outcomes.sort_by(|one, other| latest_ms(one).total_cmp(&latest_ms(other)));
        let rows = outcomes.iter().filter_map(|outcome| row(*outcome, single));
        let mut findings = Vec::new();
        findings.extend(auto(found, single, inventory));
        findings.extend(learned(found));
        findings.extend(found.limited.as_ref().map(limited));
        findings.extend((!found.elsewhere.is_empty()).then(|| elsewhere(&found.elsewhere)));
        findings.extend(busy(&found.after.load).map(|busy| ("note", busy)));
        findings.push(("use it", "anabranch run MODEL.onnx --report page.html".to_owned()));
        Self { devices: devices(inventory), rows: rows.collect(), findings }
    }

    pub(super) fn text(&self, page: &Path) -> String {
        let mut text = String::from(
            "The network compares an image with a sentence: a residual network reads the image, a transformer the sentence.\n",
        );
        for device in &self.devices {
            let _ = writeln!(text, "  {device}");
        }
        let mut table = Table::new(&HEAD.join(" | >"));
        self.rows.iter().for_each(|row| table.row(row.clone()));
        let _ = write!(text, "\n{table}\n");
        for (about, finding) in &self.findings {
            let _ = writeln!(text, "{about}: {finding}");
        }
        let page = page.canonicalize().unwrap_or_else(|_| page.to_owned());
        let _ = writeln!(text, "open the page: file://{}", page.display());
        text
    }

    /// Returns the page: it opens with the story, followed by the charts of the comparison.
    pub(super) fn page(&self, after: &Compared) -> String {
        let mut facts: Vec<(&str, String)> = vec![("devices", self.devices.join("; "))];
        facts.extend(self.findings.iter().cloned());
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.to_vec()).collect();
        let explained = "speed-up: over the fastest single device; a click on a head sorts";
        let table = titled("Each configuration, before and after learning", explained, &html_table(&HEAD, &rows));
        page_after("One network over devices of unlike speed", &facts, table, after)
    }
}

fn devices(inventory: &Inventory) -> Vec<String> {
    let cpu = |(at, cpu): (usize, &anabranch::device::CpuDevice)| {
        let slower = if at == 1 { format!(", emulated {SLOWDOWN} times slower") } else { String::new() };
        format!("{}: a core of {}{slower}", cpu.name, inventory.host.model)
    };
    let gpu = |gpu: &anabranch::device::GpuDevice| format!("{}: {}", gpu.name, gpu.description);
    inventory.cpus.iter().enumerate().map(cpu).chain(inventory.gpus.iter().map(gpu)).collect()
}

fn of_configuration<'a>(comparison: &'a Comparison, place: &str) -> Option<&'a Outcome> {
    comparison.outcomes.iter().find(|outcome| outcome.configuration.place == place)
}

/// Returns the device that is fastest alone.
fn fastest_device<'a>(comparison: &'a Comparison, inventory: &Inventory) -> Option<&'a Outcome> {
    let is_device = |outcome: &&Outcome| inventory.device(&outcome.configuration.place).is_some();
    let alone = comparison.outcomes.iter().filter(is_device);
    alone.min_by(|one, other| one.measured_ms.median.total_cmp(&other.measured_ms.median))
}

/// Returns the last measured time of the outcomes before and after learning.
fn latest_ms([before, after]: &[Option<&Outcome>; 2]) -> f64 {
    after.or(*before).map_or(f64::INFINITY, |outcome| outcome.measured_ms.median)
}

fn row(outcome: [Option<&Outcome>; 2], single: Option<&Outcome>) -> Option<[String; 8]> {
    let ms = |ms: f64| duration(ms * 1e-3);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let place = &outcome[1].or(outcome[0])?.configuration.place;
    let name = if place == DYNAMIC { "run-time scheduler".to_owned() } else { place.clone() };
    let figures = outcome.map(|outcome| {
        [
            or_dash(outcome.and_then(|outcome| outcome.predicted_ms).map(ms)),
            or_dash(outcome.map(|outcome| ms(outcome.measured_ms.median))),
            or_dash(outcome.and_then(|outcome| outcome.error_percent).map(error)),
        ]
    });
    let speed_up = or_dash(single.map(|single| format!("{:.2}", single.measured_ms.median / latest_ms(&outcome))));
    let [[predicted, measured, off], [predicted_again, measured_again, off_again]] = figures;
    Some([name, predicted, measured, off, predicted_again, measured_again, off_again, speed_up])
}

/// Returns the speed of `auto` over the fastest device alone, and its nodes on each device.
fn auto(found: &Findings, single: Option<&Outcome>, inventory: &Inventory) -> Option<(&'static str, String)> {
    let (auto, single) = (of_configuration(&found.after, "auto")?, single?);
    let ratio = single.measured_ms.median / auto.measured_ms.median;
    let parts = inventory.devices().zip(&auto.devices).filter(|(_, device)| device.nodes > 0);
    let parts: Vec<_> = parts.map(|(device, of)| format!("{} nodes on {}", of.nodes, device.name())).collect();
    let (device, parts) = (&single.configuration.place, parts.join(", "));
    Some(match ratio {
        _ if auto.plan == single.plan => ("placement", format!("auto found that {device} alone is fastest here")),
        ratio if ratio >= 1.0 => {
            ("placement", format!("auto is {ratio:.2} times as fast as {device}, the fastest device alone: {parts}"))
        }
        ratio => ("placement", format!("auto takes {:.2} times as long as {device} alone: {parts}", 1.0 / ratio)),
    })
}

/// Returns the errors of the prediction for `auto` before and after learning.
fn learned(found: &Findings) -> Option<(&'static str, String)> {
    let [before, after] = [&found.before, &found.after].map(|comparison| of_configuration(comparison, "auto"));
    let (before, after) = (before?.error_percent?, after?.error_percent?);
    let off =
        |percent: f64| format!("{} % too {}", digits(percent.abs(), 0), if percent < 0.0 { "short" } else { "long" });
    let (before, after) = (off(before), off(after));
    Some(("learning", format!("the prediction for auto was {before} at first, and {after} after {ROUNDS} rounds")))
}

fn limited(limited: &Limited) -> (&'static str, String) {
    let devices: Vec<_> = limited.refused.iter().map(|(device, _)| device.as_str()).collect();
    let limit = format!("{} for each of {}", format_bytes(limited.limit_bytes), devices.join(", "));
    let Some(heft) = of_configuration(&limited.comparison, "heft") else {
        return ("memory", format!("with {limit}, no plan was found"));
    };
    let predicted = heft.predicted_ms.map_or(String::new(), |ms| format!(" (predicted {})", duration(ms * 1e-3)));
    let took = duration(heft.measured_ms.median * 1e-3);
    let text =
        format!("with {limit}, no device holds the network alone; heft divides it and runs it in {took}{predicted}");
    ("memory", text)
}

fn elsewhere(machines: &[Elsewhere]) -> (&'static str, String) {
    let one = |machine: &Elsewhere| {
        format!("{} {} (--platform {})", machine.about, duration(machine.predicted_ms * 1e-3), machine.platform)
    };
    let all: Vec<_> = machines.iter().map(one).collect();
    ("other machines", format!("predicted with {}", all.join(", with ")))
}
