//! Compares configurations to place, order and stream one model by running each on the devices of this machine:
//! predicted against measured times.
//!
//! All configurations are planned first and then run in turn, so that drift of the machine affects all equally.
//! Makespans are measured without profiling, because profiling a GPU costs time. Node times, traffic and utilisation
//! come from separate runs. A scheduler without a plan ([`DynamicExecutor`](anabranch_execute::DynamicExecutor)) takes
//! part unless it is left out.

#![forbid(unsafe_code)]

mod agreement;
mod difference;
pub(crate) mod interleaved;
mod latencies;
mod median;
pub(crate) mod nearest;
mod outcome;
mod ratio;
mod series;
mod together;
mod tolerance;

pub use agreement::Agreement;
pub use anabranch_base::load::Load;
pub use difference::{Difference, Top1, Worst};
pub use latencies::{Latencies, runs_per_second};
pub use median::Median;
pub use outcome::{DeviceOutcome, Outcome};
pub use ratio::Ratio;
pub use series::{Series, SeriesOptions, measure};
pub use together::{Together, together};
pub use tolerance::{Tolerance, floats};

use anabranch_base::load::LoadMeter;
use anabranch_execute::RunOptions;
use anabranch_plan::{PlanDevice, StreamMode};
use anabranch_planning::{Order, PlanChoice, Planned, PlanningError};
use anabranch_session::{Inputs, Outputs, Run, Session, SessionError};
use interleaved::{Candidate, InterleavedRuns, Ran};
use outcome::Tally;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the run-time scheduler among the configurations.
pub const DYNAMIC: &str = "dynamic";

/// Profiled runs of each configuration or plan, after the measured runs.
pub(crate) const PROFILED: u32 = 3;

/// Options of a comparison.
/// ```
/// # mod anabranch {
/// #     pub use anabranch_planning::{self as planning, Strategy};
/// #     pub use anabranch_session::{Inputs, Session, SessionConfig};
/// #     pub use anabranch_tuning::compare;
/// # }
/// use anabranch::compare::{CompareOptions, compare};
/// use anabranch::planning::PlanChoice;
/// use anabranch::{Inputs, Session, SessionConfig, Strategy};
///
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
/// let places = [Strategy::CPU, Strategy::HEFT].map(|strategy| PlanChoice { strategy, ..session.choice() });
/// let options = CompareOptions::new("layer", places.to_vec()).with_runs(5, 2);
/// let inputs = session.fill_random(Inputs::new(), 1)?;
/// let comparison = compare(&session, &inputs, &options, &mut || {})?;
/// assert!(comparison.outcomes.iter().all(|outcome| outcome.measured_ms.median > 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompareOptions {
    /// Name of the model in reports.
    pub model: String,
    /// Configurations to compare. The first is the reference of all outputs.
    pub configurations: Vec<PlanChoice>,
    /// Measured runs of each configuration, ≥ 1. If there are several callers, runs by each of them.
    pub repeat: u32,
    /// Duration for which each configuration is measured, instead of a number of runs.
    pub duration: Option<Duration>,
    /// Callers that run each configuration at the same time. Runs of a session are serialized. The comparison then
    /// measures the time that a caller waits, and the throughput.
    pub callers: NonZeroU32,
    /// Whether the run-time scheduler takes part.
    pub dynamic: bool,
    /// Unmeasured runs of each configuration before the measured runs.
    pub warmup: u32,
    /// Rounds of running all configurations and learning from the runs, before they are placed for the comparison.
    pub refine: u32,
    /// Cancellation and time limit of each run.
    pub run: RunOptions,
}

/// A configuration that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Strategy, device, plan file, or [`DYNAMIC`].
    pub place: String,
    /// Order of ready nodes; `None` for the dynamic scheduler.
    pub order: Option<Order>,
    /// Streaming mode; `None` for the dynamic scheduler.
    pub stream: Option<StreamMode>,
}

