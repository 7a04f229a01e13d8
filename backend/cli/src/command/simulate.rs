//! `anabranch simulate`: place a graph on devices, simulate it, check the result, and say what it is worth.

mod report;
mod schedule;

use super::files::file_of;
use super::progress::Progress;
use super::schedule_file::ScheduleArgs;
use super::trial::{AUTO, OrderName, Placed, RuleArgs, SearchArgs, strategy};
use super::{CliError, Output, assignment, read_file, say, write_file};
use crate::chart::page;
use anabranch::planning::{PlanningError, PlatformFile};
use anabranch_placement::check::check_placement;
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::format::{Loaded, LoadedProblem, read, read_problems};
use anabranch_placement::place::{Auto, PlaceError, Placement, Placer};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::quoted::{Line, Name};
use anabranch_placement::schedule::Schedule;
use clap::Args;
use report::summary;
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  anabranch simulate graph.csv devices.csv --place heft --send-ops 10
  anabranch simulate graph.csv devices.csv --assignment placement.json --order fifo --json
  anabranch simulate problem.json --place auto --evaluations 100000 --gantt schedule.svg -o placement.json
  anabranch simulate problem.json other.json --schedule schedule.csv --trace trace.json";

/// Place a task graph on devices, simulate it, check the schedule, and measure it
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateCommand {
    /// A graph (CSV of the thesis, JSON, WfCommons), or a file with whole problems
    #[arg(value_name = "GRAPH|PROBLEM")]
    graph: PathBuf,
    /// The devices, where the graph brings none: CSV, JSON, or a platform file
    ///
    /// CSV of the thesis, our JSON, or a platform file (`anabranch platform -o FILE`). A platform file may also stand beside a whole problem,
    /// whose memories, links and times it then changes.
    #[arg(value_name = "DEVICES|PLATFORM.json")]
    devices: Option<PathBuf>,
    /// Only the problem of this name, where the file has several
    #[arg(long, value_name = "NAME")]
    problem: Option<String>,
    /// Strategy: `anabranch strategies` lists them
    #[arg(long, value_name = "STRATEGY", default_value = "heft")]
    place: String,
    /// Take the placement from this JSON map of task ids to device ids, and place nothing
    #[arg(long, value_name = "FILE.json")]
    assignment: Option<PathBuf>,
    /// Which of a device's ready tasks runs next
    #[arg(long, value_enum, default_value_t = OrderName::Pct)]
    order: OrderName,
    /// Write the placement as a JSON map of task ids to device ids
    #[arg(short, long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    output: Option<PathBuf>,
    /// Draw what each device does, and from how many tasks it can choose
    #[arg(long, value_name = "FILE.svg|FILE.html", value_parser = file_of(&["svg", "html"]))]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Seed of the search
    #[arg(long, value_name = "SEED", default_value_t = 0, help_heading = "Search")]
    seed: u64,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    rules: RuleArgs,
}

struct Watched {
    auto: Auto,
    progress: Progress,
}

impl Placer for Watched {
    fn name(&self) -> &'static str {
        self.auto.name()
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        Ok(self.auto.improve(problem, |done, _| self.progress.reach(done))?.placement().clone())
    }
}

struct Outcome<'p> {
    loaded: &'p LoadedProblem,
    placed: Placed,
    schedule: Schedule,
    metrics: Metrics,
    /// What a given assignment breaks; what strategies make breaks nothing.
    violations: Vec<String>,
    simulate_time: Duration,
    /// Of the search.
    evaluations: Option<u64>,
}

