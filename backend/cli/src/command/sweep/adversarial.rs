//! `sweep --adversarial`: the instances that simulated annealing finds, on which a strategy is worst against another.

use super::super::cases::{self, Case};
use super::super::progress::Progress;
use super::super::{CliError, Output, write_file, write_with};
use super::{SweepCommand, jobs, searches};
use anabranch::compare::Median;
use anabranch::execute::CancelToken;
use anabranch_placement::adversarial::{Annealing, Ranges, Worst, random_start};
use anabranch_placement::format::{LoadedProblem, json};
use anabranch_placement::place::{Auto, Exact, Placer};
use anabranch_report::chart::{HeatMap, page};
use anabranch_report::table::Table;
use anabranch_report::text::amount;
use anabranch_report::trial::{OrderName, TrialError, TrialPlacement, strategy};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Most searches of one sweep.
const MOST_SEARCHES: usize = 1_000_000;

/// Options of the search for the worst instances.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Worst instances")]
pub(super) struct AdversarialArgs {
    /// Find instances on which A is worst against B
    ///
    /// More names give all pairs. Simulated annealing changes weights of tasks, data, devices and links, and adds and
    /// removes edges (PISA, arXiv 2403.07120). It starts from the given problems, or from random chains of 3 to 5 tasks
    /// on 3 to 5 devices.
    #[arg(long, value_delimiter = ',', value_name = "A,B", conflicts_with_all = ["strategies", "output"])]
    pub(super) adversarial: Option<Vec<String>>,
    /// Make this many changes per search
    #[arg(long, value_name = "COUNT", default_value_t = 1000, requires = "adversarial", hide_short_help = true)]
    steps: u64,
    /// Write the worst instance of each pair here, as A-B.json
    #[arg(long, value_name = "DIR", requires = "adversarial")]
    instances: Option<PathBuf>,
}

/// Worst instance of a pair of strategies. Its fields are the members of the output.
#[derive(Serialize)]
struct Pair<'n> {
    strategy: &'n str,
    reference: &'n str,
    /// Makespan of the strategy divided by that of the reference.
    ratio: f64,
    makespan: f64,
    reference_makespan: f64,
    /// Worst ratio of each search, ascending.
    ratios: Vec<f64>,
    /// Ratio before the search.
    start_ratio: f64,
    /// Name and seed of the start.
    start: String,
    seed: u64,
    tasks: usize,
    edges: usize,
    devices: usize,
    file: Option<String>,
    #[serde(skip)]
    problem: LoadedProblem,
}

/// A problem to start from, or the seed of one.
enum Start<'c> {
    Random,
    Case(&'c Case),
}

/// Result of one search.
struct Found {
    start: usize,
    worst: Worst,
    /// Makespans of strategy and reference on the worst problem.
    makespans: [f64; 2],
}

impl Found {
    /// Whether this is the result of a pair, and not `other`. Results come in any order: of equal ratios, the first
    /// start wins.
    fn is_worse_than(&self, other: &Found) -> bool {
        let (ratio, other_ratio) = (self.worst.ratio, other.worst.ratio);
        ratio > other_ratio || ratio == other_ratio && self.start < other.start
    }
}

struct Search<'s> {
    command: &'s SweepCommand,
    names: &'s [String],
    order: OrderName,
    pairs: Vec<(usize, usize)>,
    starts: Vec<(Start<'s>, u64)>,
}

/// Finds and writes the worst instances of the pairs of `names`.
pub(super) fn run(command: &SweepCommand, names: &[String], output: Output) -> Result<(), CliError> {
    let cases = cases::read(&command.graphs, &command.devices)?;
    let search = Search::new(command, names, &cases)?;
    if let Some(directory) = &command.adversarial.instances {
        fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
    }
    let cancel = super::cancel_on_interrupt()?;
    let mut pairs = search.run(&cancel, output)?;
    if let Some(directory) = &command.adversarial.instances {
        pairs.iter_mut().try_for_each(|pair| pair.write(directory))?;
    }
    if let Some(directory) = &command.chart {
        search.draw(directory, &pairs)?;
    }
    output.text_or_json(|| search.text(&pairs), &pairs)?;
    if cancel.is_cancelled() { Err(CliError::interrupted()) } else { Ok(()) }
}

