//! Results of a bench: a file to keep, and a table.

use super::changes::Changes;
use crate::command::args::DeviceArgs;
use crate::command::{CliError, read_file, version};
use anabranch::compare::{Comparison, Outcome};
use anabranch::device::detect;
use anabranch::files::json_problem;
use anabranch_report::comparison::{Names, agreement};
use anabranch_report::run::busy;
use anabranch_report::table::Table;
use anabranch_report::text::{amount, duration, interval};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::num::NonZeroU32;
use std::path::Path;

/// Value of `format` in every file of results.
const FORMAT: &str = "anabranch-bench";

/// Version that this build writes and reads.
const VERSION: u32 = 1;

/// Most characters of a model's name in the table: the end of a path is more distinctive than its start.
const NAME: usize = 24;

/// Measurements, with their models, machine and program. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// `anabranch-bench`.
    format: String,
    /// 1.
    version: u32,
    /// Version and commit of the program.
    program: String,
    /// Version of the kernels.
    kernels: u32,
    /// Fingerprint of the machine, as in the cost store.
    machine: String,
    /// Measurements of each model.
    pub(super) models: Vec<Comparison>,
    /// Models that could not be measured, with the reasons.
    pub(super) failed: Vec<(String, String)>,
    /// Changes since earlier results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Changes>,
}

impl Results {
    /// Makes empty results for these devices.
    pub(super) fn new(devices: &DeviceArgs) -> Result<Self, CliError> {
        // The fingerprint does not depend on GPUs, and detection without them is faster.
        let options = devices.options()?;
        let machine = detect(&options.clone().without_gpu()).or_else(|_| detect(&options))?.fingerprint();
        Ok(Self {
            format: FORMAT.into(),
            version: VERSION,
            program: version::short(),
            kernels: anabranch_kernels::VERSION,
            machine,
            models: Vec::new(),
            failed: Vec::new(),
            changes: None,
        })
    }

    /// Reads a file that was written by `-o`.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let refused = |problem: String| {
            CliError::in_file(
                path,
                format!("{problem}; `anabranch bench MODEL -o FILE.json` writes results to compare to"),
            )
        };
        let results: Self = serde_json::from_slice(&read_file(path)?).map_err(|error| refused(json_problem(&error)))?;
        let Self { format, version, .. } = &results;
        match format == FORMAT && *version == VERSION {
            true => Ok(results),
            false => Err(refused(format!("`format` and `version` are `{format}` {version}"))),
        }
    }

    /// Checks that results with this number of callers can be compared to these.
    pub(super) fn check(&self, callers: NonZeroU32) -> Result<(), String> {
        match self.models.iter().find(|model| model.callers != callers) {
            None => Ok(()),
            Some(other) => {
                let (model, callers) = (&other.model, other.callers);
                Err(format!(
                    "`{model}` was measured with {callers} callers at a time; --parallel {callers} does the same"
                ))
            }
        }
    }

    /// Describes other differences from later results, for people to judge.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        if self.machine != now.machine {
            differences.push(format!("the earlier results are of another machine, {}", self.machine));
        }
        if self.program != now.program {
            differences
                .push(format!("the earlier results are of Anabranch {}, these of {}", self.program, now.program));
        }
        differences
    }

    /// Describes differences of the models' devices from those of later results, for people to judge.
    pub(super) fn device_differences(&self, now: &Self) -> Vec<String> {
        let names = |model: &Comparison| model.devices.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        let difference = |own: &Comparison| {
            let before = self.models.iter().find(|before| before.model == own.model)?;
            let (before, own_names) = (names(before), names(own));
            let (model, then, now) = (&own.model, before.join(", "), own_names.join(", "));
            (before != own_names).then(|| format!("{model} was measured on {then} before, on {now} now"))
        };
        now.models.iter().filter_map(difference).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.models.first() {
            let callers = match first.callers.get() {
                1 => String::new(),
                callers => format!(" by each of {callers} callers at a time"),
            };
            let warmup = first.warmup;
            let _ = writeln!(
                text,
                "each configuration in turn, after {warmup} runs to warm up{callers}; intervals of medians\n"
            );
        }
        let mut table = Table::new(
            "model | configuration | >runs | >median | >interval | >p95 | >p99 | >runs/s | >× best | outputs",
        );
        for comparison in &self.models {
            let (names, best) = (Names::of(comparison), comparison.best().map_or(0.0, |best| best.measured_ms.median));
            for outcome in &comparison.outcomes {
                table.row(row(comparison, outcome, &names, best));
            }
        }
        let _ = write!(text, "{table}");
        for comparison in &self.models {
            let names = Names::of(comparison);
            for (configuration, reason) in &comparison.failed {
                let _ = writeln!(text, "{}, {}: {reason}", comparison.model, names.name(configuration));
            }
            if let Some(busy) = busy(&comparison.load) {
                let _ = writeln!(text, "{}: {busy}", comparison.model);
            }
        }
        if let Some(changes) = &self.changes {
            let _ = write!(text, "\n{changes}");
        }
        text
    }
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

/// Returns `text`, or its end if it is longer than `width` characters.
pub(super) fn ending(text: &str, width: usize) -> String {
    match text.chars().count().checked_sub(width) {
        None | Some(0) => text.to_owned(),
        Some(over) => std::iter::once('…').chain(text.chars().skip(over + 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(ending("model.onnx", 24), "model.onnx");
        assert_eq!(ending("a/rather/long/päth/model.onnx", 12), "…/model.onnx");
        assert_eq!(ending("abcdef", 3), "…ef");
    }
}
