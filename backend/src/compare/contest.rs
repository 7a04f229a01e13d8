//! Runs of several plans of one model, interleaved, so that what drifts on the machine (clocks, temperature, other programs)
//! touches all alike.

use super::Median;
use crate::execute::{RunOptions, RunOutput};
use crate::planning::Planned;
use crate::session::{Dynamic, Inputs, Outputs, Prepared, Run, Session, SessionError};
use std::sync::Arc;

/// One that takes part.
pub(crate) enum Contender {
    /// A plan, and its executor while there is one.
    Planned(Arc<Planned>, Option<Arc<Prepared>>),
    /// The scheduler at run time, while there is one.
    Dynamic(Option<Box<Dynamic>>),
}

/// A finished run of a contender.
pub(crate) enum Ran {
    /// Of a plan.
    Planned(Run),
    /// Without a plan.
    Dynamic(Outputs, RunOutput),
}

/// Several contenders on the devices of one session.
pub(crate) struct Contest<'a> {
    session: &'a Session,
    inputs: &'a Inputs,
    options: &'a RunOptions,
    contenders: Vec<Contender>,
    /// Whether all keep their memory between runs.
    pub(crate) alive: bool,
}

impl Contender {
    /// A plan that takes part.
    pub(crate) fn plan(planned: Arc<Planned>) -> Self {
        Self::Planned(planned, None)
    }
}

impl Ran {
    /// The outputs.
    pub(crate) fn outputs(&self) -> &Outputs {
        match self {
            Self::Planned(run) => &run.outputs,
            Self::Dynamic(outputs, _) => outputs,
        }
    }

    /// What was measured.
    pub(crate) fn measured(&self) -> &RunOutput {
        match self {
            Self::Planned(run) => &run.measured,
            Self::Dynamic(_, measured) => measured,
        }
    }

    /// The measured makespan, in milliseconds.
    pub(crate) fn makespan_ms(&self) -> f64 {
        self.measured().makespan.as_secs_f64() * 1e3
    }
}

/// How far profiled runs of a plan were from what was predicted, in percent: [`Accuracy::node_error`] and [`Accuracy::link_error`].
///
/// [`Accuracy::node_error`]: crate::learning::Accuracy::node_error
/// [`Accuracy::link_error`]: crate::learning::Accuracy::link_error
#[derive(Default)]
pub(crate) struct Errors {
    nodes: Vec<f64>,
    links: Vec<f64>,
}

impl Errors {
    /// Adds a profiled run.
    pub(crate) fn add(&mut self, run: &Run) {
        let accuracy = run.accuracy();
        self.nodes.extend(accuracy.node_error().map(|error| 100.0 * error));
        self.links.extend(accuracy.link_error().map(|error| 100.0 * error));
    }

    /// The medians of the runs' errors: of nodes, and of copies over links.
    pub(crate) fn medians(&self) -> [Option<f64>; 2] {
        [&self.nodes, &self.links].map(|errors| Median::of(errors).map(|errors| errors.median))
    }
}

impl<'a> Contest<'a> {
    /// A contest of these. If their plans' memory does not fit the devices all at once, each is readied anew for each run.
    pub(crate) fn new(
        session: &'a Session,
        inputs: &'a Inputs,
        options: &'a RunOptions,
        contenders: Vec<Contender>,
    ) -> Self {
        let alive = fit(&contenders);
        Self { session, inputs, options, contenders, alive }
    }

    /// Runs each `rounds` times, in turn, and gives each run to `see` with the number of its contender. Each round begins with
    /// the next contender, so that none always follows the same idle time.
    ///
    /// # Errors
    /// If a run fails.
    pub(crate) fn play(
        &mut self,
        rounds: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        let options = self.options.clone().with_profile(profile);
        for round in 0..rounds as usize {
            for place in 0..self.contenders.len() {
                let at = (round + place) % self.contenders.len();
                if !self.alive {
                    // The first run touches memory for the first time.
                    self.run(at, &options)?;
                }
                let ran = self.run(at, &options)?;
                if !self.alive {
                    self.rest(at);
                }
                see(at, ran);
            }
        }
        Ok(())
    }

    /// Gives a contender's memory back.
    fn rest(&mut self, at: usize) {
        match &mut self.contenders[at] {
            Contender::Planned(_, prepared) => *prepared = None,
            Contender::Dynamic(dynamic) => *dynamic = None,
        }
    }

    /// Runs a contender, which is readied if it is not yet.
    fn run(&mut self, at: usize, options: &RunOptions) -> Result<Ran, SessionError> {
        match &mut self.contenders[at] {
            Contender::Planned(planned, prepared) => {
                let prepared = match prepared {
                    Some(prepared) => prepared,
                    none => none.insert(self.session.ready(planned)?),
                };
                Ok(Ran::Planned(self.session.run_prepared(prepared, self.inputs, options)?))
            }
            Contender::Dynamic(dynamic) => {
                let dynamic = match dynamic {
                    Some(dynamic) => dynamic,
                    none => none.insert(Box::new(self.session.dynamic(self.inputs)?)),
                };
                let (outputs, measured) = self.session.run_dynamic(dynamic, self.inputs, options)?;
                Ok(Ran::Dynamic(outputs, measured))
            }
        }
    }
}

/// Whether the memory of all plans together is within every device's limit. The dynamic scheduler is reckoned to hold all tensors
/// of the program on the host and on every GPU.
fn fit(contenders: &[Contender]) -> bool {
    let plans = || {
        contenders.iter().filter_map(|contender| match contender {
            Contender::Planned(planned, _) => Some(planned),
            Contender::Dynamic(_) => None,
        })
    };
    let Some(first) = plans().next() else { return true };
    let tensors: u64 = first.program.values.iter().map(|value| value.spec.bytes() as u64).sum();
    let dynamic = contenders.iter().filter(|contender| matches!(contender, Contender::Dynamic(_))).count() as u64;
    first.plan().devices().iter().enumerate().all(|(at, device)| {
        let peaks: u64 = plans().map(|planned| planned.plan().memory().devices()[at].peak()).sum();
        device.limit.is_none_or(|limit| peaks.saturating_add(dynamic.saturating_mul(tensors)) <= limit)
    })
}