/// Results of a comparison. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the model.
    pub model: String,
    /// Number of nodes of the lowered model, in all phases.
    pub nodes: usize,
    /// Measured runs of each configuration. If there are several callers, runs by each of them.
    pub repeat: u32,
    /// Callers at the same time.
    pub callers: NonZeroU32,
    /// Unmeasured runs of each configuration.
    pub warmup: u32,
    /// Rounds of learning before the comparison.
    pub refine: u32,
    /// Whether all plans had their memory at the same time. Otherwise each plan was made ready and run once before each
    /// measured run.
    pub side_by_side: bool,
    /// Devices of the session.
    pub devices: Vec<PlanDevice>,
    /// Results of each configuration. The dynamic scheduler comes last, if it takes part and fits the devices.
    pub outcomes: Vec<Outcome>,
    /// Configurations without a plan, with the reason, and the dynamic scheduler if it does not fit.
    pub failed: Vec<(Configuration, String)>,
    /// Notes of the inventory.
    pub notes: Vec<String>,
    /// Load of the machine during the measured runs.
    #[serde(default)]
    pub load: Load,
}

impl CompareOptions {
    /// Compares these configurations and the run-time scheduler, with the costs known so far. Default: twenty measured
    /// runs of each after two unmeasured runs.
    pub fn new(model: impl Into<String>, configurations: Vec<PlanChoice>) -> Self {
        let (model, run) = (model.into(), RunOptions::default());
        Self {
            model,
            configurations,
            repeat: 20,
            duration: None,
            callers: NonZeroU32::MIN,
            dynamic: true,
            warmup: 2,
            refine: 0,
            run,
        }
    }

    /// Sets whether the run-time scheduler takes part (default: true).
    pub fn with_dynamic(self, dynamic: bool) -> Self {
        Self { dynamic, ..self }
    }

    /// Sets the duration for which each configuration is measured (default: none, a number of runs).
    pub fn with_duration(self, duration: Option<Duration>) -> Self {
        Self { duration, ..self }
    }

    /// Sets the number of callers at the same time (default: 1).
    pub fn with_callers(self, callers: NonZeroU32) -> Self {
        Self { callers, ..self }
    }

    /// Sets the measured runs of each configuration (default: 20), and the unmeasured runs before them (default: 2).
    pub fn with_runs(self, repeat: u32, warmup: u32) -> Self {
        Self { repeat, warmup, ..self }
    }

    /// Sets the rounds of learning before the comparison (default: 0).
    pub fn with_refine(self, refine: u32) -> Self {
        Self { refine, ..self }
    }

    /// Sets the options of each run.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }

    /// Number of steps of progress: runs, or rounds of several callers. If a duration is set, only runs that do not
    /// count for it.
    pub fn steps(&self) -> u64 {
        let learning = u64::from(self.refine) * u64::from(LEARNING + 1) * self.configurations.len() as u64;
        let measured = if self.duration.is_some() { 0 } else { self.rounds() };
        learning
            + u64::from(self.warmup + measured + PROFILED)
                * (self.configurations.len() as u64 + u64::from(self.dynamic))
    }

    /// Rounds in the given number of runs.
    fn rounds(&self) -> u32 {
        self.repeat.div_ceil(self.each())
    }

    /// Runs of a caller in a round.
    fn each(&self) -> u32 {
        if self.callers.get() > 1 { TOGETHER.min(self.repeat) } else { 1 }
    }
}

impl Comparison {
    /// Returns the outcome with the least median.
    pub fn best(&self) -> Option<&Outcome> {
        self.outcomes.iter().min_by(|a, b| a.measured_ms.median.total_cmp(&b.measured_ms.median))
    }

    /// Returns the outcome with the least median, if its interval lies below those of all other plans; `None` if
    /// intervals overlap or rest on too few runs.
    pub fn fastest(&self) -> Option<&Outcome> {
        let best = self.best()?;
        let is_other = |outcome: &&Outcome| {
            outcome.configuration != best.configuration && (best.plan.is_none() || outcome.plan != best.plan)
        };
        let is_slower = |outcome: &Outcome| outcome.measured_ms.is_above(&best.measured_ms);
        self.outcomes.iter().filter(is_other).all(is_slower).then_some(best)
    }

