//! The options and the work that `anabranch bench` and `anabranch compare` share: models are measured in several
//! configurations, and the results are printed, written, and compared with earlier results.

mod changes;
mod results;

use super::args::{
    ConstraintArgs, DeviceArgs, ModelArgs, PlaceArgs, SplitArgs, Streamed, WeightArgs, parse_percent, parse_seconds,
    refuse_given,
};
use super::configurations::{choices, usual, write_csv};
use super::files::file_of;
use super::inputs::read_inputs;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, Opened, open_session};
use super::parallel::parse_callers;
use super::progress::Progress;
use super::{CliError, Output, bench, if_named, note, pretty, say, settled, write_file};
use anabranch::compare::{CompareOptions, Comparison, DYNAMIC, compare_seen};
use anabranch::execute::RunOptions;
use anabranch::planning::{Order, Strategy};
use anabranch::session::{Inputs, Run, Session};
use anabranch_report::comparison::{Compared, Picture, page};
use anabranch_report::text::count;
use changes::Changes;
use clap::Args;
use results::Results;
pub(super) use results::ending;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Options of commands that measure models in several configurations.
#[derive(Args, Clone, Debug)]
pub(super) struct MeasureArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// More models, each measured in the same configurations
    #[arg(value_name = "MODEL", help_heading = "Model")]
    more: Vec<PathBuf>,
    /// Strategies, devices, plan files, and `dynamic`
    ///
    /// `anabranch strategies` lists strategies. `dynamic` is the scheduler at run time, which has no plan. By default
    /// `bench` measures auto,heft,cpu,gpu,dynamic and `compare` auto,heft,mite,cpu,gpu; `gpu` takes part if there is a
    /// GPU. `compare` always adds `dynamic`. With --split, `split` takes part, too; plan files, `split` and `auto`
    /// divide the batch, and the others compute the whole batch.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', alias = "ways", help_heading = "Configurations")]
    place: Vec<String>,
    /// Orders of ready nodes: pct, msr, fifo, frugal
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_value = "pct", help_heading = "Configurations")]
    order: Vec<Order>,
    /// Modes of streaming
    #[arg(
        long,
        value_enum,
        value_name = "A,B,…",
        value_delimiter = ',',
        default_value = "auto",
        help_heading = "Configurations"
    )]
    stream: Vec<Streamed>,
    /// Measured runs of each configuration
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Measure each configuration for so many seconds
    #[arg(help_heading = "Measuring", long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "repeat")]
    duration: Option<Duration>,
    /// Runs of each configuration before those that count
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Callers that run a model at the same time
    ///
    /// Latency is the time that each caller waits for a run. Runs of one session follow each other: latency grows with
    /// the number of callers, while throughput gains the time between runs.
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value = "1", value_parser = parse_callers)]
    parallel: NonZeroU32,
    /// Rounds of learning from all configurations before measuring
    ///
    /// Learned costs are kept in the cost store.
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    refine: u32,
    /// Write one line for each model and configuration
    #[arg(help_heading = "Files", long, value_name = "FILE.csv", value_parser = file_of(&["csv"]))]
    csv: Option<PathBuf>,
    /// Write a page with charts and tables; it needs no network
    #[arg(help_heading = "Files", long, value_name = "FILE.html", value_parser = file_of(&["html"]))]
    html: Option<PathBuf>,
    /// Write the table of `bench` in Markdown
    #[arg(help_heading = "Files", long, value_name = "FILE.md", value_parser = file_of(&["md"]), hide_short_help = true)]
    markdown: Option<PathBuf>,
    /// Write the results, with every run, for --compare-to
    #[arg(help_heading = "Files", short, long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    output: Option<PathBuf>,
    /// Show what changed since the results that -o wrote
    ///
    /// The results of either command will do. With --json, all is printed in the form of these files.
    #[arg(help_heading = "Changes", long, value_name = "FILE.json")]
    compare_to: Option<PathBuf>,
    /// Exit with 3 if a configuration is slower by more, as in 5%
    ///
    /// Only if the interval of the change also excludes that nothing has changed. It is an error if a configuration
    /// cannot be compared: because it was not measured again, or by too few runs.
    #[arg(help_heading = "Changes", long, value_name = "PERCENT", requires = "compare_to", value_parser = parse_percent)]
    fail_above: Option<f64>,
    #[command(flatten)]
    constraints: ConstraintArgs,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    weights: WeightArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Differences between the commands that measure.
