//! Results of measurements, as a file to compare with later.

use super::changes::Changes;
use crate::command::args::DeviceArgs;
use crate::command::{CliError, read_file, version};
use anabranch::compare::Comparison;
use anabranch::device::detect;
use anabranch::files::json_problem;
use anabranch_report::text::count;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::Path;

/// Value of `format` in every file of results.
const FORMAT: &str = "anabranch-bench";

/// Version that this build writes and reads.
const VERSION: u32 = 1;

/// Measurements, with their models, machine and program. `bench` and `compare` write the same form. Times in
/// milliseconds, sizes in bytes.
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

    /// Reads a file that was written by `-o`, whose models were measured with this number of callers.
    pub(super) fn read(path: &Path, callers: NonZeroU32) -> Result<Self, CliError> {
        let refused = |problem: String| {
            CliError::in_file(
                path,
                format!("{problem}; `anabranch bench MODEL -o FILE.json` writes results to compare to"),
            )
        };
        let results: Self = serde_json::from_slice(&read_file(path)?).map_err(|error| refused(json_problem(&error)))?;
        let Self { format, version, models, .. } = &results;
        if format != FORMAT || *version != VERSION {
            return Err(refused(format!("`format` and `version` are `{format}` {version}")));
        }
        if let Some(Comparison { model, callers, .. }) = models.iter().find(|model| model.callers != callers) {
            return Err(CliError::in_file(
                path,
                format!(
                    "`{model}` was measured with {} at a time; --parallel {callers} does the same",
                    count(callers.get(), "caller")
                ),
            ));
        }
        Ok(results)
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
}

/// Returns `text`, or its end if it is longer than `width` characters.
pub(in crate::command) fn ending(text: &str, width: usize) -> String {
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
