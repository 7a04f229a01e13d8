//! Consecutive runs of one plan: first runs that warm it up, then measured runs, last profiled runs. Times are measured
//! without profiling, as in comparisons. If only one run is measured, it is profiled itself. If the model runs in
//! phases, each time is that of the whole run.

use super::nearest::Nearest;
use super::{Median, PROFILED};
use anabranch_base::load::{Load, LoadMeter};
use anabranch_execute::RunOptions;
use anabranch_learning::Accuracy;
use anabranch_session::{Inputs, Outputs, Prepared, Run, RunPrediction, Session, SessionError};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most time of all runs together if their number is not given, apart from one warm-up run and one measured run.
const BUDGET: Duration = Duration::from_secs(1);

/// Most measured runs if their number is not given: enough for an interval of 95 % that leaves out three at each end.
const MOST: u32 = 15;

/// Most measured runs within a duration, to bound the memory for their times.
const MOST_TIMED: usize = 10_000_000;

/// Options of a series.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SeriesOptions {
    /// Runs before the measured runs. Default: 1.
    pub warmup: Option<u32>,
    /// Measured runs, ≥ 1. Default: as many as fit into about a second, but at most 15.
    pub repeat: Option<u32>,
    /// Duration of the measured runs, if their number is not given.
    pub duration: Option<Duration>,
    /// Cancellation and time limit of each run.
    pub run: RunOptions,
}

/// Measurements of one plan. Times in milliseconds.
pub struct Series {
    /// Runs before the measured runs.
    pub warmup: u32,
    /// Time of the first of all runs: it touches memory for the first time, unless the plan was run before.
    pub first_ms: f64,
    /// Each measured makespan, in the order of the runs.
    pub samples_ms: Vec<f64>,
    /// Median of the measured makespans.
    pub measured_ms: Median,
    /// Whether the first measured run was the first run of a plan.
    pub cold: bool,
    /// Predicted time of runs; `None` if it was not known before: see [`Run::predicted`].
    pub predicted: Option<RunPrediction>,
    /// Load of the machine during the measured runs.
    pub load: Load,
    /// Predictions of nodes, links and the whole of `run`.
    pub accuracy: Accuracy,
    /// The profiled run nearest to the median of the measured runs, with the outputs of the last run. Figures of nodes,
    /// devices, links and events come from it.
    pub run: Run,
}

impl SeriesOptions {
    /// Sets the measured runs (default: about a second, at most 15) and the runs before them (default: 1).
    pub fn with_runs(self, repeat: Option<u32>, warmup: Option<u32>) -> Self {
        Self { repeat, warmup, ..self }
    }

    /// Sets the duration of the measured runs, if their number is not given (default: none).
    pub fn with_duration(self, duration: Option<Duration>) -> Self {
        Self { duration, ..self }
    }

    /// Sets the options of each run.
    pub fn with_run(self, run: RunOptions) -> Self {
        Self { run, ..self }
    }

    /// Most runs of the series. If a duration is set, only runs that do not count for it.
    pub fn steps(&self) -> u64 {
        let (warmup, repeat) = (self.warmup.unwrap_or(1), self.repeat.unwrap_or(MOST));
        u64::from(warmup + repeat + if repeat == 1 { 0 } else { PROFILED })
    }
}

/// Runs a plan that is ready. `see` is called with each run; profiled runs can be learned from.
///
/// # Errors
/// If a run fails.
pub fn measure(
    session: &Session,
    inputs: &Inputs,
    prepared: &Arc<Prepared>,
    options: &SeriesOptions,
    see: &mut dyn FnMut(&Run),
) -> Result<Series, SessionError> {
    let begun = Instant::now();
    let mut first_ms = None;
    let mut run = |profile: bool| {
        let run = session.run_prepared(prepared, inputs, &options.run.clone().with_profile(profile))?;
        first_ms.get_or_insert(run_ms(&run));
        see(&run);
        Ok::<_, SessionError>(run)
    };
    let warmup = options.warmup.unwrap_or(1);
    for _ in 0..warmup {
        run(false)?;
    }
    // If there is no time for more runs, the measured run is also the profiled one.
    let single = match (options.repeat, options.duration) {
        (Some(repeat), _) => repeat <= 1,
        (None, Some(_)) => false,
        (None, None) => begun.elapsed() > BUDGET / 2,
    };
    let meter = LoadMeter::start();
    let mut shown = run(single)?;
    let cold = shown.is_cold();
    let mut samples_ms = vec![run_ms(&shown)];
    let out_of_time = |share: f64| options.repeat.is_none() && begun.elapsed() > BUDGET.mul_f64(share);
    let measuring = Instant::now();
    let enough = |runs: usize| match (options.repeat, options.duration) {
        (Some(repeat), _) => runs >= repeat as usize,
        (None, Some(duration)) => measuring.elapsed() >= duration || runs >= MOST_TIMED,
        (None, None) => runs >= MOST as usize || out_of_time(0.75),
    };
    while !single && !enough(samples_ms.len()) {
        // While outputs are held, the next run writes to fresh pages, which takes longer than most kernels.
        shown.outputs = Outputs::default();
        samples_ms.push(run_ms(&run(false)?));
    }
    let load = meter.stop();
    let measured_ms = Median::of(&samples_ms).unwrap_or_default();
    let mut nearest = Nearest::to(measured_ms.median);
    let mut outputs = mem::take(&mut shown.outputs);
    for profiled in 0..if single { 0 } else { PROFILED } {
        if profiled == 0 || options.duration.is_some() || !out_of_time(1.0) {
            drop(mem::take(&mut outputs));
            let mut next = run(true)?;
            outputs = mem::take(&mut next.outputs);
            nearest.offer(run_ms(&next), next);
        }
    }
    let run = Run { outputs, ..nearest.into_found().unwrap_or(shown) };
    let first_ms = first_ms.unwrap_or_default();
    let (predicted, accuracy) = (run.predicted(), run.accuracy());
    Ok(Series { warmup, first_ms, samples_ms, measured_ms, cold, predicted, load, accuracy, run })
}

/// Time of a run in milliseconds.
pub(crate) fn run_ms(run: &Run) -> f64 {
    run.took().as_secs_f64() * 1e3
}