pub(super) struct Preset {
    /// Configurations that are measured by default.
    pub(super) places: &'static [&'static str],
    /// Whether the run-time scheduler takes part even if it is not named.
    pub(super) is_dynamic: bool,
    /// Whether `--json` prints the comparison of a single model alone, unless it is compared with earlier results.
    pub(super) is_bare: bool,
    /// Text of the comparisons.
    pub(super) text: fn(&[Comparison]) -> String,
}

/// A measured model, and whether its learned costs were saved.
type Measured = (Compared, Result<(), CliError>);

impl MeasureArgs {
    /// Measures all models, and prints and writes the results.
    pub(super) fn run(&self, preset: &Preset, output: Output) -> Result<(), CliError> {
        if !self.model.input.is_empty() && !self.more.is_empty() {
            return Err(CliError::input(
                "--input: it gives the inputs of one model, and there are several; name one model, or folders of tests, \
                 which have inputs of their own",
            ));
        }
        let read = |path: &PathBuf| Results::read(path, self.parallel);
        let before = self.compare_to.as_ref().map(read).transpose()?;
        let mut results = Results::new(&self.devices)?;
        if let Some(before) = &before {
            before.differences(&results).iter().for_each(note);
        }
        let measured = self.measure_all(preset, output, &mut results.failed)?;
        let (all, saved): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
        results.models = all.iter().map(|one: &Compared| one.comparison.clone()).collect();
        if let Some(before) = &before {
            before.device_differences(&results).iter().for_each(note);
            results.changes = Some(Changes::between(&before.models, &results.models));
        }
        settled(saved.into_iter().chain([self.report(preset, &all, &results, output)]))
    }

    /// Measures each model that can be opened, after all have been tried, and adds the others to `failed`.
    ///
    /// # Errors
    /// If the only model fails, or the user interrupts.
    fn measure_all(
        &self,
        preset: &Preset,
        output: Output,
        failed: &mut Vec<(String, String)>,
    ) -> Result<Vec<Measured>, CliError> {
        let run = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        let others = self.more.iter().map(|path| ModelArgs { model: Some(path.clone()), ..self.model.clone() });
        let mut models: Vec<ModelArgs> = std::iter::once(self.model.clone()).chain(others).collect();
        let mut passed = |model: &ModelArgs, result: Result<(), CliError>| match result {
            Err(error) if self.more.is_empty() || error.is_interruption() => Err(error),
            Err(error) => {
                let (name, error) = (open::model_name(model), error.to_string());
                match error.starts_with(&name) {
                    true => say(format_args!("anabranch: {error}")),
                    false => say(format_args!("anabranch: {name}: {error}")),
                }
                failed.push((name, error));
                Ok(false)
            }
            Ok(()) => Ok(true),
        };
        // A fault in the last model's file is reported before the first model is measured, which may take long. Models
        // are opened again when they are measured, so that only one is in memory at a time.
        if !self.more.is_empty() {
            let (mut usable, all) = (Vec::with_capacity(models.len()), models.len());
            for mut model in models {
                let place = PlaceArgs::any(&self.constraints).divided(&self.split);
                let opened = open_session(&self.devices, None, &model, &place, true);
                let opened = opened.map(|(session, ..)| usable.push(without_unknown_dims(&mut model, &session)));
                passed(&model, opened)?;
            }
            // A model that cannot be opened may have any dimension.
            if usable.len() == all {
                self.verify_dims(&usable)?;
            }
            models = usable;
        }
        let mut all = Vec::with_capacity(models.len());
        for model in models {
            let measured = self.measure(preset, &model, &run, output);
            passed(&model, measured.map(|measured| all.push(measured)))?;
        }
        Ok(all)
    }

