//! Runs plans, learns from the runs, and places again, until measurements give no better plan.
//!
//! Each round runs the best plan so far, the plan that the newest costs propose, and every device on its own, in turn.
//! The plan with the least measured median is kept. So the final plan was never slower than the best single device, by
//! the measurements of the last round. The measurements of all plans go into the costs of the next round, and into the
//! prediction of the plan that was kept.
//!
//! If the model runs in phases, a plan is the first phase's plan together with the plans of later phases that its runs
//! make. Each time is that of the whole run. It cannot be predicted before a run, so each round tries a new plan.

#![forbid(unsafe_code)]

use crate::compare::interleaved::{Candidate, InterleavedRuns, Ran};
use crate::compare::nearest::Nearest;
use crate::compare::{Median, PROFILED, Series, SeriesOptions, measure};
use anabranch_execute::RunOptions;
use anabranch_learning::Accuracy;
use anabranch_planning::{Parts, PlanChoice, Planned, PlanningError, Strategy};
use anabranch_session::{Inputs, Session, SessionError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Unmeasured runs of each plan in a round: the first touches memory for the first time.
const WARMUP: u32 = 2;

/// Options of a refinement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefineOptions {
    /// Number of rounds, ≥ 1. The first measures the plan as it is placed now.
    pub rounds: u32,
    /// Measured runs of each plan in a round, ≥ 1.
    pub repeat: u32,
    /// Relative gain above which a new plan is tried (default: 0.02). A plan that cannot be predicted is always tried.
    pub threshold: f64,
    /// Cancellation and time limit of each run.
    pub run: RunOptions,
}

/// Result of a refinement.
pub struct Refined {
    /// The plan that is kept, with the predictions of the costs of all rounds.
    pub planned: Arc<Planned>,
    /// Measurements of the plan at the end, after all rounds.
    pub series: Series,
    /// Report of the rounds.
    pub refinement: Refinement,
}

/// Report of all rounds. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refinement {
    /// Relative gain above which a new plan was tried.
    pub threshold: f64,
    /// Reports of the rounds.
    pub rounds: Vec<Round>,
}

/// Report of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number of the round, from 1.
    pub round: u32,
    /// The best plan so far.
    pub plan: Measured,
    /// Predicted gain of the plan of the newest costs, in percent of the best plan so far.
    pub predicted_gain_percent: Option<f64>,
    /// The plan of the newest costs, if it was different and its predicted gain was above the threshold.
    pub proposal: Option<Measured>,
    /// Each device on its own, unless a plan already is that.
    pub singles: Vec<Measured>,
    /// Decision of the round.
    pub verdict: Verdict,
    /// Sum of the prediction errors of the nodes of the best plan so far, with the costs before the round. In percent
    /// of their measured time ([`Accuracy::node_error`](anabranch_learning::Accuracy::node_error)).
    pub node_error_percent: Option<f64>,
    /// Sum of the prediction errors of its copies over links, in percent of their measured time.
    pub link_error_percent: Option<f64>,
}

/// Measurements of a plan in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Strategy or device.
    pub place: String,
    /// Makespan predicted with the costs before the round; `None` if the model runs in phases and this is the first
    /// phase's plan.
    pub predicted_ms: Option<f64>,
    /// Measured makespan.
    pub measured_ms: Median,
}

/// Decision at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing new was tried, and the plan is the fastest.
    Unchanged,
    /// The new plan is faster.
    Kept,
    /// The new plan is slower than another.
    Rejected,
    /// A single device is faster than any plan.
    Single,
}

/// A plan that takes part in a round.
struct Entry {
    place: String,
    planned: Arc<Planned>,
}

impl RefineOptions {
    /// Returns options for `rounds` rounds with `repeat` measured runs of each plan. Plans are tried if they are
    /// predicted to be more than 2 % faster.
    pub fn new(rounds: u32, repeat: u32) -> Self {
        Self { rounds, repeat, threshold: 0.02, run: RunOptions::default() }
    }

    /// Sets the predicted relative gain above which a plan is tried (default: 0.02).
    pub fn with_threshold(self, threshold: f64) -> Self {
        Self { threshold, ..self }
    }

    /// Sets the options of each run.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }

    /// Options of the runs at the end.
    fn series(&self) -> SeriesOptions {
        SeriesOptions::default().with_runs(Some(self.repeat.max(1)), Some(WARMUP)).with_run(self.run.clone())
    }

    /// Most runs, each of which is one step of progress.
    pub fn steps(&self, session: &Session) -> u64 {
        let plans = 3 + session.inventory().gpus.len() as u64;
        u64::from(self.rounds) * u64::from(WARMUP + self.repeat + PROFILED) * plans + self.series().steps()
    }
}

