//! Rates of a model: a table as benchmarks of language models show it.

use super::super::progress::Progress;
use super::super::{CliError, Output, note};
use super::failed;
use anabranch::compare::Median;
use anabranch::execute::RunOptions;
use anabranch::generate::{Generator, Sample, measure};
use anabranch_report::table::Table;
use serde::Serialize;

/// A prompt and the tokens that follow, as the command line has them.
pub(in super::super) type Bench = (usize, usize);

/// Rates of one kind.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// `prefill` or `decode`.
    test: &'static str,
    tokens: usize,
    /// Tokens in the cache before.
    cache: usize,
    /// Tokens per second; an interval of 95 % from 6 repetitions on.
    tokens_per_second: Median,
    predicted: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    model: String,
    devices: Vec<String>,
    rates: Vec<Row>,
    /// Plans that were made in repetitions that count.
    plans: u64,
    notes: Vec<String>,
}

/// Reads `P,N`.
pub(in super::super) fn parse_bench(text: &str) -> Result<Bench, String> {
    let (prompt, tokens) =
        text.split_once(',').ok_or("write the tokens of the prompt and the tokens to generate, such as 512,128")?;
    Ok((super::parse_size(prompt.trim())?, super::parse_size(tokens.trim())?))
}

/// Measures, and prints the table.
pub(super) fn print(
    generator: &mut Generator,
    samples: &[Bench],
    repeat: usize,
    run: &RunOptions,
    output: Output,
) -> Result<(), CliError> {
    let progress = Progress::new(output, "measuring", (samples.len() * (repeat + 1)) as u64);
    let (mut rows, mut plans) = (Vec::new(), 0);
    for (prompt, tokens) in samples.iter().copied() {
        let sample = Sample { prompt, tokens };
        let rates = measure(generator, sample, repeat, run, &mut || progress.advance()).map_err(failed)?;
        let mut row = |test, tokens, cache, samples: &[f64], predicted| {
            rows.extend(Median::of(samples).map(|tokens_per_second| Row {
                test,
                tokens,
                cache,
                tokens_per_second,
                predicted,
            }));
        };
        row("prefill", prompt, 0, &rates.prefill, rates.predicted_prefill);
        row("decode", tokens, prompt, &rates.decode, rates.predicted_decode);
        plans += rates.plans;
    }
    drop(progress);
    let report = Report {
        model: super::super::lossy(&generator.config().model),
        devices: generator.session().inventory().devices().map(|device| device.name().to_owned()).collect(),
        rates: rows,
        plans,
        notes: generator.note().into_iter().map(str::to_owned).collect(),
    };
    output.text_or_json(|| report.text(), &report)?;
    if plans > 0 {
        note(format_args!("plans made during the measurement: {plans}; each length of this model's cache is a shape"));
    }
    if !output.json {
        report.notes.iter().for_each(note);
    }
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        let mut table = Table::new("test | >tokens | >cache | >tokens/s | interval | >predicted");
        for Row { test, tokens, cache, tokens_per_second: rate, predicted } in &self.rates {
            let predicted = predicted.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
            let interval = format!("{:.1}–{:.1}", rate.low, rate.high);
            let [tokens, cache] = [tokens, cache].map(usize::to_string);
            table.row([test.to_string(), tokens, cache, format!("{:.1}", rate.median), interval, predicted]);
        }
        format!("{} on {}\n\n{table}", self.model, self.devices.join(", "))
    }
}
