//! Predicted rates of a language model on devices that may not be here: nothing runs.

use super::super::device_share::DeviceShare;
use super::super::progress::waiting;
use super::super::{CliError, Output, lossy};
use super::failed;
use super::rates::Bench;
use anabranch::device::format_bytes;
use anabranch::generate::{Forecast, Generator, Sample, forecast};
use anabranch::planning::Planned;
use anabranch_report::table::Table;
use anabranch_report::text::duration;
use serde::Serialize;

/// Prediction of one kind of run.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Row {
    /// `prefill` or `decode`.
    test: &'static str,
    /// Tokens of the run.
    tokens: usize,
    /// Tokens in the cache before.
    cache: usize,
    pub(in super::super) predicted_tokens_per_second: f64,
    pub(in super::super) devices: Vec<DeviceShare>,
}

#[derive(Serialize)]
struct Report {
    model: String,
    rates: Vec<Row>,
}

/// Predicts, and prints the table.
pub(super) fn print(generator: &mut Generator, samples: &[Bench], output: Output) -> Result<(), CliError> {
    waiting(output, "measuring the devices", || generator.session().calibrate())?;
    let mut rates = Vec::new();
    for (prompt, tokens) in samples.iter().copied() {
        let sample = Sample { prompt, tokens };
        let found = waiting(output, "planning", || forecast(generator, sample, None)).map_err(failed)?;
        rates.extend(rows(sample, &found)?);
    }
    let report = Report { model: lossy(&generator.config().model), rates };
    output.text_or_json(|| report.text(), &report)
}

/// Predictions of a prompt, and of the last of the tokens that follow it.
pub(in super::super) fn rows(sample: Sample, forecast: &Forecast) -> Result<Vec<Row>, CliError> {
    let Sample { prompt, tokens } = sample;
    let prefill = Row::of("prefill", prompt, 0, &forecast.prefill)?;
    let decode = forecast.decode.as_ref().map(|decode| Row::of("decode", 1, prompt + tokens - 1, decode));
    Ok([prefill].into_iter().chain(decode.transpose()?).collect())
}

impl Row {
    fn of(test: &'static str, tokens: usize, cache: usize, planned: &Planned) -> Result<Self, CliError> {
        if planned.rest.is_some() {
            let what = "the model runs in phases, and only the first is known before a run";
            return Err(CliError::input(format!("{what}; measure it: anabranch generate FOLDER --bench P,N")));
        }
        let predicted_tokens_per_second = tokens as f64 / planned.plan().predicted().makespan.max(1e-9);
        let devices = DeviceShare::all(planned);
        Ok(Self { test, tokens, cache, predicted_tokens_per_second, devices })
    }
}

impl Report {
    fn text(&self) -> String {
        let mut rates = Table::new("test | >tokens | >cache | >predicted tokens/s");
        let mut devices = Table::new("test | >cache | device | >nodes | >predicted busy | >peak memory | >limit");
        for row in &self.rates {
            let rate = format!("{:.1}", row.predicted_tokens_per_second);
            rates.row([row.test.to_owned(), row.tokens.to_string(), row.cache.to_string(), rate]);
            for of in &row.devices {
                devices.row([
                    row.test.to_owned(),
                    row.cache.to_string(),
                    of.device.clone(),
                    of.nodes.to_string(),
                    duration(of.busy),
                    format_bytes(of.peak_bytes),
                    of.limit_bytes.map_or("none".into(), format_bytes),
                ]);
            }
        }
        format!("{}: predicted, not measured\n\n{rates}\n{devices}", self.model)
    }
}
