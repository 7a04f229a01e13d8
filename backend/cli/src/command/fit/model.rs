//! The search for the smallest part of this machine that keeps a model's time: planned, then run with just that.

use super::super::args::PlaceArgs;
use super::super::interrupt::{cancel_on_interrupt, cancelled};
use super::super::open::{self, Opened, open};
use super::super::progress::Progress;
use super::super::{CliError, Output, note};
use super::machine::Part;
use super::report::{Beside, Report, Row};
use super::{FitCommand, Goal};
use anabranch::compare::{SeriesOptions, measure};
use anabranch::execute::RunOptions;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::planning::{Order, PlanChoice, Planned};
use anabranch_placement::footprint::live_bytes;
use std::sync::Arc;

/// By how many times its prediction may be over the deadline of a part that is run all the same: predictions err.
const TRUST: f64 = 1.3;

/// Plans of a part of the machine that are run before it is given up.
const MOST_RUNS: usize = 3;

pub(super) struct Search<'c> {
    pub(super) command: &'c FitCommand,
    pub(super) goal: Goal,
}

/// A part of the machine, opened, with its plans: the one of the least prediction first.
struct Candidate {
    part: Part,
    opened: Opened,
    plans: Vec<(PlanChoice, Arc<Planned>)>,
}

impl Search<'_> {
    pub(super) fn run(&self, output: Output) -> Result<(), CliError> {
        let run = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        let first =
            open(&self.command.devices, None, &self.command.model, &PlaceArgs::any(&self.command.constraints), true)?;
        open::print_notes(&first.session, output);
        let (whole, parts) = (Part::whole(first.session.inventory()), Part::all(first.session.inventory()));
        let progress = Progress::new(output, "parts of the machine", parts.len() as u64 + 1);
        progress.begin(output, "the whole machine");
        let candidate = self.plan(whole, first)?;
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
        if report.fewest.is_some() {
            self.least_memory(&smallest, deadline, &run, &mut report)?;
        }
        report.beside = self.bounds(&smallest, &report)?;
        output.text_or_json(|| report.text(), &report)
    }

    /// Plans for a part by each strategy in two orders, with and without streams.
    fn plan(&self, part: Part, opened: Opened) -> Result<Candidate, CliError> {
        let mut plans: Vec<(PlanChoice, Arc<Planned>)> = Vec::new();
        let mut refused = None;
        for place in &self.command.place {
            for order in [Order::Pct, Order::Frugal] {
                for streaming in [StreamMode::Auto, StreamMode::Off] {
                    let plan = PlanOptions::default().with_streaming(streaming);
                    let choice = PlanChoice { strategy: open::strategy(place), order, plan };
                    match opened.session.plan_with(&opened.inputs, &choice) {
                        Ok(planned) if plans.iter().any(|(_, other)| planned.is_same_plan(other)) => {}
                        Ok(planned) => plans.push((choice, planned)),
                        Err(error) if error.is_infeasible() => refused = Some(error),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        opened.save_costs()?;
        plans.sort_by(|one, other| predicted_ms(&one.1).total_cmp(&predicted_ms(&other.1)));
        match (plans.is_empty(), refused) {
            (true, Some(error)) => Err(error.into()),
            _ => Ok(Candidate { part, opened, plans }),
        }
    }

    /// Runs the plans of a part that could keep the deadline, until one does.
    fn attempt(
        &self,
        part: Part,
        deadline: f64,
        run: &RunOptions,
        report: &mut Report,
    ) -> Result<Option<Candidate>, CliError> {
        let mut devices = self.command.devices.clone();
        (devices.threads, devices.only) = (Some(part.threads), part.devices.clone());
        let opened = open(&devices, None, &self.command.model, &PlaceArgs::any(&self.command.constraints), true)?;
        let candidate = match self.plan(part.clone(), opened) {
            Ok(candidate) => candidate,
            Err(error) if error.is_fault() => return Err(error),
            Err(error) => {
                report.without_a_plan.push((part.name(), error.message));
                return Ok(None);
            }
        };
        let likely =
            candidate.plans.iter().take_while(|(_, planned)| predicted_ms(planned) <= deadline * TRUST).count();
        if likely == 0 {
            report.tried.push(Row::unmeasured(&candidate.part, &candidate.plans[0].0, &candidate.plans[0].1));
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

    /// Runs the plans of the smallest part that take less memory than the one that kept the deadline, the least first, until one keeps it.
    fn least_memory(
        &self,
        candidate: &Candidate,
        deadline: f64,
        run: &RunOptions,
        report: &mut Report,
    ) -> Result<(), CliError> {
        let mut best = report.fewest.clone();
        let mut places: Vec<usize> = (0..candidate.plans.len()).collect();
        let peak = |place: usize| peak(&candidate.plans[place].1);
        places.retain(|&place| best.as_ref().is_some_and(|best| peak(place) < best.planned_bytes));
        places.sort_by_key(|&place| peak(place));
        for place in places {
            let row = self.measure(candidate, place, run)?.kept(deadline);
            let kept = row.kept;
            report.tried.push(row.clone());
            if kept {
                best = Some(row);
                break;
            }
        }
        report.least_memory = best;
        Ok(())
    }

    fn measure(&self, candidate: &Candidate, plan: usize, run: &RunOptions) -> Result<Row, CliError> {
        let Candidate { part, opened, plans } = candidate;
        let (choice, planned) = &plans[plan];
        let options = SeriesOptions::default().with_runs(self.command.repeat, None).with_run(run.clone());
        let prepared = opened.session.ready(planned)?;
        // What is learned would change the predictions of plans that were made before; the store gets it for the next time.
        let series = measure(&opened.session, &opened.inputs, &prepared, &options, &mut |run| {
            opened.session.learn(run);
        });
        let series = series.map_err(cancelled)?;
        opened.save_costs()?;
        if series.last.later.is_some() {
            note("later phases of the model are planned while it runs; their plans' memory is not counted");
        }
        Ok(Row::measured(part, choice, planned, series.measured_ms, &series.last.measured.peaks))
    }

    /// What data take in any order, beside what the plan of least memory takes for other things.
    fn bounds(&self, candidate: &Candidate, report: &Report) -> Result<Option<Beside>, CliError> {
        let Some(row) = report.least_memory.as_ref() else { return Ok(None) };
        let problem = candidate.opened.session.problem(&candidate.opened.inputs)?;
        let live = live_bytes(&problem.graph).map_err(CliError::internal)?;
        let found = candidate.plans.iter().find(|(choice, _)| row.is_by(choice));
        Ok(found.map(|(_, planned)| Beside::of(planned, &live, row)))
    }
}

pub(super) fn predicted_ms(planned: &Planned) -> f64 {
    planned.plan().predicted().makespan * 1e3
}

/// Bytes that a plan takes of all devices.
pub(super) fn peak(planned: &Planned) -> u64 {
    planned.plan().memory().devices().iter().map(|device| device.peak()).fold(0, u64::saturating_add)
}
