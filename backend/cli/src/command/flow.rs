//! `anabranch flow`: runs a demonstration program under several schedulers, or a DALiuGE graph of commands and files.

mod graph;
mod named;
mod program;
mod report;

use super::args::{parse_seconds, refuse_given};
use super::files::file_of;
use super::{CliError, MORE, Output, note, pretty, trace_file, write_file};
use anabranch::files;
use anabranch::flow::{Allocation, Flow, FlowReport, Scheduler, WorkerConfig};
use anabranch::plan_file::PlanFile;
use anabranch_report::flow::trace;
use anabranch_report::show::flow_chart;
use anabranch_report::tensors::ending;
use clap::{Args, ValueEnum};
use named::ProgramName;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
The programs are those of Silva et al. 2016. lcs computes the longest common subsequence of two random strings by blocks (a wavefront), and matmul
multiplies matrices by blocks. forkjoin adds up the parts of an integral, and pipeline sends these parts as a stream through three nodes.

A central scheduler has one ready queue for all workers. A local scheduler has one queue per machine, for the nodes placed there. With stealing,
idle workers take tasks of others. Machines that this computer does not have are emulated: their messages are counted, not sent.

A graph is a logical graph of DALiuGE, as its editor EAGLE writes it, or a physical graph template. Its applications are shell commands (BashShellApp,
with %i0 and %o0 for the paths of inputs and outputs) or simple functions (CopyApp, SleepApp and others). Its data are files or memory. The next run
does only what is missing or has changed. Commands are run by `sh -c`, unchanged: as with `make`, run only graphs that you trust.

An allocation is a plan file (JSON) or, with any other extension, a list with one line `NODE WORKER` per node, by number.

Examples:
  anabranch flow lcs --size 20000 --block 500 --workers 2
  anabranch flow pipeline --machines 2 --workers 2 --scheduler central,local,stealing --json
  anabranch flow lcs --machines 2 --workers 2 --place heft --weights measured -o lcs.json
  anabranch flow lcs --machines 2 --workers 2 --allocation lcs.json --gantt lcs.svg
  anabranch flow wordcount.graph --dir words --dry-run
  anabranch flow wordcount.graph --dir words --workers 4 --gantt run.svg";

/// Run a graph of shell commands, or a demonstration program
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct FlowCommand {
    /// lcs, matmul, forkjoin, pipeline, or a .graph or .json file
    #[arg(value_name = "PROGRAM|GRAPH", value_parser = parse_what)]
    what: What,
    /// Set the letters, matrix rows or points [default: 20000, 1000 or 20000000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    size: Option<u64>,
    /// Set the size of a block or part [default: 500, 100 or 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    block: Option<u64>,
    /// Set the seed of random strings and matrices [default: 0]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Set the workers of all machines together [default: one per processing unit]
    #[arg(long, value_name = "COUNT")]
    workers: Option<u32>,
    /// Emulate this many machines that share the workers [default: one per last-level cache]
    #[arg(long, value_name = "COUNT")]
    machines: Option<u32>,
    /// Use these schedulers, as in central,local
    ///
    /// Several schedulers are compared.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stealing")]
    scheduler: Vec<SchedulerName>,
    /// Place nodes for local schedulers with this strategy
    ///
    /// `anabranch strategies` lists the strategies.
    #[arg(long, value_name = "STRATEGY", default_value = "sucuri", conflicts_with = "allocation")]
    place: String,
    /// Read the placement from a plan file or list instead
    #[arg(long, value_name = "FILE")]
    allocation: Option<PathBuf>,
    /// Take the costs of nodes from here
    #[arg(long, value_enum, default_value_t = Weights::Assumed)]
    weights: Weights,
    /// Use this cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Allow this many unfinished iterations [default: four per worker]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Repeat the loop and each scheduler, for a median [default: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Write the placement: .json for a plan file, .txt for a list
    #[arg(short, long, value_name = "FILE", value_parser = file_of(&["json", "txt"]))]
    output: Option<PathBuf>,
    /// Draw each worker in one more run, with the last scheduler
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]))]
    gantt: Option<PathBuf>,
    /// Write that run as a trace, FILE.json or FILE.paje
    ///
    /// FILE.json is for ui.perfetto.dev, FILE.paje for ViTE and pj_dump.
    #[arg(long, value_name = "FILE", value_parser = file_of(&["json", "paje"]))]
    trace: Option<PathBuf>,
    #[command(flatten)]
    graph: GraphArgs,
}

/// Options of graphs of drops.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Graph")]
struct GraphArgs {
    /// Run commands and keep files and state here [default: current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Run everything again; ignore results of earlier runs
    #[arg(long)]
    fresh: bool,
    /// List the applications that would run, and why; run nothing
    #[arg(long)]
    dry_run: bool,
    /// Stop the run and its commands after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Allow files outside of the directory, by absolute paths
    #[arg(long)]
    outside: bool,
}

