//! Searches for the smallest part of this machine that keeps a model's time: plans for each part, then runs with only
//! that part.

use super::super::args::PlaceArgs;
use super::super::interrupt::cancel_on_interrupt;
use super::super::open::{self, Opened, open};
use super::super::progress::Progress;
use super::super::{CliError, Output};
use super::configuration::PlannedConfiguration;
use super::machine::Part;
use super::report::{Beside, Report, Row};
use super::{FitCommand, Goal};
use anabranch::compare::{SeriesOptions, measure};
use anabranch::execute::RunOptions;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::planning::{Order, PlanChoice};
use anabranch_placement::footprint::live_bytes;

/// A part is run even if its prediction exceeds the deadline, up to this factor: predictions err.
const TRUST: f64 = 1.3;

/// Most plans of a part that are run before the part is given up.
const MOST_RUNS: usize = 3;

/// Number of halvings of the memory that may still be saved: down to a 64th of what the plan without limits takes.
const HALVINGS: u32 = 6;

pub(super) struct Search<'c> {
    pub(super) command: &'c FitCommand,
    pub(super) goal: Goal,
}

/// A part of the machine that was opened, with its plans, the least prediction first.
struct Candidate {
    part: Part,
    /// Memory limits of its plans, besides the given ones.
    limits: Vec<(String, u64)>,
    opened: Opened,
    plans: Vec<PlannedConfiguration>,
}

/// The plan with the least memory that keeps the deadline.
type Least = Option<(Row, PlannedConfiguration)>;

