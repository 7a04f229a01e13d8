//! `anabranch simulate`: place a graph on devices, simulate it, check the result, and say what it is worth.

mod report;
mod schedule;

use super::progress::Progress;
use super::trial::{AUTO, OrderName, Placed, RuleArgs, SearchArgs, strategy, strategy_help};
use super::{CliError, Output, assignment, say, write_file};
use crate::chart::page;
use anabranch_placement::check::check_placement;
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::format::{Loaded, LoadedProblem, read, read_problems};
use anabranch_placement::place::{Auto, PlaceError, Placement, Placer};
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;
use clap::Args;
use report::summary;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  anabranch simulate graph.csv devices.csv --place heft --send-ops 10
  anabranch simulate graph.csv devices.csv --assignment placement.json --order fifo --json
  anabranch simulate problem.json --place auto --evaluations 100000 --gantt schedule.svg -o placement.json";

/// Place a task graph on devices, simulate it, check the schedule, and measure it
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateCommand {
    /// A graph (CSV of the thesis, JSON, WfCommons), or a file with whole problems
    #[arg(value_name = "GRAPH|PROBLEM")]
    graph: PathBuf,
    /// The devices (CSV of the thesis, or JSON), where the graph does not bring its own
    devices: Option<PathBuf>,
    /// Only the problem of this name, where the file has several
    #[arg(long, value_name = "NAME")]
    problem: Option<String>,
    /// Strategy; --help lists them
    #[arg(long, value_name = "STRATEGY", default_value = "heft", long_help = strategy_help("Strategy:"))]
    place: String,
    /// Take the placement from this JSON map of task ids to device ids, and place nothing
    #[arg(long, value_name = "FILE.json")]
    assignment: Option<PathBuf>,
    /// Which of a device's ready tasks runs next
    #[arg(long, value_enum, default_value_t = OrderName::Pct)]
    order: OrderName,
    /// Write the placement as a JSON map of task ids to device ids
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Draw what each device does, and from how many tasks it can choose
    #[arg(long, value_name = "FILE.svg|FILE.html")]
    gantt: Option<PathBuf>,
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
            Some(devices) => vec![on_devices(&self.graph, devices)?],
        };
        if let Some(name) = &self.problem {
            let known: Vec<String> = problems.iter().map(|problem| problem.name.clone()).collect();
            problems.retain(|problem| problem.name == *name);
            if problems.is_empty() {
                let (file, known) = (self.graph.display(), known.join(", "));
                return Err(CliError::input(format!("{file} has no problem `{name}`; it has {known}")));
            }
        }
        let single = self.assignment.is_some() || self.output.is_some() || self.gantt.is_some();
        if single && problems.len() > 1 {
            let (file, count, first) = (self.graph.display(), problems.len(), &problems[0].name);
            let message = format!("{file} has {count} problems; choose one, for example --problem '{first}'");
            return Err(CliError::input(message));
        }
        problems.iter_mut().for_each(|problem| self.rules.apply(problem));
        Ok(problems)
    }

    fn about(&self, loaded: &LoadedProblem, error: &dyn std::fmt::Display) -> CliError {
        CliError::input(format!("{} ({}): {error}", self.graph.display(), loaded.name))
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

/// The graph in one file on the devices in another.
fn on_devices(graph: &Path, devices: &Path) -> Result<LoadedProblem, CliError> {
    let (graph_name, devices_name) = (graph.display(), devices.display());
    match (read(graph)?, read(devices)?) {
        (Loaded::Graph(graph), Loaded::Platform(platform)) => Ok(graph.on(platform)?),
        (Loaded::Graph(_), _) => Err(CliError::input(format!("{devices_name} holds no devices"))),
        (Loaded::Problems(_), _) => {
            Err(CliError::input(format!("{graph_name} brings its own devices; leave {devices_name} out")))
        }
        _ => Err(CliError::input(format!("{graph_name} holds no graph; name the graph first, then the devices"))),
    }
}

/// Whether a chart's file is to be a page; else it is an SVG.
fn is_page(path: &Path) -> Result<bool, CliError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(false),
        Some("html") => Ok(true),
        _ => Err(CliError::input(format!("{}: charts are written to FILE.svg or FILE.html", path.display()))),
    }
}
