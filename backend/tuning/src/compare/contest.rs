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

/// A plan or scheduler that takes part in a contest.
pub(crate) enum Contender {
    /// A plan, and its executor while it is ready.
    Planned(Arc<Planned>, Option<Arc<Prepared>>),
    /// The run-time scheduler, while it is ready.
    Dynamic(Option<Box<Dynamic>>),
    /// The run-time scheduler and the reason why it does not fit the devices. Its memory is known only while it runs.
    Refused(SessionError),
}

/// A finished run of a contender.
pub(crate) enum Ran {
    /// Run of a plan.
    Planned(Run),
    /// Run without a plan.
    Dynamic(Outputs, RunOutput),
}

/// Several contenders on the devices of one session.
pub(crate) struct Contest<'a> {
    session: &'a Session,
    inputs: &'a Inputs,
    options: &'a RunOptions,
    contenders: Vec<Contender>,
    /// Whether each contender's first run was short. If each run were checked, the slow runs of a plan near that time
    /// would be counted more often.
    short: Vec<Option<bool>>,
    /// Whether all contenders keep their memory between runs.
    pub(crate) alive: bool,
}

/// Result of a turn; `None` if the contender no longer takes part.
type Turned<T> = Result<Option<T>, SessionError>;

impl Contender {
    /// Returns a plan as a contender.
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

impl<'a> Contest<'a> {
    /// Makes a contest of these contenders. If the memory of all plans together does not fit the devices, each plan is
    /// made ready before each of its runs.
    pub(crate) fn new(
        session: &'a Session,
        inputs: &'a Inputs,
        options: &'a RunOptions,
        contenders: Vec<Contender>,
    ) -> Self {
        let (alive, short) = (fit(&contenders), vec![None; contenders.len()]);
        Self { session, inputs, options, contenders, short, alive }
    }

    /// Runs each contender `rounds` times, in turn, and calls `see` with the number of the contender and the run. Runs
    /// that only warm up are not passed on.
    ///
    /// # Errors
    /// If a run fails. If the run-time scheduler does not fit the devices, it is left out instead.
    pub(crate) fn play(
        &mut self,
        rounds: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        (0..rounds).try_for_each(|round| self.play_round(round, profile, see))
    }

    /// Runs round number `round` of [`Self::play`].
    pub(crate) fn play_round(
        &mut self,
        round: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        let options = self.options.clone().with_profile(profile);
        self.round(round, &mut |contest, at| contest.turn(at, &options), see)
    }

    /// Runs round number `round` with several callers at the same time, each of which runs each contender `each` times.
    ///
    /// # Errors
    /// As [`Self::play`].
    pub(crate) fn play_together(
        &mut self,
        round: u32,
        callers: NonZeroU32,
        each: u32,
        see: &mut dyn FnMut(usize, Together),
    ) -> Result<(), SessionError> {
        let options = self.options.clone();
        self.round(round, &mut |contest, at| contest.turn_together(at, &options, callers, each), see)
    }

