//! `anabranch bench`: several models in several configurations, in one table, and changes since an earlier result.

mod changes;
mod results;

use super::args::{
    ConstraintArgs, DeviceArgs, FuseArgs, LimitArgs, ModelArgs, PlaceArgs, parse_dimension, parse_percent,
    parse_seconds,
};
use super::configurations::{choices, usual, write_csv};
use super::files::file_of;
use super::inputs::read_inputs;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, open_session};
use super::parallel::parse_callers;
use super::progress::Progress;
use super::{CliError, MORE, Output, note, pretty, say, write_file};
use anabranch::compare::{CompareOptions, Comparison, DYNAMIC, compare};
use anabranch::execute::{CancelToken, RunOptions};
use anabranch::plan::{Residency, StreamMode};
use anabranch::planning::Order;
use anabranch::session::{Inputs, Session};
use changes::Changes;
use clap::Args;
use results::Results;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  anabranch bench model.onnx
  anabranch bench *.onnx --place auto,heft,cpu,dynamic --duration 2 --csv results.csv -o before.json
  anabranch bench *.onnx --compare-to before.json --fail-above 5%
  anabranch bench model.onnx --parallel 4 --threads 1 --json

Configurations are run in turn, round by round. An interval holds the median with 95 % confidence; a change is how many times as long runs take,
with the interval that a rank-sum test gives. Two processes differ by some percent for reasons of their own (where memory lies, what
else the machine does): measure both results several times before you believe a small change. `anabranch compare` measures one
model with the same engine, and shows predictions and devices.";

/// Configurations that are measured by default.
const DEFAULT_PLACES: [&str; 5] = ["auto", "heft", "cpu", "gpu", DYNAMIC];