    /// Checks that each size is of a dimension of some model. `models` have the sizes of their own dimensions only.
    ///
    /// # Errors
    /// If a size is given for a dimension that no model has.
    fn verify_dims(&self, models: &[ModelArgs]) -> Result<(), CliError> {
        let is_known = |name: &String| models.iter().any(|model| model.dim.iter().any(|(known, _)| known == name));
        let unknown = self.model.dim.iter().find(|(name, _)| !is_known(name));
        unknown.map_or(Ok(()), |(name, _)| {
            let text = format!("--dim {name}: no model has this dimension; `anabranch inspect MODEL` lists them");
            Err(CliError::input(text))
        })
    }

    /// Opens a model with its inputs. Inputs that are not given are random, and sizes that are not given are 1.
    fn open(&self, model: &ModelArgs) -> Result<Opened, CliError> {
        let why = "a kept model is divided, and others are compared with the whole batch";
        refuse_given(&[(model.cache.is_some() && self.split.is_given(), "--cache", why)], "--split")?;
        let place = PlaceArgs::any(&self.constraints).divided(&self.split);
        // A cache that only the environment names is left alone: its plans were made with earlier costs.
        if model.cache.is_some() {
            let random = model.random.or(model.input.is_empty().then_some(0));
            return open::open(&self.devices, None, &ModelArgs { random, ..model.clone() }, &place, true);
        }
        let (session, store, sets) = open_session(&self.devices, None, model, &place, true)?;
        let given = read_inputs(model, sets.first().map(PathBuf::as_path), &session)?;
        let (inputs, assumed) = match model.random.or(model.input.is_empty().then_some(0)) {
            Some(seed) => session.fill_assumed(given, seed)?,
            None => (given, Vec::new()),
        };
        if !assumed.is_empty() {
            let (name, assumed) = (open::model_name(model), assumed.join(", "));
            note(format_args!("{name}: size 1 is assumed for {assumed}: --dim NAME=N says otherwise"));
        }
        Ok(Opened { session, inputs, store, sets })
    }

    /// Measures a model in all configurations: every combination, places first.
    fn measure(
        &self,
        preset: &Preset,
        model: &ModelArgs,
        run: &RunOptions,
        output: Output,
    ) -> Result<Measured, CliError> {
        let opened = self.open(model)?;
        if opened.session.compiled_settings().contains_key("split") {
            let text = "was compiled with a split: all configurations would compute the parts; name the ONNX file";
            return Err(CliError::input(format!("{}: {text}", open::model_name(model))));
        }
        open::print_all_notes(&opened.session, output);
        let has_gpu = !opened.session.inventory().gpus.is_empty();
        let divided = self.split.is_given().then(|| Strategy::Split.to_string());
        let named = if self.place.is_empty() { usual(preset.places, has_gpu) } else { self.place.clone() };
        let places: Vec<String> = divided.into_iter().chain(named).collect();
        let streams: Vec<_> = self.stream.iter().map(|stream| stream.mode()).collect();
        let configurations = choices("--place", &places, &self.order, &streams, &self.weights.residency())?;
        let options = CompareOptions::new(open::model_name(model), configurations)
            .with_dynamic(preset.is_dynamic || places.iter().any(|place| place == DYNAMIC))
            .with_runs(self.repeat, self.warmup)
            .with_duration(self.duration)
            .with_callers(self.parallel)
            .with_refine(self.refine)
            .with_run(run.clone());
        let compared = measured(&opened.session, &opened.inputs, &options, output, self.html.is_some())?;
        Ok((compared, opened.save_costs()))
    }

