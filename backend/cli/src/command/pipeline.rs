//! `anabranch pipeline`: maps the stages of a chain to processors by every method, and runs the experiments that
//! compare the methods.

mod experiments;
mod report;

use super::args::{parse_positive, refuse_given};
use super::files::file_of;
use super::progress::waiting;
use super::{CliError, MORE, Output, say, write_file};
use anabranch_placement::pipeline::document::{self, Document};
use anabranch_placement::pipeline::exact::ExactOptions;
use anabranch_placement::pipeline::experiment::Sought;
use anabranch_placement::pipeline::{ChooseError, ChooseOptions, Communication, Goal, Link, Parallel, Problem};
use anabranch_report::text::duration;
use clap::{Args, ValueEnum};
use experiments::Experiments;
use report::Report;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
A chain of stages processes samples one after the other. It is divided into intervals, and each interval has its own processors: one, replicas
that take turns, or a group that shares each sample. The period is the time between two results. The latency is the time per sample.
The methods are those of Benoit and Robert 2007, an exact search, and lower bounds.

A CSV file has a head line and one line per stage. The columns stage,in,out are its name, and the bytes into and out of it. The columns kind
(monolithic, replicable or data-parallel), weights and activations (bytes) may follow. Each further column is a processor, with seconds,
or nothing if the stage cannot run there:

  stage,in,out,kind,cpu0,cpu1,gpu0
  decode,60000,6000000,monolithic,0.014,0.028,
  detect,6000000,20000,replicable,0.024,0.048,0.003

