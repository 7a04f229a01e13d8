//! The choice of the next token: greedy or by a seeded draw, from logits that must be numbers.
//!
//! The logits pass, in this order, a penalty of tokens that were seen (Keskar et al. 2019, section 4.1), the
//! temperature, the `top_k` greatest (Fan et al. 2018) and the least set of probability `top_p` (Holtzman et al. 2020,
//! section 3.1). Equal logits go by token, the lower first. Sums are in `f64` and in one order, so that a seed gives
//! the same tokens on any number of threads.

use anabranch_base::random::SplitMix64;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Choice of tokens, and ends of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Greedy, or by a draw. Default: greedy.
    pub choice: Choice,
    /// Logits of tokens that were seen are divided by this if they are positive, else multiplied. Default: 1, no
    /// penalty.
    pub repetition_penalty: f64,
    /// Tokens of prompt and text together, at most; never more than the model's context. Default: the context.
    pub max_length: usize,
    /// Texts that end the generation; they are no part of what is generated.
    pub stops: Vec<String>,
    /// The seed of all draws. Default: 0.
    pub seed: u64,
    /// Whether tokens that end a text are passed over, for measurements. Default: no.
    pub ignore_ends: bool,
}

/// Rule that chooses a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The token of the greatest logit.
    Greedy,
    /// A draw.
    Sample {
        /// Logits are divided by it.
        temperature: f64,
        /// Number of most probable tokens that take part; `None` for all.
        top_k: Option<usize>,
        /// The most probable tokens take part until they have this probability together.
        top_p: f64,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            choice: Choice::Greedy,
            repetition_penalty: 1.0,
            max_length: usize::MAX,
            stops: Vec::new(),
            seed: 0,
            ignore_ends: false,
        }
    }
}

/// Settings that override a model's configuration; `None` keeps the configured value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// The temperature of draws; 0 for the token of the greatest logit.
    pub temperature: Option<f64>,
    /// Number of most probable tokens that take part in a draw.
    pub top_k: Option<usize>,
    /// The probability of those that take part.
    pub top_p: Option<f64>,
    /// See [`Settings::repetition_penalty`].
    pub repetition_penalty: Option<f64>,
    /// See [`Settings::max_length`].
    pub max_length: Option<usize>,
    /// See [`Settings::stops`].
    pub stops: Vec<String>,
    /// See [`Settings::seed`].
    pub seed: u64,
}

impl Settings {
    /// These settings with what a caller says otherwise. A temperature, `top_k` or `top_p` asks for draws.
    pub fn with(&self, overrides: &Overrides) -> Self {
        let Overrides { temperature, top_k, top_p, repetition_penalty, max_length, stops, seed } = overrides;
        let configured = match self.choice {
            Choice::Greedy => (1.0, None, 1.0),
            Choice::Sample { temperature, top_k, top_p } => (temperature, top_k, top_p),
        };
        let is_said = temperature.is_some() || top_k.is_some() || top_p.is_some();
        let choice = match temperature {
            Some(0.0) => Choice::Greedy,
            _ if !is_said => self.choice,
            _ => Choice::Sample {
                temperature: temperature.unwrap_or(configured.0),
                top_k: top_k.or(configured.1),
                top_p: top_p.unwrap_or(configured.2),
            },
        };
        Self {
            choice,
            repetition_penalty: repetition_penalty.unwrap_or(self.repetition_penalty),
            max_length: max_length.unwrap_or(self.max_length),
            stops: stops.clone(),
            seed: *seed,
            ..self.clone()
        }
    }

    /// Sees that all numbers have sense.
    ///
    /// # Errors
    /// If one has not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = |name: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(format!("{name} is {value}; it must be a number above 0")),
        };
        positive("repetition_penalty", self.repetition_penalty)?;
        if let Choice::Sample { temperature, top_k, top_p } = self.choice {
            positive("temperature", temperature)?;
            if !(0.0..=1.0).contains(&top_p) {
                return Err(format!("top_p is {top_p}; it must be a probability from 0 to 1"));
            }
            if top_k == Some(0) {
                return Err("top_k is 0; give at least 1, or leave it out to use all tokens".into());
            }
        }
        Ok(())
    }
}

