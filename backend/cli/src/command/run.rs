//! `anabranch run`: place, execute, and compare what was predicted with what was measured.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::gantt::Gantt;
use super::html::HtmlArgs;
use super::interrupt::{cancel_on_interrupt, cancelled};
use super::open::{self, Opened, open};
use super::place::plan_file;
use super::progress::Progress;
use super::refine::RefineArgs;
use super::report::Report;
use super::{CliError, Output, pretty, write_file, write_with};
use crate::npy::{write_npy, write_npz};
use crate::report::trace;
use anabranch::compare::{Series, SeriesOptions, measure};
use anabranch::execute::RunOptions;
use anabranch::refine::Refined;
use anabranch::session::events_json;
use anabranch::session::{Outputs, Prepared, Run};
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Place a model on the devices, run it, and compare what was predicted with what was measured
#[derive(Args, Clone, Debug)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Measured runs, of which the median counts [default: as many as a second holds with all others, 15 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Runs before those, which do not count: the first touches memory for the first time [default: 1]. `--warmup 0 --repeat 1` is
    /// one cold run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000), conflicts_with = "refine")]
    warmup: Option<u32>,
    /// Write the outputs: one .npy each into a directory, or all into FILE.npz
    #[arg(long, value_name = "DIR|FILE.npz")]
    output: Option<PathBuf>,
    /// Write every event of the last run as JSON
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Write the last run as a trace: FILE.json for ui.perfetto.dev, FILE.paje for ViTE and pj_dump
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The trace's format, where the file's name does not say it
    #[arg(long, value_enum, requires = "trace")]
    trace_format: Option<TraceFormat>,
    /// Draw what each device and link did in the last run, predicted above measured
    #[arg(long, value_name = "FILE.svg")]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    html: HtmlArgs,
    /// End a run that takes longer than this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Do not add the measured times to the cost store
    #[arg(long)]
    no_learn: bool,
    #[command(flatten)]
    refine: RefineArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum TraceFormat {
    /// Chrome's trace events, which Perfetto opens
    Chrome,
    /// Paje
    Paje,
}

impl RunCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let opened = open(&self.devices, None, &self.model, &self.place, !self.no_learn)?;
        open::print_notes(&opened.session, output);
        let (costs, series, refinement) = match self.refine.refine {
            None => {
                let prepared = opened.session.prepare(&opened.inputs)?;
                (opened.session.costs(), self.measure(&opened, &prepared, output)?, None)
            }
            Some(rounds) => {
                let Refined { series, refinement, .. } =
                    self.refine.refine(rounds, self.repeat, &opened, self.options()?, output)?;
                (opened.session.costs(), series, Some(refinement))
            }
        };
        let last = &series.last;
        if let Some(path) = &self.refine.plan {
            write_file(path, pretty(&plan_file(&last.prepared))?)?;
        }
        if let Some(path) = &self.output {
            write_outputs(path, &last.outputs)?;
        }
        self.write_events(last)?;
        let model = open::model_name(&self.model);
        self.html.write(&opened, &model, &last.prepared, &costs, Some(&series))?;
        // A run that was made is reported, whatever becomes of its costs.
        let saved = if self.no_learn { Ok(()) } else { opened.save_costs() };
        let (report, gantt) = (Report::new(model.clone(), &opened.session, &series), Gantt::of(last));
        if let Some(path) = &self.gantt {
            let text = gantt.svg(format!("{model}: the last run"), report.headline());
            write_file(path, text)?;
        }
        if !output.json {
            let rounds = refinement.as_ref().map_or(String::new(), super::refine::table);
            output.text(&format!("{rounds}{report}\n{gantt}"))?;
            return saved;
        }
        let mut value = serde_json::to_value(&report).map_err(CliError::internal)?;
        if let Some(refinement) = &refinement {
            value["refinement"] = serde_json::to_value(refinement).map_err(CliError::internal)?;
        }
        output.json(&value)?;
        saved
    }

    /// Runs the model as often as asked, and learns from the runs that are profiled; what the first tells is kept apart.
    fn measure(&self, opened: &Opened, prepared: &Arc<Prepared>, output: Output) -> Result<Series, CliError> {
        let options = SeriesOptions::default().with_runs(self.repeat, self.warmup).with_run(self.options()?);
        let progress = Progress::new(output, "runs", options.steps());
        let mut see = |run: &Run| {
            progress.advance();
            if !self.no_learn {
                opened.session.learn(run);
            }
        };
        measure(&opened.session, &opened.inputs, prepared, &options, &mut see).map_err(cancelled)
    }

    fn options(&self) -> Result<RunOptions, CliError> {
        let options = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        Ok(match self.timeout.map(Duration::try_from_secs_f64).transpose()? {
            Some(timeout) => options.with_timeout(timeout),
            None => options,
        })
    }

    fn write_events(&self, run: &Run) -> Result<(), CliError> {
        if let Some(path) = &self.profile {
            write_with(path, |file| Ok(serde_json::to_writer_pretty(file, &events_json(run))?))?;
        }
        if let Some(path) = &self.trace {
            let by_name = match path.extension().is_some_and(|extension| extension == "paje") {
                true => TraceFormat::Paje,
                false => TraceFormat::Chrome,
            };
            match self.trace_format.unwrap_or(by_name) {
                TraceFormat::Chrome => write_with(path, |file| trace(run).write_chrome(file))?,
                TraceFormat::Paje => write_with(path, |file| trace(run).write_paje(file))?,
            }
        }
        Ok(())
    }
}

