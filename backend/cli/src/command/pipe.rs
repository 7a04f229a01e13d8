//! `anabranch pipe`: sends many data sets through one model, several in flight at a time.

mod drawn;
mod marker;
mod report;
mod rounds;
mod sink;
mod source;

use super::args::{DeviceArgs, FuseArgs, LimitArgs, ModelArgs, PlaceArgs, PrecisionArgs, parse_count, parse_dimension};
use super::files::file_of;
use super::images::ImageArgs;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, open_session};
use super::progress::waiting;
use super::steps::parse_feed;
use super::{CliError, MORE, Output, pretty, trace_file, write_file};
use anabranch::pipeline::{Among, Goal, PipelineOptions, StageCosts, StageMapping};
use anabranch::planning::Split;
use anabranch::session::ValueInfo;
use anabranch_report::text::count;
use clap::Args;
use marker::Marker;
use report::Report;
use rounds::Rounds;
use sink::Sink;
use source::Source;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

const EXAMPLES: &str = "\
A sample is the input of one run. First, costs are measured. Then the mapping
with the highest predicted throughput is chosen: stages on devices, copies or
groups of cores, copies of the whole model, or all devices together. --period
and --latency bound one time and minimise the other. If the stages' measured
times differ from the prediction, the model is divided again (--rounds).

Examples:
  anabranch pipe model.onnx --inputs 'frames/*.npy' -o results
  anabranch pipe model.onnx --inputs video.npz --batch 4 -o results --resume
  anabranch pipe model.onnx --random 500 --latency 40 --gantt pipe.svg --json
  anabranch pipe recurrent.onnx --random 500 --feed state_out=state_in
  anabranch pipe model.onnx --inputs video.npz --batch 32 --split batch=auto";

/// Most data sets before a stage: more would only take memory and latency.
const MOST_WAITING: usize = 65_536;

/// Run many samples through stages on several devices
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct PipeCommand {
    /// ONNX file [default: the built-in residual network]
    model: Option<PathBuf>,
    /// Read samples from files, or from one FILE.npz
    ///
    /// For a model with one input: 'FRAMES/*.npy', or images, 'PHOTOS/*.jpg'. Otherwise 'SETS/*.npz', with members
    /// named like the inputs. Each file is one sample, in the order of the names. One FILE.npz holds all samples along
    /// the leading axes of its arrays.
    #[arg(long, value_name = "FILES", num_args = 1.., required_unless_present = "random", conflicts_with = "random")]
    inputs: Vec<String>,
    /// Run this many samples of random elements
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    random: Option<u64>,
    /// Set the seed of the random elements
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Make a sample of N files, or of N rows of FILE.npz
    ///
    /// Arrays and images of files are stacked along the first axis. Each has one row, or no axis for rows. The results
    /// are one file for each file again, so that models whose rows depend on each other are refused. Random samples
    /// have N rows, too.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN, value_parser = parse_count)]
    batch: NonZeroUsize,
    /// Use the same input for all samples
    ///
    /// May be repeated.
    #[arg(long, value_name = "NAME=FILE")]
    input: Vec<OsString>,
    /// Set a dimension, as in length=64 or 'x[1]=64'
    ///
    /// May be repeated.
    #[arg(long, value_name = "NAME=N", value_parser = parse_dimension)]
    dim: Vec<(String, usize)>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Write the outputs of each sample to a directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Skip samples whose outputs exist
    ///
    /// Only outputs of the same model and samples count. Outputs older than the file or archive of their sample are
    /// made again. If the model, its external data, an archive or --input was written since, the command ends with an
    /// error.
    #[arg(long, requires = "output")]
    resume: bool,
    #[command(flatten)]
    mapping: MappingArgs,
    #[command(flatten)]
    state: StateArgs,
    /// Draw the last samples on each device over time
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]), help_heading = "Reports")]
    gantt: Option<PathBuf>,
    /// Write an HTML page with the figures and the drawing
    #[arg(long, value_name = "FILE.html", value_parser = file_of(&["html"]), help_heading = "Reports")]
    report: Option<PathBuf>,
    /// Show the rate, and the load of each stage, meanwhile
    #[arg(long, hide_short_help = true, help_heading = "Reports")]
    live: bool,
    /// Write the last samples as a trace, FILE.json or FILE.paje
    ///
    /// FILE.json is for ui.perfetto.dev, FILE.paje for ViTE and pj_dump.
    #[arg(long, value_name = "FILE.json", value_parser = file_of(&["json", "paje"]), help_heading = "Reports")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Options that choose the mapping.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pipeline")]
