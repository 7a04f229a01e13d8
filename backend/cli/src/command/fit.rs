//! `anabranch fit`: the fewest cores and devices, and the least memory, that keep the time of a model or a task graph.

mod configuration;
mod generation;
mod graph;
mod machine;
mod model;
mod report;

use super::args::{ConstraintArgs, DeviceArgs, ModelArgs, WhatIfArgs, parse_percent, parse_positive, refuse_given};
use super::files::file_of;
use super::generate::rates::{Bench, parse_bench};
use super::rules::RuleArgs;
use super::{CliError, MORE, Output};
use anabranch::device::parse_bytes;
use clap::Args;
use generation::Generation;
use graph::Graph;
use model::Search;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
A model is planned for ever fewer cores and devices of this machine, the cheapest first, and run with just those until one keeps the time: so
the answer is measured. Then the plan of least memory is sought that keeps it, too.

A folder with a language model is planned for less and less memory of the GPUs, of this machine or of a --platform: the answer is the least memory
that keeps the rate of decoding, and a table of rates over memory. It is predicted, and nothing runs.

A task graph is answered by calculation. One with devices of its own, or with a file of them, loses devices as long as some strategy keeps the
time. Any other, a logical graph of DALiuGE among them, is put on alike devices of --cores cores: as few as keep the time, with partitions whose
tasks never take more cores than there are. Bounds say what nothing can beat.

Examples:
  anabranch fit model.onnx
  anabranch fit model.onnx --within 20% --memory cpu0=2GiB --json
  anabranch fit llama --platform one-gpu --tokens-per-second 20
  anabranch fit graph.csv devices.csv --within 10% --place heft,cp,mite
  anabranch fit pipeline.graph --cores 8 --deadline 500 --physical partitioned.json";

/// Find the fewest cores and devices, and the least memory, that keep the time of a model or a task graph
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct FitCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// The devices of a task graph that brings none along (CSV of Laich 2017, or JSON)
    #[arg(value_name = "DEVICES")]
    devices_file: Option<PathBuf>,
    /// Allow so much more time than the whole machine needs; for a graph on alike devices, than its longest path
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent, help_heading = "Goal")]
    within: f64,
    /// Allow this time instead: milliseconds, or a graph's own time units
    ///
    /// Units of a graph count where it does not say what they are.
    #[arg(long, value_name = "MS", conflicts_with = "within", value_parser = parse_positive, help_heading = "Goal")]
    deadline: Option<f64>,
    /// Strategies to place with; the best counts
    ///
    /// A language model is placed with the first one. `anabranch strategies` lists them.
    #[arg(
        long,
        value_name = "A,B,…",
        value_delimiter = ',',
        default_value = "heft,mite,cp",
        help_heading = "Placement"
    )]
    place: Vec<String>,
    /// Measured runs of a plan [default: as many as a second holds, but 15 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Model")]
    repeat: Option<u32>,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    alike: AlikeArgs,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    constraints: ConstraintArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
}

/// Goal of language models.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Goal")]
struct GenerationArgs {
    /// Keep this rate of a language model's decoding
    ///
    /// Instead of --within, or of --deadline in milliseconds per token.
    #[arg(long, value_name = "N", conflicts_with_all = ["within", "deadline"], value_parser = parse_positive)]
    tokens_per_second: Option<f64>,
    /// Plan for a prompt of P tokens and N more [default: 512,128]
    #[arg(long, value_name = "P,N", value_parser = parse_bench, help_heading = "Model", hide_short_help = true)]
    bench: Option<Bench>,
}

/// Default number of cores of each alike device.
const CORES: u64 = 8;

/// Alike devices for graphs that have none.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Alike devices")]
struct AlikeArgs {
    /// Cores of each device [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    cores: Option<u64>,
    /// Memory of each device, such as 4GiB [default: no limit]
    ///
    /// It limits what stays there.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    device_memory: Option<u64>,
    /// Bytes that go from one device to another in a time unit [default: 1 for a logical graph, else no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive, hide_short_help = true)]
    bandwidth: Option<f64>,
    /// Time units before the first byte moves [default: 0]
    #[arg(long, value_name = "TIME", value_parser = not_negative, hide_short_help = true)]
    latency: Option<f64>,
    /// Cores that a drop of data takes; DALiuGE counts 1 [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000), hide_short_help = true)]
    data_cores: Option<u64>,
    /// Write a logical graph as DALiuGE's physical graph template, with the partition of each drop
    #[arg(long, value_name = "FILE.json", value_parser = file_of(&["json"]), hide_short_help = true)]
    physical: Option<PathBuf>,
}

impl AlikeArgs {
    /// Rejects the options of logical graphs for other inputs.
    fn refuse_logical(&self, what: &str) -> Result<(), CliError> {
        let given = [
            (self.physical.is_some(), "--physical", "only logical graphs are written as physical ones"),
            (self.data_cores.is_some(), "--data-cores", "only logical graphs have drops of data"),
        ];
        refuse_given(&given, what)
    }

    /// Rejects all options of alike devices for inputs that do not use them.
    fn refuse(&self, what: &str) -> Result<(), CliError> {
        self.refuse_logical(what)?;
        let given = [
            (self.cores.is_some(), "--cores", ALIKE),
            (self.device_memory.is_some(), "--device-memory", ALIKE),
            (self.bandwidth.is_some(), "--bandwidth", ALIKE),
            (self.latency.is_some(), "--latency", ALIKE),
        ];
        refuse_given(&given, what)
    }
}

/// Reason of most refusals.
const ALIKE: &str = "it describes alike devices for a graph that has none";

/// Time that is allowed.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// This many times the best time.
    Within(f64),
    /// This time: milliseconds, or time units of unknown length.
    Deadline(f64),
}

impl Goal {
    /// Returns the deadline in units of which a millisecond is `millisecond`, if the best takes `best`.
    fn deadline(self, best: f64, millisecond: f64) -> f64 {
        match self {
            Goal::Within(times) => best * times,
            Goal::Deadline(deadline) => deadline * millisecond,
        }
    }
}

impl FitCommand {
    fn goal(&self) -> Goal {
        self.deadline.map_or(Goal::Within(1.0 + self.within / 100.0), Goal::Deadline)
    }

    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let goal = self.goal();
        if let Some(folder) = self.model.model.as_deref().filter(|path| generation::is_folder(path)) {
            return Generation { command: self, folder }.run(output);
        }
        let given = [
            (self.generation.tokens_per_second.is_some(), "--tokens-per-second", "only language models have tokens"),
            (self.generation.bench.is_some(), "--bench", "only language models have prompts"),
            (self.what_if.platform.is_some(), "--platform", "only language models are planned for other devices"),
        ];
        refuse_given(&given, "a model or a task graph")?;
        match self.model.model.as_deref().filter(|path| is_graph(path)) {
            Some(path) => Graph { path, command: self, goal }.run(output),
            None if self.devices_file.is_some() => {
                Err(CliError::input("a model runs on this machine's devices; leave the file of devices out"))
            }
            None => {
                self.alike.refuse("a model, which runs on this machine's devices")?;
                Search { command: self, goal }.run(output)
            }
        }
    }
}

/// Whether a file is a task graph. Models are ONNX files, or folders of tests.
fn is_graph(path: &Path) -> bool {
    matches!(anabranch_report::tensors::ending(path).as_deref(), Some("json" | "csv" | "graph"))
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value >= 0.0 && f64::is_finite(value) => Ok(value),
        _ => Err("expected a number of 0 or more".into()),
    }
}
