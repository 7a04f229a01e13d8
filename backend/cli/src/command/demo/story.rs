//! The findings of the demo as a table and sentences, for a terminal and for the page.

use super::{Elsewhere, Findings, Limited, ROUNDS, SLOWDOWN};
use anabranch::compare::{Comparison, Outcome};
use anabranch::device::{GpuKind, Inventory, format_bytes};
use anabranch_report::chart::{html_table, titled};
use anabranch_report::comparison::{Compared, doubt, page_after};
use anabranch_report::run::busy;
use anabranch_report::table::Table;
use anabranch_report::text::{count, digits, duration, error};
use std::fmt::Write;

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
    /// Note on a busy machine, which comes first.
    busy: Option<String>,
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
        let mut findings = vec![("configurations", configurations(inventory))];
        findings.extend(auto(found, single, inventory));
        findings.extend(learned(found));
        findings.push(("memory", memory(found, inventory)));
        findings.push(("other machines", elsewhere(found)));
        findings.push(("use it", "anabranch run MODEL.onnx --report page.html".to_owned()));
        Self { busy: busy_in(found), devices: devices(inventory), rows: rows.collect(), findings }
    }

    /// Returns topics and sentences.
    pub(super) fn verdicts(&self) -> &[(&'static str, String)] {
        &self.findings
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.busy.as_ref().map_or(String::new(), |busy| format!("{busy}\n\n"));
        text += "The network compares an image with a sentence: a residual network reads the image, a transformer the sentence.\n";
        for device in &self.devices {
            let _ = writeln!(text, "  {device}");
        }
        let mut table = Table::new(&HEAD.join(" | >"));
        self.rows.iter().for_each(|row| table.row(row.clone()));
        let _ = write!(text, "\n{table}\n");
        for (about, finding) in &self.findings {
            let _ = writeln!(text, "{about}: {finding}");
        }
        text
    }

    /// Returns the page: it opens with the story, followed by the charts of the comparison.
    pub(super) fn page(&self, after: &Compared) -> String {
        let mut facts: Vec<(&str, String)> = self.busy.iter().map(|busy| ("note", busy.clone())).collect();
        facts.push(("devices", self.devices.join("; ")));
        facts.extend(self.findings.iter().cloned());
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.to_vec()).collect();
        let explained = "speed-up: over the fastest single device; click a heading to sort";
        let table = titled("Each configuration, before and after learning", explained, &html_table(&HEAD, &rows));
        page_after("One network on devices of different speed", &facts, table, after)
    }
}

fn devices(inventory: &Inventory) -> Vec<String> {
    let cpu = |(at, cpu): (usize, &anabranch::device::CpuDevice)| {
        let slower = if at == 1 { format!(", emulated {SLOWDOWN} times slower") } else { String::new() };
        format!("{}: a core of {}{slower}", cpu.name, inventory.host.model)
    };
    let gpu = |gpu: &anabranch::device::GpuDevice| {
        let software = if gpu.kind == GpuKind::Software { ", a software GPU on the CPU, for tests" } else { "" };
        format!("{}: {}{software}", gpu.name, gpu.description)
    };
    inventory.cpus.iter().enumerate().map(cpu).chain(inventory.gpus.iter().map(gpu)).collect()
}

/// Returns the meaning of the configurations' names.
fn configurations(inventory: &Inventory) -> String {
    let devices: Vec<_> = inventory.devices().map(|device| device.name()).collect();
    format!(
        "auto: Anabranch's choice; heft, mite: strategies from papers; {}: this device alone; dynamic: decides while it runs, without a plan",
        devices.join(", ")
    )
}

/// Returns the note on a machine that was busy in any of the comparisons.
fn busy_in(found: &Findings) -> Option<String> {
    let limited = found.limited.as_ref().map(|limited| &limited.comparison);
    let busy =
        [&found.before, &found.after].into_iter().chain(limited).find_map(|comparison| busy(&comparison.load))?;
    Some(format!("{busy}; until then, no figure here is certain"))
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
    let figures = outcome.map(|outcome| {
        [
            or_dash(outcome.and_then(|outcome| outcome.predicted_ms).map(ms)),
            or_dash(outcome.map(|outcome| ms(outcome.measured_ms.median))),
            or_dash(outcome.and_then(|outcome| outcome.error_percent).map(error)),
        ]
    });
    let speed_up = or_dash(single.map(|single| format!("{:.2}", single.measured_ms.median / latest_ms(&outcome))));
    let [[predicted, measured, off], [predicted_again, measured_again, off_again]] = figures;
    Some([place.clone(), predicted, measured, off, predicted_again, measured_again, off_again, speed_up])
}

