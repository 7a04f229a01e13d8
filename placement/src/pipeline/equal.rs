//! Least latency under a period, for equal stages on processors of different speeds, without communication.
//!
//! This is the dynamic programme that Benoit and Robert prove to be optimal, with its recurrence corrected.
//!
//! By the lemma of the slides, some optimal mapping replicates intervals of stages on intervals of the `q` fastest
//! processors, ordered by speed. `L(m, i, j)` is the least latency of `m` stages on processors `P_i … P_j`:
//!
//! ```text
//! L(m, i, j) = min( m w / s_i              if m w / ((j − i + 1) s_i) ≤ K,
//!                   L(m', i, k) + L(m − m', k + 1, j)   over 1 ≤ m' < m and i ≤ k < j )
//! ```
//!
//! The slides divide by `(j − i) s_i`, which counts one processor too few. For `i = j` this is zero, unless the
//! initialisation sets the value.

use super::goal::{Goal, within};
use super::mapping::{Interval, Mapping, Sharing};
use super::problem::Problem;
use super::processors::Port;
use super::stages::StageKind;

/// Most steps of one search, `n² p⁴`.
const MOST_STEPS: usize = 1 << 20;

/// Returns the least latency of `stages` stages of `work` operations each, with a period of at most `period`.
///
/// Speeds are in operations per second, times in seconds. Whole intervals may be replicated. Returns `None` if no
/// mapping keeps the period. `O(n² p³)` for each number of processors, `O(n² p⁴)` in total.
pub fn least_latency(stages: usize, work: f64, speeds: &[f64], period: f64) -> Option<f64> {
    let mut times: Vec<f64> = speeds.iter().map(|speed| work / speed).collect();
    times.sort_by(|one, other| other.total_cmp(one));
    Some(Programme::best(stages, &times, period)?.latency())
}

/// Returns the mapping of the programme for a goal, with the period found by binary search.
///
/// Returns `None` unless all stages take equal time on each processor and may be replicated, no transfer takes time,
/// the problem is small, and a mapping keeps the goal's limits.
pub(super) fn mapping(problem: &Problem, goal: Goal) -> Option<Mapping> {
    let (stages, times) = (problem.stage_count(), equal_times(problem)?);
    let steps = times.len().checked_pow(4)?.checked_mul(stages.checked_pow(2)?)?;
    if steps > MOST_STEPS {
        return None;
    }
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|&one, &other| times[other].total_cmp(&times[one]));
    let times: Vec<f64> = order.iter().map(|&processor| times[processor]).collect();
    let limits = goal.limits();
    let found =
        |period: f64| Programme::best(stages, &times, period).filter(|found| within(found.latency(), limits.latency));
    let best = match goal {
        Goal::Latency | Goal::LatencyWithin { .. } => found(limits.period)?,
        Goal::Period | Goal::PeriodWithin { .. } => {
            let periods = periods(stages, &times);
            found(periods[periods.partition_point(|&period| found(period).is_none()).min(periods.len() - 1)])?
        }
    };
    let interval = |(stages, first, last): (_, usize, usize)| Interval {
        stages,
        processors: order[first..=last].to_vec(),
        sharing: if first == last { Sharing::Single } else { Sharing::Replicated },
    };
    Some(Mapping { intervals: best.intervals().into_iter().map(interval).collect() })
}

/// Returns the seconds of a stage on each processor, if the problem is of the slides' second part.
fn equal_times(problem: &Problem) -> Option<Vec<f64>> {
    let list = &problem.stages().stages;
    let alike = list.iter().all(|stage| stage.times == list[0].times && stage.kind >= StageKind::Replicable);
    let most = problem.stages().data.iter().copied().max().unwrap_or(0) as f64;
    let ports = || (0..problem.processor_count()).map(Port::Processor).chain([Port::Outside]);
    let mut links = ports().flat_map(|from| ports().filter(move |&to| to != from).map(move |to| (from, to)));
    let free = links.all(|(from, to)| problem.processors().link(from, to).seconds(most) == 0.0);
    (alike && free && problem.rules().replication).then(|| list[0].times.iter().copied().collect()).flatten()
}

/// Returns all periods that an interval can have, in increasing order.
fn periods(stages: usize, times: &[f64]) -> Vec<f64> {
    let counts = 1..=times.len();
    let of =
        |&time: &f64| counts.clone().flat_map(move |count| (1..=stages).map(move |m| m as f64 * time / count as f64));
    let mut periods: Vec<f64> = times.iter().flat_map(of).collect();
    periods.sort_by(f64::total_cmp);
    periods.dedup();
    periods
}

/// Table of `L(m, i, j)` for some of the fastest processors, the slowest of them first.
struct Programme<'a> {
    stages: usize,
    /// Seconds of a stage on each of all processors.
    times: &'a [f64],
    /// First processor that is used.
    first: usize,
    period: f64,
    least: Vec<f64>,
}

impl<'a> Programme<'a> {
    /// Returns the programme of the number of processors with the least latency.
    fn best(stages: usize, times: &'a [f64], period: f64) -> Option<Self> {
        let programmes = (0..times.len()).rev().map(|first| Programme::of(stages, times, first, period));
        let best = programmes.min_by(|one, other| one.latency().total_cmp(&other.latency()));
        best.filter(|best| best.latency().is_finite())
    }

    fn of(stages: usize, times: &'a [f64], first: usize, period: f64) -> Self {
        let count = times.len() - first;
        let least = vec![f64::INFINITY; (stages + 1) * count * count];
        let mut programme = Programme { stages, times, first, period, least };
        for m in 1..=stages {
            for i in (0..count).rev() {
                for j in i..count {
                    let (split, alone) = (programme.split(m, i, j), programme.alone(m, i, j));
                    let place = programme.place(m, i, j);
                    programme.least[place] = split.map_or(alone, |(latency, ..)| latency.min(alone));
                }
            }
        }
        programme
    }

    fn count(&self) -> usize {
        self.times.len() - self.first
    }

    fn place(&self, m: usize, i: usize, j: usize) -> usize {
        (m * self.count() + i) * self.count() + j
    }

    fn latency(&self) -> f64 {
        self.least[self.place(self.stages, 0, self.count() - 1)]
    }

    /// Latency of `m` stages replicated on all processors from `i` to `j`.
    fn alone(&self, m: usize, i: usize, j: usize) -> f64 {
        let alone = m as f64 * self.times[self.first + i];
        if within(alone / (j - i + 1) as f64, self.period) { alone } else { f64::INFINITY }
    }

    /// Least latency of two parts, with the stages and the last processor of the first part.
    fn split(&self, m: usize, i: usize, j: usize) -> Option<(f64, usize, usize)> {
        let parts = (1..m).flat_map(|stages| (i..j).map(move |k| (stages, k)));
        let latency = |(stages, k): (usize, usize)| {
            (self.least[self.place(stages, i, k)] + self.least[self.place(m - stages, k + 1, j)], stages, k)
        };
        parts.map(latency).min_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Returns the stages of each interval, with its first and last processor.
    fn intervals(&self) -> Vec<(std::ops::Range<usize>, usize, usize)> {
        let (mut open, mut intervals) = (vec![(0, self.stages, 0, self.count() - 1)], Vec::new());
        while let Some((start, m, i, j)) = open.pop() {
            match self.split(m, i, j).filter(|split| split.0 < self.alone(m, i, j)) {
                Some((_, stages, k)) => {
                    open.push((start + stages, m - stages, k + 1, j));
                    open.push((start, stages, i, k));
                }
                None => intervals.push((start..start + m, self.first + i, self.first + j)),
            }
        }
        intervals
    }
}