/// Refines the session's plan for inputs of these shapes. `step` is called after each run.
///
/// # Errors
/// If there is no plan, or a run fails.
pub fn refine(
    session: &Session,
    inputs: &Inputs,
    options: &RefineOptions,
    step: &mut dyn FnMut(),
) -> Result<Refined, SessionError> {
    let mut choice = session.choice();
    let mut current = Entry::new(session.plan_with(inputs, &choice)?);
    if let Strategy::PlanFile(_) = choice.strategy {
        // The file gives the first plan. Later plans need a strategy.
        choice.strategy = Strategy::AUTO;
    }
    let mut rounds = Vec::new();
    for round in 1..=options.rounds.max(1) {
        let (gain, proposal) = match round {
            1 => (None, None),
            _ => propose(session, inputs, &choice, &mut current, options.threshold)?,
        };
        let mut entries = vec![current];
        let proposed = proposal.is_some();
        entries.extend(proposal);
        add_singles(session, inputs, &choice, &mut entries)?;
        let (medians, [node_error_percent, link_error_percent]) = run_rounds(session, inputs, options, &entries, step)?;
        let fastest = (0..entries.len()).min_by(|a, b| medians[*a].median.total_cmp(&medians[*b].median));
        let fastest = fastest.unwrap_or(0);
        let mut measured = entries.iter().zip(&medians).map(|(entry, median)| entry.measured(*median));
        rounds.push(Round {
            round,
            plan: measured.next().ok_or_else(PlanningError::no_plan)?,
            predicted_gain_percent: gain,
            proposal: if proposed { measured.next() } else { None },
            singles: measured.collect(),
            verdict: Verdict::of(fastest, proposed),
            node_error_percent,
            link_error_percent,
        });
        current = entries.swap_remove(fastest);
    }
    let planned = session.predict(inputs, &current.planned, &choice.plan)?;
    let series = measure(session, inputs, &session.ready(&planned)?, &options.series(), &mut |_| step())?;
    let refinement = Refinement { threshold: options.threshold, rounds };
    Ok(Refined { planned, series, refinement })
}

impl Refinement {
    /// Returns the plan that is kept, as the last round measured it.
    pub fn kept(&self) -> Option<&Measured> {
        let last = self.rounds.last()?;
        let plans = [Some(&last.plan), last.proposal.as_ref()].into_iter().flatten().chain(&last.singles);
        plans.min_by(|a, b| a.measured_ms.median.total_cmp(&b.measured_ms.median))
    }
}

impl Verdict {
    fn of(fastest: usize, proposed: bool) -> Self {
        match (fastest, proposed) {
            (0, false) => Self::Unchanged,
            (0, true) => Self::Rejected,
            (1, true) => Self::Kept,
            _ => Self::Single,
        }
    }
}

impl Entry {
    fn new(planned: Arc<Planned>) -> Self {
        Self { place: planned.plan().strategy().to_owned(), planned }
    }

    /// Predicted makespan, in seconds.
    fn predicted(&self) -> f64 {
        self.planned.plan().predicted().makespan
    }

    fn measured(&self, measured_ms: Median) -> Measured {
        let whole = self.planned.rest().is_none();
        Measured { place: self.place.clone(), predicted_ms: whole.then(|| self.predicted() * 1e3), measured_ms }
    }
}

/// Predicts the current plan with the newest costs and places again. Returns the predicted gain in percent, and the new
/// plan if it should be tried.
///
/// If the model runs in phases, only runs show whether it is faster.
fn propose(
    session: &Session,
    inputs: &Inputs,
    choice: &PlanChoice,
    current: &mut Entry,
    threshold: f64,
) -> Result<(Option<f64>, Option<Entry>), SessionError> {
    current.planned = session.predict(inputs, &current.planned, &choice.plan)?;
    let proposal = session.plan_with(inputs, choice)?;
    if proposal.rest().is_some() {
        return Ok((None, Some(Entry::new(proposal))));
    }
    if current.planned.is_same_plan(&proposal) || current.predicted() <= 0.0 {
        return Ok((None, None));
    }
    let proposal = Entry::new(proposal);
    let gain = 1.0 - proposal.predicted() / current.predicted();
    Ok((Some(gain * 100.0), (gain > threshold).then_some(proposal)))
}

/// Adds the fastest CPU device on its own, and each GPU with the nodes that it can run, if the constraints allow it.
/// Given parts of a batch do not.
fn add_singles(
    session: &Session,
    inputs: &Inputs,
    choice: &PlanChoice,
    entries: &mut Vec<Entry>,
) -> Result<(), SessionError> {
    let split = session.options.constraints.split.as_ref();
    if split.is_some_and(|split| split.parts != Parts::Auto) {
        return Ok(());
    }
    let gpus = session.inventory().gpus.iter().map(|gpu| Strategy::Device(gpu.name.clone()));
    for strategy in std::iter::once(Strategy::CPU).chain(gpus) {
        let place = strategy.to_string();
        let choice = PlanChoice { strategy, ..choice.clone() };
        match session.plan_with(inputs, &choice) {
            Ok(planned) if !entries.iter().any(|entry| entry.planned.is_same_plan(&planned)) => {
                entries.push(Entry { place, planned });
            }
            // A device that must not or cannot hold the whole model is not a candidate.
            Ok(_) => {}
            Err(error) if error.is_infeasible() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs all entries in turn and learns from them. Returns the medians by entry, and the errors of the first.
fn run_rounds(
    session: &Session,
    inputs: &Inputs,
    options: &RefineOptions,
    entries: &[Entry],
    step: &mut dyn FnMut(),
) -> Result<(Vec<Median>, [Option<f64>; 2]), SessionError> {
    let candidates = entries.iter().map(|entry| Candidate::plan(Arc::clone(&entry.planned))).collect();
    let mut interleaved = InterleavedRuns::new(session, inputs, &options.run, candidates);
    interleaved.run_rounds(WARMUP, false, &mut |_, _| step())?;
    let mut samples = vec![Vec::new(); entries.len()];
    interleaved.run_rounds(options.repeat.max(1), false, &mut |at, ran| {
        step();
        samples[at].push(ran.took_ms());
    })?;
    let medians: Vec<Median> = samples.iter().filter_map(|samples| Median::of(samples)).collect();
    let mut nearest = Nearest::to(medians.first().map_or(0.0, |median| median.median));
    interleaved.run_rounds(PROFILED, true, &mut |at, ran| {
        step();
        if let Ran::Planned(run) = &ran {
            session.learn(run);
            if at == 0 {
                nearest.offer(ran.took_ms(), run.accuracy());
            }
        }
    })?;
    Ok((medians, nearest.found().map_or([None; 2], Accuracy::error_percents)))
}