    /// Returns the outcomes whose intervals do not differ from that of the least median, which comes first.
    /// Configurations with the same plan count once.
    pub fn equally_fast(&self) -> Vec<&Outcome> {
        let Some(best) = self.best() else { return Vec::new() };
        let mut equal = vec![best];
        for outcome in &self.outcomes {
            let known = |other: &&Outcome| {
                other.configuration == outcome.configuration || (other.plan.is_some() && other.plan == outcome.plan)
            };
            if !outcome.measured_ms.is_above(&best.measured_ms) && !equal.iter().any(known) {
                equal.push(outcome);
            }
        }
        equal
    }

    /// Returns the median of a configuration divided by the least of all other plans: below 1 it is the fastest. `None`
    /// if it was not compared, or no configuration has another plan.
    pub fn against_others(&self, place: &str) -> Option<f64> {
        let is_own = |outcome: &&Outcome| outcome.configuration.place == place;
        let own = || self.outcomes.iter().filter(is_own);
        let is_other = |outcome: &&Outcome| {
            !is_own(outcome) && (outcome.plan.is_none() || own().all(|own| own.plan != outcome.plan))
        };
        let least = |outcomes: &mut dyn Iterator<Item = &Outcome>| {
            outcomes.map(|outcome| outcome.measured_ms.median).reduce(f64::min)
        };
        Some(least(&mut own())? / least(&mut self.outcomes.iter().filter(is_other))?)
    }
}

impl Configuration {
    fn of(choice: &PlanChoice) -> Self {
        Self { place: choice.strategy.to_string(), order: Some(choice.order), stream: Some(choice.plan.streaming) }
    }

    fn dynamic() -> Self {
        Self { place: DYNAMIC.into(), order: None, stream: None }
    }
}

/// Runs of each configuration per round of learning.
const LEARNING: u32 = 3;

/// Runs of each of several callers in one round, so that most of them begin while others are in progress.
const TOGETHER: u32 = 5;

/// Compares configurations. `step` is called after each run.
///
/// # Errors
/// If no configuration has a plan, or a run fails.
pub fn compare(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
    step: &mut dyn FnMut(),
) -> Result<Comparison, SessionError> {
    compare_seen(session, inputs, options, step, &mut |_, _| {})
}

/// Compares configurations as [`compare`] does, and calls `see` with profiled runs and their plans' numbers
/// ([`Outcome::plan`]).
///
/// It is called with each run that is nearer to its plan's median than those before. The last is the run that the
/// outcome describes.
///
/// # Errors
/// As [`compare`].
pub fn compare_seen(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
    step: &mut dyn FnMut(),
    see: &mut dyn FnMut(usize, &Run),
) -> Result<Comparison, SessionError> {
    for _ in 0..options.refine {
        learn(session, inputs, options, step)?;
    }
    let (plans, mut failed) = plan_all(session, inputs, options)?;
    let Distinct { plans: distinct, of } = Distinct::of(&plans);
    let candidates = distinct.into_iter().map(Candidate::plan);
    let candidates: Vec<_> = candidates.chain(options.dynamic.then_some(Candidate::Dynamic(None))).collect();
    let mut tallies: Vec<Tally> = candidates.iter().map(|_| Tally::default()).collect();
    // A run counts for all configurations of the same plan. The dynamic scheduler is alone.
    let mut step = |at: usize| (0..of.iter().filter(|plan| **plan == at).count().max(1)).for_each(|_| step());
    let mut interleaved = InterleavedRuns::new(session, inputs, &options.run, candidates);
    interleaved.run_rounds(options.warmup, false, &mut |at, _| step(at))?;
    let (each, begun, mut rounds) = (options.each(), Instant::now(), 0);
    let limit = options.duration.map(|duration| duration.saturating_mul(tallies.len() as u32));
    let meter = LoadMeter::start();
    while limit.map_or(rounds < options.rounds(), |limit| rounds == 0 || begun.elapsed() < limit) {
        if options.callers.get() == 1 {
            interleaved.run_round(rounds, false, &mut |at, ran| {
                step(at);
                tallies[at].add(&ran);
            })?;
        } else {
            interleaved.run_round_together(rounds, options.callers, each, &mut |at, made| {
                step(at);
                tallies[at].add_together(made);
            })?;
        }
        rounds += 1;
    }
    let load = meter.stop();
    let mut reference: Option<Outputs> = None;
    interleaved.run_rounds(PROFILED, true, &mut |at, ran| {
        step(at);
        let nearest = tallies[at].add_profiled(&ran, reference.get_or_insert_with(|| ran.outputs().clone()));
        if let (true, Ran::Planned(run)) = (nearest, &ran) {
            see(at, run);
        }
    })?;
    let first = &plans[0].1;
    let same = |at: usize| of[..at].iter().position(|plan| *plan == of[at]).map(|other| plans[other].0.place.clone());
    let planned = plans.iter().enumerate().filter_map(|(at, (configuration, planned))| {
        Some(Outcome {
            same_plan_as: same(at),
            plan: Some(of[at]),
            ..tallies[of[at]].outcome(configuration.clone(), Some(planned))?
        })
    });
    failed.extend(interleaved.refused().map(|error| (Configuration::dynamic(), error.to_string())));
    let dynamic = tallies.last().filter(|_| options.dynamic && interleaved.refused().is_none());
    let dynamic = dynamic.and_then(|tally| tally.outcome(Configuration::dynamic(), None));
    let outcomes: Vec<Outcome> = planned.chain(dynamic).collect();
    // A model in phases has the nodes of later plans, too.
    let ran = |outcome: &Outcome| outcome.devices.iter().map(|device| device.nodes).sum();
    let nodes = outcomes.first().map_or(0, ran).max(first.program.nodes.len());
    Ok(Comparison {
        model: options.model.clone(),
        nodes,
        repeat: rounds * each,
        callers: options.callers,
        warmup: options.warmup,
        refine: options.refine,
        side_by_side: interleaved.alive,
        devices: first.plan().devices().to_vec(),
        outcomes,
        failed,
        notes: session.inventory().notes.clone(),
        load,
    })
}

