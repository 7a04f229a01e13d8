//! `anabranch simulate`: places a graph on devices, simulates it, checks the result, and measures it.

mod report;
mod schedule;

use super::cases;
use super::files::file_of;
use super::progress::Progress;
use super::rules::{RuleArgs, SearchArgs};
use super::schedule_file::ScheduleArgs;
use super::{CliError, Output, assignment, read_file, say, write_file};
use anabranch::planning::{PlanningError, PlatformFile};
use anabranch_placement::format::{Loaded, LoadedProblem, read, read_problems};
use anabranch_placement::place::{Auto, PlaceError, Placement, Placer};
use anabranch_placement::problem::Problem;
use anabranch_placement::quoted::{Line, Name};
use anabranch_report::chart::page;
use anabranch_report::trial::{AUTO, OrderName, Outcome, TrialError, TrialPlacement, TryOptions, chart, strategy};
use clap::Args;
use report::summary;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  anabranch simulate graph.csv devices.csv --place heft --send-ops 10
  anabranch simulate graph.csv devices.csv --assignment placement.json --order fifo --json
  anabranch simulate problem.json --place auto --evaluations 100000 --gantt schedule.svg -o placement.json
  anabranch simulate layered:20,tasks=10-30,decay=0.5 random:8 --place cp --seed 1
  anabranch simulate problem.json other.json --schedule schedule.csv --trace trace.json";