impl SimulateCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        if let Some(path) = &self.gantt {
            is_page(path)?;
        }
        let problems = self.read()?;
        let mut outcomes = Vec::with_capacity(problems.len());
        for loaded in &problems {
            let problem = self.rules.problem(loaded).map_err(|error| self.about(loaded, &error))?;
            let outcome = self.outcome(loaded, &problem, output)?;
            self.write_files(&problem, &outcome)?;
            outcomes.push(outcome);
        }
        match (&outcomes[..], output.json) {
            ([one], true) => output.json(&self.json(one)),
            ([one], false) => {
                for violation in &one.violations {
                    say(format_args!("anabranch: the assignment breaks a constraint: {violation}"));
                }
                output.text(&self.text(one))
            }
            (several, true) => output.json(&several.iter().map(|one| self.json(one)).collect::<Vec<_>>()),
            (several, false) => output.text(&summary(several).to_string()),
        }
    }

    fn read(&self) -> Result<Vec<LoadedProblem>, CliError> {
        let mut problems = match &self.devices {
            None => read_problems(&[&self.graph])?,
            Some(devices) => on_devices(&self.graph, devices)?,
        };
        if let Some(name) = &self.problem {
            let known: Vec<String> = problems.iter().map(|problem| Name(&problem.name).to_string()).collect();
            problems.retain(|problem| problem.name == *name);
            if problems.is_empty() {
                let (file, known) = (self.graph.display(), known.join(", "));
                return Err(CliError::input(format!("{file} has no problem {}; it has {known}", Name(name))));
            }
        }
        let files = self.output.is_some() || self.gantt.is_some() || self.schedule.is_wanted();
        let single = self.assignment.is_some() || files;
        if single && problems.len() > 1 {
            let (file, count, first) = (self.graph.display(), problems.len(), Line(&problems[0].name));
            let message = format!("{file} has {count} problems; choose one, for example --problem '{first}'");
            return Err(CliError::input(message));
        }
        problems.iter_mut().for_each(|problem| self.rules.apply(problem));
        Ok(problems)
    }

    fn about(&self, loaded: &LoadedProblem, error: &dyn std::fmt::Display) -> CliError {
        CliError::input(format!("{} ({}): {error}", self.graph.display(), Line(&loaded.name)))
    }

    fn outcome<'p>(
        &self,
        loaded: &'p LoadedProblem,
        problem: &Problem<'_>,
        output: Output,
    ) -> Result<Outcome<'p>, CliError> {
        let refuse = |error: CliError| if error.is_fault() { error } else { self.about(loaded, &error.message) };
        let placed = match (&self.assignment, self.place.as_str()) {
            (Some(path), _) => Placed::given(assignment::read(path, loaded)?),
            (None, AUTO) => {
                let auto = self.auto();
                let progress = Progress::new(output, "evaluations", auto.budget(problem));
                Placed::by(&Watched { auto, progress }, problem).map_err(refuse)?
            }
            (None, name) => Placed::by(strategy(name, self.auto())?.as_ref(), problem).map_err(refuse)?,
        };
        let violations = check_placement(problem, &placed.device_of).iter().map(ToString::to_string).collect();
        let started = Instant::now();
        let schedule = placed.schedule(problem, self.order).map_err(refuse)?;
        let simulate_time = started.elapsed();
        let metrics = Metrics::of(problem, &Baseline::of(problem), &schedule);
        let evaluations = (placed.strategy == AUTO).then(|| self.auto().budget(problem));
        Ok(Outcome { loaded, placed, schedule, metrics, violations, simulate_time, evaluations })
    }

    fn auto(&self) -> Auto {
        Auto { evaluations: self.search.evaluations, seed: self.seed }
    }

    fn write_files(&self, problem: &Problem<'_>, outcome: &Outcome<'_>) -> Result<(), CliError> {
        if let Some(path) = &self.output {
            assignment::write(path, outcome.loaded, &outcome.placed.device_of)?;
        }
        self.schedule.write(|| schedule::rows(problem, outcome))?;
        if let Some(path) = &self.gantt {
            let chart = schedule::chart(problem, outcome, self.order.name());
            let text = match is_page(path)? {
                false => chart.svg(),
                true => page(&chart.title, &self.facts(outcome), &[chart.svg()]),
            };
            write_file(path, text)?;
        }
        Ok(())
    }
}

/// How a problem is placed and simulated, as the arguments of the command say it.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TryOptions {
    place: String,
    order: OrderName,
    seed: u64,
    evaluations: Option<u64>,
    send_ops: f64,
    contention: bool,
    memory_rule: Option<MemoryRule>,
}

