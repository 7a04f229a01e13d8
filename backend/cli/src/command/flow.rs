//! `anabranch flow`: programs whose nodes are functions, under schedulers and placements side by side, checked against plain loops.

mod drawn;
mod processes;
mod program;
mod report;

pub(super) use processes::MachineCommand;

use super::costs::{open_store, ready_store, refused};
use super::files::file_of;
use super::interrupt::cancel_on_interrupt;
use super::progress::Progress;
use super::{CliError, MORE, Output, note, pretty, say, trace_file, write_file};
use crate::tensors::ending;
use anabranch::CancelToken;
use anabranch::device::{DetectOptions, detect};
use anabranch::files;
use anabranch::flow::programs::Program;
use anabranch::flow::{Allocation, Crew, FlowError, FlowOptions, FlowReport, Scheduler};
use anabranch::plan_file::PlanFile;
use clap::{Args, ValueEnum};
use processes::{Job, Machines};
use program::{ProgramName, WithProgram};
use report::{Report, Row};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

const EXAMPLES: &str = "\
Programs are those of Silva et al. 2016: lcs is the longest common subsequence of two random strings by blocks (a wavefront), matmul a product of
matrices by blocks, forkjoin an integral in parts that are added up, pipeline the same as a stream of parts through three nodes.

A central scheduler has one ready queue for all workers; local ones have one a machine, where nodes run that the placement puts there;
with stealing, idle workers take tasks of others. Machines that this computer does not have are emulated: their messages are counted,
not sent. With --processes each is a process, and messages go over sockets; then workers steal within their machine alone, unless the
scheduler is a central one, which is in the first process, as is what has a state.

An allocation is a plan file (JSON) or, under any other name, a list with a line `NODE WORKER` a node, by number.

Examples:
  anabranch flow lcs --size 20000 --block 500 --workers 2
  anabranch flow pipeline --machines 2 --workers 2 --scheduler central,local,stealing --json
  anabranch flow lcs --machines 2 --workers 2 --processes --scheduler central,local
  anabranch flow lcs --machines 2 --workers 2 --place heft --weights measured -o lcs.json
  anabranch flow lcs --machines 2 --workers 2 --allocation lcs.json --gantt lcs.svg";

/// Run a dataflow program of functions under central and local schedulers (Silva et al. 2016)
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct FlowCommand {
    /// What to run
    program: ProgramName,
    /// Letters of a string, rows of a matrix, or points of an integral [default: 20000, 1000 or 20000000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    size: Option<u64>,
    /// The same of a block or part [default: 500, 100 or 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    block: Option<u64>,
    /// Seed of random strings and matrices
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Workers on all machines together [default: one for each processing unit]
    #[arg(long, value_name = "COUNT")]
    workers: Option<u32>,
    /// Machines among which the workers are shared out [default: those with a last-level cache of their own]
    #[arg(long, value_name = "COUNT")]
    machines: Option<u32>,
    /// Make each of these machines a process, and send the messages between them over sockets
    #[arg(long, requires = "machines")]
    processes: bool,
    /// Who gives workers their tasks; several, separated by commas, are compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stealing")]
    scheduler: Vec<SchedulerName>,
    /// Strategy that places nodes for local schedulers: `anabranch strategies` lists them
    #[arg(long, value_name = "STRATEGY", default_value = "sucuri", conflicts_with = "allocation")]
    place: String,
    /// Take the placement from a plan file or list, and place nothing
    #[arg(long, value_name = "FILE")]
    allocation: Option<PathBuf>,
    /// What nodes are taken to cost
    #[arg(long, value_enum, default_value_t = Weights::Assumed)]
    weights: Weights,
    /// The cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Iterations under way at most [default: four a worker]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Runs of the loop and under each scheduler, in turn; the median counts
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum SchedulerName {
    /// One ready queue for all
    Central,
    /// The same, and idle workers steal
    CentralStealing,
    /// A ready queue a machine
    Local,
    /// The same, and idle workers steal
    Stealing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    /// What the program says
    Assumed,
    /// What one more run measures, together with what the cost store knows
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

struct Comparison<'a> {
    command: &'a FlowCommand,
    size: usize,
    block: usize,
    output: Output,
}

impl WithProgram for Comparison<'_> {
    type Result = Result<(), CliError>;

    fn with<P: Program>(self, program: &P) -> Self::Result {
        self.command.compare(program, self.size, self.block, self.output)
    }
}