/// Returns the speed of `auto` over the fastest device alone, and its nodes on each device.
fn auto(found: &Findings, single: Option<&Outcome>, inventory: &Inventory) -> Option<(&'static str, String)> {
    let (auto, single) = (of_configuration(&found.after, "auto")?, single?);
    let ratio = single.measured_ms.median / auto.measured_ms.median;
    let parts = inventory.devices().zip(&auto.devices).filter(|(_, device)| device.nodes > 0);
    let parts: Vec<_> = parts.map(|(device, of)| format!("{} on {}", count(of.nodes, "node"), device.name())).collect();
    let (device, parts) = (&single.configuration.place, parts.join(", "));
    let doubt =
        doubt(&found.after, auto, single).map_or(String::new(), |why| format!("; {why}, so this is not certain"));
    let text = match ratio {
        _ if auto.plan == single.plan => format!("auto chose {device} alone"),
        ratio if ratio >= 1.0 => {
            format!("auto is {ratio:.2} times as fast as {device}, the fastest device alone: {parts}{doubt}")
        }
        ratio => format!("auto takes {:.2} times as long as {device} alone: {parts}{doubt}", 1.0 / ratio),
    };
    Some(("placement", text))
}

/// Returns the errors of the predictions before and after learning: the mean of all, and those for `auto`.
fn learned(found: &Findings) -> Option<(&'static str, String)> {
    let errors = |before: &Outcome| {
        let after = of_configuration(&found.after, &before.configuration.place)?;
        Some([before.error_percent?, after.error_percent?])
    };
    let all: Vec<_> = found.before.outcomes.iter().filter_map(errors).collect();
    let mean = |at: usize| all.iter().map(|errors| errors[at].abs()).sum::<f64>() / all.len() as f64;
    let [before, after] = [mean(0), mean(1)].map(|percent| digits(percent, 0));
    let off =
        |percent: f64| format!("{} % too {}", digits(percent.abs(), 0), if percent < 0.0 { "short" } else { "long" });
    let auto = of_configuration(&found.before, "auto").and_then(errors)?.map(off);
    let text = format!(
        "predictions of {} configurations were off by {before} % on average, and by {after} % after {ROUNDS} rounds; that of auto was {}, then {}",
        all.len(),
        auto[0],
        auto[1]
    );
    Some(("learning", text))
}

/// Describes the run under a memory limit, or says why there was none.
fn memory(found: &Findings, inventory: &Inventory) -> String {
    match (&found.limited, &found.limited_error) {
        (Some(limited), _) => self::limited(limited),
        (None, Some(error)) => format!("the network did not run under a memory limit: {error}"),
        (None, None) if inventory.devices().count() == 1 => {
            "this machine has one core and no other device, so the network cannot be divided".to_owned()
        }
        (None, None) => {
            "no limit was found that is too small for each device alone, but not for all together".to_owned()
        }
    }
}

fn limited(limited: &Limited) -> String {
    let devices: Vec<_> = limited.refused.iter().map(|(device, _)| device.as_str()).collect();
    let [alone, limit] = [limited.alone_bytes, limited.limit_bytes].map(format_bytes);
    let limit = format!("one device alone needs {alone}; with {limit} for each of {}", devices.join(", "));
    let Some(heft) = of_configuration(&limited.comparison, "heft") else {
        return format!("{limit}, no plan was found");
    };
    let predicted = heft.predicted_ms.map_or(String::new(), |ms| format!(" (predicted {})", duration(ms * 1e-3)));
    let took = duration(heft.measured_ms.median * 1e-3);
    format!("{limit}, none holds the network alone; heft divides it and runs it in {took}{predicted}")
}

