//! A run as a whole: all its plans, and the host operators between them, on one clock.

use super::phases::HostOperator;
use super::run::Run;
use anabranch_execute::RunOutput;
use anabranch_learning::{Accuracy, Compared};
use anabranch_plan::Traffic;
use anabranch_planning::Planned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Factor between the ends of an interval above which it is too vague.
const VAGUE: f64 = 10.0;

/// The run of one plan within a run; a model in phases has several.
#[derive(Clone, Copy)]
pub struct Part<'r> {
    /// Plan of the part.
    pub planned: &'r Arc<Planned>,
    /// Number of the plan among the distinct plans of the run, from 0 on: a loop's body has the same plan in each
    /// iteration.
    pub plan: usize,
    /// Events, with times since `begun`.
    pub measured: &'r RunOutput,
    /// Time from the whole run's start until the plan was run.
    pub begun: Duration,
    /// Predicted time from the whole run's start until the plan was run, see [`Run::foreseen`].
    pub foreseen: Duration,
}

/// Predicted time of a run, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPrediction {
    /// Predicted makespan.
    pub makespan: f64,
    /// 90 % prediction interval of the makespan, in seconds; `None` if the uncertainty of a node's cost is unknown.
    pub interval: Option<(f64, f64)>,
}

impl Default for RunPrediction {
    /// Returns the prediction of an empty run: no time.
    fn default() -> Self {
        Self { makespan: 0.0, interval: Some((0.0, 0.0)) }
    }
}

impl RunPrediction {
    /// Returns the prediction of a run of one plan.
    pub fn of(planned: &Planned) -> Self {
        let predicted = planned.plan().predicted();
        Self { makespan: predicted.makespan, interval: predicted.interval }
    }

    /// Whether the interval is too vague: its ends differ by more than a factor of ten.
    pub fn is_vague(&self) -> bool {
        self.interval.is_some_and(|(low, high)| high > VAGUE * low)
    }

    /// Returns the interval, unless it is too vague.
    pub fn telling_interval(&self) -> Option<(f64, f64)> {
        self.interval.filter(|_| !self.is_vague())
    }

    /// Returns the prediction of two successive parts.
    pub(super) fn then(self, next: Self) -> Self {
        let ends = self.interval.zip(next.interval);
        let interval = ends.map(|(one, other)| (one.0 + other.0, one.1 + other.1));
        Self { makespan: self.makespan + next.makespan, interval }
    }
}

impl Run {
    /// Returns the time of the run: all phases, and the host's work between them.
    pub fn took(&self) -> Duration {
        self.later.as_ref().map_or(self.measured.makespan, |later| later.took)
    }

    /// Whether some plan was run for the first time in it.
    pub fn is_cold(&self) -> bool {
        self.cold || self.later.as_ref().is_some_and(|later| later.cold)
    }

    /// Returns the prediction before the run: the sum of its plans and the host's time in the former run, without an
    /// interval in that case.
    ///
    /// `None` if a later phase was planned only during the run.
    pub fn predicted(&self) -> Option<RunPrediction> {
        let first = RunPrediction::of(&self.prepared);
        let Some(later) = &self.later else { return Some(first) };
        let host = later.host_before?.as_secs_f64();
        // One run does not show how much the next run differs.
        let host = RunPrediction { makespan: host, interval: None };
        (!self.is_cold()).then(|| first.then(later.predicted).then(host))
    }

    /// Returns the predicted seconds of its plans, with the host's time between them from the former run, or else from
    /// this run.
    pub fn foreseen(&self) -> f64 {
        let own = RunPrediction::of(&self.prepared).makespan;
        self.later.as_ref().map_or(own, |later| {
            let host = later.host_before.unwrap_or_else(|| later.on_host(self));
            own + later.predicted.makespan + host.as_secs_f64()
        })
    }

    /// Returns the peak bytes on each device, over all its plans.
    pub fn peaks(&self) -> Vec<u64> {
        let later = self.later.iter().flat_map(|later| &later.peaks).copied().chain(std::iter::repeat(0));
        self.measured.peaks.iter().zip(later).map(|(first, later)| (*first).max(later)).collect()
    }

    /// Returns the runs of its plans, in order: with a profile those of all phases, else only the first.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let planned = self.prepared.planned();
        let (begun, foreseen) = (Duration::ZERO, Duration::ZERO);
        let mut parts = vec![Part { planned, plan: 0, measured: &self.measured, begun, foreseen }];
        let Some(later) = &self.later else { return parts };
        let mut numbers = BTreeMap::from([(Arc::as_ptr(planned), 0)]);
        let scale = self.host_scale();
        for run in &later.runs {
            let last = parts[parts.len() - 1];
            let since = run.begun.saturating_sub(last.begun + last.measured.makespan + run.planning);
            let predicted = RunPrediction::of(last.planned).makespan;
            let known = numbers.len();
            parts.push(Part {
                planned: &run.planned,
                plan: *numbers.entry(Arc::as_ptr(&run.planned)).or_insert(known),
                measured: &run.measured,
                begun: run.begun,
                foreseen: last.foreseen + duration(predicted + since.as_secs_f64() * scale),
            });
        }
        parts
    }

    /// Returns its distinct plans, in the order of their first runs.
    pub fn plans(&self) -> Vec<&Arc<Planned>> {
        let mut plans = Vec::new();
        for part in self.parts() {
            if part.plan == plans.len() {
                plans.push(part.planned);
            }
        }
        plans
    }

    /// Returns the operators that the host computed between plans, in order; only with a profile.
    pub fn host_operators(&self) -> &[HostOperator] {
        self.later.as_ref().map_or(&[], |later| &later.host_operators)
    }

    /// Compares predicted and measured times of this run; needs its profile. A plan that runs several times, such as a
    /// loop's body, counts with all its runs.
    pub fn accuracy(&self) -> Accuracy {
        let makespan = Compared { predicted: self.foreseen(), measured: self.took().as_secs_f64() };
        let parts = self.parts();
        Accuracy::joined(makespan, parts.iter().map(|part| (part.plan, &**part.planned, part.measured)))
    }

    /// Returns the traffic between devices, planned and measured.
    pub fn traffic(&self) -> [Traffic; 2] {
        let parts = self.parts();
        let planned = parts.iter().map(|part| part.planned.plan().traffic()).sum();
        [planned, parts.iter().map(|part| part.measured.traffic(Some(part.planned.plan()))).sum()]
    }

    /// Ratio of this run's host times to those of the former run.
    fn host_scale(&self) -> f64 {
        let scale = self.later.as_ref().and_then(|later| {
            let (before, own) = (later.host_before?.as_secs_f64(), later.on_host(self).as_secs_f64());
            (own > 0.0).then_some(before / own)
        });
        scale.unwrap_or(1.0)
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_add_up_and_those_that_say_nothing_are_told() {
        let one = RunPrediction { makespan: 1.0, interval: Some((0.5, 2.0)) };
        let sum = RunPrediction::default().then(one).then(one);
        assert_eq!((sum.makespan, sum.interval, sum.is_vague()), (2.0, Some((1.0, 4.0)), false));
        let unknown = RunPrediction { makespan: 1.0, interval: None };
        assert_eq!(sum.then(unknown).interval, None);
        for (high, telling) in [(5.0, Some((0.5, 5.0))), (5.1, None)] {
            let vague = RunPrediction { makespan: 1.0, interval: Some((0.5, high)) };
            assert_eq!((vague.telling_interval(), vague.is_vague()), (telling, telling.is_none()));
        }
    }
}