impl FlowCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let (size, block) = self.sizes()?;
        self.program.with(size, block, self.seed, Comparison { command: self, size, block, output })
    }

    /// The size and the block's, within what memory can hold.
    fn sizes(&self) -> Result<(usize, usize), CliError> {
        let (usual, usual_block, most) = match self.program {
            ProgramName::Lcs => (20_000, 500, 1 << 26),
            ProgramName::Matmul => (1000, 100, 1 << 14),
            ProgramName::Forkjoin | ProgramName::Pipeline => (20_000_000, 100_000, 1 << 40),
        };
        let (size, block) = (self.size.unwrap_or(usual), self.block.unwrap_or(usual_block));
        if size > most {
            return Err(CliError::input(format!(
                "--size {size} is too large for this program; it takes at most {most}"
            )));
        }
        let side = size.div_ceil(block);
        let nodes = match self.program {
            ProgramName::Lcs | ProgramName::Matmul => side.saturating_mul(side),
            ProgramName::Forkjoin => side,
            ProgramName::Pipeline => 3,
        };
        if nodes > MOST_NODES {
            return Err(CliError::input(format!(
                "--block {block} makes {nodes} nodes of --size {size}; at most {MOST_NODES} are taken: use larger blocks"
            )));
        }
        Ok((size as usize, block as usize))
    }

    fn crew(&self) -> Result<Crew, CliError> {
        let usual = FlowOptions::default().crew().worker_count();
        match (self.workers, self.machines) {
            (workers, None) => Ok(Crew::detect(workers.unwrap_or(usual))?),
            (None, Some(machines)) => Ok(Crew::machines(machines, usual.div_ceil(machines.max(1)))?),
            (Some(workers), Some(machines)) if machines > 0 && workers % machines == 0 => {
                Ok(Crew::machines(machines, workers / machines)?)
            }
            (Some(workers), Some(machines)) => Err(CliError::input(format!(
                "{workers} workers cannot be shared out among {machines} machines; give a multiple of --machines to --workers"
            ))),
        }
    }

    /// Runs the loop and the flow under each scheduler, in turn.
    fn compare<P: Program>(&self, program: &P, size: usize, block: usize, output: Output) -> Result<(), CliError> {
        let crew = self.crew()?;
        let runner = Runner { command: self, program, crew: &crew, token: cancel_on_interrupt()? };
        let weigh = runner.weights()?;
        let started = Instant::now();
        let allocation = runner.allocation(&*weigh)?;
        let placing = started.elapsed();
        self.write_allocation(&allocation)?;
        let schedulers = &self.scheduler;
        let progress = Progress::new(output, program.name(), u64::from(self.runs) * (1 + schedulers.len() as u64));
        let (mut sequential, mut answer) = (Vec::new(), None);
        let mut rows: Vec<Row> = schedulers.iter().map(|scheduler| Row::new((*scheduler).into())).collect();
        for _ in 0..self.runs {
            let started = Instant::now();
            let expected = answer.insert(program.sequential());
            sequential.push(started.elapsed());
            progress.advance();
            for (row, scheduler) in rows.iter_mut().zip(schedulers) {
                row.add(runner.run_placed(*scheduler, &allocation, false, Some(expected))?);
                progress.advance();
            }
        }
        drop(progress);
        if let Some(scheduler) = schedulers.last().filter(|_| self.gantt.is_some() || self.trace.is_some()) {
            let report = runner.run_placed(*scheduler, &allocation, true, answer.as_ref())?;
            self.draw(program.name(), (*scheduler).into(), &report)?;
        }
        let flow = program.flow().0.task_graph()?;
        let report = Report {
            program: program.name(),
            size,
            block,
            nodes: flow.task_count(),
            edges: flow.datum_count(),
            workers: crew.worker_count(),
            machines: crew.machine_count(),
            processes: self.processes,
            place: if self.allocation.is_some() { "given".to_owned() } else { self.place.clone() },
            predicted: allocation.predicted().map(|schedule| schedule.makespan),
            placing,
            sequential,
            rows,
        };
        output.text_or_json(|| report.to_string(), &report.json())
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
            write_file(path, drawn::timeline(program, scheduler, report).svg())?;
        }
        if let Some(path) = &self.trace {
            trace_file::write(path, None, &drawn::trace(report))?;
        }
        Ok(())
    }
}

/// Most nodes of a program.
const MOST_NODES: u64 = 1 << 20;

fn is_json(path: &Path) -> bool {
    ending(path).as_deref() == Some("json")
}