    /// Gives each contender its turn.
    fn round<T>(
        &mut self,
        round: u32,
        turn: &mut dyn FnMut(&mut Self, usize) -> Turned<T>,
        see: &mut dyn FnMut(usize, T),
    ) -> Result<(), SessionError> {
        for at in turns(round, self.contenders.len()) {
            match (turn(self, at), &self.contenders[at]) {
                (Ok(Some(ran)), _) => see(at, ran),
                (Ok(None), _) => {}
                (Err(error), Contender::Dynamic(_)) if error.is_infeasible() => {
                    self.contenders[at] = Contender::Refused(error);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the reason why the run-time scheduler is left out, if it is.
    pub(crate) fn refused(&self) -> Option<&SessionError> {
        self.contenders.iter().find_map(|contender| match contender {
            Contender::Refused(error) => Some(error),
            Contender::Planned(..) | Contender::Dynamic(_) => None,
        })
    }

    /// Runs a contender once and returns the measured run, if it takes part.
    fn turn(&mut self, at: usize, options: &RunOptions) -> Result<Option<Ran>, SessionError> {
        let mut ran = self.run(at, options)?;
        let short = *self.short[at].get_or_insert(ran.as_ref().is_some_and(|ran| ran.took() < COLD));
        // The first run touches memory for the first time, or finds the data of other contenders in the caches.
        if !self.alive || short {
            ran = self.run(at, options)?;
        }
        if !self.alive {
            self.rest(at);
        }
        Ok(ran)
    }

    /// Runs a contender by several callers, after one run by a single caller. That run touches memory for the first
    /// time, or finds the data of other contenders in the caches.
    fn turn_together(
        &mut self,
        at: usize,
        options: &RunOptions,
        callers: NonZeroU32,
        each: u32,
    ) -> Result<Option<Together>, SessionError> {
        self.run(at, options)?;
        let (session, inputs) = (self.session, self.inputs);
        let made = match &self.contenders[at] {
            Contender::Planned(_, Some(prepared)) => {
                Some(together(callers, each, || session.run_prepared(prepared, inputs, options).map(drop))?)
            }
            Contender::Dynamic(Some(dynamic)) => {
                Some(together(callers, each, || session.run_dynamic(dynamic, inputs, options).map(drop))?)
            }
            Contender::Planned(_, None) | Contender::Dynamic(None) | Contender::Refused(_) => None,
        };
        if !self.alive {
            self.rest(at);
        }
        Ok(made)
    }

    /// Frees a contender's memory.
    fn rest(&mut self, at: usize) {
        match &mut self.contenders[at] {
            Contender::Planned(_, prepared) => *prepared = None,
            Contender::Dynamic(dynamic) => *dynamic = None,
            Contender::Refused(_) => {}
        }
    }

    /// Runs a contender, if it takes part. Makes it ready first if it is not.
    fn run(&mut self, at: usize, options: &RunOptions) -> Result<Option<Ran>, SessionError> {
        match &mut self.contenders[at] {
            Contender::Planned(planned, prepared) => {
                let prepared = match prepared {
                    Some(prepared) => prepared,
                    none => none.insert(self.session.ready(planned)?),
                };
                Ok(Some(Ran::Planned(self.session.run_prepared(prepared, self.inputs, options)?)))
            }
            Contender::Dynamic(dynamic) => {
                let dynamic = match dynamic {
                    Some(dynamic) => dynamic,
                    none => none.insert(Box::new(self.session.dynamic(self.inputs)?)),
                };
                let (outputs, measured) = self.session.run_dynamic(dynamic, self.inputs, options)?;
                Ok(Some(Ran::Dynamic(outputs, measured)))
            }
            Contender::Refused(_) => Ok(None),
        }
    }
}

/// Returns the order in which contenders have their turns in a round.
///
/// At first it is the given order, then it is drawn. Every second order is the reverse of the last, so that no
/// contender always follows the same other. The predecessor affects more than caches: after runs of 100 ms on a GPU in
/// software, plans of 6 ms took up to a tenth longer, several times in a row.
fn turns(round: u32, contenders: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..contenders).collect();
    if round >= 2 {
        let mut random = Random::new(u64::from(round / 2));
        // Fisher and Yates (1938).
        (1..contenders).rev().for_each(|last| turns.swap(last, random.below(last as u64 + 1) as usize));
    }
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// Whether the memory of all plans together is within every device's limit.
///
/// The dynamic scheduler is assumed to hold all tensors of the program on the host and on every GPU.
fn fit(contenders: &[Contender]) -> bool {
    let plans = || {
        contenders.iter().filter_map(|contender| match contender {
            Contender::Planned(planned, _) => Some(planned),
            Contender::Dynamic(_) | Contender::Refused(_) => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_have_a_turn_in_each_round_and_others_before_them() {
        for (contenders, rounds, others) in [(2, 4, 1), (3, 10, 2), (4, 20, 3), (5, 20, 4), (24, 20, 8)] {
            let mut before = vec![BTreeSet::new(); contenders];
            for round in 0..rounds {
                let order = turns(round, contenders);
                assert_eq!(order, turns(round, contenders));
                for pair in order.windows(2) {
                    before[pair[1]].insert(pair[0]);
                }
                let mut all = order;
                all.sort_unstable();
                assert!(all.into_iter().eq(0..contenders));
            }
            assert!(before.iter().all(|before| before.len() >= others), "{before:?}");
        }
        // The first is in order: it is the reference of all outputs.
        assert!(turns(0, 5).into_iter().eq(0..5) && turns(3, 0).is_empty());
    }
}