impl<'s> Search<'s> {
    fn new(command: &'s SweepCommand, names: &'s [String], cases: &'s [Case]) -> Result<Self, CliError> {
        if cases.is_empty() && !command.devices.is_empty() {
            return Err(CliError::input("--devices needs a graph to start from, such as cholesky:4; name one"));
        }
        let distinct: BTreeSet<&String> = names.iter().collect();
        if names.len() < 2 || distinct.len() < names.len() {
            return Err(CliError::input("--adversarial compares two or more different strategies, such as heft,cpop"));
        }
        if let Some(name) = names.iter().find(|name| searches(name)).filter(|_| command.search.evaluations.is_none()) {
            let message =
                format!("{name} takes up to a minute per instance; limit its search by --evaluations, such as 50");
            return Err(CliError::input(message));
        }
        let timed = |name: &&String| Exact::by_name(name).is_some_and(|exact| exact.time_limit.is_some());
        if let Some(name) = names.iter().find(timed) {
            let message =
                format!("{name} depends on the speed of the machine; --adversarial needs exact without a time limit");
            return Err(CliError::input(message));
        }
        let &[order] = &command.orders[..] else {
            return Err(CliError::input("--adversarial judges strategies under one order; name one with --orders"));
        };
        let places = 0..names.len();
        let all = places.clone().flat_map(|a| places.clone().map(move |b| (a, b))).filter(|(a, b)| a != b);
        let pairs: Vec<(usize, usize)> = if names.len() == 2 { vec![(0, 1)] } else { all.collect() };
        let seeds = usize::try_from(command.seeds.end - command.seeds.start).unwrap_or(usize::MAX);
        let searches = seeds.saturating_mul(cases.len().max(1)).saturating_mul(pairs.len());
        if searches > MOST_SEARCHES {
            let message = format!("this makes {searches} searches, but the limit is {MOST_SEARCHES}; use fewer seeds");
            return Err(CliError::input(message));
        }
        let mut starts = Vec::new();
        for seed in command.seeds.clone() {
            match cases {
                [] => starts.push((Start::Random, seed)),
                cases => starts.extend(cases.iter().map(|case| (Start::Case(case), seed))),
            }
        }
        let search = Search { command, names, order, pairs, starts };
        names.iter().try_for_each(|name| search.strategy(name, 0).map(|_| ()))?;
        Ok(search)
    }

    fn strategy(&self, name: &str, seed: u64) -> Result<Box<dyn Placer>, CliError> {
        Ok(strategy(name, Auto { evaluations: self.command.search.evaluations, seed })?)
    }

