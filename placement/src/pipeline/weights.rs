//! Weights of processors that turn the work of all stages into a lower bound of the period of any mapping.
//!
//! A mapping of period `K` gives processor `u` at most `K` seconds of work per input. With weights `y_u ≥ 0` it follows
//! that `Σ_s min_u y_u t_su ≤ K Σ_u y_u`. Replicas share the inputs, groups share each input, and a slowest replica
//! only lengthens the period.
//!
//! If processors differ by speed only, the speeds are the best weights, and the bound is the work over the sum of
//! speeds. In other cases the best weights are the dual of the fractional assignment. An iteration approaches them: it
//! raises the weights of overloaded processors.

use super::problem::Problem;

/// Rounds of the iteration; if processors differ by speed only, none is needed.
const ROUNDS: usize = 40;

#[derive(Debug, Clone)]
pub(super) struct Weights {
    weights: Vec<f64>,
    /// Weighted work of the stages from each position to the end.
    after: Vec<f64>,
}

impl Weights {
    /// Computes the weights. `O(rounds × stages × processors)`.
    pub(super) fn new(problem: &Problem) -> Self {
        let count = problem.processor_count();
        let mean = |processor: usize| {
            let times: Vec<f64> = problem.stages().stages.iter().filter_map(|stage| stage.times[processor]).collect();
            times.iter().sum::<f64>() / times.len() as f64
        };
        let start = (0..count).map(mean).map(|mean| if mean > 0.0 { 1.0 / mean } else { 0.0 });
        let mut weights: Vec<f64> = start.collect();
        let mut best = Weights::of_processors(problem, weights.clone());
        if same_order(problem) {
            return best;
        }
        for round in 0..ROUNDS {
            let loads = loads(problem, &weights);
            let mean = loads.iter().sum::<f64>() / count as f64;
            let power = 1.0 / (1.0 + round as f64);
            for (weight, load) in weights.iter_mut().zip(&loads).filter(|_| mean > 0.0) {
                *weight *= (load / mean).clamp(0.25, 4.0).powf(0.5 * power.max(0.1));
            }
            let next = Weights::of_processors(problem, weights.clone());
            if next.bound() > best.bound() {
                best = next;
            }
        }
        best
    }

    fn of_processors(problem: &Problem, weights: Vec<f64>) -> Self {
        let mut after = vec![0.0; problem.stage_count() + 1];
        for (place, stage) in problem.stages().stages.iter().enumerate().rev() {
            let weighted = stage.times.iter().zip(&weights).filter_map(|(time, weight)| Some(weight * (*time)?));
            after[place] = after[place + 1] + weighted.fold(f64::INFINITY, f64::min);
        }
        Weights { weights, after }
    }

    /// Returns a lower bound of the period, in seconds.
    pub(super) fn bound(&self) -> f64 {
        let sum: f64 = self.weights.iter().sum();
        if sum > 0.0 && self.after[0].is_finite() { self.after[0] / sum } else { 0.0 }
    }

    /// Returns the weight of a processor.
    pub(super) fn of(&self, processor: usize) -> f64 {
        self.weights[processor]
    }

    /// Returns the weighted work of the stages from `stage` on.
    pub(super) fn after(&self, stage: usize) -> f64 {
        self.after[stage]
    }
}

/// Whether times are work over speed, so that the initial weights are the best.
fn same_order(problem: &Problem) -> bool {
    let stages = &problem.stages().stages;
    let ratio = |place: usize, processor: usize| Some(stages[place].times[processor]? / stages[place].times[0]?);
    (1..problem.processor_count()).all(|processor| {
        let mut ratios =
            (0..stages.len()).map(|place| ratio(place, processor)).filter(|ratio| ratio.is_none_or(|it| !it.is_nan()));
        let first = ratios.next().flatten();
        first.is_some_and(|first| ratios.all(|it| it.is_some_and(|it| (it - first).abs() <= 1e-9 * first)))
    })
}

/// Seconds of work of each processor. Each stage goes to the processors of least weighted time, shared among the
/// processors within a tenth of the least.
fn loads(problem: &Problem, weights: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; weights.len()];
    for stage in &problem.stages().stages {
        let cost = |processor: usize| stage.times[processor].map(|time| weights[processor] * time);
        let least = (0..weights.len()).filter_map(cost).fold(f64::INFINITY, f64::min);
        let near: Vec<usize> =
            (0..weights.len()).filter(|&it| cost(it).is_some_and(|cost| cost <= 1.1 * least)).collect();
        for &processor in &near {
            loads[processor] += stage.times[processor].unwrap_or(0.0) / near.len() as f64;
        }
    }
    loads
}
