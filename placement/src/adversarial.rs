//! Search for instances on which one strategy is much worse than another, by simulated annealing (PISA: Coleman and
//! Krishnamachari 2024, arXiv 2403.07120).
//!
//! Let `r(p)` be the makespan of strategy A on a problem `p`, divided by the makespan of strategy B. The search starts
//! from a problem and makes one random [change](Ranges) per step. It keeps the changed problem `p'` if `r(p') > r(p)`,
//! and otherwise with the probability `exp((r(p') / r(p) − 1) / T)`. The temperature `T` falls geometrically from
//! [`Annealing::hottest`] to [`Annealing::coldest`]. The worst problem of all steps is the result.
//!
//! The search calls a function for the ratio, so it knows no strategy. The caller places, simulates and checks.
//!
//! Two things differ from the paper. The paper does not subtract 1 from the quotient of both ratios, and its search
//! begins hotter, so it keeps nearly all changes at first. In the paper numbers fall to 0; here they do not fall below
//! a hundredth of their greatest value ([`Ranges::LEAST`]). Without this limit the search found ratios above 600 000,
//! from numbers near 0.
//!
//! Equal parameters give equal results on one machine. The exponential function may differ in the last bit between
//! machines, and with it a decision.

mod changes;
mod instance;

use crate::format::LoadedProblem;
use crate::generate::{GenerateError, Random};
use crate::graph::{GraphBuilder, Task};
use crate::platform::{Device, DeviceKind, Platform};
use crate::problem::MemoryRule;
use anabranch_base::interruption;
use instance::Instance;

/// Parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Annealing {
    /// Number of changes (default: 1000, as in the paper).
    pub steps: u64,
    /// Seed of changes and decisions (default: 0).
    pub seed: u64,
    /// Temperature at the first step (default: 0.03).
    pub hottest: f64,
    /// Temperature at the last step (default: 0.003).
    pub coldest: f64,
}

impl Default for Annealing {
    fn default() -> Self {
        Annealing { steps: 1000, seed: 0, hottest: 0.03, coldest: 0.003 }
    }
}

/// Greatest values that changes give to the numbers of a problem. The least are a hundredth of them.
///
/// A change draws one of six kinds with equal probability, as in the paper. Four kinds move the number of a task, of a
/// datum, of a device or of a link by at most a tenth of the greatest value. The others add an edge or remove one. If
/// the problem has a table of times, the number of a task is its time on one device, and devices have no number of
/// their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranges {
    /// Greatest operations of a task, or greatest time in a table of times.
    pub work: f64,
    /// Greatest size of a datum, in bytes.
    pub bytes: u64,
    /// Greatest speed of a device.
    pub speed: f64,
    /// Greatest finite rate of a link; links of infinite rate are not changed.
    pub rate: f64,
}

impl Ranges {
    /// Least value that a change gives to a number, as a share of the greatest.
    pub const LEAST: f64 = 0.01;

    /// Returns the greatest values that occur in a problem. `O(V + E + devices²)`.
    pub fn of(problem: &LoadedProblem) -> Self {
        Instance::of(problem).ranges()
    }
}

/// Worst problem that a search has found.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// The problem.
    pub problem: LoadedProblem,
    /// Ratio of the problem.
    pub ratio: f64,
    /// Ratio of the start.
    pub start: f64,
    /// Number of changes that gave a problem with a ratio.
    pub judged: u64,
    /// Number of changes that were kept.
    pub kept: u64,
}

impl Annealing {
    /// Searches from `start` within `ranges`. Returns `None` if `ratio` gives the start no ratio.
    ///
    /// `ratio` returns the ratio of a problem, or `None` if a strategy cannot place it. Such a change is not kept.
    /// Kinds, pins, colocation, memory, latencies, links of infinite rate and a network of links stay as they are. An
    /// interruption ends the search with the worst problem so far. `O(steps × (V + E + devices²))` besides the calls of
    /// `ratio`, which are at most `steps + 1`.
    ///
    /// # Errors
    /// Returns the first error of `ratio`.
    pub fn search<E>(
        &self,
        start: &LoadedProblem,
        ranges: &Ranges,
        mut ratio: impl FnMut(&LoadedProblem) -> Result<Option<f64>, E>,
    ) -> Result<Option<Worst>, E> {
        let Some(first) = ratio(start)?.filter(|ratio| ratio.is_finite() && *ratio > 0.0) else { return Ok(None) };
        let mut random = Random::stream(self.seed, 0);
        let mut current = (Instance::of(start), first);
        let mut worst = Worst { problem: start.clone(), ratio: first, start: first, judged: 0, kept: 0 };
        for step in 0..self.steps {
            if interruption::is_due() {
                break;
            }
            let mut changed = current.0.clone();
            changed.change(ranges, &mut random);
            let chance = random.fraction();
            let Some(problem) = changed.problem() else { continue };
            let Some(found) = ratio(&problem)?.filter(|ratio| ratio.is_finite() && *ratio > 0.0) else { continue };
            worst.judged += 1;
            if found <= current.1 && chance >= ((found / current.1 - 1.0) / self.temperature(step)).exp() {
                continue;
            }
            worst.kept += 1;
            current = (changed, found);
            if found > worst.ratio {
                (worst.problem, worst.ratio) = (problem, found);
            }
        }
        Ok(Some(worst))
    }

    fn temperature(&self, step: u64) -> f64 {
        let share = step as f64 / self.steps.saturating_sub(1).max(1) as f64;
        self.hottest * (self.coldest / self.hottest).powf(share)
    }
}

/// Returns a random start of the paper (section VI): a chain of 3 to 5 tasks on 3 to 5 devices, and its ranges.
///
/// All numbers are uniform from [`Ranges::LEAST`] to 1: operations, megabytes, speeds and megabytes per unit of time. A
/// link is equal in both directions.
///
/// # Errors
/// None for any seed; the type is that of all generators.
pub fn random_start(seed: u64) -> Result<(LoadedProblem, Ranges), GenerateError> {
    const MEGABYTE: u64 = 1_000_000;
    const LEAST: u64 = 10_000;
    let mut random = Random::stream(seed, 1);
    let [tasks, devices] = [(); 2].map(|()| random.between(&(3..=5)) as usize);
    let mut builder = GraphBuilder::new();
    let ids: Vec<_> = (0..tasks)
        .map(|number| {
            builder.task(Task::new(format!("task {number}")).with_operations(random.uniform(Ranges::LEAST, 1.0)))
        })
        .collect();
    for pair in ids.windows(2) {
        builder.edge(pair[0], pair[1], random.between(&(LEAST..=MEGABYTE)));
    }
    let ranges = Ranges { work: 1.0, bytes: MEGABYTE, speed: 1.0, rate: MEGABYTE as f64 };
    let device = |number| {
        let speed = random.uniform(Ranges::LEAST, ranges.speed);
        Device::new(format!("device {number}"), DeviceKind::Cpu).with_speed(speed)
    };
    let list: Vec<Device> = (0..devices).map(device).collect();
    let rates: Vec<f64> =
        (0..devices * devices).map(|_| random.uniform(Ranges::LEAST * ranges.rate, ranges.rate)).collect();
    let platform = Platform::new(list, |from, to| {
        let (low, high) = (from.index().min(to.index()), from.index().max(to.index()));
        (0.0, rates[low * devices + high])
    })?;
    let mut problem = LoadedProblem::new(format!("chain {seed}"), builder.build()?, platform, MemoryRule::Ignore);
    problem.facts.bytes_a_unit = MEGABYTE as f64;
    Ok((problem, ranges))
}

#[cfg(test)]
mod tests;