    /// Prints the results, writes them to the files that the command line names, and judges them.
    fn report(&self, preset: &Preset, all: &[Compared], results: &Results, output: Output) -> Result<(), CliError> {
        let changes = || results.changes.as_ref().map_or(String::new(), |changes| format!("\n{changes}"));
        let text = || (preset.text)(&results.models) + &changes();
        let printed = match (&results.models[..], preset.is_bare && results.changes.is_none()) {
            ([one], true) if self.more.is_empty() => output.text_or_json(text, one),
            (_, _) => output.text_or_json(text, results),
        };
        let comparisons: Vec<&Comparison> = results.models.iter().collect();
        settled([
            printed,
            if_named(self.csv.as_ref(), |path| write_csv(path, &comparisons)),
            if_named(self.html.as_ref().filter(|_| !all.is_empty()), |path| write_file(path, page(all))),
            if_named(self.markdown.as_ref().filter(|_| !all.is_empty()), |path| {
                write_file(path, bench::table(&results.models).markdown())
            }),
            // Results without any model would replace good ones.
            if_named(self.output.as_ref().filter(|_| !all.is_empty()), |path| write_file(path, pretty(results)?)),
            self.verdict(results),
        ])
    }

    /// Fails if a model could not be measured, or a configuration has become too slow, or there are too few runs to
    /// tell.
    fn verdict(&self, results: &Results) -> Result<(), CliError> {
        if let Some((model, _)) = results.failed.first() {
            let (failed, all) = (results.failed.len(), results.failed.len() + results.models.len());
            return Err(CliError::input(format!(
                "{failed} of {} could not be measured, the first: {model}",
                count(all, "model")
            )));
        }
        let Some((most, changes)) = self.fail_above.zip(results.changes.as_ref()) else { return Ok(()) };
        if let Some(slower) = changes.slower(most) {
            return Err(CliError::unexpected(slower));
        }
        changes.untold().map_or(Ok(()), |untold| Err(CliError::input(format!("--fail-above: {untold}"))))
    }
}

/// Removes sizes of dimensions that this model does not have: they are sizes of the other models.
fn without_unknown_dims(model: &mut ModelArgs, session: &Session) -> ModelArgs {
    let unknown = session.unknown_dims();
    model.dim.retain(|(name, _)| !unknown.contains(name));
    model.clone()
}

/// Runs all configurations. Keeps the data for a page's drawings if a page is wanted.
pub(super) fn measured(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
    output: Output,
    is_drawn: bool,
) -> Result<Compared, CliError> {
    let progress = match options.duration {
        Some(_) => Progress::open_ended(output, &options.model),
        None => Progress::new(output, &options.model, options.steps()),
    };
    let mut pictures = BTreeMap::new();
    let mut see = |plan: usize, run: &Run| {
        if is_drawn {
            pictures.insert(plan, Picture::of(run));
        }
    };
    let compared = compare_seen(session, inputs, options, &mut || progress.advance(), &mut see);
    Ok(Compared::new(session, compared?, pictures))
}

#[cfg(test)]
mod tests {
    use super::super::{bench::BenchCommand, compare::CompareCommand};
    use clap::{Arg, Args, Command};

    /// Returns each option of a command, with all that its user can type and what holds without it.
    fn options<T: Args>() -> Vec<String> {
        let command = T::augment_args(Command::new("measuring"));
        let option = |option: &Arg| {
            let (names, defaults) = (option.get_all_aliases(), option.get_default_values());
            let (values, number) = (option.get_value_names(), option.get_num_args());
            let (long, short, heading) = (option.get_long(), option.get_short(), option.get_help_heading());
            format!("{} {long:?} {short:?} {names:?} {defaults:?} {values:?} {number:?} {heading:?}", option.get_id())
        };
        command.get_arguments().map(option).collect()
    }

    #[test]
    fn both_commands_take_the_same_options() {
        let (bench, compare) = (options::<BenchCommand>(), options::<CompareCommand>());
        assert_eq!(bench, compare);
        let has = |name: &str| bench.iter().any(|option| option.contains(&format!("\"{name}\"")));
        for name in [
            "place",
            "ways",
            "order",
            "stream",
            "weights",
            "repeat",
            "duration",
            "warmup",
            "parallel",
            "refine",
            "csv",
            "html",
            "markdown",
            "output",
            "compare-to",
            "fail-above",
            "random",
            "dim",
            "input",
            "pin",
            "no-fuse",
            "limit",
            "cache",
        ] {
            assert!(has(name), "no --{name}");
        }
    }
}