fn write_outputs(path: &Path, outputs: &Outputs) -> Result<(), CliError> {
    let archive = path.extension().is_some_and(|extension| extension == "npz");
    let names = file_names(outputs.iter().map(|(name, _)| name), archive);
    let mut named = names.iter().map(String::as_str).zip(outputs.iter().map(|(_, tensor)| tensor));
    if archive {
        return Ok(write_npz(path, named)?);
    }
    fs::create_dir_all(path).map_err(|error| CliError::in_file(path, error))?;
    named.try_for_each(|(name, tensor)| Ok(write_npy(&path.join(format!("{name}.npy")), tensor)?))
}

/// Characters of a file's name at most, so that any system takes it with an ending.
const LONGEST_NAME: usize = 60;

/// A file's name for each output, all different. A name is the model's text: what could leave the directory or act on a terminal becomes an
/// underscore, and of those that would be one file the later ones get a number. Members of an archive keep names that lead downwards.
fn file_names<'a>(outputs: impl Iterator<Item = &'a str>, archive: bool) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let unique = |output: &str| {
        let name = if archive && leads_down(output) { output.to_owned() } else { plain_name(output) };
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut free = std::iter::once(name.clone()).chain(numbered);
        // Some file systems do not tell letters from capitals.
        let key = |name: &String| if archive { name.clone() } else { name.to_lowercase() };
        free.find(|name| taken.insert(key(name))).unwrap_or(name)
    };
    outputs.map(unique).collect()
}

fn plain_name(output: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = output.chars().map(safe).take(LONGEST_NAME).collect();
    if name.trim_matches('.').is_empty() { name.replace('.', "_") + "_" } else { name }
}

fn leads_down(output: &str) -> bool {
    let acts = |c: char| c.is_control() || c == '\\';
    output.len() <= 4 * LONGEST_NAME
        && !output.contains(acts)
        && output.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_has_a_file_of_its_own_in_the_directory() {
        let long = "x".repeat(300);
        let names = ["y", "a/b", "a:b", "../../x", "/x", "..", "", "y", "Y", "y-2", &long, "\u{1b}[2J", "ä"];
        let files = file_names(names.into_iter(), false);
        let short = &long[..LONGEST_NAME];
        let want = ["y", "a_b", "a_b-2", ".._.._x", "_x", "___", "_", "y-2", "Y-3", "y-2-2", short, "__2J", "ä"];
        assert_eq!(files, want);
        let members = ["a/b", "a:b", "../../x", "/x", "a//b", "y", "y", "Y"];
        let want = ["a/b", "a:b", ".._.._x", "_x", "a__b", "y", "y-2", "Y"];
        assert_eq!(file_names(members.into_iter(), true), want);
    }
}