type Plans = Vec<(Configuration, Arc<Planned>)>;

/// The distinct plans, and the plan of each configuration. Equal plans are run and measured once.
struct Distinct {
    plans: Vec<Arc<Planned>>,
    of: Vec<usize>,
}

impl Distinct {
    fn of(configurations: &Plans) -> Self {
        let mut distinct = Self { plans: Vec::new(), of: Vec::new() };
        for (_, planned) in configurations {
            let found = distinct.plans.iter().position(|other| other.is_same_plan(planned));
            distinct.of.push(found.unwrap_or(distinct.plans.len()));
            if found.is_none() {
                distinct.plans.push(Arc::clone(planned));
            }
        }
        distinct
    }
}

/// Plans every configuration. If a configuration finds no placement within the constraints, only that configuration
/// fails.
fn plan_all(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
) -> Result<(Plans, Vec<(Configuration, String)>), SessionError> {
    let (mut plans, mut failed, mut first) = (Plans::new(), Vec::new(), None);
    for choice in &options.configurations {
        let configuration = Configuration::of(choice);
        match session.plan_with(inputs, choice) {
            Ok(planned) => plans.push((configuration, planned)),
            Err(error) if error.is_infeasible() => {
                failed.push((configuration, error.to_string()));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match first {
        Some(error) if plans.is_empty() => Err(error),
        None if plans.is_empty() => Err(PlanningError::no_plan().into()),
        _ => Ok((plans, failed)),
    }
}

/// Runs every configuration for one round and learns from it. First runs only warm up.
fn learn(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
    step: &mut dyn FnMut(),
) -> Result<(), SessionError> {
    let (plans, _) = plan_all(session, inputs, options)?;
    let Distinct { plans, of } = Distinct::of(&plans);
    let candidates = plans.into_iter().map(Candidate::plan).collect();
    let mut step = |at: usize| of.iter().filter(|plan| **plan == at).for_each(|_| step());
    let mut interleaved = InterleavedRuns::new(session, inputs, &options.run, candidates);
    interleaved.run_rounds(1, false, &mut |at, _| step(at))?;
    interleaved.run_rounds(LEARNING, true, &mut |at, ran| {
        step(at);
        if let Ran::Planned(run) = &ran {
            session.learn(run);
        }
    })
}
