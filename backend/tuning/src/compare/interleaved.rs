//! Interleaved runs of several plans of one model, so that drift of the machine (clocks, temperature, other programs)
//! affects all equally.

use super::together::{Together, together};
use anabranch_execute::{RunOptions, RunOutput};
use anabranch_placement_core::random::Random;
use anabranch_planning::Planned;
use anabranch_session::{Dynamic, Inputs, Outputs, Prepared, Run, Session, SessionError};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// If a plan's first run is shorter than this, its measured runs each follow an unmeasured run. Filling caches of 32
/// MiB at 10 GB/s takes 3 ms, 1.5 % of this.
const COLD: Duration = Duration::from_millis(200);

/// A plan or scheduler that takes part in interleaved runs.
pub(crate) enum Candidate {
    /// A plan, and its executor while it is ready.
    Planned(Arc<Planned>, Option<Arc<Prepared>>),
    /// The run-time scheduler, while it is ready.
    Dynamic(Option<Box<Dynamic>>),
    /// The run-time scheduler and the reason why it does not fit the devices. Its memory is known only while it runs.
    Refused(SessionError),
}

/// A finished run of a candidate.
pub(crate) enum Ran {
    /// Run of a plan.
    Planned(Run),
    /// Run without a plan.
    Dynamic(Outputs, RunOutput),
}

/// Several candidates on the devices of one session.
pub(crate) struct InterleavedRuns<'a> {
    session: &'a Session,
    inputs: &'a Inputs,
    options: &'a RunOptions,
    candidates: Vec<Candidate>,
    /// Whether each candidate's first run was short. If each run were checked, the slow runs of a plan near that time
    /// would be counted more often.
    short: Vec<Option<bool>>,
    /// Whether all candidates keep their memory between runs.
    pub(crate) alive: bool,
}

/// Result of a turn; `None` if the candidate no longer takes part.
type Turned<T> = Result<Option<T>, SessionError>;

impl Candidate {
    /// Returns a plan as a candidate.
    pub(crate) fn plan(planned: Arc<Planned>) -> Self {
        Self::Planned(planned, None)
    }
}

impl Ran {
    /// Returns the outputs.
    pub(crate) fn outputs(&self) -> &Outputs {
        match self {
            Self::Planned(run) => &run.outputs,
            Self::Dynamic(outputs, _) => outputs,
        }
    }

    /// Time of the run, with all its phases.
    pub(crate) fn took(&self) -> Duration {
        match self {
            Self::Planned(run) => run.took(),
            Self::Dynamic(_, measured) => measured.makespan,
        }
    }

    /// Time of the run in milliseconds, with all its phases.
    pub(crate) fn took_ms(&self) -> f64 {
        self.took().as_secs_f64() * 1e3
    }
}

impl<'a> InterleavedRuns<'a> {
    /// Prepares interleaved runs of these candidates. If the memory of all plans together does not fit the devices,
    /// each plan is made ready before each of its runs.
    pub(crate) fn new(
        session: &'a Session,
        inputs: &'a Inputs,
        options: &'a RunOptions,
        candidates: Vec<Candidate>,
    ) -> Self {
        let (alive, short) = (fit(&candidates), vec![None; candidates.len()]);
        Self { session, inputs, options, candidates, short, alive }
    }

    /// Runs each candidate `rounds` times, in turn, and calls `see` with the number of the candidate and the run. Runs
    /// that only warm up are not passed on.
    ///
    /// # Errors
    /// If a run fails. If the run-time scheduler does not fit the devices, it is left out instead.
    pub(crate) fn run_rounds(
        &mut self,
        rounds: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        (0..rounds).try_for_each(|round| self.run_round(round, profile, see))
    }

    /// Runs round number `round` of [`Self::run_rounds`].
    pub(crate) fn run_round(
        &mut self,
        round: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        let options = self.options.clone().with_profile(profile);
        self.round(round, &mut |interleaved, at| interleaved.turn(at, &options), see)
    }

    /// Runs round number `round` with several callers at the same time, each of which runs each candidate `each` times.
    ///
    /// # Errors
    /// As [`Self::run_rounds`].
    pub(crate) fn run_round_together(
        &mut self,
        round: u32,
        callers: NonZeroU32,
        each: u32,
        see: &mut dyn FnMut(usize, Together),
    ) -> Result<(), SessionError> {
        let options = self.options.clone();
        self.round(round, &mut |interleaved, at| interleaved.turn_together(at, &options, callers, each), see)
    }