struct MappingArgs {
    /// Minimise latency, with a result at least every MS ms
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds, conflicts_with = "latency")]
    period: Option<f64>,
    /// Maximise throughput, with latencies of at most MS ms
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    latency: Option<f64>,
    /// Run copies of stages on several devices: auto, off or N [default: auto]
    ///
    /// off puts each stage on one device; N uses N cores, each with a copy of the whole model.
    #[arg(long, value_name = "auto|off|N", default_value = "auto", hide_default_value = true)]
    replicate: Share,
    /// Divide each sample: auto, off, N or DIM=PARTS [default: auto]
    ///
    /// auto may put a stage on a group of cores of one CPU device, which divide the rows of each sample. N divides the
    /// whole model among N cores. batch=auto and batch=gpu0:28,cpu0:4 divide the rows of a batch among devices, as
    /// `anabranch run --split` does: each sample is a batch, for example of --batch rows.
    #[arg(
        long,
        value_name = "auto|off|N|DIM=PARTS",
        default_value = "auto",
        hide_default_value = true,
        conflicts_with = "replicate"
    )]
    split: Division,
    /// Run each sample on all devices together, as `run` does
    #[arg(long, conflicts_with_all = ["plan", "replicate", "split"])]
    together: bool,
    /// Use the stages of this file, which --write-plan wrote
    #[arg(long, value_name = "PLAN.json", conflicts_with_all = ["replicate", "split"])]
    plan: Option<PathBuf>,
    /// Write the final stages, for --plan
    #[arg(long, value_name = "PLAN.json", value_parser = file_of(&["json"]))]
    write_plan: Option<PathBuf>,
    /// Let 1 to 65536 samples wait before each device of a stage
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse_capacity, hide_short_help = true)]
    capacity: NonZeroUsize,
    /// Measure and divide again, at most N times
    #[arg(long, value_name = "N", default_value_t = 2, hide_short_help = true, conflicts_with = "feed")]
    rounds: u32,
    /// Use the cost store instead of measuring the model first
    #[arg(long, hide_short_help = true)]
    no_measure: bool,
}

/// State from sample to sample.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "State")]
struct StateArgs {
    /// Feed an output to an input of the next sample
    ///
    /// As in 'present.*=past.*', where `*` stands for the same text in both names. May be repeated. The stage that
    /// reads such a state keeps it, on one device. It begins as --input gives it, else as zeros, and is not written.
    /// Its size does not change.
    #[arg(long, value_name = "OUTPUT=INPUT", hide_short_help = true, conflicts_with = "resume", value_parser = parse_feed)]
    feed: Vec<(String, String)>,
    /// Keep the state of N sequences
    ///
    /// Samples belong to the sequences in turn.
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true, requires = "feed", value_parser = parse_capacity)]
    sequences: NonZeroUsize,
}

/// Number of devices that may share a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Auto,
    Off,
    Among(NonZeroUsize),
}

/// Division of each sample.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Division {
    /// Its nodes are divided among cores of one CPU device.
    Cores(Share),
    /// The rows of its batch are divided among devices.
    Rows(Split),
}

impl FromStr for Division {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains('=') {
            true => text.parse().map(Self::Rows),
            false => text.parse().map(Self::Cores),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            number => number
                .parse()
                .map(Self::Among)
                .map_err(|_| format!("`{number}` is invalid; write auto, off or a number")),
        }
    }
}

fn parse_milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(time) if time.is_finite() && time > 0.0 => Ok(1e-3 * time),
        _ => Err("write a number of milliseconds above 0".into()),
    }
}

fn parse_capacity(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(capacity) if capacity.get() <= MOST_WAITING => Ok(capacity),
        _ => Err(format!("write a number of samples from 1 to {MOST_WAITING}")),
    }
}

impl MappingArgs {
    fn options(&self) -> Result<PipelineOptions, CliError> {
        let goal = match (self.period, self.latency) {
            (Some(period), _) => Goal::LatencyWithin { period },
            (None, Some(latency)) => Goal::PeriodWithin { latency },
            (None, None) => Goal::Period,
        };
        let among = match (&self.plan, self.replicate, &self.split) {
            (Some(path), ..) => Among::Given(StageMapping::read(path)?),
            _ if self.together => Among::Together,
            (None, _, Division::Rows(_)) => Among::Together,
            (None, _, Division::Cores(Share::Among(cores))) => Among::DataParallel(Some(*cores)),
            (None, Share::Among(copies), _) => Among::Replicated(Some(copies)),
            (None, Share::Off, _) => Among::Pipelined,
            (None, Share::Auto, _) => Among::All,
        };
        let options = PipelineOptions::default().with_goal(goal).with_among(among).with_capacity(self.capacity);
        Ok(options.with_data_parallel(self.split != Division::Cores(Share::Off)).with_measuring(!self.no_measure))
    }
}