impl Default for TryOptions {
    fn default() -> Self {
        Self {
            place: "heft".into(),
            order: OrderName::Pct,
            seed: 0,
            evaluations: None,
            send_ops: 0.0,
            contention: false,
            memory_rule: None,
        }
    }
}

/// A problem that was placed and simulated.
pub struct Tried {
    /// What `simulate --json` tells.
    pub facts: Value,
    /// What `simulate --gantt` draws, as SVG.
    pub chart: String,
    /// When which task is on which device.
    pub schedule: Schedule,
}

/// Places a problem, simulates it and checks the result. `O` of the strategy and the simulation; `auto` takes a minute at most where the
/// number of its evaluations is not given.
///
/// # Errors
/// If there is no such strategy, it finds no placement, or the problem makes no sense under the rules: a sentence that says so.
pub fn try_problem(loaded: &LoadedProblem, options: &TryOptions) -> Result<Tried, String> {
    let TryOptions { place, order, seed, evaluations, send_ops, contention, memory_rule } = options.clone();
    let command = SimulateCommand {
        graph: "problem".into(),
        devices: None,
        problem: None,
        place,
        assignment: None,
        order,
        output: None,
        gantt: None,
        schedule: ScheduleArgs::default(),
        seed,
        search: SearchArgs { evaluations },
        rules: RuleArgs { send_ops, contention, memory_rule: None },
    };
    let mut loaded = loaded.clone();
    loaded.memory_rule = memory_rule.unwrap_or(loaded.memory_rule);
    let tried = || {
        let problem = command.rules.problem(&loaded).map_err(|error| command.about(&loaded, &error))?;
        let outcome = command.outcome(&loaded, &problem, Output { json: true })?;
        let chart = schedule::chart(&problem, &outcome, command.order.name()).svg();
        Ok(Tried { facts: command.json(&outcome), chart, schedule: outcome.schedule })
    };
    tried().map_err(|error: CliError| error.message)
}

/// The graph in one file on the devices in another, or the problems of one file as a platform file changes them.
pub(super) fn on_devices(graph: &Path, devices: &Path) -> Result<Vec<LoadedProblem>, CliError> {
    if is_platform_file(devices)? {
        let about = |error: PlanningError| CliError::in_file(devices, error);
        let file = PlatformFile::read(devices)?;
        return match read(graph)? {
            Loaded::Graph(graph) => {
                let mut problem = graph.on(file.platform().map_err(about)?)?;
                problem.facts.time_unit = Some("s".into());
                Ok(vec![problem])
            }
            Loaded::Problems(problems) => {
                problems.into_iter().map(|problem| file.over(problem).map_err(about)).collect()
            }
            _ => Err(no_graph(graph)),
        };
    }
    let (graph_name, devices_name) = (graph.display(), devices.display());
    match (read(graph)?, read(devices)?) {
        (Loaded::Graph(graph), Loaded::Platform(platform)) => Ok(vec![graph.on(platform)?]),
        (Loaded::Graph(_), _) => Err(CliError::input(format!("{devices_name} holds no devices"))),
        (Loaded::Problems(_), _) => {
            Err(CliError::input(format!("{graph_name} brings its own devices; leave {devices_name} out")))
        }
        _ => Err(no_graph(graph)),
    }
}

fn no_graph(path: &Path) -> CliError {
    CliError::in_file(path, "it holds no graph; name the graph first, then the devices")
}

/// Whether a file says that it is one of devices and links to plan for.
fn is_platform_file(path: &Path) -> Result<bool, CliError> {
    #[derive(Deserialize)]
    struct Outline {
        format: String,
    }
    let outline = serde_json::from_slice(&read_file(path)?);
    Ok(outline.is_ok_and(|Outline { format }| format == PlatformFile::FORMAT))
}

/// Whether a chart's file is to be a page; else it is an SVG.
fn is_page(path: &Path) -> Result<bool, CliError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(false),
        Some("html") => Ok(true),
        _ => Err(CliError::input(format!("{}: charts are written to FILE.svg or FILE.html", path.display()))),
    }
}