/// Program or graph to run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Program(ProgramName),
    Graph(PathBuf),
}

/// Parses the name of a program. Any other text with the extension of a graph, or with a folder, is a file.
fn parse_what(text: &str) -> Result<What, String> {
    let path = Path::new(text);
    match ProgramName::from_str(text, false) {
        Ok(program) => Ok(What::Program(program)),
        Err(_) if matches!(ending(path).as_deref(), Some("json" | "graph")) => Ok(What::Graph(path.to_owned())),
        Err(_) => {
            let known = ProgramName::value_variants().iter().filter_map(ProgramName::to_possible_value);
            let known: Vec<String> = known.map(|name| name.get_name().to_owned()).collect();
            Err(format!(
                "it is neither a program nor a graph file; the programs are {}, and a graph file ends in .graph \
                 or .json",
                known.join(", ")
            ))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SchedulerName {
    /// One ready queue for all workers
    Central,
    /// One ready queue for all workers; idle workers steal
    CentralStealing,
    /// One ready queue per machine
    Local,
    /// One ready queue per machine; idle workers steal
    Stealing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    /// The weights that the program states
    Assumed,
    /// Measurements of one more run, and the cost store
    Measured,
}

impl From<SchedulerName> for Scheduler {
    fn from(name: SchedulerName) -> Self {
        match name {
            SchedulerName::Central => Self::Central,
            SchedulerName::CentralStealing => Self::CentralStealing,
            SchedulerName::Local => Self::Local,
            SchedulerName::Stealing => Self::Stealing,
        }
    }
}

impl FlowCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        match &self.what {
            What::Program(program) => self.run_program(*program, output),
            What::Graph(path) => {
                const WHY: &str = "it is an option of the programs";
                let given = [
                    (self.size.is_some(), "--size", WHY),
                    (self.block.is_some(), "--block", WHY),
                    (self.seed.is_some(), "--seed", WHY),
                    (self.window.is_some(), "--window", WHY),
                    (self.runs.is_some(), "--runs", WHY),
                ];
                refuse_given(&given, "a graph")?;
                graph::run(self, path, output)
            }
        }
    }

    fn worker_config(&self) -> Result<WorkerConfig, CliError> {
        Ok(WorkerConfig::shared_out(self.workers, self.machines)?)
    }

    /// Returns the only scheduler, for inputs that are run once.
    fn only_scheduler(&self) -> Result<Scheduler, CliError> {
        match self.scheduler[..] {
            [name] => Ok(name.into()),
            _ => Err(CliError::input("a graph runs once, under one scheduler; give one to --scheduler")),
        }
    }

    /// Returns the allocation of a flow's nodes.
    fn allocation_of(&self, flow: &Flow<'_>, worker_config: &WorkerConfig) -> Result<Allocation, CliError> {
        let Some(path) = &self.allocation else { return Ok(flow.place(&self.place, worker_config)?) };
        let text = files::read_text(path, files::MOST_BYTES).map_err(|error| CliError::in_file(path, error))?;
        let allocation = if is_json(path) {
            let file: PlanFile = serde_json::from_str(&text).map_err(|error| {
                CliError::in_file(path, format_args!("is not a plan: {}", files::json_problem(&error)))
            })?;
            Allocation::from_plan_file(&file, flow, worker_config)
        } else {
            Allocation::from_list(&text, flow)
        };
        let allocation = allocation.map_err(|error| CliError::in_file(path, error))?;
        allocation.fits(flow, worker_config).map_err(|error| CliError::in_file(path, error))?;
        Ok(allocation)
    }

    fn write_allocation(&self, allocation: &Allocation) -> Result<(), CliError> {
        let Some(path) = &self.output else { return Ok(()) };
        match allocation.plan_file().filter(|_| is_json(path)) {
            Some(file) => write_file(path, pretty(file)?),
            None if is_json(path) => {
                Err(CliError::in_file(path, "an allocation from a file is written as a list; use the extension .txt"))
            }
            None => write_file(path, allocation.to_list()),
        }
    }

    fn draw(&self, program: &str, scheduler: Scheduler, report: &FlowReport) -> Result<(), CliError> {
        if report.is_cut {
            note("the run has more events than a chart or trace holds; the last ones are left out");
        }
        if let Some(path) = &self.gantt {
            write_file(path, flow_chart(program, scheduler, report))?;
        }
        if let Some(path) = &self.trace {
            trace_file::write(path, None, &trace(report))?;
        }
        Ok(())
    }
}

fn is_json(path: &Path) -> bool {
    ending(path).as_deref() == Some("json")
}
