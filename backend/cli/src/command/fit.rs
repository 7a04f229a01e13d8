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
A model is planned for parts of this machine, and run on the cheapest parts first, until one meets the goal: the answer is measured. Then the plan
of least memory that also meets the goal is searched for.

For a folder with a language model, the memory of the GPUs is reduced step by step, on this machine or a --platform. The answer is the least memory
that keeps the decoding rate, with a table of rates and memory. It is predicted; nothing runs.

For a task graph, the answer is computed. If the graph has devices, or a file of devices is given, devices are removed while some strategy still meets
the goal. All other graphs, such as logical graphs of DALiuGE, are placed on the fewest identical devices of --cores cores that meet the goal. The tasks
of a partition never use more cores than a device has. Bounds are shown, too.

Examples:
  anabranch fit model.onnx
  anabranch fit model.onnx --within 20% --memory cpu0=2GiB --json
  anabranch fit llama --platform one-gpu --tokens-per-second 20
  anabranch fit graph.csv devices.csv --within 10% --place heft,cp,mite
  anabranch fit pipeline.graph --cores 8 --deadline 500 --physical partitioned.json";

/// Find the fewest devices and least memory that are fast enough
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct FitCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Devices, if the graph has none (CSV or JSON)
    #[arg(value_name = "DEVICES")]
    devices_file: Option<PathBuf>,
    /// Allow this slowdown against the whole machine
    ///
    /// For a task graph without devices, the slowdown is relative to its critical path.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent, help_heading = "Goal")]
    within: f64,
    /// Allow this time instead, in ms or time units of the graph
    ///
    /// Time units apply if the graph does not name its unit.
    #[arg(long, value_name = "MS", conflicts_with = "within", value_parser = parse_positive, help_heading = "Goal")]
    deadline: Option<f64>,
    /// Place with these strategies; the best result counts
    ///
    /// A language model is placed with the first strategy. `anabranch strategies` lists all.
    #[arg(
        long,
        value_name = "A,B,…",
        value_delimiter = ',',
        default_value = "heft,mite,cp",
        help_heading = "Placement"
    )]
    place: Vec<String>,
    /// Measure N runs per plan [default: 15 within 1 s]
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
    /// Keep this decoding rate of a language model
    ///
    /// Give it instead of --within, or of --deadline in milliseconds per token.
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
    /// Set the cores of each device [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    cores: Option<u64>,
    /// Limit the memory of each device, as in 4GiB [default: no limit]
    ///
    /// The limit applies to resident data.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    device_memory: Option<u64>,
    /// Set the bytes per time unit between devices [default: 1 for a logical graph, else no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive, hide_short_help = true)]
    bandwidth: Option<f64>,
    /// Set the latency of a transfer, in time units [default: 0]
    #[arg(long, value_name = "TIME", value_parser = not_negative, hide_short_help = true)]
    latency: Option<f64>,
    /// Set the cores that a data drop takes; DALiuGE counts 1 [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000), hide_short_help = true)]
    data_cores: Option<u64>,
    /// Write a logical graph as a DALiuGE physical graph template
    ///
    /// It holds the partition of each drop.
    #[arg(long, value_name = "FILE.json", value_parser = file_of(&["json"]), hide_short_help = true)]
    physical: Option<PathBuf>,
}

impl AlikeArgs {
    /// Rejects the options of logical graphs for other inputs.
    fn refuse_logical(&self, what: &str) -> Result<(), CliError> {
        let given = [
            (self.physical.is_some(), "--physical", "only logical graphs are written as physical ones"),
            (self.data_cores.is_some(), "--data-cores", "only logical graphs have data drops"),
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
const ALIKE: &str = "it describes identical devices for a graph without devices";

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
            (self.generation.tokens_per_second.is_some(), "--tokens-per-second", "only a language model has tokens"),
            (self.generation.bench.is_some(), "--bench", "only a language model has prompts"),
            (self.what_if.platform.is_some(), "--platform", "only a language model is planned for other devices"),
        ];
        refuse_given(&given, "a model or a task graph")?;
        match self.model.model.as_deref().filter(|path| is_graph(path)) {
            Some(path) => Graph { path, command: self, goal }.run(output),
            None if self.devices_file.is_some() => {
                Err(CliError::input("a model runs on this machine's devices; leave out the file of devices"))
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
        _ => Err("write a number of 0 or more".into()),
    }
}