impl PipeCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let options = self.mapping.options()?;
        let keeps_place = self.mapping.together || matches!(self.mapping.split, Division::Rows(_));
        if self.place.place.is_some() && !keeps_place {
            let text =
                "pipe chooses the devices of stages itself; leave out --place, or use --devices, --plan or --together";
            return Err(CliError::input(text));
        }
        let model = self.model();
        let split = match &self.mapping.split {
            Division::Rows(split) => Some(split.clone()),
            Division::Cores(_) => None,
        };
        let place = PlaceArgs { split, ..self.place.clone() };
        let (session, store, _) = open_session(&self.devices, None, &model, &place, true)?;
        open::print_notes(&session, output);
        if let Some(value) = session.inputs().iter().chain(session.outputs()).find(|value| !value.kind().is_tensor()) {
            return Err(CliError::input(format!(
                "`{value}` is not a tensor, but stages pass only tensors; use `anabranch run`"
            )));
        }
        let feeds: Vec<_> = self.state.feed.iter().map(|(output, input)| (&**output, &**input)).collect();
        let state = session.state_pairs(&feeds)?;
        let source = Source::find(self, &session, &state)?;
        let marker = Marker::new(self, &source)?;
        let leaves = |value: &&ValueInfo| state.iter().all(|pair| pair.output != value.name());
        let declared: Vec<ValueInfo> = session.outputs().iter().filter(leaves).cloned().collect();
        if declared.is_empty() && self.output.is_some() {
            let text = "all outputs are states, which stay in their stages, so that -o has nothing to write; leave out a \
                        --feed, or use `anabranch run --steps`";
            return Err(CliError::input(text));
        }
        let sink = Sink::open(self.output.as_deref(), &source, &declared, marker, self.resume)?;
        let wanted: Vec<u64> = (0..source.count()).filter(|at| !self.resume || !sink.has(*at)).collect();
        let skipped = source.count() - wanted.len() as u64;
        if skipped > 0 && !output.json {
            super::note(format_args!("{skipped} of {} are done already", count(source.count(), "sample")));
        }
        if wanted.is_empty() {
            return output.text_or_json(|| "all samples are done already\n".into(), &Report::nothing(skipped));
        }
        let token = cancel_on_interrupt()?;
        let first = source.set(wanted[0])?;
        source.verify_rows(&first)?;
        let most = if state.is_empty() { self.mapping.rounds } else { 0 };
        let options = options.with_state(state, self.state.sequences);
        let costs = waiting(output, "measuring the model", || StageCosts::of(&session, &first, &options))?;
        let live = self.live && !output.json;
        let rounds = Rounds { session: &session, source: &source, sink: &sink, token: &token, output, live };
        let ran = rounds.run(costs, &options, most, &wanted)?;
        let report = Report::new(open::model_name(&model), &session, &ran, skipped, wanted.len() as u64);
        if let Some(path) = &self.mapping.write_plan {
            write_file(path, pretty(&ran.plan.mapping)?)?;
        }
        if let Some(path) = &self.gantt {
            write_file(path, drawn::timeline(&report, &ran).svg())?;
        }
        if let Some(path) = &self.report {
            write_file(path, drawn::page(&report, &ran))?;
        }
        if let Some(path) = &self.trace {
            trace_file::write(path, None, &drawn::trace(&ran))?;
        }
        output.text_or_json(|| report.to_string(), &report)?;
        // Keeps the rates of devices that were unknown, so that the next pipeline starts sooner.
        store.save_costs(&session)?;
        match ran.failure {
            Some(failure) => {
                if self.output.is_some() && !output.json {
                    super::note(match self.state.feed.is_empty() {
                        true => "finished results are kept; fix the cause, and --resume does the rest",
                        false => "finished results are kept; fix the cause, and run all samples again",
                    });
                }
                Err(failure)
            }
            None if token.is_cancelled() && ran.done < wanted.len() as u64 => Err(CliError::interrupted()),
            None => Ok(()),
        }
    }

    /// Returns the model, with the inputs that are equal in all data sets.
    fn model(&self) -> ModelArgs {
        let (model, input, dim, fuse) = (self.model.clone(), self.input.clone(), self.dim.clone(), self.fuse.clone());
        ModelArgs {
            model,
            input,
            images: self.images.clone(),
            random: None,
            dim,
            cached: None,
            cache: None,
            fuse,
            precision: self.precision.clone(),
            limits: self.limits.clone(),
        }
    }
}