/// Place a task graph, simulate it, and check the schedule
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateCommand {
    /// Graph or problems in a file, or a family such as fft:16
    ///
    /// Graphs are CSV of Laich 2017, our JSON or WfCommons. Problems are our JSON or SAGA. `anabranch sweep --help`
    /// describes families.
    #[arg(value_name = "GRAPH|PROBLEM|FAMILY:SIZE")]
    graph: PathBuf,
    /// Devices, if the graph has none: a file, or random:10
    ///
    /// This is CSV of Laich 2017, our JSON, or a platform file (`anabranch platform -o FILE`). Next to a whole problem,
    /// a platform file replaces its memories, links and times. `anabranch sweep --help` describes random devices.
    #[arg(value_name = "DEVICES|PLATFORM.json|KIND:COUNT")]
    devices: Option<PathBuf>,
    /// Use only the problem of this name
    #[arg(long, value_name = "NAME")]
    problem: Option<String>,
    /// Place with this strategy (`anabranch strategies` lists all)
    #[arg(long, value_name = "STRATEGY", default_value = "heft")]
    place: String,
    /// Read the placement from a map of task ids to device ids
    #[arg(long, value_name = "FILE.json")]
    assignment: Option<PathBuf>,
    /// Choose a device's next task by this order
    #[arg(long, value_enum, default_value_t = OrderName::Pct)]
    order: OrderName,
    /// Write the placement as a JSON map of task ids to device ids
    #[arg(short, long, value_name = "FILE.json", value_parser = file_of(&["json"]))]
    output: Option<PathBuf>,
    /// Draw each device over time, with its number of ready tasks
    #[arg(long, value_name = "FILE.svg|FILE.html", value_parser = file_of(&["svg", "html"]))]
    gantt: Option<PathBuf>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Set the seed of the search, and of random graphs and devices
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
            ([one], true) => output.json(&one.json(&self.options())),
            ([one], false) => {
                for violation in &one.violations {
                    say(format_args!("anabranch: the assignment violates a constraint: {violation}"));
                }
                output.text(&self.text(one))
            }
            (several, true) => output.json(&several.iter().map(|one| one.json(&self.options())).collect::<Vec<_>>()),
            (several, false) => output.text(&summary(several).to_string()),
        }
    }

    fn read(&self) -> Result<Vec<LoadedProblem>, CliError> {
        let mut problems = match self.generated() {
            Some((graph, devices)) => vec![cases::problem(&graph, devices.as_deref(), self.seed)?],
            None => match &self.devices {
                None => read_problems(&[&self.graph])?,
                Some(devices) => on_devices(&self.graph, devices)?,
            },
        };
        if let Some(name) = &self.problem {
            let known: Vec<String> = problems.iter().map(|problem| Name(&problem.name).to_string()).collect();
            problems.retain(|problem| problem.name == *name);
            if problems.is_empty() {
                let (file, known) = (self.graph.display(), known.join(", "));
                return Err(CliError::input(format!("{file} has no problem {}; its problems are {known}", Name(name))));
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

    /// Returns the graph and the devices, if one of them is no file.
    fn generated(&self) -> Option<(String, Option<String>)> {
        let devices = self.devices.as_ref().map(|path| path.display().to_string());
        let graph = self.graph.display().to_string();
        let generated = cases::is_generator(&graph) || devices.as_deref().is_some_and(cases::is_generator);
        generated.then_some((graph, devices))
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
        let refuse = |error: TrialError| match error {
            TrialError::Input(said) => self.about(loaded, &said),
            fault => CliError::from(fault),
        };
        let options = self.options();
        let placed = match (&self.assignment, self.place.as_str()) {
            (Some(path), _) => TrialPlacement::given(assignment::read(path, loaded)?),
            (None, AUTO) => {
                let auto = options.auto();
                let progress = Progress::new(output, "evaluations", auto.budget(problem));
                TrialPlacement::by(&Watched { auto, progress }, problem).map_err(refuse)?
            }
            (None, name) => TrialPlacement::by(strategy(name, options.auto())?.as_ref(), problem).map_err(refuse)?,
        };
        Outcome::of(&options, loaded, problem, placed).map_err(refuse)
    }

    fn options(&self) -> TryOptions {
        TryOptions {
            place: self.place.clone(),
            order: self.order,
            seed: self.seed,
            evaluations: self.search.evaluations,
            send_ops: self.rules.send_ops,
            contention: self.rules.contention,
            memory_rule: None,
        }
    }

    fn write_files(&self, problem: &Problem<'_>, outcome: &Outcome<'_>) -> Result<(), CliError> {
        if let Some(path) = &self.output {
            assignment::write(path, outcome.loaded, &outcome.placed.device_of)?;
        }
        self.schedule.write(|| schedule::rows(problem, outcome))?;
        if let Some(path) = &self.gantt {
            let drawn = chart(problem, outcome, self.order.name());
            let text = match is_page(path)? {
                false => drawn.svg(),
                true => page(&drawn.title, &self.facts(outcome), &[drawn.svg()]),
            };
            write_file(path, text)?;
        }
        Ok(())
    }
}

/// Reads the graph in one file on the devices in another, or the problems of one file as changed by a platform file.
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
        (Loaded::Graph(_), _) => Err(CliError::input(format!("{devices_name} does not hold devices"))),
        (Loaded::Problems(_), _) => {
            Err(CliError::input(format!("{graph_name} has its own devices; leave out {devices_name}")))
        }
        _ => Err(no_graph(graph)),
    }
}

fn no_graph(path: &Path) -> CliError {
    CliError::in_file(path, "it does not hold a graph; name the graph first, then the devices")
}

/// Whether a file declares itself a platform file.
pub(super) fn is_platform_file(path: &Path) -> Result<bool, CliError> {
    #[derive(Deserialize)]
    struct Outline {
        format: String,
    }
    let outline = serde_json::from_slice(&read_file(path)?);
    Ok(outline.is_ok_and(|Outline { format }| format == PlatformFile::FORMAT))
}

/// Whether a chart's file is a page; otherwise it is an SVG.
fn is_page(path: &Path) -> Result<bool, CliError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(false),
        Some("html") => Ok(true),
        _ => Err(CliError::input(format!(
            "{}: a chart is written as .svg or .html; use one of these extensions",
            path.display()
        ))),
    }
}