/// Chooses tokens.
#[derive(Clone, Debug)]
pub struct Sampler {
    choice: Choice,
    penalty: f64,
    seen: BTreeSet<u32>,
    random: SplitMix64,
    /// Candidates with their logits, the most probable first.
    candidates: Vec<(u32, f64)>,
}

impl Sampler {
    /// A sampler that has seen no token.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        settings.check()?;
        let (choice, penalty) = (settings.choice, settings.repetition_penalty);
        let random = SplitMix64::new(settings.seed);
        Ok(Self { choice, penalty, seen: BTreeSet::new(), random, candidates: Vec::new() })
    }

    /// Counts a token as seen.
    pub fn see(&mut self, token: u32) {
        if self.penalty != 1.0 {
            self.seen.insert(token);
        }
    }

    /// Chooses a token; the result is not counted as seen. O(tokens) unless most tokens take part, which are then
    /// sorted.
    ///
    /// # Errors
    /// If there are no logits, one is not a number or +∞, or all are −∞.
    pub fn choose(&mut self, logits: &[f32]) -> Result<u32, String> {
        self.weigh(logits)?;
        match self.choice {
            Choice::Greedy => {
                let first =
                    self.candidates.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best });
                Ok(first.map_or(0, |(token, _)| token))
            }
            Choice::Sample { .. } => {
                let total = self.keep();
                let drawn = self.random.unit() * total;
                let mut sum = 0.0;
                let found = self.candidates.iter().find(|(_, weight)| {
                    sum += weight;
                    drawn < sum
                });
                // Rounding may leave the draw at the end.
                Ok(found.or(self.candidates.last()).map_or(0, |(token, _)| *token))
            }
        }
    }

    /// Fills in the candidates with the logits that count.
    fn weigh(&mut self, logits: &[f32]) -> Result<(), String> {
        self.candidates.clear();
        for (token, logit) in logits.iter().enumerate() {
            if logit.is_nan() || *logit == f32::INFINITY {
                return Err(format!(
                    "the logit of token {token} is {logit}, so there are no probabilities; check the model"
                ));
            }
            self.candidates.push((token as u32, f64::from(*logit)));
        }
        for token in &self.seen {
            if let Some((_, logit)) = self.candidates.get_mut(*token as usize) {
                *logit = if *logit > 0.0 { *logit / self.penalty } else { *logit * self.penalty };
            }
        }
        self.candidates.retain(|(_, logit)| *logit > f64::NEG_INFINITY);
        match self.candidates.is_empty() {
            false => Ok(()),
            true => Err("no token has a probability; the model masks all of them".into()),
        }
    }

    /// Leaves the candidates that take part in the draw, with weights instead of logits. Returns the sum of the
    /// weights.
    fn keep(&mut self) -> f64 {
        let Choice::Sample { temperature, top_k, top_p } = self.choice else { return 0.0 };
        let order = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if let Some(count) = top_k.filter(|count| *count < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(count - 1, order);
            self.candidates.truncate(count);
        }
        self.candidates.sort_unstable_by(order);
        let greatest = self.candidates[0].1;
        self.candidates.iter_mut().for_each(|(_, logit)| *logit = ((*logit - greatest) / temperature).exp());
        let total: f64 = self.candidates.iter().map(|(_, weight)| weight).sum();
        let mut kept = 0.0;
        let reaches = |(_, weight): &(u32, f64)| {
            kept += weight;
            kept >= top_p * total
        };
        let last = self.candidates.iter().position(reaches).unwrap_or(self.candidates.len() - 1);
        self.candidates.truncate(last + 1);
        self.candidates.iter().map(|(_, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests;
