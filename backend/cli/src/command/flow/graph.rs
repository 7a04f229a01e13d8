//! Runs graphs of drops in DALiuGE's format: the list of what will run, the run, and the outcome of every drop.

use super::super::costs::open_store;
use super::super::interrupt::cancel_on_interrupt;
use super::super::progress::{Progress, waiting};
use super::super::{CliError, Output, say};
use super::{FlowCommand, Weights};
use anabranch::CancelToken;
use anabranch::device::{DetectOptions, detect as detect_devices};
use anabranch::drops::{DropReport, DropState, Naming, Outcome, PreparedRecipe, Recipe, read};
use anabranch::flow::{Flow, FlowOptions, Scheduler, WorkerConfig};
use anabranch_placement::quoted::Line;
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration, shortened};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Most characters of a name in a table.
const WIDTH: usize = 48;

/// Runs a graph, or lists the applications that would run.
pub(super) fn run(command: &FlowCommand, path: &Path, output: Output) -> Result<(), CliError> {
    let scheduler = command.only_scheduler()?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let graph = read(path).map_err(|error| CliError::in_file(path, error))?;
    let naming = Naming::of(&stem).with_outside(command.graph.outside);
    let recipe = Recipe::new(&graph, &naming).map_err(|error| CliError::in_file(path, error))?;
    drop(graph);
    let token = cancel_on_interrupt()?;
    let directory = command.graph.dir.as_deref().unwrap_or(Path::new("."));
    if command.graph.dry_run && !directory.is_dir() {
        return Err(CliError::in_file(directory, "the directory does not exist yet; a run creates it"));
    }
    let looked = || PreparedRecipe::new(&recipe, directory, command.graph.fresh, &token);
    let prepared =
        waiting(output, "reading the graph's files", looked).map_err(|error| match token.is_cancelled() {
            true => CliError::interrupted(),
            false => error.into(),
        })?;
    prepared.keeps(path)?;
    if command.graph.dry_run {
        return list(&recipe, &prepared, output);
    }
    let run = GraphRun { command, recipe: &recipe, prepared, token: &token, scheduler, stem: &stem };
    run.run(output)
}

/// Lists the applications that would run, with the reasons.
fn list(recipe: &Recipe, prepared: &PreparedRecipe<'_>, output: Output) -> Result<(), CliError> {
    let due: Vec<_> = prepared.due().collect();
    let (runs, kept) = (due.len(), recipe.application_count() - due.len());
    let text = || {
        let mut table = Table::new("application | why");
        for (label, reason) in &due {
            table.row([shortened(label, WIDTH), reason.to_string()]);
        }
        format!("applications: at most {runs} would run, {kept} are kept\n\n{table}")
    };
    let due: Vec<Value> =
        due.iter().map(|(label, reason)| json!({"application": label, "why": reason.to_string()})).collect();
    output.text_or_json(text, &json!({"would_run": due, "kept": kept}))
}

struct GraphRun<'a> {
    command: &'a FlowCommand,
    recipe: &'a Recipe,
    prepared: PreparedRecipe<'a>,
    token: &'a CancelToken,
    scheduler: Scheduler,
    stem: &'a str,
}

impl GraphRun<'_> {
    fn run(self, output: Output) -> Result<(), CliError> {
        let usual = FlowOptions::default().worker_config().worker_count();
        let worker_config = match (self.command.workers, self.command.machines) {
            // Unlike workers of programs, these are not bound to processing units: their commands would be, too.
            (workers, None) => WorkerConfig::of(workers.unwrap_or(usual))?,
            _ => self.command.worker_config()?,
        };
        let mut store = match self.command.weights {
            Weights::Assumed => None,
            Weights::Measured => {
                let (place, mut store) = open_store(self.command.costs.as_ref())?;
                place.ready()?;
                let here = detect_devices(&DetectOptions::default().without_gpu())?.fingerprint();
                store.settle(&here).iter().for_each(say);
                Some((place, store))
            }
        };
        let progress = Progress::new(output, self.stem, self.recipe.application_count() as u64);
        let options = |flow: &Flow<'_>| {
            if let Some((_, store)) = &store {
                flow.weigh(self.stem, store);
            }
            let allocation = self.command.allocation_of(flow, &worker_config)?;
            self.command.write_allocation(&allocation)?;
            let options = FlowOptions::default().with_workers(worker_config.clone()).with_scheduler(self.scheduler);
            Ok::<_, CliError>(options.with_allocation(allocation).with_profile(true))
        };
        let work = || self.prepared.run(self.token, &|_| progress.advance(), options);
        let (outcome, is_late) = within(self.command.graph.timeout, self.token, work)?;
        let outcome = outcome?;
        drop(progress);
        // Dropped here because it locks its directory, which may hold the cost store.
        drop(self.prepared);
        if let Some((place, store)) = &mut store
            && let Some(measured) = outcome.measured()
        {
            measured.learn(self.stem, store);
            place.save(store)?;
        }
        if let Some(flow) = &outcome.flow {
            self.command.draw(self.stem, self.scheduler, flow)?;
        }
        let report = Report { name: self.stem, recipe: self.recipe, worker_config: &worker_config, outcome: &outcome };
        output.text_or_json(|| report.to_string(), &report.json())?;
        report.end(self.command.graph.timeout.filter(|_| is_late))
    }
}

