//! A run as a whole: what all its plans, and the steps between them, did on one clock.

use super::phases::HostStep;
use super::run::Run;
use anabranch_execute::RunOutput;
use anabranch_learning::{Accuracy, Compared};
use anabranch_plan::Traffic;
use anabranch_planning::Planned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An interval whose ends differ by more than this factor says nothing.
const VAGUE: f64 = 10.0;

/// The run of one plan within a run: there are several if the model runs in phases.
#[derive(Clone, Copy)]
pub struct Part<'r> {
    /// The plan.
    pub planned: &'r Arc<Planned>,
    /// The plan's number among the different ones of the run, from 0 on: a loop's body has the same plan in each pass.
    pub plan: usize,
    /// When what happened, from `begun` on.
    pub measured: &'r RunOutput,
    /// From the whole run's start until the plan was run.
    pub begun: Duration,
    /// The same as predicted, see [`Run::foreseen`].
    pub foreseen: Duration,
}

/// How long a run was predicted to take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPrediction {
    /// The makespan.
    pub makespan: f64,
    /// The interval of nine of ten makespans, in seconds; `None` if the spread of a node's cost is unknown.
    pub interval: Option<(f64, f64)>,
}

impl Default for RunPrediction {
    /// The prediction of an empty run: no time.
    fn default() -> Self {
        Self { makespan: 0.0, interval: Some((0.0, 0.0)) }
    }
}

impl RunPrediction {
    /// The prediction of a run of one plan.
    pub fn of(planned: &Planned) -> Self {
        let predicted = planned.plan().predicted();
        Self { makespan: predicted.makespan, interval: predicted.interval }
    }

    /// Whether the interval is so wide that it says nothing: its ends differ by more than a factor of ten.
    pub fn is_vague(&self) -> bool {
        self.interval.is_some_and(|(low, high)| high > VAGUE * low)
    }

    /// The interval, unless it says nothing.
    pub fn telling_interval(&self) -> Option<(f64, f64)> {
        self.interval.filter(|_| !self.is_vague())
    }

    /// The prediction of two parts in turn.
    pub(super) fn then(self, next: Self) -> Self {
        let ends = self.interval.zip(next.interval);
        let interval = ends.map(|(one, other)| (one.0 + other.0, one.1 + other.1));
        Self { makespan: self.makespan + next.makespan, interval }
    }
}

impl Run {
    /// How long it took: all phases, and what the host did between them.
    pub fn took(&self) -> Duration {
        self.later.as_ref().map_or(self.measured.makespan, |later| later.took)
    }

    /// Whether some plan was run for the first time in it.
    pub fn is_cold(&self) -> bool {
        self.cold || self.later.as_ref().is_some_and(|later| later.cold)
    }

    /// The prediction before the run: the sum over its plans and the host's time in the run before; then without an interval. `None` if a later
    /// phase was planned only while it ran.
    pub fn predicted(&self) -> Option<RunPrediction> {
        let first = RunPrediction::of(&self.prepared);
        let Some(later) = &self.later else { return Some(first) };
        let host = later.host_before?.as_secs_f64();
        // One run does not tell by how much the next one differs.
        let host = RunPrediction { makespan: host, interval: None };
        (!self.is_cold()).then(|| first.then(later.predicted).then(host))
    }

    /// Seconds that its plans predicted, with the host's time between them as the run before took it, or else as this one did.
    pub fn foreseen(&self) -> f64 {
        let own = RunPrediction::of(&self.prepared).makespan;
        self.later.as_ref().map_or(own, |later| {
            let host = later.host_before.unwrap_or_else(|| later.on_host(self));
            own + later.predicted.makespan + host.as_secs_f64()
        })
    }

    /// The most bytes that were taken on each device: by the plan that took most there.
    pub fn peaks(&self) -> Vec<u64> {
        let later = self.later.iter().flat_map(|later| &later.peaks).copied().chain(std::iter::repeat(0));
        self.measured.peaks.iter().zip(later).map(|(first, later)| (*first).max(later)).collect()
    }

    /// The runs of its plans, in order: with a profile of all phases, else of the first alone.
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

    /// Its different plans, in the order in which it came to them.
    pub fn plans(&self) -> Vec<&Arc<Planned>> {
        let mut plans = Vec::new();
        for part in self.parts() {
            if part.plan == plans.len() {
                plans.push(part.planned);
            }
        }
        plans
    }

    /// The operators that the host computed between plans, in order; with a profile alone.
    pub fn host_steps(&self) -> &[HostStep] {
        self.later.as_ref().map_or(&[], |later| &later.host_steps)
    }

    /// Predicted against measured times of this run; needs its profile. A plan that runs several times, such as a loop's body, counts
    /// with all its runs.
    pub fn accuracy(&self) -> Accuracy {
        let makespan = Compared { predicted: self.foreseen(), measured: self.took().as_secs_f64() };
        let parts = self.parts();
        Accuracy::joined(makespan, parts.iter().map(|part| (part.plan, &**part.planned, part.measured)))
    }

    /// Bytes between devices, planned and measured.
    pub fn traffic(&self) -> [Traffic; 2] {
        let parts = self.parts();
        let planned = parts.iter().map(|part| part.planned.plan().traffic()).sum();
        [planned, parts.iter().map(|part| part.measured.traffic(Some(part.planned.plan()))).sum()]
    }

    /// Factor from this run's host times to those of the run before.
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
