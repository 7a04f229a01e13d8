//! `anabranch bench`: several models in several configurations, in one table with percentiles and throughput.

use super::measuring::{MeasureArgs, Preset, ending};
use super::{CliError, MORE, Output};
use anabranch::compare::{Comparison, DYNAMIC, Outcome};
use anabranch_report::comparison::{Names, agreement, by_callers};
use anabranch_report::run::busy;
use anabranch_report::table::Table;
use anabranch_report::text::{amount, count, duration, interval};
use clap::Args;
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  anabranch bench model.onnx
  anabranch bench *.onnx --place auto,heft,cpu,dynamic --duration 2 --csv results.csv -o before.json
  anabranch bench *.onnx --compare-to before.json --fail-above 5%
  anabranch bench model.onnx --parallel 4 --threads 1 --json

Configurations are run in turn, round by round. An interval holds the median with 95 % confidence; a change is how many times as long runs take,
with the interval that a rank-sum test gives. Two processes differ by some percent for reasons of their own (where memory lies, what
else the machine does): measure both results several times before you believe a small change. Sizes that are not given are 1.
Of compiled models, only those of --cache are used, not those of ANABRANCH_CACHE.
`anabranch compare` takes the same options, and shows predictions and devices.";

const PRESET: Preset =
    Preset { places: &["auto", "heft", "cpu", "gpu", DYNAMIC], is_dynamic: false, is_bare: false, text };

/// Most characters of a model's name in the table: the end of a path is more distinctive than its start.
const NAME: usize = 24;

/// Time models in several configurations, with percentiles and rates
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
#[command(mut_arg("place", |place| place.help("Strategies, devices, plan files [default: auto,heft,cpu,gpu,dynamic]")))]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    measure: MeasureArgs,
}

impl BenchCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        self.measure.run(&PRESET, output)
    }
}

fn text(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    if let Some(first) = comparisons.first() {
        let (warmup, callers) = (first.warmup, by_callers(first));
        let _ = writeln!(
            text,
            "each configuration in turn, after {} to warm up{callers}; intervals of medians\n",
            count(warmup, "run")
        );
    }
    let _ = write!(text, "{}", table(comparisons));
    for comparison in comparisons {
        let names = Names::of(comparison);
        for (configuration, reason) in &comparison.failed {
            let _ = writeln!(text, "{}, {}: {reason}", comparison.model, names.name(configuration));
        }
        if let Some(busy) = busy(&comparison.load) {
            let _ = writeln!(text, "{}: {busy}", comparison.model);
        }
    }
    text
}

/// Returns a row for each configuration of each model.
pub(super) fn table(comparisons: &[Comparison]) -> Table {
    let mut table =
        Table::new("model | configuration | >runs | >median | >interval | >p95 | >p99 | >runs/s | >× best | outputs");
    for comparison in comparisons {
        let (names, best) = (Names::of(comparison), comparison.best().map_or(0.0, |best| best.measured_ms.median));
        for outcome in &comparison.outcomes {
            table.row(row(comparison, outcome, &names, best));
        }
    }
    table
}

fn row(comparison: &Comparison, outcome: &Outcome, names: &Names, best: f64) -> [String; 10] {
    let (median, latencies) = (outcome.measured_ms, outcome.latencies_ms);
    let ms = |ms: f64| duration(ms * 1e-3);
    let same = outcome.same_plan_as.as_ref().map_or(String::new(), |other| format!(" = {other}"));
    [
        ending(&comparison.model, NAME),
        names.name(&outcome.configuration) + &same,
        outcome.samples_ms.len().to_string(),
        ms(median.median),
        interval(median.low * 1e-3, median.high * 1e-3),
        ms(latencies.p95),
        ms(latencies.p99),
        amount(outcome.runs_per_second),
        format!("{:.2}", median.median / best),
        agreement(outcome).into(),
    ]
}