/// Returns the predictions for other machines, or the reason why there are none.
fn elsewhere(found: &Findings) -> String {
    if let Some(error) = &found.elsewhere_error {
        return format!("no prediction: {error}");
    }
    let one = |machine: &Elsewhere| format!("{} with {}", duration(machine.predicted_ms * 1e-3), machine.about);
    let all: Vec<_> = found.elsewhere.iter().map(one).collect();
    format!("predicted, not measured: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::compare::{Agreement, Configuration, Latencies, Load, Median};
    use anabranch::device::{DetectOptions, detect};
    use anabranch_report::comparison::{Names, fastest};
    use std::num::NonZeroU32;

    fn outcome(place: &str, plan: Option<usize>, milliseconds: [f64; 2], error: f64) -> Outcome {
        let [low, high] = milliseconds;
        let samples = vec![low, low, (low + high) / 2.0, high, high];
        Outcome {
            configuration: Configuration { place: place.into(), order: None, stream: None },
            same_plan_as: None,
            plan,
            place_ms: None,
            predicted_ms: plan.map(|_| low),
            measured_ms: Median::of(&samples).expect("samples"),
            latencies_ms: Latencies::of(&samples),
            runs_per_second: 1.0,
            samples_ms: samples,
            error_percent: plan.map(|_| error),
            node_error_percent: None,
            link_error_percent: None,
            predicted_traffic_bytes: None,
            traffic_bytes: 0,
            devices: Vec::new(),
            outputs: Agreement { same_bits: true, within: true, worst: 0.0 },
        }
    }

    fn comparison(outcomes: Vec<Outcome>, is_busy: bool) -> Comparison {
        let waited_ms = Some(if is_busy { 90.0 } else { 0.0 });
        Comparison {
            model: "m".into(),
            nodes: 1,
            repeat: 5,
            callers: NonZeroU32::MIN,
            warmup: 1,
            refine: 0,
            side_by_side: true,
            devices: Vec::new(),
            outcomes,
            failed: Vec::new(),
            notes: Vec::new(),
            load: Load { wall_ms: Some(1000.0), processor_ms: Some(10.0), waited_ms, pressure_percent: None },
        }
    }

    fn findings(auto: [f64; 2], is_busy: bool) -> Findings {
        let outcomes =
            |auto, error| vec![outcome("auto", Some(0), auto, error), outcome("cpu0", Some(1), [9.0, 10.0], 10.0)];
        Findings {
            before: comparison(outcomes(auto, -50.0), false),
            after: comparison(outcomes(auto, 2.0), is_busy),
            limited: None,
            limited_error: None,
            elsewhere: Vec::new(),
            elsewhere_error: None,
        }
    }

    fn text(found: &Findings) -> String {
        let inventory =
            detect(&DetectOptions::default().without_gpu().with_only(["cpu0"])).expect("every machine has cpu0");
        Story::of(found, &inventory).text()
    }

    /// Returns the text of the demo, and the fastest configuration.
    fn text_and_fastest(auto: [f64; 2], is_busy: bool) -> (String, String) {
        let found = findings(auto, is_busy);
        let fastest = fastest(&found.after, &Names::of(&found.after)).expect("there are outcomes");
        (text(&found), fastest)
    }

    #[test]
    fn errors_of_the_last_parts_are_sentences_beside_the_findings() {
        let found = Findings {
            limited_error: Some("gpu0 was lost".into()),
            elsewhere_error: Some("no rates".into()),
            ..findings([3.0, 5.0], false)
        };
        let text = text(&found);
        assert!(text.contains("auto is 2.38 times as fast as cpu0"), "{text}");
        assert!(text.contains("memory: the network did not run under a memory limit: gpu0 was lost\n"), "{text}");
        assert!(text.contains("other machines: no prediction: no rates\n"), "{text}");
    }

    #[test]
    fn nothing_is_certain_if_intervals_overlap_or_the_machine_was_busy() {
        let certain = "auto is 2.38 times as fast as cpu0, the fastest device alone: ";
        let (text, fastest) = text_and_fastest([3.0, 5.0], false);
        assert!(text.contains(certain) && !text.contains("busy") && fastest == "auto", "{text}{fastest}");
        assert!(text.contains("memory: this machine has one core and no other device"), "{text}");
        assert!(
            text.contains("off by 30 % on average, and by 6 % after 2 rounds; that of auto was 50 % too short"),
            "{text}"
        );

        let (text, fastest) = text_and_fastest([3.0, 5.0], true);
        assert!(
            text.starts_with("busy machine: ") && text.contains("the machine was busy, so this is not certain"),
            "{text}"
        );
        assert_eq!(fastest, "auto, but the machine was busy, so this is not certain");

        let (text, fastest) = text_and_fastest([8.0, 9.5], false);
        assert!(text.contains("alone: ; intervals overlap, so this is not certain"), "{text}");
        assert_eq!(fastest, "not certain, as intervals overlap: auto, cpu0");
    }

    #[test]
    fn a_plan_is_not_compared_with_itself() {
        let same = [outcome("auto", Some(0), [1.0, 2.0], 0.0), outcome("cpu0", Some(0), [1.0, 2.0], 0.0)];
        assert_eq!(comparison(same.to_vec(), false).against_others("auto"), None);
        let dynamic = [&same[..], &[outcome("dynamic", None, [2.0, 4.0], 0.0)]].concat();
        assert_eq!(comparison(dynamic, false).against_others("auto"), Some(0.5));
    }
}
