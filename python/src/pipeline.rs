//! Sequences of data sets through stages on different devices.

use super::failure::{Failure, Result};
use super::tensors::{Copies, Given, Taken, copied, take};
use super::work::{released, until};
use anabranch::pipeline::{Among, Goal, PipelineError, PipelineOptions};
use anabranch::session::StatePair;
use anabranch::{Inputs, Session};
use pyo3::prelude::*;
use serde_json::json;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Outputs and the inputs that they become, and the number of sequences.
pub(crate) type State = (Vec<(String, String)>, usize);

/// A running pipeline.
#[pyclass(frozen)]
pub(crate) struct Pipeline {
    pipeline: anabranch::pipeline::Pipeline,
    /// Session whose devices it uses.
    _session: Arc<Session>,
    copies: Copies,
    /// Numbers of data sets that were accepted, and whose results were taken. They are counted here because an
    /// exception of a signal's handler may come between any two steps in Python.
    pushed: AtomicU64,
    taken: AtomicU64,
}

impl Pipeline {
    /// Returns the options; `feed` and `sequences` bind the session's state.
    pub(crate) fn options(
        session: &Session,
        (goal, stages): (&str, &str),
        (capacity, measure): (usize, bool),
        state: &State,
    ) -> Result<PipelineOptions> {
        let goal = self::goal(goal)?;
        let among = match stages {
            "all" => Among::All,
            "together" => Among::Together,
            "replicated" => Among::Replicated(None),
            "data-parallel" => Among::DataParallel(None),
            "pipelined" => Among::Pipelined,
            _ => {
                let text = "write all, together, replicated, data-parallel or pipelined";
                return Err(Failure::argument(format_args!("option `stages` = {stages:?}: {text}")));
            }
        };
        let (state, sequences) = bound(session, state)?;
        let options = PipelineOptions::default().with_goal(goal).with_among(among).with_measuring(measure);
        let options = options.with_capacity(positive("capacity", capacity)?);
        Ok(options.with_state(state, sequences))
    }

    pub(crate) fn open(session: Arc<Session>, inputs: &Inputs, options: &PipelineOptions) -> Result<Self> {
        let pipeline = anabranch::pipeline::Pipeline::open(&session, inputs, options)?;
        let (pushed, taken) = Default::default();
        Ok(Self { pipeline, _session: session, copies: Copies::default(), pushed, taken })
    }
}

/// Returns the pairs that patterns bind, and the number of sequences.
pub(crate) fn bound(session: &Session, (feed, sequences): &State) -> Result<(Vec<StatePair>, NonZeroUsize)> {
    let feed: Vec<_> = feed.iter().map(|(output, input)| (&**output, &**input)).collect();
    Ok((session.state_pairs(&feed)?, positive("sequences", *sequences)?))
}

fn positive(name: &str, number: usize) -> Result<NonZeroUsize> {
    let none = || Failure::argument(format_args!("option `{name}` = 0: write 1 or more"));
    NonZeroUsize::new(number).ok_or_else(none)
}

/// Returns the goal of this name.
pub(crate) fn goal(name: &str) -> Result<Goal> {
    match name {
        "period" => Ok(Goal::Period),
        "latency" => Ok(Goal::Latency),
        _ => Err(Failure::argument(format_args!("option `goal` = {name:?}: write period or latency"))),
    }
}

/// Returns the failure whose data set is counted from the one with the number `from`.
fn counted(error: PipelineError, from: u64) -> Failure {
    error.renumbered(|number| number.saturating_sub(from)).into()
}

#[pymethods]
impl Pipeline {
    /// Returns the number of data sets that can be pushed before a result is taken.
    fn max_in_flight(&self) -> usize {
        self.pipeline.max_in_flight()
    }

    /// Returns the number of data sets that were accepted.
    fn pushed(&self) -> u64 {
        self.pushed.load(Ordering::SeqCst)
    }

    /// Returns the number of data sets whose results were not taken yet.
    fn under_way(&self) -> u64 {
        self.pushed() - self.taken.load(Ordering::SeqCst)
    }

    /// Pushes a data set, whose arrays are copied. The first of a sequence has the first state.
    ///
    /// Errors count data sets from the one with the number `from`.
    fn push(&self, py: Python<'_>, given: Vec<Given>, is_first: bool, from: u64) -> PyResult<()> {
        let inputs = copied(&given).map_err(|failure| failure.raise(py))?;
        let push = || if is_first { self.pipeline.push_first(&inputs) } else { self.pipeline.push(&inputs) };
        until(py, || self.pipeline.cancel(), |most| self.pipeline.has_room_within(most))?;
        released(py, || {
            push().map_err(|error| counted(error, from))?;
            self.pushed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    /// Waits for the next result and returns it; `None` once a finished pipeline is empty.
    ///
    /// Errors count data sets from the one with the number `from`.
    fn next(&self, py: Python<'_>, from: u64) -> PyResult<Option<Vec<Taken>>> {
        until(py, || self.pipeline.cancel(), |most| self.pipeline.has_result_within(most))?;
        released(py, || {
            let finished = self.pipeline.next().transpose().map_err(|error| counted(error, from))?;
            let Some(finished) = finished else {
                // A pipeline that was closed has dropped the others.
                self.taken.store(self.pushed(), Ordering::SeqCst);
                return Ok(None);
            };
            let (number, expected) = (finished.data_set, self.taken.fetch_add(1, Ordering::SeqCst));
            if number != expected {
                return Err(Failure::internal(format_args!("result {number} came instead of {expected}")));
            }
            Ok(Some(take(finished.outputs, &self.copies)))
        })
    }

    fn finish(&self) {
        self.pipeline.finish();
    }

    fn cancel(&self) {
        self.pipeline.cancel();
    }

    /// Returns its plan and its measurements up to now, as JSON.
    fn data(&self, py: Python<'_>) -> PyResult<String> {
        released(py, || Ok(json!({ "plan": self.pipeline.plan(), "measured": self.pipeline.measured() }).to_string()))
    }
}
