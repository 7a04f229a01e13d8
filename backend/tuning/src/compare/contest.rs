//! Runs of several plans of one model, interleaved, so that what drifts on the machine (clocks, temperature, other programs)
//! touches all alike.

use super::together::{Together, together};
use anabranch_execute::{RunOptions, RunOutput};
use anabranch_placement_core::random::Random;
use anabranch_planning::Planned;
use anabranch_session::{Dynamic, Inputs, Outputs, Prepared, Run, Session, SessionError};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// Of a plan whose first run is shorter those count that follow one of it: filling caches of 32 MiB at 10 GB/s takes 3 ms, 1.5 % of this.
const COLD: Duration = Duration::from_millis(200);

/// One that takes part.
pub(crate) enum Contender {
    /// A plan, and its executor while there is one.
    Planned(Arc<Planned>, Option<Arc<Prepared>>),
    /// The scheduler at run time, while there is one.
    Dynamic(Option<Box<Dynamic>>),
    /// The scheduler at run time, which does not fit the devices, and why: it knows its memory only while it runs.
    Refused(SessionError),
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
    /// Of each whether its first run was a short one. Were it asked of each run, the slow ones of a plan near that time would count more often.
    short: Vec<Option<bool>>,
    /// Whether all keep their memory between runs.
    pub(crate) alive: bool,
}

/// What a turn gave: nothing of a contender that takes part no more.
type Turned<T> = Result<Option<T>, SessionError>;

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

    /// How long it took: all phases of it.
    pub(crate) fn took(&self) -> Duration {
        match self {
            Self::Planned(run) => run.took(),
            Self::Dynamic(_, measured) => measured.makespan,
        }
    }

    /// The same in milliseconds.
    pub(crate) fn took_ms(&self) -> f64 {
        self.took().as_secs_f64() * 1e3
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
        let (alive, short) = (fit(&contenders), vec![None; contenders.len()]);
        Self { session, inputs, options, contenders, short, alive }
    }

    /// Runs each `rounds` times, in turn, and gives the runs that count to `see` with the number of their contender.
    ///
    /// # Errors
    /// If a run fails for another reason than that the scheduler at run time does not fit, which then takes part no more.
    pub(crate) fn play(
        &mut self,
        rounds: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        (0..rounds).try_for_each(|round| self.play_round(round, profile, see))
    }

    /// The round of this number of [`Self::play`].
    pub(crate) fn play_round(
        &mut self,
        round: u32,
        profile: bool,
        see: &mut dyn FnMut(usize, Ran),
    ) -> Result<(), SessionError> {
        let options = self.options.clone().with_profile(profile);
        self.round(round, &mut |contest, at| contest.turn(at, &options), see)
    }

    /// The round of this number in which each is run by so many callers at the same time, so often by each of them.
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

    /// A turn of each.
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

    /// Why the scheduler at run time takes part no more, if it does not.
    pub(crate) fn refused(&self) -> Option<&SessionError> {
        self.contenders.iter().find_map(|contender| match contender {
            Contender::Refused(error) => Some(error),
            Contender::Planned(..) | Contender::Dynamic(_) => None,
        })
    }

    /// One run of a contender that counts, if it takes part.
    fn turn(&mut self, at: usize, options: &RunOptions) -> Result<Option<Ran>, SessionError> {
        let mut ran = self.run(at, options)?;
        let short = *self.short[at].get_or_insert(ran.as_ref().is_some_and(|ran| ran.took() < COLD));
        // The first run touches memory for the first time, or finds the others' data in the caches.
        if !self.alive || short {
            ran = self.run(at, options)?;
        }
        if !self.alive {
            self.rest(at);
        }
        Ok(ran)
    }

    /// Runs of a contender by several callers, after one by a single caller, which touches memory for the first time, or finds the
    /// others' data in the caches.
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

    /// Gives a contender's memory back.
    fn rest(&mut self, at: usize) {
        match &mut self.contenders[at] {
            Contender::Planned(_, prepared) => *prepared = None,
            Contender::Dynamic(dynamic) => *dynamic = None,
            Contender::Refused(_) => {}
        }
    }

    /// Runs a contender, which is readied if it is not yet, if it takes part.
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

/// In which order so many contenders have their turns in the round of this number: at first one after the other, then drawn, and every second
/// time the reverse of the last, so that none always follows the same other. More than caches differ by who was before: behind runs of 100 ms
/// on a GPU in software plans of 6 ms took up to a tenth longer, several times in a row.
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

/// Whether the memory of all plans together is within every device's limit. The dynamic scheduler is reckoned to hold all tensors
/// of the program on the host and on every GPU.
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
        // The first in order: it is the one that outputs are compared with.
        assert!(turns(0, 5).into_iter().eq(0..5) && turns(3, 0).is_empty());
    }
}
