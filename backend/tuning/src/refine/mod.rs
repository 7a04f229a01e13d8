//! Runs, learns, and places again: until the plan is as good as what was measured lets it be.
//!
//! In each round the plan kept so far, the plan that the newest costs propose, and every device on its own are run in turn; the
//! one of least measured median is kept. So the plan that remains was never slower than the best single device, by the
//! measurements of the last round. What was measured of all of them goes into the costs of the next round, and into what is predicted
//! then of the plan that was kept. If the model runs in phases, a plan is that of the first one with the plans of the others that its runs make,
//! and each time is that of the whole run. Nobody predicts that before a run, so each round tries a new plan.

#![forbid(unsafe_code)]

use crate::compare::contest::{Contender, Contest, Ran};
use crate::compare::nearest::Nearest;
use crate::compare::{Median, PROFILED, Series, SeriesOptions, measure};
use anabranch_execute::RunOptions;
use anabranch_learning::Accuracy;
use anabranch_planning::{PlanChoice, Planned, PlanningError, Strategy};
use anabranch_session::{Inputs, Session, SessionError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Runs of each plan in a round before those that count: the first touches memory for the first time.
const WARMUP: u32 = 2;

/// How a plan is refined.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefineOptions {
    /// Rounds, ≥ 1. The first measures the plan as it is placed now.
    pub rounds: u32,
    /// Measured runs of each plan in a round, ≥ 1.
    pub repeat: u32,
    /// A new plan is tried where it is predicted to be faster by more than this part, or nobody can predict it.
    pub threshold: f64,
    /// Cancellation and time limit of each run.
    pub run: RunOptions,
}

/// What was tried, and what is kept.
pub struct Refined {
    /// The plan that is kept, with what the costs of all rounds predict of it.
    pub planned: Arc<Planned>,
    /// What was measured of it at the end, after all that was learned.
    pub series: Series,
    /// What happened.
    pub refinement: Refinement,
}

/// All rounds. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refinement {
    /// A new plan was tried where it was predicted to be faster by more than this part.
    pub threshold: f64,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// From 1.
    pub round: u32,
    /// The plan kept so far.
    pub plan: Measured,
    /// By how much the plan of the newest costs was predicted to be faster, in percent of the plan kept so far.
    pub predicted_gain_percent: Option<f64>,
    /// That plan, if it was different and predicted to be faster by more than the threshold.
    pub proposal: Option<Measured>,
    /// Each device on its own, unless that is what a plan does already.
    pub singles: Vec<Measured>,
    /// What is kept from this round on.
    pub verdict: Verdict,
    /// By how much of their measured time the nodes of the plan kept so far were predicted too long or too short, with the costs before
    /// the round, in percent ([`Accuracy::node_error`](anabranch_learning::Accuracy::node_error)).
    pub node_error_percent: Option<f64>,
    /// The same of its copies over links.
    pub link_error_percent: Option<f64>,
}

/// A plan in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The strategy or device.
    pub place: String,
    /// The makespan predicted with the costs before the round; `None` of a model that runs in phases, of which this is the first one's plan.
    pub predicted_ms: Option<f64>,
    /// The measured makespan.
    pub measured_ms: Median,
}

/// How a round ends.
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
    /// So many rounds with so many measured runs of each plan. Plans are tried that are predicted to be 2 % faster.
    pub fn new(rounds: u32, repeat: u32) -> Self {
        Self { rounds, repeat, threshold: 0.02, run: RunOptions::default() }
    }

    /// The same, trying plans that are predicted to be faster by more than this part.
    pub fn with_threshold(self, threshold: f64) -> Self {
        Self { threshold, ..self }
    }

    /// The same with runs made like this.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }

    /// The runs at the end.
    fn series(&self) -> SeriesOptions {
        SeriesOptions::default().with_runs(Some(self.repeat.max(1)), Some(WARMUP)).with_run(self.run.clone())
    }

    /// The number of runs at most, each of which is one step of progress.
    pub fn steps(&self, session: &Session) -> u64 {
        let plans = 3 + session.inventory().gpus.len() as u64;
        u64::from(self.rounds) * u64::from(WARMUP + self.repeat + PROFILED) * plans + self.series().steps()
    }
}

/// Refines the session's plan for inputs of these shapes; `step` is called after each run.
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
        // The file says how to begin; what is learned needs a strategy.
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
        let (medians, [node_error_percent, link_error_percent]) = play(session, inputs, options, &entries, step)?;
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
    /// The measured makespan of the plan that is kept, in the last round.
    pub fn kept_ms(&self) -> Option<Median> {
        let last = self.rounds.last()?;
        let medians = [Some(&last.plan), last.proposal.as_ref()].into_iter().flatten().chain(&last.singles);
        medians.map(|measured| measured.measured_ms).min_by(|a, b| a.median.total_cmp(&b.median))
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

    /// The predicted makespan, in seconds.
    fn predicted(&self) -> f64 {
        self.planned.plan().predicted().makespan
    }

    fn measured(&self, measured_ms: Median) -> Measured {
        let whole = self.planned.rest().is_none();
        Measured { place: self.place.clone(), predicted_ms: whole.then(|| self.predicted() * 1e3), measured_ms }
    }
}

/// Predicts the current plan anew and places again: the predicted gain in percent, and the new plan if it is worth a try. If the model runs in
/// phases, only runs tell whether it is.
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

/// Adds the fastest CPU device on its own, and each GPU with what it can run, where the constraints allow it.
fn add_singles(
    session: &Session,
    inputs: &Inputs,
    choice: &PlanChoice,
    entries: &mut Vec<Entry>,
) -> Result<(), SessionError> {
    let gpus = session.inventory().gpus.iter().map(|gpu| Strategy::Device(gpu.name.clone()));
    for strategy in std::iter::once(Strategy::CPU).chain(gpus) {
        let place = strategy.to_string();
        let choice = PlanChoice { strategy, ..choice.clone() };
        match session.plan_with(inputs, &choice) {
            Ok(planned) if !entries.iter().any(|entry| entry.planned.is_same_plan(&planned)) => {
                entries.push(Entry { place, planned });
            }
            // A device that must not or cannot hold the whole is no candidate.
            Ok(_) => {}
            Err(error) if error.is_infeasible() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs all entries in turn and learns from them: the medians by entry, and the errors of the first.
fn play(
    session: &Session,
    inputs: &Inputs,
    options: &RefineOptions,
    entries: &[Entry],
    step: &mut dyn FnMut(),
) -> Result<(Vec<Median>, [Option<f64>; 2]), SessionError> {
    let contenders = entries.iter().map(|entry| Contender::plan(Arc::clone(&entry.planned))).collect();
    let mut contest = Contest::new(session, inputs, &options.run, contenders);
    contest.play(WARMUP, false, &mut |_, _| step())?;
    let mut samples = vec![Vec::new(); entries.len()];
    contest.play(options.repeat.max(1), false, &mut |at, ran| {
        step();
        samples[at].push(ran.took_ms());
    })?;
    let medians: Vec<Median> = samples.iter().filter_map(|samples| Median::of(samples)).collect();
    let mut nearest = Nearest::to(medians.first().map_or(0.0, |median| median.median));
    contest.play(PROFILED, true, &mut |at, ran| {
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
