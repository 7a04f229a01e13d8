//! Rates of a model: how fast it reads a prompt, and how fast tokens follow.

use super::error::GenerateError;
use super::generator::Generator;
use anabranch_execute::RunOptions;
use anabranch_planning::{Planned, PlatformFile};
use anabranch_session::RunPrediction;
use std::time::Instant;

/// Numbers of tokens to measure: of a prompt, and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Tokens of the prompt, at least 1.
    pub prompt: usize,
    /// Tokens that follow it, one by one.
    pub tokens: usize,
}

impl Sample {
    /// # Errors
    /// If the sample does not fit the model's context.
    fn fits(self, generator: &Generator) -> Result<(), GenerateError> {
        let (Self { prompt, tokens }, context) = (self, generator.config().context);
        // The text of a decoder behind an encoder is another than the prompt.
        let begin = generator.begin();
        let length = if begin > 0 { begin } else { prompt };
        if prompt > 0 && length.saturating_add(tokens) <= context {
            return Ok(());
        }
        let what = format!("a prompt of {prompt} tokens and {tokens} more do not fit: the model can look at {context}");
        Err(GenerateError::given(format!("{what}, and a prompt has 1 at least")))
    }
}

/// Plans of a sample that is not run.
pub struct Forecast {
    /// The plan of the prompt.
    pub prefill: Planned,
    /// The plan of the last of the tokens that follow, if there are any.
    pub decode: Option<Planned>,
}

/// Plans a sample without running it: on the devices of `platform`, else of the session's platform file, else on the
/// present devices. The answer that was begun is lost.
///
/// # Errors
/// If the sample does not fit the model's context, or there is no plan within memory and constraints.
pub fn forecast(
    generator: &mut Generator,
    sample: Sample,
    platform: Option<&PlatformFile>,
) -> Result<Forecast, GenerateError> {
    let Sample { prompt, tokens } = sample;
    sample.fits(generator)?;
    if generator.begin() > 0 {
        let what = "rates of a model with an encoder are measured, and not predicted";
        return Err(GenerateError::given(format!("{what}; measure with --bench, and without --platform")));
    }
    let decoder = generator.emptied();
    // The largest cache decides where it lies: a run decides again whenever its cache grows.
    let (last, home) = decoder.forecast((prompt + tokens).saturating_sub(1), 1, platform, None)?;
    let (prefill, _) = decoder.forecast(0, prompt, platform, Some(&home))?;
    Ok(Forecast { prefill, decode: (tokens > 0).then_some(last) })
}

/// Tokens per second of each repetition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Rates of the prompt.
    pub prefill: Vec<f64>,
    /// Rates of the tokens that follow.
    pub decode: Vec<f64>,
    /// Tokens per second that the plan of the prompt predicts, if it is the only one of its runs.
    pub predicted_prefill: Option<f64>,
    /// Tokens per second that the plan of the last token predicts.
    pub predicted_decode: Option<f64>,
    /// Plans that were made in the repetitions that count.
    pub plans: u64,
}

/// Measures a sample `repeat` times, after one repetition that does not count. Tokens are given, and none is chosen.
/// `step` is called after each repetition.
///
/// # Errors
/// If the sample does not fit the model's context, or a run fails or is cancelled.
pub fn measure(
    generator: &mut Generator,
    sample: Sample,
    repeat: usize,
    options: &RunOptions,
    step: &mut dyn FnMut(),
) -> Result<Rates, GenerateError> {
    let Sample { prompt, tokens } = sample;
    sample.fits(generator)?;
    let vocabulary = generator.emptied().vocabulary();
    let given: Vec<u32> = (0..prompt + tokens).map(|at| spread(at, vocabulary)).collect();
    let mut rates = Rates::default();
    let mut plans = 0;
    for round in 0..=repeat {
        if round == 1 {
            plans = generator.plans_made();
        }
        let begun = Instant::now();
        let decoder = generator.prefill(&given[..prompt], options)?;
        let prefill = begun.elapsed().as_secs_f64();
        // Several models compute the prompt of one with an encoder.
        let predicted = decoder.model().predicted().filter(|_| !decoder.has_encoder());
        rates.predicted_prefill = predicted.and_then(|run| rate(run, prompt));
        let begun = Instant::now();
        for token in given[prompt..].chunks(1) {
            decoder.feed(token, options)?;
        }
        if round > 0 {
            rates.prefill.push(prompt as f64 / prefill.max(1e-9));
            if tokens > 0 {
                rates.decode.push(tokens as f64 / begun.elapsed().as_secs_f64().max(1e-9));
                rates.predicted_decode = decoder.model().predicted().and_then(|run| rate(run, 1));
            }
        }
        step();
    }
    rates.plans = generator.plans_made() - plans;
    generator.emptied();
    Ok(rates)
}

fn rate(run: RunPrediction, tokens: usize) -> Option<f64> {
    (run.makespan > 0.0).then(|| tokens as f64 / run.makespan)
}

/// A token for a place, all over the vocabulary: the multiples of the golden ratio.
fn spread(at: usize, vocabulary: usize) -> u32 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed) * vocabulary as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_vocabularys_and_differ() {
        let tokens: std::collections::BTreeSet<_> = (0..100).map(|at| spread(at, 1000)).collect();
        assert!(tokens.len() > 90 && tokens.iter().all(|token| *token < 1000));
        assert_eq!(spread(5, 1), 0);
    }
}