impl Search<'_> {
    pub(super) fn run(&self, output: Output) -> Result<(), CliError> {
        let run = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        let first =
            open(&self.command.devices, None, &self.command.model, &PlaceArgs::any(&self.command.constraints), true)?;
        open::print_notes(&first.session, output);
        let (whole, parts) = (Part::whole(first.session.inventory()), Part::all(first.session.inventory()));
        let progress = Progress::new(output, "parts of the machine", parts.len() as u64 + 1);
        progress.begin(output, "the whole machine");
        let candidate = self.plan(whole, Vec::new(), first, &run)?;
        let fastest = self.measure(&candidate, 0, &run)?;
        let deadline = self.goal.deadline(fastest.measured_ms.median, 1.0);
        progress.advance();
        let mut report =
            Report::new(open::model_name(&self.command.model), self.goal, deadline, fastest.kept(deadline));
        let mut smallest = None;
        for part in parts.into_iter().filter(|part| *part != candidate.part) {
            progress.begin(output, format_args!("{}, cores: {}", part.name(), part.cores));
            let tried = self.attempt(part, deadline, &run, &mut report)?;
            progress.advance();
            if tried.is_some() {
                smallest = tried;
                break;
            }
        }
        let smallest = smallest.unwrap_or(candidate);
        report.fewest = report.tried.iter().rev().find(|row| row.kept).cloned();
        if let Some(row) = report.fewest.clone() {
            let least = self.of_the_plans(&smallest, row, deadline, &run, &mut report)?;
            let least = self.under_limits(&smallest, least, deadline, &run, &mut report)?;
            // The problem of a model in phases covers only the first phase.
            let bounded = least.as_ref().filter(|(_, configuration)| configuration.planned.rest().is_none());
            report.beside = bounded.map(|least| self.bounds(&smallest, least)).transpose()?;
            report.least_memory = least.map(|(row, _)| row);
        }
        output.text_or_json(|| report.text(), &report)
    }

    /// Plans for a part by each strategy in two orders, with and without streams.
    fn plan(
        &self,
        part: Part,
        limits: Vec<(String, u64)>,
        opened: Opened,
        run: &RunOptions,
    ) -> Result<Candidate, CliError> {
        let mut plans: Vec<PlannedConfiguration> = Vec::new();
        let mut refused = None;
        for place in &self.command.place {
            for order in [Order::Pct, Order::Frugal] {
                for streaming in [StreamMode::Auto, StreamMode::Off] {
                    let plan = PlanOptions::default().with_streaming(streaming);
                    let choice = PlanChoice { strategy: open::strategy(place), order, plan };
                    match PlannedConfiguration::of(&opened, choice, run) {
                        Ok(configuration)
                            if plans.iter().any(|other| configuration.planned.is_same_plan(&other.planned)) => {}
                        Ok(configuration) => plans.push(configuration),
                        Err(error) if error.is_infeasible() => refused = Some(error),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        opened.save_costs()?;
        plans.sort_by(|one, other| one.predicted_ms.total_cmp(&other.predicted_ms));
        match (plans.is_empty(), refused) {
            (true, Some(error)) => Err(error.into()),
            _ => Ok(Candidate { part, limits, opened, plans }),
        }
    }

    /// Opens a part and plans for it. Returns `None`, with the reason in the report, if there is no plan.
    fn open(
        &self,
        part: &Part,
        limits: Vec<(String, u64)>,
        run: &RunOptions,
    ) -> Result<Result<Candidate, String>, CliError> {
        let mut devices = self.command.devices.clone();
        (devices.threads, devices.only) = (Some(part.threads), part.devices.clone());
        for (name, bytes) in &limits {
            devices.memory.retain(|(known, _)| known != name);
            devices.memory.push((name.clone(), *bytes));
        }
        let opened = match open(&devices, None, &self.command.model, &PlaceArgs::any(&self.command.constraints), true) {
            // Even the inputs exceed the limit.
            Err(error) if !limits.is_empty() && !error.is_fault() => return Ok(Err(error.to_string())),
            opened => opened?,
        };
        match self.plan(part.clone(), limits, opened, run) {
            Ok(candidate) => Ok(Ok(candidate)),
            Err(error) if error.is_fault() => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Runs plans of a part that could keep the deadline, until one does.
    fn attempt(
        &self,
        part: Part,
        deadline: f64,
        run: &RunOptions,
        report: &mut Report,
    ) -> Result<Option<Candidate>, CliError> {
        let candidate = match self.open(&part, Vec::new(), run)? {
            Ok(candidate) => candidate,
            Err(reason) => {
                report.without_a_plan.push((part.name(), reason));
                return Ok(None);
            }
        };
        let likely =
            candidate.plans.iter().take_while(|configuration| configuration.predicted_ms <= deadline * TRUST).count();
        if likely == 0 {
            report.tried.push(Row::unmeasured(&candidate.part, &candidate.plans[0]));
        }
        for plan in 0..likely.min(MOST_RUNS) {
            let row = self.measure(&candidate, plan, run)?.kept(deadline);
            let kept = row.kept;
            report.tried.push(row);
            if kept {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Runs the plans of the smallest part that take less memory than `best`, which kept the deadline. Starts with the
    /// least memory, and ends when a plan keeps the deadline.
    fn of_the_plans(
        &self,
        candidate: &Candidate,
        best: Row,
        deadline: f64,
        run: &RunOptions,
        report: &mut Report,
    ) -> Result<Least, CliError> {
        let plans = &candidate.plans;
        let mut places: Vec<usize> = (0..plans.len()).collect();
        places.retain(|&place| plans[place].bytes() < best.planned_bytes);
        places.sort_by_key(|&place| plans[place].bytes());
        for place in places {
            let row = self.measure(candidate, place, run)?.kept(deadline);
            report.tried.push(row.clone());
            if row.kept {
                return Ok(Some((row, plans[place].clone())));
            }
        }
        let found = plans.iter().find(|configuration| best.is_by(&configuration.choice));
        Ok(found.map(|configuration| (best.clone(), configuration.clone())))
    }

    /// Plans for these devices under ever lower memory limits, by bisection of the share of its unlimited memory that
    /// each device may use.
    ///
    /// Runs the plans that are predicted to keep the deadline.
    fn under_limits(
        &self,
        candidate: &Candidate,
        mut least: Least,
        deadline: f64,
        run: &RunOptions,
        report: &mut Report,
    ) -> Result<Least, CliError> {
        let Some((_, PlannedConfiguration { peaks, .. })) = &least else { return Ok(least) };
        let peaks = peaks.clone();
        let (mut short, mut enough) = (0u64, 1u64 << HALVINGS);
        while enough - short > 1 {
            let share = (short + enough) / 2;
            let limit = |peak: &u64| ((u128::from(*peak) * u128::from(share)) >> HALVINGS) as u64;
            let limits = candidate.part.devices.iter().cloned().zip(peaks.iter().map(limit)).collect();
            let limited = self.open(&candidate.part, limits, run)?.ok();
            let limited = limited.filter(|limited| limited.plans[0].predicted_ms <= deadline * TRUST);
            let row = limited.as_ref().map(|limited| self.measure(limited, 0, run)).transpose()?;
            match limited.zip(row.map(|row| row.kept(deadline))) {
                Some((limited, row)) => {
                    report.tried.push(row.clone());
                    match row.kept {
                        true => (enough, least) = (share, Some((row, limited.plans[0].clone()))),
                        false => short = share,
                    }
                }
                None => short = share,
            }
        }
        Ok(least)
    }

    fn measure(&self, candidate: &Candidate, plan: usize, run: &RunOptions) -> Result<Row, CliError> {
        let Candidate { part, limits, opened, plans } = candidate;
        let configuration = &plans[plan];
        let options = SeriesOptions::default().with_runs(self.command.repeat, None).with_run(run.clone());
        let prepared = opened.session.ready(&configuration.planned)?;
        // Learned costs would change the predictions of plans that were made before. The store keeps them for the next
        // time.
        let series = measure(&opened.session, &opened.inputs, &prepared, &options, &mut |run| {
            opened.session.learn(run);
        });
        let series = series?;
        opened.save_costs()?;
        let row = Row::measured(part, configuration, &series);
        Ok(row.under(limits))
    }

    /// Returns bounds on the memory of data in any order, next to the other memory of the plan of least memory.
    fn bounds(
        &self,
        candidate: &Candidate,
        (row, configuration): &(Row, PlannedConfiguration),
    ) -> Result<Beside, CliError> {
        let problem = candidate.opened.session.problem(&candidate.opened.inputs)?;
        let live = live_bytes(&problem.graph).map_err(CliError::internal)?;
        Ok(Beside::of(&configuration.planned, &live, row))
    }
}