/// A program with what is the same in all its runs.
struct Runner<'a, P> {
    command: &'a FlowCommand,
    program: &'a P,
    crew: &'a Crew,
    token: CancelToken,
}

/// Weighs the nodes of a flow.
type Weigh = dyn Fn(&anabranch::flow::Flow<'_>);

impl<P: Program> Runner<'_, P> {
    /// What nodes weigh; where that is to be measured, in one run.
    fn weights(&self) -> Result<Box<Weigh>, CliError> {
        if self.command.weights == Weights::Assumed {
            return Ok(Box::new(|_| ()));
        }
        let (path, mut store) = open_store(self.command.costs.as_ref())?;
        ready_store(&path)?;
        let here = detect(&DetectOptions::default().without_gpu())?.fingerprint();
        store.settle(&here).iter().for_each(say);
        let options = FlowOptions::default().with_crew(self.crew.clone()).with_cancel(self.token.clone());
        let report = self.run(&options.with_profile(true), None)?;
        let name = format!("{} {}/{}", self.program.name(), self.command.sizes()?.0, self.command.sizes()?.1);
        report.learn(&name, &mut store);
        store.save(&path).map_err(refused)?;
        Ok(Box::new(move |flow| {
            flow.weigh(&name, &store);
        }))
    }

    fn allocation(&self, weigh: &Weigh) -> Result<Allocation, CliError> {
        let (flow, answers) = self.program.flow();
        if self.command.processes {
            // As `Program::run_among` has it.
            let _ = answers.machine(0);
        }
        weigh(&flow);
        let Some(path) = &self.command.allocation else { return Ok(flow.place(&self.command.place, self.crew)?) };
        let text = files::read_text(path, files::MOST_BYTES).map_err(|error| CliError::in_file(path, error))?;
        let allocation = if is_json(path) {
            let file: PlanFile = serde_json::from_str(&text).map_err(|error| {
                CliError::in_file(path, format_args!("is no plan: {}", files::json_problem(&error)))
            })?;
            Allocation::from_plan_file(&file, &flow, self.crew)
        } else {
            Allocation::from_list(&text, &flow)
        };
        allocation.map_err(|error| CliError::in_file(path, error))
    }

    fn options(&self, scheduler: Scheduler, allocation: &Allocation) -> FlowOptions {
        let options = FlowOptions::default().with_crew(self.crew.clone()).with_scheduler(scheduler);
        let options = options.with_allocation(allocation.clone()).with_cancel(self.token.clone());
        match self.command.window {
            Some(window) => options.with_window(window as usize),
            None => options,
        }
    }

    /// Runs the flow as it was placed, in processes if these are wanted, and checks its answer.
    fn run_placed(
        &self,
        scheduler: SchedulerName,
        allocation: &Allocation,
        profile: bool,
        expected: Option<&P::Answer>,
    ) -> Result<FlowReport, CliError> {
        let options = self.options(scheduler.into(), allocation).with_profile(profile);
        if !self.command.processes {
            return self.run(&options, expected);
        }
        let (command, machines) = (self.command, self.crew.machine_count());
        let (size, block) = command.sizes()?;
        let job = Job {
            program: command.program,
            size,
            block,
            seed: command.seed,
            machines,
            workers_each: self.crew.worker_count() / machines,
            window: command.window,
            scheduler,
            allocation: allocation.to_list(),
            profile,
        };
        let (others, peers) = Machines::start(&job)?;
        let ran = self.program.run_among(&options, peers).map_err(|error| match error {
            FlowError::Cancelled => CliError::interrupted(),
            error => others.explain(error),
        })?;
        self.checked(ran, expected)
    }

    /// Runs the flow, and checks its answer.
    fn run(&self, options: &FlowOptions, expected: Option<&P::Answer>) -> Result<FlowReport, CliError> {
        let ran = self.program.run(options).map_err(|error| match error {
            FlowError::Cancelled => CliError::interrupted(),
            error => error.into(),
        })?;
        self.checked(ran, expected)
    }

    fn checked(
        &self,
        (answer, report): (Option<P::Answer>, FlowReport),
        expected: Option<&P::Answer>,
    ) -> Result<FlowReport, CliError> {
        match expected {
            Some(expected) if answer.as_ref() != Some(expected) => {
                Err(CliError::differs(format!("{}: the flow's answer is not the loop's", self.program.name())))
            }
            _ => Ok(report),
        }
    }
}