JSON files also have links, speeds, memories, teams and rules:

  {\"format\": \"anabranch-pipeline\", \"version\": 1, \"data\": [60000, 6000000, 20000],
   \"stages\": [{\"name\": \"decode\", \"work\": 0.028}, {\"name\": \"detect\", \"times\": [0.024, 0.003]}],
   \"processors\": [{\"name\": \"cpu0\", \"speed\": 2}, {\"name\": \"gpu0\"}],
   \"link\": {\"latency\": 2e-6, \"bandwidth\": 2e10}}

Examples:
  anabranch pipeline stages.json
  anabranch pipeline stages.csv --bandwidth 1e10 --link-latency 1e-5 --latency 0.05 --chart front.svg
  anabranch pipeline --experiments --stages 5,10,20 --instances 50
  anabranch pipeline --experiments e2,e3 --latency-factor 1.5 --json";

/// Map a chain of stages to processors for a short period or latency
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct PipelineCommand {
    /// Stages and processors: JSON or CSV
    #[arg(required_unless_present = "experiments", conflicts_with = "experiments", value_name = "FILE.json|FILE.csv")]
    file: Option<PathBuf>,
    /// Minimise this
    #[arg(long, value_enum, default_value_t = GoalName::Period)]
    goal: GoalName,
    /// Seek the least latency of mappings with at most this period
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["latency", "goal"], value_parser = seconds)]
    period: Option<f64>,
    /// Seek the least period of mappings with at most this latency
    #[arg(long, value_name = "SECONDS", conflicts_with = "goal", value_parser = seconds)]
    latency: Option<f64>,
    /// Set what a processor does at a time [default: from the file, else one-port]
    #[arg(long, value_enum, value_name = "MODEL")]
    communication: Option<CommunicationName>,
    /// Replicate no stage
    #[arg(long)]
    no_replication: bool,
    /// Run these intervals data-parallel [default: from the file, else never]
    #[arg(long, value_enum, value_name = "WHAT")]
    parallel: Option<ParallelName>,
    /// Set the bytes per second of all links of a CSV file [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive)]
    bandwidth: Option<f64>,
    /// Set the latency of all links of a CSV file [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    link_latency: Option<f64>,
    /// Draw period and latency of all mappings
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]))]
    chart: Option<PathBuf>,
    /// Stop an exact search after this many steps
    #[arg(long, value_name = "COUNT", default_value_t = 20_000_000)]
    steps: u64,
    /// Set the seed of heuristics and of the first problem
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    experiments: Experiments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GoalName {
    /// The time between results
    Period,
    /// The time for each sample
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CommunicationName {
    /// Receive, compute or send
    OnePort,
    /// Receive, compute and send
    Overlapped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ParallelName {
    /// No interval
    Never,
    /// Intervals of one stage
    Stage,
    /// Any interval of data-parallel stages
    Interval,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds >= 0.0 && f64::is_finite(seconds) => Ok(seconds),
        _ => Err("write seconds, such as 0.02".into()),
    }
}

impl PipelineCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let exact = ExactOptions { steps: self.steps };
        let Some(file) = &self.file else {
            return self.experiments.run(output, self.sought()?, exact, self.seed);
        };
        let link =
            Link { latency: self.link_latency.unwrap_or(0.0), bandwidth: self.bandwidth.unwrap_or(f64::INFINITY) };
        let Document { name, stages, processors, mut rules, is_table } = document::read(file, link)?;
        if !is_table {
            const WHY: &str = "it has its own links";
            let given =
                [(self.bandwidth.is_some(), "--bandwidth", WHY), (self.link_latency.is_some(), "--link-latency", WHY)];
            refuse_given(&given, "a JSON file")?;
        }
        if let Some(communication) = self.communication {
            rules.communication = match communication {
                CommunicationName::OnePort => Communication::OnePort,
                CommunicationName::Overlapped => Communication::Overlapped,
            };
        }
        if let Some(parallel) = self.parallel {
            rules.parallel = match parallel {
                ParallelName::Never => Parallel::Never,
                ParallelName::Stage => Parallel::Stage,
                ParallelName::Interval => Parallel::Interval,
            };
        }
        rules.replication &= !self.no_replication;
        let problem = Problem::new(stages, processors, rules).map_err(|error| CliError::in_file(file, error))?;
        let options = ChooseOptions { exact, ..ChooseOptions::default() };
        let search = || Report::new(name, &problem, self.goal(), options, self.seed);
        let report = waiting(output, "searching for mappings", search).map_err(|error| refused(file, &error))?;
        if let Some(path) = &self.chart {
            write_file(path, report.chart().svg())?;
        }
        if let Some(wrong) = report.wrong() {
            say(wrong);
            return Err(CliError::internal("the checker rejects a mapping"));
        }
        output.text_or_json(|| report.text(), &report)
    }

    fn goal(&self) -> Goal {
        match (self.period, self.latency, self.goal) {
            (Some(period), ..) => Goal::LatencyWithin { period },
            (_, Some(latency), _) => Goal::PeriodWithin { latency },
            (.., GoalName::Period) => Goal::Period,
            (.., GoalName::Latency) => Goal::Latency,
        }
    }

    /// Returns the goal of experiments, in which limits are factors.
    fn sought(&self) -> Result<Sought, CliError> {
        if self.period.is_some() || self.latency.is_some() || self.goal == GoalName::Latency {
            let message = "experiments minimise the period; use --latency-factor or --period-factor to set limits";
            return Err(CliError::input(message));
        }
        const OWN: &str = "experiments have their own stages, processors and rules";
        let given = [
            (self.communication.is_some(), "--communication", OWN),
            (self.no_replication, "--no-replication", OWN),
            (self.parallel.is_some(), "--parallel", OWN),
            (self.bandwidth.is_some(), "--bandwidth", OWN),
            (self.link_latency.is_some(), "--link-latency", OWN),
            (self.chart.is_some(), "--chart", "experiments print tables; use --json for the figures"),
        ];
        refuse_given(&given, "--experiments")?;
        Ok(self.experiments.sought())
    }
}

/// Returns the reason why no mapping was chosen, with the option to change.
fn refused(file: &Path, error: &ChooseError) -> CliError {
    match error {
        ChooseError::OutOfReach { nearest } => {
            let (period, latency) = (duration(nearest.period), duration(nearest.latency));
            let found = format!("the nearest has a period of {period} and a latency of {latency}");
            let message = format!("no mapping was found within the limit; {found}; raise --period or --latency");
            CliError::in_file(file, message)
        }
        error => CliError::in_file(file, error),
    }
}