/// Measure several models placed in several configurations, in one table, and what changed since an earlier result
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct BenchCommand {
    /// ONNX files, or tests' folders; without any, a small network that is built in
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Strategies, devices, plan files, and `dynamic` [default: auto,heft,cpu,gpu,dynamic]
    ///
    /// `anabranch strategies` lists strategies; `dynamic` is the scheduler at run time, which has no plan. By default
    /// `gpu` takes part where there is one.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', alias = "ways")]
    place: Vec<String>,
    /// Measured runs of each configuration
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Measure each configuration for so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "repeat")]
    duration: Option<Duration>,
    /// Runs of each configuration before those that count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Callers that run a model at the same time
    ///
    /// Latency is the time that each caller waits for a run. Runs of one session follow each other: latency grows with
    /// the number of callers, while throughput gains the time between runs.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_callers)]
    parallel: NonZeroU32,
    /// Write one line for each model and configuration
    #[arg(long, value_name = "FILE.csv", value_parser = file_of(&["csv"]))]
    csv: Option<PathBuf>,
    /// Write the results, with every run, for --compare-to
    #[arg(short, long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    output: Option<PathBuf>,
    /// Show what changed since the results that -o wrote
    #[arg(long, value_name = "FILE.json")]
    compare_to: Option<PathBuf>,
    /// End with status 3 if a configuration is slower by more than this, as in 5%
    ///
    /// Only where the interval of the change also excludes that nothing has changed. What cannot be compared is an
    /// error: a configuration of the earlier results that was not measured again, or one of too few runs.
    #[arg(long, value_name = "PERCENT", requires = "compare_to", value_parser = parse_percent)]
    fail_above: Option<f64>,
    /// Seed of the inputs' random elements
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    random: u64,
    /// Size of a dimension, as in batch=4 or 'x[1]=576' [default: 1]; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = parse_dimension)]
    dim: Vec<(String, usize)>,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    constraints: ConstraintArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl BenchCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let before = self.compare_to.as_deref().map(Results::read).transpose()?;
        let mut results = Results::new(&self.devices)?;
        if let Some(before) = &before {
            before.check(self.parallel).map_err(|error| self.about_earlier(&error))?;
            before.differences(&results).iter().for_each(note);
        }
        let cancel = cancel_on_interrupt()?;
        let models: Vec<Option<&Path>> = match self.models.is_empty() {
            true => vec![None],
            false => self.models.iter().map(|model| Some(model.as_path())).collect(),
        };
        for model in models {
            let named = self.model(model);
            match self.measure(&named, &cancel, output) {
                Ok(comparison) => results.models.push(comparison),
                Err(error) if error.is_interruption() => return Err(error),
                Err(error) => {
                    say(format_args!("anabranch: {}: {error}", open::model_name(&named)));
                    results.failed.push((open::model_name(&named), error.to_string()));
                }
            }
        }
        if let Some(before) = &before {
            before.device_differences(&results).iter().for_each(note);
        }
        results.changes = before.map(|before| Changes::between(&before.models, &results.models));
        if let Some(path) = &self.csv {
            write_csv(path, &results.models.iter().collect::<Vec<_>>())?;
        }
        if let Some(path) = &self.output {
            write_file(path, pretty(&results)?)?;
        }
        output.text_or_json(|| results.text(), &results)?;
        self.verdict(&results)
    }

    /// Measures one model in all configurations.
    fn measure(&self, model: &ModelArgs, cancel: &CancelToken, output: Output) -> Result<Comparison, CliError> {
        let name = open::model_name(model);
        let place = PlaceArgs::any(&self.constraints);
        let (session, store, sets) = open_session(&self.devices, None, model, &place, true)?;
        open::print_all_notes(&session, output);
        let inputs = self.inputs(model, sets.first().map(PathBuf::as_path), &session)?;
        let places = match self.place.is_empty() {
            true => usual(&DEFAULT_PLACES, !session.inventory().gpus.is_empty()),
            false => self.place.clone(),
        };
        let configurations = choices("--place", &places, &[Order::Pct], &[StreamMode::Auto], &Residency::Auto)?;
        let options = CompareOptions::new(&name, configurations)
            .with_dynamic(places.iter().any(|place| place == DYNAMIC))
            .with_runs(self.repeat, self.warmup)
            .with_duration(self.duration)
            .with_callers(self.parallel)
            .with_run(RunOptions::default().with_cancel(cancel.clone()));
        let progress = match self.duration {
            Some(_) => Progress::open_ended(output, &name),
            None => Progress::new(output, &name, options.steps()),
        };
        let compared = compare(&session, &inputs, &options, &mut || progress.advance())?;
        drop(progress);
        store.save_costs(&session)?;
        Ok(compared)
    }

    /// Returns the arguments of one model.
    fn model(&self, model: Option<&Path>) -> ModelArgs {
        ModelArgs {
            model: model.map(Path::to_owned),
            input: Vec::new(),
            image_norm: None,
            random: Some(self.random),
            dim: self.dim.clone(),
            cached: None,
            cache: None,
            fuse: self.fuse.clone(),
            limits: self.limits.clone(),
        }
    }

    /// Returns the tensors of a test's folder, and random tensors for all other inputs. Dimensions without a given size
    /// have size 1.
    fn inputs(&self, model: &ModelArgs, set: Option<&Path>, session: &Session) -> Result<Inputs, CliError> {
        let given = read_inputs(model, set, session)?;
        let (inputs, assumed) = session.fill_assumed(given, self.random)?;
        if !assumed.is_empty() {
            let (name, assumed) = (open::model_name(model), assumed.join(", "));
            note(format_args!("{name}: size 1 is assumed for {assumed}: --dim NAME=N says otherwise"));
        }
        Ok(inputs)
    }

    fn about_earlier(&self, error: &str) -> CliError {
        self.compare_to.as_deref().map_or_else(|| CliError::input(error), |path| CliError::in_file(path, error))
    }

    /// Fails if a model could not be measured, or a configuration has become too slow, or there are too few runs to
    /// tell.
    fn verdict(&self, results: &Results) -> Result<(), CliError> {
        if let Some((model, _)) = results.failed.first() {
            let (failed, all) = (results.failed.len(), results.failed.len() + results.models.len());
            return Err(CliError::input(format!("{failed} of {all} models could not be measured, the first: {model}")));
        }
        let Some((most, changes)) = self.fail_above.zip(results.changes.as_ref()) else { return Ok(()) };
        if let Some(slower) = changes.slower(most) {
            return Err(CliError::unexpected(slower));
        }
        changes.untold().map_or(Ok(()), |untold| Err(CliError::input(format!("--fail-above: {untold}"))))
    }
}