    /// Returns the worst instance of each pair. An interruption leaves out pairs that have none yet.
    fn run(&self, cancel: &CancelToken, output: Output) -> Result<Vec<Pair<'s>>, CliError> {
        let count = self.pairs.len() * self.starts.len();
        let progress = Progress::new(output, "searches", count as u64);
        let mut all: Vec<(Vec<f64>, Option<Found>)> = self.pairs.iter().map(|_| Default::default()).collect();
        let take = |number: usize, found: Option<Found>| {
            progress.advance();
            let (ratios, worst) = &mut all[number / self.starts.len()];
            if let Some(found) = found {
                ratios.push(found.worst.ratio);
                if worst.as_ref().is_none_or(|worst| found.is_worse_than(worst)) {
                    *worst = Some(found);
                }
            }
            Ok(())
        };
        jobs::run(self.command.thread_count(), count, cancel, |number| self.search(number), take)?;
        drop(progress);
        let mut pairs = Vec::new();
        for (&(a, b), (mut ratios, worst)) in self.pairs.iter().zip(all) {
            let [strategy, reference] = [a, b].map(|place| self.names[place].as_str());
            match worst {
                Some(found) => {
                    ratios.sort_by(f64::total_cmp);
                    pairs.push(self.pair([strategy, reference], ratios, found));
                }
                None if cancel.is_cancelled() => {}
                None => {
                    let message = format!("{strategy} or {reference} cannot place any start; give other problems");
                    return Err(CliError::input(message));
                }
            }
        }
        Ok(pairs)
    }

    fn search(&self, number: usize) -> Result<Option<Found>, CliError> {
        let (a, b) = self.pairs[number / self.starts.len()];
        let at = number % self.starts.len();
        let (start, seed) = &self.starts[at];
        let (mut problem, ranges) = match start {
            Start::Random => random_start(*seed).map(|(problem, ranges)| (problem, Some(ranges)))?,
            Start::Case(case) => (case.problem(*seed)?, None),
        };
        self.command.rules.apply(&mut problem);
        let ranges = ranges.unwrap_or_else(|| Ranges::of(&problem));
        let [one, other] = [a, b].map(|place| self.strategy(&self.names[place], *seed));
        let (one, other) = (one?, other?);
        let annealing = Annealing { steps: self.command.adversarial.steps, seed: *seed, ..Annealing::default() };
        let mut greatest = (0.0, [0.0; 2]);
        let worst = annealing.search(&problem, &ranges, |problem| {
            let Some(makespans) = self.makespans([&*one, &*other], problem)? else { return Ok(None) };
            let ratio = makespans[0] / makespans[1];
            if ratio.is_finite() && ratio > greatest.0 {
                greatest = (ratio, makespans);
            }
            Ok::<_, CliError>(Some(ratio))
        })?;
        Ok(worst.map(|worst| Found { start: at, worst, makespans: greatest.1 }))
    }

    /// Returns the makespans of two strategies, whose results are checked; `None` if either finds no placement.
    fn makespans(&self, placers: [&dyn Placer; 2], loaded: &LoadedProblem) -> Result<Option<[f64; 2]>, CliError> {
        let Ok(problem) = self.command.rules.problem(loaded) else { return Ok(None) };
        let mut makespans = [0.0; 2];
        for (makespan, placer) in makespans.iter_mut().zip(placers) {
            let placed = TrialPlacement::by(placer, &problem);
            match placed.and_then(|placed| placed.schedule(&problem, self.order)) {
                Ok(schedule) => *makespan = schedule.makespan,
                Err(TrialError::Input(_)) => return Ok(None),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(Some(makespans))
    }

    fn pair(&self, [strategy, reference]: [&'s str; 2], ratios: Vec<f64>, found: Found) -> Pair<'s> {
        let (start, seed) = &self.starts[found.start];
        let [makespan, reference_makespan] = found.makespans;
        let Worst { mut problem, ratio, start: start_ratio, .. } = found.worst;
        problem.facts.figures.insert(format!("makespan of {strategy}"), makespan);
        problem.facts.figures.insert(format!("makespan of {reference}"), reference_makespan);
        problem.name = format!("worst of {strategy} against {reference}");
        Pair {
            strategy,
            reference,
            ratio,
            makespan,
            reference_makespan,
            ratios,
            start_ratio,
            start: match start {
                Start::Random => "random chain".into(),
                Start::Case(case) if case.devices == "own" => case.graph.clone(),
                Start::Case(case) => format!("{} on {}", case.graph, case.devices),
            },
            seed: *seed,
            tasks: problem.graph.task_count(),
            edges: problem.graph.edge_count(),
            devices: problem.platform.device_count(),
            file: None,
            problem,
        }
    }

    fn about(&self) -> String {
        format!("{} changes per search, order {}", self.command.adversarial.steps, self.order.name())
    }

    fn text(&self, pairs: &[Pair<'_>]) -> String {
        let mut table = Table::new(
            "strategy | reference | >worst ratio | >median | >searches | >at start | >tasks | >edges | >devices | >seed | start",
        );
        for pair in pairs {
            table.row([
                pair.strategy.into(),
                pair.reference.into(),
                format!("{:.3}", pair.ratio),
                Median::of(&pair.ratios).map_or(String::new(), |ratio| format!("{:.3}", ratio.median)),
                pair.ratios.len().to_string(),
                format!("{:.3}", pair.start_ratio),
                pair.tasks.to_string(),
                pair.edges.to_string(),
                pair.devices.to_string(),
                pair.seed.to_string(),
                pair.start.clone(),
            ]);
        }
        let matrix = if self.names.len() > 2 { format!("\n{}", self.matrix(pairs)) } else { String::new() };
        format!("makespan of the strategy over that of the reference; {}\n{table}{matrix}", self.about())
    }

    /// Returns the worst ratios with a row per strategy and a column per reference.
    fn matrix(&self, pairs: &[Pair<'_>]) -> Table {
        let columns: Vec<String> = self.names.iter().map(|name| format!(">{name}")).collect();
        let mut table = Table::new(&format!("worst ratio against | {}", columns.join(" | ")));
        for (name, row) in self.names.iter().zip(self.values(pairs)) {
            let cells = row.into_iter().map(|value| value.map_or("-".into(), |value| format!("{value:.3}")));
            table.line(std::iter::once(name.clone()).chain(cells).collect());
        }
        table
    }

    fn values(&self, pairs: &[Pair<'_>]) -> Vec<Vec<Option<f64>>> {
        let ratio = |a: &String, b: &String| {
            pairs.iter().find(|pair| pair.strategy == a && pair.reference == b).map(|pair| pair.ratio)
        };
        self.names.iter().map(|a| self.names.iter().map(|b| ratio(a, b)).collect()).collect()
    }

    fn draw(&self, directory: &Path, pairs: &[Pair<'_>]) -> Result<(), CliError> {
        fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
        let chart = HeatMap {
            title: "Worst instances found".into(),
            subtitle: format!("makespan of the row's strategy over that of the column's; {}", self.about()),
            names: self.names.to_vec(),
            values: self.values(pairs),
            format: amount,
        };
        let svg = chart.svg();
        write_file(&directory.join("adversarial.svg"), &svg)?;
        let facts = [("pairs", pairs.len().to_string()), ("starts", self.starts.len().to_string())];
        write_file(&directory.join("index.html"), page("Worst instances", &facts, &[svg]))
    }
}

impl Pair<'_> {
    fn write(&mut self, directory: &Path) -> Result<(), CliError> {
        let path = directory.join(format!("{}-{}.json", self.strategy, self.reference));
        let mut text = Vec::new();
        json::write_problem(&self.problem, &mut text)?;
        write_with(&path, |file| file.write_all(&text))?;
        self.file = Some(super::super::lossy(&path));
        Ok(())
    }
}
