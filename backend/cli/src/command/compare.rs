//! `anabranch compare`: strategies, orders and streaming on the real devices, predicted against measured.

use super::measuring::{MeasureArgs, Preset};
use super::{CliError, MORE, Output};
use anabranch::compare::Comparison;
use anabranch::device::format_bytes;
use anabranch_report::comparison::{DEFINITIONS, Names, agreement, by_callers, distinct, fastest, matrix_text};
use anabranch_report::run::{busy, one_device};
use anabranch_report::table::Table;
use anabranch_report::text::{WIDTH, count, digits, duration, error, interval, wrapped};
use clap::Args;
use std::fmt::Write as _;

const EXAMPLES: &str = "\
Examples:
  anabranch compare model.onnx --random 1
  anabranch compare model.onnx --place heft,auto,gpu --stream off,auto --refine 3 --csv configurations.csv
  anabranch compare a.onnx b.onnx c.onnx --html configurations.html
  anabranch compare model.onnx --compare-to before.json

A scheduler that decides at run time takes part as `dynamic`. Configurations are run in turn. Sizes that are not given are 1.
Of compiled models, only those of --cache are used, not those of ANABRANCH_CACHE.
`anabranch bench` takes the same options, and shows percentiles and throughput in one table.";

const PRESET: Preset =
    Preset { places: &["auto", "heft", "mite", "cpu", "gpu"], is_dynamic: true, is_bare: true, text };

/// Compare predicted and measured times of configurations
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
#[command(mut_arg("place", |place| place.help("Strategies, devices, plan files [default: auto,heft,mite,cpu,gpu]")))]
pub(crate) struct CompareCommand {
    #[command(flatten)]
    measure: MeasureArgs,
}

impl CompareCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        self.measure.run(&PRESET, output)
    }
}

/// Returns each model's tables. If there are several models, a summary of all comes last.
fn text(comparisons: &[Comparison]) -> String {
    match comparisons {
        [] => String::new(),
        [one] => text_of(one),
        several => {
            let each: String = several.iter().map(|one| text_of(one) + "\n").collect();
            each + &matrix_text(&several.iter().collect::<Vec<_>>())
        }
    }
}

fn text_of(comparison: &Comparison) -> String {
    let names = Names::of(comparison);
    let refined = match comparison.refine {
        0 => String::new(),
        rounds => format!(" after {} of learning", count(rounds, "round")),
    };
    let mut text = format!(
        "{}: {}, {} of each configuration in turn{}{refined}\n\n{}\n{}\n{}\n",
        comparison.model,
        count(comparison.nodes, "node"),
        count(comparison.repeat, "run"),
        by_callers(comparison),
        DEFINITIONS.join("\n"),
        makespans(comparison, &names),
        devices(comparison, &names),
    );
    text.push_str(&verdict(comparison, &names));
    if !comparison.side_by_side {
        text.push_str(
            "the plans do not fit memory side by side: each was readied and warmed up anew before each run\n",
        );
    }
    for (configuration, reason) in &comparison.failed {
        let _ = writeln!(text, "{}: {reason}", names.name(configuration));
    }
    text
}

/// Describes the fastest configuration if intervals decide it, the rank of `auto`, and a busy machine.
fn verdict(comparison: &Comparison, names: &Names) -> String {
    let mut text = fastest(comparison, names).map_or(String::new(), |fastest| format!("fastest: {fastest}\n"));
    if let Some(ratio) = comparison.against_others("auto") {
        let _ = writeln!(
            text,
            "auto takes {ratio:.3} times the shortest median of the configurations with another plan or none"
        );
    }
    if let Some(busy) = busy(&comparison.load) {
        let _ = writeln!(text, "{busy}");
    }
    if let Some(advice) = one_device(comparison.devices.len()) {
        let _ = writeln!(text, "{}", wrapped(advice, WIDTH).join("\n"));
    }
    text
}

fn makespans(comparison: &Comparison, names: &Names) -> Table {
    let mut table = Table::new(
        "configuration | >predicted | >measured | >interval | >error | >nodes off | >traffic | >placing | outputs",
    );
    for (name, outcome) in distinct(comparison, names) {
        let median = outcome.measured_ms;
        let ms = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| duration(ms * 1e-3));
        table.row([
            name,
            ms(outcome.predicted_ms),
            duration(median.median * 1e-3),
            interval(median.low * 1e-3, median.high * 1e-3),
            outcome.error_percent.map_or("–".into(), error),
            outcome.node_error_percent.map_or("–".into(), |off| format!("{} %", digits(off, 0))),
            format_bytes(outcome.traffic_bytes),
            ms(outcome.place_ms),
            agreement(outcome).into(),
        ]);
    }
    table
}

fn devices(comparison: &Comparison, names: &Names) -> Table {
    let mut table = Table::new("configuration | device | >nodes | >busy predicted | >busy | >peak planned | >peak");
    for (name, outcome) in distinct(comparison, names) {
        for (facts, device) in comparison.devices.iter().zip(&outcome.devices) {
            let percent = |part: f64| format!("{} %", digits(part * 100.0, 0));
            table.row([
                name.clone(),
                facts.name.clone(),
                device.nodes.to_string(),
                device.predicted_utilisation.map_or("–".into(), percent),
                percent(device.utilisation),
                device.predicted_peak_bytes.map_or("–".into(), format_bytes),
                format_bytes(device.peak_bytes),
            ]);
        }
    }
    table
}
