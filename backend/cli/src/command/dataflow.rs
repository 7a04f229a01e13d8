//! `anabranch dataflow`: partitions a canonical task graph into blocks, schedules them, sizes their channels, and
//! proves by simulation that they end.

mod gantt;
mod outcome;
mod report;
mod source;

use super::args::{FuseArgs, LimitArgs};
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
A graph is a JSON file ({\"nodes\": [{\"id\": 0, \"in\": 32, \"out\": 4}, ...], \"edges\": [[0, 1, 4], ...]}: elements that a node reads from each
input and writes to each output), an ONNX model, SHAPE:SIZE with random volumes (chain, fft, gauss, cholesky), or residual:50,
residual:101, residual:152 for residual networks of so many layers.

Times are in units in which a task reads and writes an element. Speedups are over one processing element; gain is over the list
schedule, in which no task starts before all that it reads is written. SSLR is the makespan over the streaming depth.

Examples:
  anabranch dataflow cholesky:8 --pes 32 --variant rlx --gantt schedule.svg
  anabranch dataflow residual:50 --pes 512,1024,1536,2048
  anabranch dataflow model.onnx --no-fuse --pes 256 --tasks 64 --json";

const MOST_ELEMENTS: u32 = 1 << 22;

/// Schedule a graph whose tasks stream to each other, as on a dataflow device (De Matteis 2023)
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct DataflowCommand {
    /// The graph, or a model from which one is made
    #[arg(value_name = "GRAPH.json|MODEL.onnx|SHAPE:SIZE")]
    graph: String,
    /// Processing elements; several numbers, separated by commas, give a table
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "32",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ELEMENTS)))]
    pes: Vec<u32>,
    /// Group tasks into blocks by this variant
    #[arg(long, value_enum, default_value_t = Variant::Lts)]
    variant: Variant,
    /// Most steps that are simulated; what has more is scheduled without proof
    #[arg(long, value_name = "COUNT", default_value_t = 1 << 28)]
    steps: u64,
    /// Draw what each processing element does
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]))]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Options for making a graph.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Making a graph")]
pub(crate) struct SourceArgs {
    /// Seed of random volumes
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Most parallel tasks for a product or convolution [default: one a column]
    #[arg(long, value_name = "COUNT", value_parser = super::args::parse_count)]
    tasks: Option<NonZero<usize>>,
    /// Size of a model's dimension, as in batch=4 or 'x[1]=576'; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = super::args::parse_dimension)]
    dim: Vec<(String, usize)>,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// Rule by which tasks share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// SB-LTS: a task joins what it streams from only if it does not hold it back
    Lts,
    /// SB-RLX: any task may join
    Rlx,
    /// No streaming: the list schedule
    None,
}

impl Variant {
    /// Returns the rule for making blocks, if there are any.
    fn blocks(self) -> Option<BlockVariant> {
        match self {
            Variant::Lts => Some(BlockVariant::Lts),
            Variant::Rlx => Some(BlockVariant::Rlx),
            Variant::None => None,
        }
    }

    /// Returns its name in the paper.
    fn name(self) -> &'static str {
        match self {
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
