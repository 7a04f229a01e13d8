//! `anabranch dataflow`: partitions a canonical task graph into blocks, schedules them, sizes their channels, and
//! proves by simulation that they end.

mod gantt;
mod outcome;
mod report;
mod source;

use super::args::{DeviceArgs, FuseArgs, LimitArgs};
use super::files::file_of;
use super::progress::waiting;
use super::{CliError, MORE, Output, write_file};
use anabranch_placement::streaming::BlockVariant;
use clap::{Args, ValueEnum};
use outcome::Outcome;
use source::Source;
use std::num::NonZero;
use std::path::PathBuf;

const EXAMPLES: &str = "\
A graph is a JSON file, an ONNX model, SHAPE:SIZE with random volumes (chain, fft, gauss, cholesky), or a residual network of 50, 101 or
152 layers (residual:50). In JSON, `in` and `out` are the elements that a node reads from each input and writes to each output:

  {\"nodes\": [{\"id\": 0, \"in\": 32, \"out\": 4}, ...], \"edges\": [[0, 1, 4], ...]}

In one time unit, a task reads and writes one element. Makespans are estimates from mean rates; the
simulation ends later only if rates are not whole numbers. Speedup is relative to one processing element. Gain is relative to the list
schedule, in which a task starts only when its inputs are complete. SSLR is the makespan divided by the streaming depth.

Examples:
  anabranch dataflow cholesky:8 --pes 32 --variant rlx --gantt schedule.svg
  anabranch dataflow residual:50 --pes 512,1024,1536,2048
  anabranch dataflow model.onnx --no-fuse --pes 256 --tasks 64 --json";

const MOST_ELEMENTS: u32 = 1 << 22;

/// Schedule tasks that stream to each other (De Matteis 2023)
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct DataflowCommand {
    /// Graph, or model from which a graph is made
    #[arg(value_name = "GRAPH.json|MODEL.onnx|SHAPE:SIZE")]
    graph: String,
    /// Set the processing elements; several numbers give a table
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "32",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ELEMENTS)))]
    pes: Vec<u32>,
    /// Group tasks into blocks by this rule
    #[arg(long, value_enum, default_value_t = Variant::Best)]
    variant: Variant,
    /// Verify schedules of at most this many steps by simulation
    #[arg(long, value_name = "COUNT", default_value_t = 1 << 28)]
    steps: u64,
    /// Draw the schedule of each processing element
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]))]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Options for making a graph.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Making a graph")]
pub(crate) struct SourceArgs {
    /// Set the seed of random volumes
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Limit the parallel tasks per matmul or convolution [default: one per column]
    #[arg(long, value_name = "COUNT", value_parser = super::args::parse_count)]
    tasks: Option<NonZero<usize>>,
    /// Set a dimension, as in batch=4 or 'x[1]=576'; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = super::args::parse_dimension)]
    dim: Vec<(String, usize)>,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Rule by which tasks share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// Search: the shortest schedule of several rules, the next two among them
    Best,
    /// SB-LTS, as printed: a task joins sources only if it produces less
    Lts,
    /// SB-RLX, as printed: without such a task, the least volume joins
    Rlx,
    /// No streaming: the list schedule
    None,
}

impl Variant {
    /// Returns the rule for making blocks, if there are any.
    fn blocks(self) -> Option<BlockVariant> {
        match self {
            Variant::Best => Some(BlockVariant::Best),
            Variant::Lts => Some(BlockVariant::Lts),
            Variant::Rlx => Some(BlockVariant::Rlx),
            Variant::None => None,
        }
    }

    /// Returns its name in the paper.
    fn name(self) -> &'static str {
        match self {
            Variant::Best => "best",
            Variant::Lts => "SB-LTS",
            Variant::Rlx => "SB-RLX",
            Variant::None => "no streaming",
        }
    }
}

impl DataflowCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let several = self.pes.len() > 1;
        if let Some(path) = self.gantt.as_ref().filter(|_| several) {
            let message = format!("{}: a chart shows one schedule; give one number to --pes", path.display());
            return Err(CliError::input(message));
        }
        let source = Source::read(&self.graph, &self.source)?;
        let of = |elements: &u32| Outcome::of(&source.graph, *elements as usize, self.variant, self.steps);
        let outcomes: Vec<Outcome<'_>> =
            waiting(output, "scheduling and simulating", || self.pes.iter().map(of).collect::<Result<_, _>>())?;
        if let (Some(path), [outcome]) = (&self.gantt, &outcomes[..]) {
            let svg = gantt::chart(&source, outcome).svg();
            write_file(path, svg)?;
        }
        match output.json {
            true => output.json(&report::json(&source, &outcomes)),
            false => output.text(&report::text(&source, &outcomes)),
        }
    }
}