/// Does work, and uses its token after a timeout. Returns whether the token was used.
fn within<T>(timeout: Option<Duration>, token: &CancelToken, work: impl FnOnce() -> T) -> Result<(T, bool), CliError> {
    let Some(timeout) = timeout else { return Ok((work(), false)) };
    thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let watch = move || {
            let is_late = ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
            if is_late {
                token.cancel();
            }
            is_late
        };
        let watch = thread::Builder::new().spawn_scoped(scope, watch)?;
        let result = work();
        drop(done);
        Ok((result, watch.join().unwrap_or(false)))
    })
}

struct Report<'a> {
    name: &'a str,
    recipe: &'a Recipe,
    worker_config: &'a WorkerConfig,
    outcome: &'a Outcome,
}

/// The drops that are copies of one application.
struct Copies<'a> {
    name: &'a str,
    category: &'a str,
    drops: Vec<&'a DropReport>,
}

impl Report<'_> {
    fn applications(&self) -> impl Iterator<Item = &DropReport> {
        self.outcome.drops.iter().filter(|drop| drop.application)
    }

    fn in_state(&self, state: DropState) -> usize {
        self.applications().filter(|drop| drop.state == state).count()
    }

    /// Returns the applications by name, in the order of the graph.
    fn copies(&self) -> Vec<Copies<'_>> {
        let mut places = BTreeMap::new();
        let mut copies: Vec<Copies<'_>> = Vec::new();
        for drop in self.applications() {
            let place = *places.entry((&drop.name, &drop.category)).or_insert(copies.len());
            if place == copies.len() {
                copies.push(Copies { name: &drop.name, category: &drop.category, drops: Vec::new() });
            }
            copies[place].drops.push(drop);
        }
        copies
    }

    fn json(&self) -> Value {
        let failure = |failed: &anabranch::drops::Failed| {
            json!({
                "drop": failed.drop, "why": failed.why, "dependents": failed.dependents,
                "dependent_count": failed.dependent_count,
            })
        };
        json!({
            "graph": self.name, "drops": self.outcome.drops, "links": self.recipe.link_count(),
            "applications": self.recipe.application_count(), "ran": self.outcome.ran(), "kept": self.outcome.kept(),
            "failed": self.in_state(DropState::Error), "skipped": self.in_state(DropState::Skipped),
            "cancelled": self.outcome.is_cancelled, "workers": self.worker_config.worker_count(), "machines": self.worker_config.machine_count(),
            "failures": self.outcome.failures().iter().map(failure).collect::<Vec<_>>(), "flow": self.outcome.flow,
        })
    }

    /// Returns the command's error, if there is one.
    fn end(&self, timeout: Option<Duration>) -> Result<(), CliError> {
        const AGAIN: &str = "run the command again to continue: completed applications are kept";
        if self.outcome.is_cancelled {
            return Err(match timeout {
                Some(timeout) => CliError::input(format!(
                    "the run was stopped after {} s (--timeout); {AGAIN}",
                    timeout.as_secs_f64()
                )),
                None => CliError::interrupted(),
            });
        }
        let Some(first) = self.outcome.failures().first() else { return Ok(()) };
        let others = self.outcome.drops.iter().filter(|drop| drop.failure.is_some()).count() - 1;
        Err(CliError::unexpected(format!(
            "{} failed: {}; drops that depend on it: {}; other failures: {others}; fix the cause, and {AGAIN}",
            first.drop,
            first.why.replace("\n ", ""),
            first.dependent_count
        )))
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, recipe) = (self.outcome, self.recipe);
        let (drops, links) = (count(recipe.drop_count(), "drop"), count(recipe.link_count(), "link"));
        writeln!(f, "{}: {drops}, {links}", Line(&self.name))?;
        write!(
            f,
            "of {} {} ran, {} were kept",
            count(recipe.application_count(), "application"),
            outcome.ran(),
            outcome.kept()
        )?;
        for (state, what) in [
            (DropState::Error, "failed"),
            (DropState::Skipped, "were skipped"),
            (DropState::Cancelled, "were cancelled"),
            (DropState::NotRun, "were not reached"),
        ] {
            match self.in_state(state) {
                0 => {}
                count => write!(f, ", {count} {what}")?,
            }
        }
        let workers = count(self.worker_config.worker_count(), "worker");
        match &outcome.flow {
            Some(flow) => writeln!(f, "; {} with {workers}\n", duration(flow.time.as_secs_f64()))?,
            None => writeln!(f, "; with {workers}\n")?,
        }
        let mut table = Table::new("application | kind | >drops | >ran | >kept | >failed | >time | >longest");
        for copies in self.copies() {
            let count = |is_meant: &dyn Fn(&DropReport) -> bool| {
                copies.drops.iter().filter(|drop| is_meant(drop)).count().to_string()
            };
            let times = || copies.drops.iter().filter_map(|drop| drop.seconds);
            table.row([
                shortened(copies.name, WIDTH),
                shortened(copies.category, WIDTH),
                copies.drops.len().to_string(),
                count(&DropReport::has_run),
                count(&|drop| drop.kept),
                count(&|drop| drop.state == DropState::Error),
                duration(times().sum()),
                duration(times().fold(0.0, f64::max)),
            ]);
        }
        table.fmt(f)?;
        for failed in outcome.failures() {
            let (shown, count) = (failed.dependents.len(), failed.dependent_count);
            writeln!(f, "\n{} failed: {}", failed.drop, failed.why)?;
            if count > 0 {
                let more = if count > shown { format!(" and {} more", count - shown) } else { String::new() };
                let (drops, depend) = (self::count(count, "drop"), if count == 1 { "depends" } else { "depend" });
                writeln!(f, "{drops} {depend} on it: {}{more}", failed.dependents.join(", "))?;
            }
        }
        f.write_char('\n')
    }
}
