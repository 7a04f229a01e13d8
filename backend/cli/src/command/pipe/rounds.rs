//! Sends data sets through a series of pipelines. Each is cut with the measurements of the one before, until that gains
//! nothing.

use super::sink::Sink;
use super::source::Source;
use crate::command::live::{Live, To, share};
use crate::command::progress::Progress;
use crate::command::{CliError, Output};
use anabranch::CancelToken;
use anabranch::pipeline::{
    Finished, Measured, MeasuredReplica, MeasuredStage, Pipeline, PipelineError, PipelineOptions, PipelinePlan,
    StageCosts,
};
use anabranch::session::Session;
use anabranch_report::text::{count, duration};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Data sets per device from which a round learns.
const LEARNT: usize = 12;

/// Stages are cut again if one took longer or shorter than predicted by more than this factor.
const OFF: f64 = 1.05;

/// Time between two displays of the stages.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Context of the rounds.
pub(super) struct Rounds<'a> {
    pub(super) session: &'a Session,
    pub(super) source: &'a Source<'a>,
    pub(super) sink: &'a Sink<'a>,
    /// Used by an interruption: data sets in flight are finished.
    pub(super) token: &'a CancelToken,
    pub(super) output: Output,
    /// Whether stages are displayed while they work.
    pub(super) live: bool,
}

/// Outcome of the data sets.
pub(super) struct Ran {
    /// Plan of the last round, which had most data sets.
    pub(super) plan: PipelinePlan,
    pub(super) measured: Measured,
    pub(super) rounds: Vec<Round>,
    pub(super) done: u64,
    pub(super) took: Duration,
    /// Error that ended it early.
    pub(super) failure: Option<CliError>,
}

/// One of several pipelines. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    pub(super) how: String,
    pub(super) data_sets: u64,
    pub(super) predicted_period: f64,
    pub(super) measured_period: f64,
    /// Factor between measured and predicted time of the stage that was furthest off.
    pub(super) off: f64,
}

/// Reason why a round ended early.
enum Stopped {
    Stage(PipelineError),
    /// A data set cannot be read, or its results cannot be written.
    File(CliError),
}

impl From<PipelineError> for Stopped {
    fn from(error: PipelineError) -> Self {
        Self::Stage(error)
    }
}

impl Rounds<'_> {
    /// Runs these data sets.
    pub(super) fn run(
        &self,
        mut costs: StageCosts,
        options: &PipelineOptions,
        most: u32,
        wanted: &[u64],
    ) -> Result<Ran, CliError> {
        // The live display replaces the progress bar.
        let shown = if self.live { Output { json: true } } else { self.output };
        let progress = Progress::with_rate(shown, "samples", wanted.len() as u64);
        let (begun, mut rounds, mut done, mut settled) = (Instant::now(), Vec::new(), 0, false);
        let mut pipeline = Pipeline::with_costs(self.session, &costs, options)?;
        self.sink.begin()?;
        loop {
            let devices: usize = pipeline.plan().stages.iter().map(|stage| stage.devices.len()).sum();
            let rest = &wanted[done..];
            let last = settled || rounds.len() as u32 >= most || rest.len() < 3 * LEARNT * devices;
            let part = if last { rest } else { &rest[..LEARNT * devices] };
            let (kept, stopped) = self.round(&pipeline, part, &progress);
            let (plan, measured) = (pipeline.plan().clone(), pipeline.measured());
            let off = costs.learn_from(&plan, &measured);
            done += kept;
            rounds.push(Round {
                how: plan.how.clone(),
                data_sets: measured.data_sets,
                predicted_period: plan.period,
                measured_period: measured.period,
                off,
            });
            let failure = stopped.err().map(|stopped| match stopped {
                Stopped::File(error) => error,
                Stopped::Stage(failure) => failure.renumbered(|at| part[at as usize]).into(),
            });
            if last || failure.is_some() || self.token.is_cancelled() {
                return Ok(Ran { plan, measured, rounds, done: done as u64, took: begun.elapsed(), failure });
            }
            settled = off <= OFF;
            // Frees the memory of the old pipeline for the new one.
            drop(pipeline);
            pipeline = Pipeline::with_costs(self.session, &costs, options)?;
        }
    }

    /// Runs some data sets through one pipeline. Returns how many results were kept, and the reason of an early end.
    fn round(&self, pipeline: &Pipeline, part: &[u64], progress: &Progress) -> (usize, Result<(), Stopped>) {
        let mut kept = 0;
        let wanted = part.iter().take_while(|_| !self.token.is_cancelled());
        let inputs = wanted.map(|at| self.source.set(*at).map_err(Stopped::File));
        let mut live = Live::new(if self.live { To::Error } else { To::Nobody }, SHOWN_EVERY);
        let stopped = pipeline.run_all(inputs, |Finished { data_set, outputs, .. }| {
            self.sink.put(part[data_set as usize], &outputs).map_err(Stopped::File)?;
            kept += 1;
            progress.advance();
            if live.is_due() {
                let (picture, line) = picture(pipeline);
                live.show(&picture, &line).map_err(Stopped::File)?;
            }
            Ok(())
        });
        (kept, stopped)
    }
}

/// Returns the state of a running pipeline, as several lines and as one line.
///
/// It has the rate and, for each stage, how busy its devices are and how many data sets wait before it.
fn picture(pipeline: &Pipeline) -> (Vec<String>, String) {
    let (measured, waiting) = (pipeline.measured(), pipeline.waiting());
    let Measured { data_sets, period, latency, .. } = &measured;
    let samples = count(*data_sets, "sample");
    let told = format!("{samples}, one every {}, latency {} (p50)", duration(*period), duration(latency.p50));
    let stages = || measured.stages.iter().zip(&waiting).enumerate();
    let line = |(at, (stage, waiting)): (usize, (&MeasuredStage, &usize))| {
        let of = move |replica: &MeasuredReplica| {
            format!("  stage {at} on {}  {}  {waiting} waiting", replica.device, share(replica.busy))
        };
        stage.devices.iter().map(of).collect::<Vec<_>>()
    };
    let picture = std::iter::once(told.clone()).chain(stages().flat_map(line)).collect();
    let busy = |(at, (stage, waiting)): (usize, (&MeasuredStage, &usize))| {
        let most = stage.devices.iter().map(|replica| replica.busy).fold(0.0, f64::max);
        format!("; stage {at} busy {:.0} %, {waiting} waiting", 100.0 * most)
    };
    (picture, told + &stages().map(busy).collect::<String>())
}
