//! `anabranch run`: places, executes, and compares predictions with measurements.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs, SplitArgs, parse_seconds, refuse_given};
use super::expect::{ExpectArgs, Verdicts};
use super::files::{file_of, tensors_to};
use super::html::HtmlArgs;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, Opened, open, open_session};
use super::parallel::{Parallel, parse_callers};
use super::progress::{Progress, waiting};
use super::refine::RefineArgs;
use super::slowest::Slowest;
use super::steps::StepArgs;
use super::trace_file::{self, TraceFormat};
use super::vision::{View, VisionArgs};
use super::{CliError, Output, if_named, is_quiet, note, outputs, pretty, settled, version, write_file, write_with};
use anabranch::CostStore;
use anabranch::compare::{Series, SeriesOptions, measure};
use anabranch::execute::RunOptions;
use anabranch::refine::{Refined, Refinement};
use anabranch::session::RunEvents;
use anabranch::session::{Prepared, Run, SessionError};
use anabranch_report::report::trace;
use anabranch_report::run::{Gantt, Report};
use anabranch_report::show;
use anabranch_report::trace::Trace;
use clap::Args;
use serde::Serialize;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Place a model, run it, and compare prediction and measurement
#[derive(Args, Clone, Debug)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Measure N runs [default: up to 15 within 1 s]
    #[arg(help_heading = "Measuring", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Measure runs for this many seconds
    #[arg(help_heading = "Measuring", long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with_all = ["repeat", "refine"])]
    duration: Option<Duration>,
    /// Then run from N threads at once for throughput
    ///
    /// Runs of one session follow each other. The report shows how long each thread waits for a run, and the runs per
    /// second of all threads together.
    #[arg(help_heading = "Measuring", long, value_name = "N", value_parser = parse_callers)]
    parallel: Option<NonZeroU32>,
    /// Show every node, the slowest first
    #[arg(help_heading = "Measuring", short, long, conflicts_with = "top")]
    verbose: bool,
    /// Show the N slowest nodes and the time per operator type [default: 10]
    #[arg(help_heading = "Measuring", long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    top: Option<usize>,
    /// Run this many times before measuring [default: 1]
    ///
    /// The first run touches memory for the first time; `--warmup 0 --repeat 1` is one cold run.
    #[arg(help_heading = "Measuring", long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000), conflicts_with = "refine")]
    warmup: Option<u32>,
    /// Write the outputs to a file or into a directory
    ///
    /// A directory gets one .npy per output, and FILE.npz or FILE.safetensors all outputs. FILE.npy or FILE.pb holds
    /// the only output. A sequence NAME is written as NAME[0], NAME[1] and so on, or NAME[] if it is empty, and an
    /// empty optional as NAME[absent].
    #[arg(help_heading = "Files", long, value_name = "DIR|FILE", value_parser = tensors_to())]
    output: Option<PathBuf>,
    #[command(flatten)]
    expect: ExpectArgs,
    /// Write every event of the run shown as JSON
    #[arg(help_heading = "Files", long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    profile: Option<PathBuf>,
    /// Write a trace of the run: FILE.json or FILE.paje
    ///
    /// FILE.json is for ui.perfetto.dev, FILE.paje for ViTE and pj_dump.
    #[arg(help_heading = "Files", long, value_name = "FILE", value_parser = file_of(&["json", "paje"]))]
    trace: Option<PathBuf>,
    /// Set the format of the trace [default: from its name]
    #[arg(help_heading = "Files", long, value_enum, value_name = "FORMAT", requires = "trace", hide_short_help = true)]
    trace_format: Option<TraceFormat>,
    /// Draw devices and links of the run over time
    #[arg(help_heading = "Files", long, value_name = "FILE.svg", value_parser = file_of(&["svg"]))]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    vision: VisionArgs,
    #[command(flatten)]
    html: HtmlArgs,
    /// Stop a run, or its planning, after this many seconds
    #[arg(help_heading = "Measuring", long, value_name = "SECONDS", value_parser = parse_seconds, hide_short_help = true)]
    timeout: Option<Duration>,
    /// Do not add the measured times to the cost store
    #[arg(help_heading = "Measuring", long, hide_short_help = true)]
    no_learn: bool,
    #[command(flatten)]
    refine: RefineArgs,
    #[command(flatten)]
    steps: StepArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl RunCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        if self.steps.steps.is_some() {
            return self.run_steps(output);
        }
        self.vision.check(&self.model)?;
        let opened = open(&self.devices, None, &self.model, &self.place.divided(&self.split), !self.no_learn)?;
        open::print_notes(&opened.session, output);
        let labels = self.vision.labels()?;
        let expected = self.expect.read(&opened)?;
        let form = self.output.as_ref().map(|path| outputs::form(path, opened.session.outputs())).transpose()?;
        let options = self.options()?;
        let (costs, series, refinement) = match self.refine.refine {
            None => {
                let (costs, series) = self.outlasting(&opened, &options, output)?;
                (costs, series, None)
            }
            Some(rounds) => {
                let Refined { series, refinement, .. } =
                    self.refine.refine(rounds, self.repeat, &opened, options.clone(), output)?;
                (opened.session.costs(), series, Some(refinement))
            }
        };
        let shown = &series.run;
        let parallel = self.parallel.map(|callers| self.together(&opened, callers, &series, &options)).transpose()?;
        let verdicts = self.expect.compare(&opened.session, &expected, &shown.outputs)?;
        let (seen, unseen) = match self.vision.see(&opened.session, &self.model, &shown.outputs, &labels) {
            Ok(seen) => (seen, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let model = open::model_name(&self.model);
        let top = if self.verbose { Some(usize::MAX) } else { self.top };
        let results = Results {
            refinement,
            report: Report::new(model.clone(), &opened.session, &series),
            parallel,
            slowest: top.map(|count| Slowest::of(&series, count)),
            gantt: Gantt::of(shown),
            seen,
            verdicts,
        };
        settled([
            output.text_or_json(|| results.text(), &results),
            unseen,
            self.vision.draw(results.seen.as_ref()),
            results.verdicts.as_ref().map_or(Ok(()), Verdicts::settle),
            if_named(self.refine.write_plan.as_ref(), |path| write_file(path, pretty(&shown.prepared.plan_file())?)),
            self.output
                .as_ref()
                .zip(form)
                .map_or(Ok(()), |(path, form)| outputs::write(path, form, &shown.outputs, opened.session.outputs())),
            if_named(self.profile.as_ref(), |path| {
                write_with(path, |file| Ok(serde_json::to_writer_pretty(file, &RunEvents::of(shown))?))
            }),
            if_named(self.trace.as_ref(), |path| {
                trace_file::write(path, self.trace_format, &self.trace_of(&opened, shown))
            }),
            if_named(self.gantt.as_ref(), |path| {
                write_file(path, show::gantt(&results.gantt, &model, &results.report))
            }),
            self.html.write(&opened, &model, &shown.prepared, &costs, Some(&series)),
            if self.no_learn { Ok(()) } else { opened.save_costs() },
        ])
    }

    /// Runs a model with state step by step.
    fn run_steps(&self, output: Output) -> Result<(), CliError> {
        let why = "steps follow each other and are not compared with a plan";
        let options = [
            (self.repeat.is_some(), "--repeat"),
            (self.duration.is_some(), "--duration"),
            (self.parallel.is_some(), "--parallel"),
            (self.warmup.is_some(), "--warmup"),
            (self.verbose, "--verbose"),
            (self.top.is_some(), "--top"),
            (self.refine.refine.is_some(), "--refine"),
            (self.profile.is_some(), "--profile"),
            (self.trace.is_some(), "--trace"),
            (self.gantt.is_some(), "--gantt"),
            (self.html.is_asked(), "--report"),
            (self.vision.is_asked(), "--show"),
            (self.expect.is_asked(), "--expect"),
            (self.refine.write_plan.is_some(), "--write-plan"),
        ];
        refuse_given(&options.map(|(is_given, name)| (is_given, name, why)), "--steps")?;
        let (session, _, sets) =
            open_session(&self.devices, None, &self.model, &self.place.divided(&self.split), false)?;
        let files = (sets.first().map(PathBuf::as_path), self.output.as_ref());
        self.steps.run(session, &self.model, files, self.timeout, output)
    }

    /// Measures with the costs that the plan was made with. If a GPU is lost meanwhile and the command line allows it,
    /// measures again without this GPU.
    fn outlasting(
        &self,
        opened: &Opened,
        options: &RunOptions,
        output: Output,
    ) -> Result<(CostStore, Series), CliError> {
        loop {
            let prepare = || opened.session.prepare_with(&opened.inputs, options);
            let prepared = waiting(output, "planning", prepare)?;
            let costs = opened.session.costs();
            match self.measure(opened, options.clone(), &prepared, output) {
                Ok(series) => return Ok((costs, series)),
                Err(error) if opened.session.replaces(&error) => {
                    note(format_args!("{error}; placing the model again on the remaining devices"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Runs the model as often as requested, and learns from the runs unless `--no-learn` is given.
    fn measure(
        &self,
        opened: &Opened,
        run: RunOptions,
        prepared: &Arc<Prepared>,
        output: Output,
    ) -> Result<Series, SessionError> {
        let options =
            SeriesOptions::default().with_runs(self.repeat, self.warmup).with_duration(self.duration).with_run(run);
        let progress = match self.duration {
            Some(_) => Progress::open_ended(output, "runs"),
            None => Progress::new(output, "runs", options.steps()),
        };
        let mut see = |run: &Run| {
            progress.advance();
            if !self.no_learn {
                opened.session.learn(run);
            }
        };
        measure(&opened.session, &opened.inputs, prepared, &options, &mut see)
    }

    /// Makes as many runs of each caller as were measured alone, or for the same duration.
    fn together(
        &self,
        opened: &Opened,
        callers: NonZeroU32,
        series: &Series,
        options: &RunOptions,
    ) -> Result<Parallel, CliError> {
        let (session, inputs, prepared) = (&opened.session, &opened.inputs, &series.run.prepared);
        let run = || session.run_prepared(prepared, inputs, options).map(drop);
        Ok(Parallel::measure(callers, series.samples_ms.len() as u32, self.duration, &run)?)
    }

    /// Returns the run as a trace, with the model and the machine.
    fn trace_of(&self, opened: &Opened, run: &Run) -> Trace {
        let (mut trace, host) = (trace(run), &opened.session.inventory().host);
        trace.fact("model", open::model_name(&self.model));
        trace.fact("machine", format!("{} ({}, {})", host.model, host.os, host.arch));
        trace.fact("version", version::short());
        trace
    }

    fn options(&self) -> Result<RunOptions, CliError> {
        let options = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        Ok(match self.timeout {
            Some(timeout) => options.with_timeout(timeout),
            None => options,
        })
    }
}

/// Results that are printed, in the order of the text.
#[derive(Serialize)]
struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    refinement: Option<Refinement>,
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel: Option<Parallel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest: Option<Slowest>,
    #[serde(skip)]
    gantt: Gantt,
    #[serde(rename = "shown", skip_serializing_if = "Option::is_none")]
    seen: Option<View>,
    #[serde(rename = "expected", skip_serializing_if = "Option::is_none")]
    verdicts: Option<Verdicts>,
}

impl Results {
    fn text(&self) -> String {
        let Self { report, gantt, .. } = self;
        if is_quiet() {
            let shown = self.seen.as_ref().map_or(String::new(), View::text);
            let parallel = self.parallel.as_ref().map_or(String::new(), Parallel::to_string);
            return format!("{}\n{parallel}{shown}", report.brief());
        }
        let rounds = self.refinement.as_ref().map_or(String::new(), super::refine::table);
        let seen = self.seen.as_ref().map_or(String::new(), |seen| format!("\n{}", seen.text()));
        let [parallel, slowest, verdicts] = [part(&self.parallel), part(&self.slowest), part(&self.verdicts)];
        format!("{rounds}{report}{parallel}{slowest}\n{gantt}{seen}{verdicts}")
    }
}

/// Returns a part of the text after an empty line, if there is one.
fn part(part: &Option<impl Display>) -> String {
    part.as_ref().map_or(String::new(), |part| format!("\n{part}"))
}
