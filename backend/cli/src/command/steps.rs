//! `anabranch run --steps`: a model with state, step after step.

use super::args::ModelArgs;
use super::inputs::read_inputs;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, model_name};
use super::progress::Progress;
use super::{CliError, Output, outputs};
use anabranch::compare::Median;
use anabranch::device::format_bytes;
use anabranch::execute::RunOptions;
use anabranch::session::{Inputs, Session, Stateful};
use anabranch_report::text::count;
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Steps of a model with state.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "State")]
pub(crate) struct StepArgs {
    /// Run N steps, each with the state that the previous step made
    ///
    /// --feed binds state. Without it, state is found by the names that exporters use, which `anabranch inspect` lists.
    /// All other inputs stay the same. The first state is given by --input, or zeros; a growing axis begins with no
    /// elements.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) steps: Option<u32>,
    /// Bind an output to a later input, as in 'present.*=past.*'
    ///
    /// `*` stands for the same text in both names. May be repeated.
    #[arg(long, value_name = "OUTPUT=INPUT", hide_short_help = true, requires = "steps", value_parser = parse_feed)]
    feed: Vec<(String, String)>,
}

/// Reads names of an output and an input, as `present.*=past.*`.
pub(super) fn parse_feed(text: &str) -> Result<(String, String), String> {
    let (output, input) =
        text.split_once('=').ok_or("write OUTPUT=INPUT, for example 'present.*=past_key_values.*'")?;
    match [output, input].map(|name| name.matches('*').count()) {
        [0, 0] | [1, 1] => Ok((output.to_owned(), input.to_owned())),
        _ => Err("write one * in both names, or none in either".into()),
    }
}

/// Times of the steps.
#[derive(Clone, Debug, Serialize)]
struct Report {
    model: String,
    steps: u32,
    first_ms: f64,
    /// Time of a step after the first.
    later_ms: Option<Median>,
    steps_per_second: Option<f64>,
    /// Seconds that the last plan predicts, in milliseconds.
    predicted_ms: Option<f64>,
    /// Bound pairs: outputs, and the inputs that they become.
    state: Vec<(String, String)>,
    /// Bytes of the state after the first and the last step.
    state_bytes: [u64; 2],
    plans: u64,
}

impl StepArgs {
    /// Runs the steps, writes the last outputs if asked to, and reports.
    pub(super) fn run(
        &self,
        session: Session,
        model: &ModelArgs,
        (set, to): (Option<&Path>, Option<&PathBuf>),
        timeout: Option<Duration>,
        output: Output,
    ) -> Result<(), CliError> {
        open::print_notes(&session, output);
        let form = to.map(|path| outputs::form(path, session.outputs())).transpose()?;
        let given = read_inputs(model, set, &session)?;
        let feeds: Vec<_> = self.feed.iter().map(|(output, input)| (&**output, &**input)).collect();
        let mut state = session.stateful(&feeds)?;
        let seed = model.random.or((model.input.is_empty() && set.is_none()).then_some(0));
        let inputs = match seed {
            Some(seed) => state.session().fill_random(state.with_first(given)?, seed)?,
            None => given,
        };
        let run = RunOptions { timeout, ..RunOptions::default().with_cancel(cancel_on_interrupt()?) };
        let report = self.measured(&mut state, &inputs, &run, model_name(model), output)?;
        if let Some((path, form)) = to.zip(form) {
            outputs::write(path, form, &state.outputs().on_host()?, state.session().outputs())?;
        }
        output.text_or_json(|| report.to_string(), &report)
    }

    fn measured(
        &self,
        state: &mut Stateful,
        inputs: &Inputs,
        run: &RunOptions,
        model: String,
        output: Output,
    ) -> Result<Report, CliError> {
        let steps = self.steps.unwrap_or(1);
        let progress = Progress::new(output, "steps", u64::from(steps));
        let (mut took, mut first_bytes) = (Vec::new(), 0);
        for step in 0..steps {
            let begun = Instant::now();
            // Later steps have the inputs of the first, and its state.
            let given = if step == 0 { inputs } else { &Inputs::new() };
            state.run_with(given, run)?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            if step == 0 {
                first_bytes = state.bytes();
            }
            progress.advance();
        }
        let later = Median::of(&took[1..]);
        Ok(Report {
            model,
            steps,
            first_ms: took[0],
            later_ms: later,
            steps_per_second: later.map(|later| 1e3 / later.median),
            predicted_ms: state.predicted().map(|predicted| predicted.makespan * 1e3),
            state: state.pairs().iter().map(|pair| (pair.output.clone(), pair.input.clone())).collect(),
            state_bytes: [first_bytes, state.bytes()],
            plans: state.session().plans_made(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}, the first in {:.3} ms", self.model, count(self.steps, "step"), self.first_ms)?;
        if let (Some(later), Some(rate)) = (self.later_ms, self.steps_per_second) {
            let Median { median, low, high, .. } = later;
            writeln!(f, "  later    median {median:.3} ms ({low:.3}–{high:.3} ms), {rate:.0} steps per second")?;
        }
        if let Some(predicted) = self.predicted_ms {
            writeln!(f, "  last     predicted {predicted:.3} ms")?;
        }
        let [first, last] = self.state_bytes.map(format_bytes);
        let tensors = count(self.state.len(), "tensor");
        writeln!(f, "  state    {tensors}, {first} after the first step, {last} after the last")?;
        writeln!(f, "  plans    {}", self.plans)
    }
}
