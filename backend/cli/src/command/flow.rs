//! `anabranch flow`: runs programs whose nodes are functions, compares schedulers and placements, and checks the
//! results against plain loops. Also runs graphs of drops.

mod graph;
mod job;
mod named;
#[cfg(not(target_os = "linux"))]
mod no_processes;
#[cfg(target_os = "linux")]
mod processes;
mod program;
mod report;

#[cfg(target_os = "linux")]
pub(super) use processes::MachineCommand;

#[cfg(not(target_os = "linux"))]
use no_processes as processes;

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
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Programs are those of Silva et al. 2016: lcs is the longest common subsequence of two random strings by blocks (a wavefront), matmul a product of
matrices by blocks, forkjoin an integral in parts that are added up, pipeline the same as a stream of parts through three nodes.

A central scheduler has one ready queue for all workers; local ones have one a machine, where nodes run that the placement puts there;
with stealing, idle workers take tasks of others. Machines that this computer does not have are emulated: their messages are counted,
not sent. With --processes each is a process, and messages go over sockets; then workers steal within their machine alone, unless the
scheduler is a central one, which is in the first process, as is what has a state.

A graph is a logical graph of DALiuGE as its editor EAGLE writes it, or a physical graph template. Its applications are shell commands (BashShellApp,
with %i0 and %o0 for the paths of inputs and outputs) or simple functions (CopyApp, SleepApp and others), its data files or memory. Run again, it
does only what is missing or has changed. Its commands are run by `sh -c` as they stand there: run no graph that you do not trust, as with `make`.

An allocation is a plan file (JSON) or, under any other name, a list with a line `NODE WORKER` a node, by number.

Examples:
  anabranch flow lcs --size 20000 --block 500 --workers 2
  anabranch flow pipeline --machines 2 --workers 2 --scheduler central,local,stealing --json
  anabranch flow lcs --machines 2 --workers 2 --processes --scheduler central,local
  anabranch flow lcs --machines 2 --workers 2 --place heft --weights measured -o lcs.json
  anabranch flow lcs --machines 2 --workers 2 --allocation lcs.json --gantt lcs.svg
  anabranch flow wordcount.graph --dir words --dry-run
  anabranch flow wordcount.graph --dir words --workers 4 --gantt run.svg";

/// Run a graph of shell commands and files, or a dataflow program of functions under several schedulers
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct FlowCommand {
    /// Program (lcs, matmul, forkjoin, pipeline) or graph file (.graph or .json)
    #[arg(value_name = "PROGRAM|GRAPH", value_parser = parse_what)]
    what: What,
    /// Letters of a string, rows of a matrix, or points of an integral [default: 20000, 1000 or 20000000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    size: Option<u64>,
    /// Size of a block or part [default: 500, 100 or 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    block: Option<u64>,
    /// Seed of random strings and matrices [default: 0]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Workers on all machines together [default: one for each processing unit]
    #[arg(long, value_name = "COUNT")]
    workers: Option<u32>,
    /// Emulated machines among which the workers are shared out [default: those with a last-level cache of their own]
    #[arg(long, value_name = "COUNT")]
    machines: Option<u32>,
    /// Make each of these machines a process, and send the messages between them over sockets
    #[arg(long, requires = "machines")]
    processes: bool,
    /// Schedulers to use, separated by commas; several are compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stealing")]
    scheduler: Vec<SchedulerName>,
    /// Strategy that places nodes for local schedulers: `anabranch strategies` lists them
    #[arg(long, value_name = "STRATEGY", default_value = "sucuri", conflicts_with = "allocation")]
    place: String,
    /// Take the placement from a plan file or list, and place nothing
    #[arg(long, value_name = "FILE")]
    allocation: Option<PathBuf>,
    /// Take the costs of nodes from here
    #[arg(long, value_enum, default_value_t = Weights::Assumed)]
    weights: Weights,
    /// The cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Iterations under way at most [default: four a worker]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Runs of the loop and under each scheduler, in turn; the median counts [default: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Write the placement: a plan file if its name ends in .json, otherwise a list
    #[arg(short, long, value_name = "FILE", value_parser = file_of(&["json", "txt"]))]
    output: Option<PathBuf>,
    /// Draw what each worker does in one more run, under the last scheduler
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
    /// Where commands run and files are, and what is known of them from run to run [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Run everything again, and keep nothing of earlier runs
    #[arg(long)]
    fresh: bool,
    /// List what would run and why, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// End the run, and the commands that run, after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Let the graph use files outside of the directory, by absolute paths
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
            Err(format!("the programs are {}; a graph's file ends in .graph or .json", known.join(", ")))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum SchedulerName {
    /// One ready queue for all
    Central,
    /// One ready queue for all, and idle workers steal
    CentralStealing,
    /// A ready queue a machine
    Local,
    /// A ready queue a machine, and idle workers steal
    Stealing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    /// The program's own weights
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
                const WHY: &str = "it is of the programs";
                let given = [
                    (self.size.is_some(), "--size", WHY),
                    (self.block.is_some(), "--block", WHY),
                    (self.seed.is_some(), "--seed", WHY),
                    (self.window.is_some(), "--window", WHY),
                    (self.runs.is_some(), "--runs", WHY),
                    (self.processes, "--processes", WHY),
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
                CliError::in_file(path, format_args!("is no plan: {}", files::json_problem(&error)))
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
                Err(CliError::in_file(path, "an allocation from a file is written as a list; name it .txt"))
            }
            None => write_file(path, allocation.to_list()),
        }
    }

    fn draw(&self, program: &str, scheduler: Scheduler, report: &FlowReport) -> Result<(), CliError> {
        if report.is_cut {
            note("more ran than a chart or trace holds; its end is left out");
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