    /// Gives each candidate its turn.
    fn round<T>(
        &mut self,
        round: u32,
        turn: &mut dyn FnMut(&mut Self, usize) -> Turned<T>,
        see: &mut dyn FnMut(usize, T),
    ) -> Result<(), SessionError> {
        for at in turns(round, self.candidates.len()) {
            match (turn(self, at), &self.candidates[at]) {
                (Ok(Some(ran)), _) => see(at, ran),
                (Ok(None), _) => {}
                (Err(error), Candidate::Dynamic(_)) if error.is_infeasible() => {
                    self.candidates[at] = Candidate::Refused(error);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the reason why the run-time scheduler is left out, if it is.
    pub(crate) fn refused(&self) -> Option<&SessionError> {
        self.candidates.iter().find_map(|candidate| match candidate {
            Candidate::Refused(error) => Some(error),
            Candidate::Planned(..) | Candidate::Dynamic(_) => None,
        })
    }

    /// Runs a candidate once and returns the measured run, if it takes part.
    fn turn(&mut self, at: usize, options: &RunOptions) -> Result<Option<Ran>, SessionError> {
        let mut ran = self.run(at, options)?;
        let short = *self.short[at].get_or_insert(ran.as_ref().is_some_and(|ran| ran.took() < COLD));
        // The first run touches memory for the first time, or finds the data of other candidates in the caches.
        if !self.alive || short {
            ran = self.run(at, options)?;
        }
        if !self.alive {
            self.rest(at);
        }
        Ok(ran)
    }

    /// Runs a candidate by several callers, after one run by a single caller. That run touches memory for the first
    /// time, or finds the data of other candidates in the caches.
    fn turn_together(
        &mut self,
        at: usize,
        options: &RunOptions,
        callers: NonZeroU32,
        each: u32,
    ) -> Result<Option<Together>, SessionError> {
        self.run(at, options)?;
        let (session, inputs) = (self.session, self.inputs);
        let made = match &self.candidates[at] {
            Candidate::Planned(_, Some(prepared)) => {
                Some(together(callers, each, || session.run_prepared(prepared, inputs, options).map(drop))?)
            }
            Candidate::Dynamic(Some(dynamic)) => {
                Some(together(callers, each, || session.run_dynamic(dynamic, inputs, options).map(drop))?)
            }
            Candidate::Planned(_, None) | Candidate::Dynamic(None) | Candidate::Refused(_) => None,
        };
        if !self.alive {
            self.rest(at);
        }
        Ok(made)
    }

    /// Frees a candidate's memory.
    fn rest(&mut self, at: usize) {
        match &mut self.candidates[at] {
            Candidate::Planned(_, prepared) => *prepared = None,
            Candidate::Dynamic(dynamic) => *dynamic = None,
            Candidate::Refused(_) => {}
        }
    }

    /// Runs a candidate, if it takes part. Makes it ready first if it is not.
    fn run(&mut self, at: usize, options: &RunOptions) -> Result<Option<Ran>, SessionError> {
        match &mut self.candidates[at] {
            Candidate::Planned(planned, prepared) => {
                let prepared = match prepared {
                    Some(prepared) => prepared,
                    none => none.insert(self.session.ready(planned)?),
                };
                Ok(Some(Ran::Planned(self.session.run_prepared(prepared, self.inputs, options)?)))
            }
            Candidate::Dynamic(dynamic) => {
                let dynamic = match dynamic {
                    Some(dynamic) => dynamic,
                    none => none.insert(Box::new(self.session.dynamic(self.inputs)?)),
                };
                let (outputs, measured) = self.session.run_dynamic(dynamic, self.inputs, options)?;
                Ok(Some(Ran::Dynamic(outputs, measured)))
            }
            Candidate::Refused(_) => Ok(None),
        }
    }
}

/// Returns the order in which candidates have their turns in a round.
///
/// At first it is the given order, then it is drawn. Every second order is the reverse of the last, so that no
/// candidate always follows the same other. The predecessor affects more than caches: after runs of 100 ms on a GPU in
/// software, plans of 6 ms took up to a tenth longer, several times in a row.
fn turns(round: u32, candidates: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..candidates).collect();
    if round >= 2 {
        let mut random = Random::new(u64::from(round / 2));
        // Fisher and Yates (1938).
        (1..candidates).rev().for_each(|last| turns.swap(last, random.below(last as u64 + 1) as usize));
    }
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// Whether the memory of all plans together is within every device's limit.
///
/// The dynamic scheduler is assumed to hold all tensors of the program on the host and on every GPU.
fn fit(candidates: &[Candidate]) -> bool {
    let plans = || {
        candidates.iter().filter_map(|candidate| match candidate {
            Candidate::Planned(planned, _) => Some(planned),
            Candidate::Dynamic(_) | Candidate::Refused(_) => None,
        })
    };
    let Some(first) = plans().next() else { return true };
    let tensors: u64 = first.program.values.iter().map(|value| value.spec.bytes() as u64).sum();
    let dynamic = candidates.iter().filter(|candidate| matches!(candidate, Candidate::Dynamic(_))).count() as u64;
    first.plan().devices().iter().enumerate().all(|(at, device)| {
        let peaks: u64 = plans().map(|planned| planned.plan().memory().devices()[at].peak()).sum();
        device.limit.admits(peaks.saturating_add(dynamic.saturating_mul(tensors)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_have_a_turn_in_each_round_and_others_before_them() {
        for (candidates, rounds, others) in [(2, 4, 1), (3, 10, 2), (4, 20, 3), (5, 20, 4), (24, 20, 8)] {
            let mut before = vec![BTreeSet::new(); candidates];
            for round in 0..rounds {
                let order = turns(round, candidates);
                assert_eq!(order, turns(round, candidates));
                for pair in order.windows(2) {
                    before[pair[1]].insert(pair[0]);
                }
                let mut all = order;
                all.sort_unstable();
                assert!(all.into_iter().eq(0..candidates));
            }
            assert!(before.iter().all(|before| before.len() >= others), "{before:?}");
        }
        // The first is in order: it is the reference of all outputs.
        assert!(turns(0, 5).into_iter().eq(0..5) && turns(3, 0).is_empty());
    }
}
