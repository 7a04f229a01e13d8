//! Simulation of static plans under uncertain times: the distribution of a plan's makespan, and the price of its order.
//!
//! A static plan fixes the device of each task, and the order of the tasks of each device. Both are made for the
//! nominal times of a problem. A *draw* multiplies the time of each task and of each transfer by a factor of its own,
//! which is uniform from `1 − s` to `1 + s` for a spread `s`. If the problem knows an uncertainty `u` of a task's time
//! ([`Facts::uncertainties`](crate::format::Facts)), the factor is from `1 / u` to `u`, with a uniform logarithm.
//!
//! Each draw is simulated twice under the same placement: in the plan's order, which devices keep even if they have to
//! wait ([`InOrder`]), and in the order that a rule chooses for the drawn times. The ratio of the mean makespans
//! is the price of the static order. It can be below 1, because a rule is no optimum.
//!
//! The factors depend on seed, draw, task and device, and on draw, datum and receiving device. So all plans of a
//! problem meet the same times, and their makespans can be compared draw by draw.

use crate::check::{Violation, check_schedule};
use crate::cost::CostModel;
use crate::generate::Random;
use crate::graph::{DatumId, GraphBuilder, TaskGraph, TaskId};
use crate::order::{InOrder, Order};
use crate::platform::DeviceId;
use crate::problem::{MemoryRule, Problem, ProblemError};
use crate::schedule::Schedule;
use crate::simulate::{SimulateError, simulate};
use anabranch_base::quantile::{ascending, nearest_rank};

/// Parameters of the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stochastic {
    /// Number of draws (default: 100).
    pub draws: u32,
    /// Seed of all factors (default: 0).
    pub seed: u64,
    /// Greatest relative deviation of a time without a known uncertainty, from 0 to 1 (default: 0.2).
    pub spread: f64,
}

impl Default for Stochastic {
    fn default() -> Self {
        Stochastic { draws: 100, seed: 0, spread: 0.2 }
    }
}

/// Makespans of a static plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Makespan under the nominal times.
    pub nominal: f64,
    /// Makespan in the plan's order, by draw.
    pub fixed: Vec<f64>,
    /// Makespan in the order that the rule chooses for the drawn times, by draw.
    pub reordered: Vec<f64>,
}

/// Reason why a plan was not simulated under draws.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StochasticError {
    /// The spread is not a number from 0 to 1.
    #[error("the spread is {0}, but must be from 0 to 1")]
    Spread(f64),
    /// The order depends on sizes of data, which drawn problems do not have.
    #[error("the order {0} depends on sizes of data; use pct, msr or fifo")]
    Order(&'static str),
    /// The drawn times are too large.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The placement cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The checker rejects a schedule, which is a bug.
    #[error("a simulated schedule is invalid, which is a bug: {0}")]
    Violation(Violation),
}

impl Drawn {
    /// Returns the mean makespan in the plan's order; `NaN` without draws.
    pub fn mean(&self) -> f64 {
        mean(&self.fixed)
    }

    /// Returns the mean makespan in the order that the rule chooses; `NaN` without draws.
    pub fn reordered_mean(&self) -> f64 {
        mean(&self.reordered)
    }

    /// Returns the least makespan that at least this share of the draws, from 0 to 1, does not exceed; `NaN` without
    /// draws. `O(draws log draws)`.
    pub fn percentile(&self, share: f64) -> f64 {
        let sorted = ascending(&self.fixed);
        let rank = nearest_rank(sorted.len() as u64, share) as usize;
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    /// Returns the mean makespan in the plan's order over that of the chosen order; 1 if both are 0.
    pub fn price(&self) -> f64 {
        let (fixed, reordered) = (self.mean(), self.reordered_mean());
        if fixed == reordered { 1.0 } else { fixed / reordered }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Stochastic {
    /// Simulates the plan `nominal`, a schedule of `problem`, under each draw: in its own order, and in the order that
    /// the rule `order` chooses. The checker judges every schedule.
    ///
    /// `uncertainty` returns a factor of at least 1 for a task on a device, if it is known. `O(draws)` simulations and
    /// checks.
    ///
    /// # Errors
    /// Returns an error for a spread outside its range, for an order that depends on sizes, and for a placement that
    /// cannot be simulated. An interruption ends it with the simulator's error.
    pub fn run(
        &self,
        problem: &Problem<'_>,
        uncertainty: &(dyn Fn(TaskId, DeviceId) -> Option<f64> + Sync),
        nominal: &Schedule,
        order: &dyn Order,
    ) -> Result<Drawn, StochasticError> {
        if !(0.0..=1.0).contains(&self.spread) {
            return Err(StochasticError::Spread(self.spread));
        }
        if order.uses_sizes() {
            return Err(StochasticError::Order(order.name()));
        }
        let device_of: Vec<DeviceId> = nominal.tasks.iter().map(|span| span.device).collect();
        let graph = numbered(problem.graph());
        let mut drawn = Drawn { nominal: nominal.makespan, fixed: Vec::new(), reordered: Vec::new() };
        for draw in 0..u64::from(self.draws) {
            let costs = DrawnCosts { problem, uncertainty, parameters: *self, draw };
            let drawn_problem = Problem::new(&graph, problem.platform(), &costs, MemoryRule::Ignore)?;
            let drawn_problem = drawn_problem.under(problem.rules().clone())?;
            let makespan = |order: &dyn Order| {
                let schedule = simulate(&drawn_problem, &device_of, order)?;
                match check_schedule(&drawn_problem, &device_of, &schedule).into_iter().next() {
                    None => Ok(schedule.makespan),
                    Some(violation) => Err(StochasticError::Violation(violation)),
                }
            };
            drawn.fixed.push(makespan(&InOrder::new(&nominal.order))?);
            drawn.reordered.push(makespan(order)?);
        }
        Ok(drawn)
    }
}

/// Returns a graph in which the size of each datum is its number. A cost model is asked for the time of a size, so it
/// can then answer for each datum.
fn numbered(graph: &TaskGraph) -> TaskGraph {
    let mut builder = GraphBuilder::new();
    graph.tasks().iter().for_each(|task| _ = builder.task(task.clone()));
    for datum in graph.datum_ids() {
        let copy = builder.datum(graph.producer(datum), u64::from(datum.0));
        graph.consumers(datum).iter().for_each(|consumer| builder.consume(copy, *consumer));
    }
    for unit in graph.unit_ids() {
        graph.members(unit).windows(2).for_each(|pair| builder.colocate(pair[0], pair[1]));
    }
    builder.build().expect("a copy of a valid graph is valid")
}

/// Times of one draw. Sizes are numbers of data ([`numbered`]).
struct DrawnCosts<'a> {
    problem: &'a Problem<'a>,
    uncertainty: &'a (dyn Fn(TaskId, DeviceId) -> Option<f64> + Sync),
    parameters: Stochastic,
    draw: u64,
}

impl DrawnCosts<'_> {
    /// Returns the factor of an item; `kind` separates tasks from transfers.
    fn factor(&self, kind: u64, item: usize, device: DeviceId, uncertainty: Option<f64>) -> f64 {
        let devices = self.problem.platform().device_count();
        let mut random = Random::stream(self.parameters.seed, 2 * self.draw + kind);
        let mut random = Random::stream(random.bits(), (item * devices + device.index()) as u64);
        match uncertainty {
            Some(uncertainty) if uncertainty >= 1.0 => uncertainty.powf(random.uniform(-1.0, 1.0)),
            _ => random.uniform(1.0 - self.parameters.spread, 1.0 + self.parameters.spread),
        }
    }
}

impl CostModel for DrawnCosts<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        let time = Some(self.problem.time(task, device)).filter(|time| time.is_finite())?;
        Some(time * self.factor(0, task.index(), device, (self.uncertainty)(task, device)))
    }

    fn transfer_time(&self, number: u64, from: DeviceId, to: DeviceId) -> f64 {
        let graph = self.problem.graph();
        if number >= graph.datum_count() as u64 {
            return 0.0;
        }
        let datum = DatumId(number as u32);
        self.problem.transfer_time(graph.bytes(datum), from, to) * self.factor(1, datum.index(), to, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::LoadedProblem;
    use crate::generate::{Grain, Shape, Sweep};
    use crate::order::{Fifo, Frugal, Pct};
    use crate::place::{ListScheduler, Placer};
    use crate::rules::{LinkContention, Rules, SendCosts};

    fn cholesky() -> LoadedProblem {
        let graph = Shape::Cholesky { tiles: 6 }.generate(&Grain::default()).unwrap();
        Sweep::default().problem("cholesky", graph, 1).unwrap()
    }

    fn drawn(parameters: Stochastic, rules: &Rules, uncertainty: Option<f64>) -> Drawn {
        let loaded = cholesky();
        let problem = loaded.problem().unwrap().under(rules.clone()).unwrap();
        let placed = ListScheduler::HEFT.place(&problem).unwrap().device_of;
        let nominal = simulate(&problem, &placed, &Pct).unwrap();
        parameters.run(&problem, &|_, _| uncertainty, &nominal, &Pct).unwrap()
    }

    /// Without spread each draw is the nominal schedule, also under contention and with costs of sends. A plan's order
    /// ranks sends before tasks, so its makespan may differ if sends cost something.
    #[test]
    fn without_spread_nothing_changes() {
        let sends = SendCosts { send_operations: 0.1, receive_operations: 0.1 };
        let contended = Rules::default().with_contention(LinkContention::Serial);
        for rules in [Rules::default(), contended.clone(), contended.with_send_costs(sends)] {
            let drawn = drawn(Stochastic { draws: 3, spread: 0.0, seed: 7 }, &rules, None);
            assert_eq!(drawn.reordered, [drawn.nominal; 3]);
            assert_eq!(drawn.fixed, [drawn.fixed[0]; 3]);
            assert!(rules != Rules::default() || drawn.fixed == drawn.reordered, "{drawn:?}");
        }
    }

    #[test]
    fn draws_repeat_and_lie_in_their_intervals() {
        let parameters = Stochastic { draws: 50, spread: 0.3, seed: 1 };
        let first = drawn(parameters, &Rules::default(), None);
        assert_eq!(drawn(parameters, &Rules::default(), None), first);
        assert_ne!(drawn(Stochastic { seed: 2, ..parameters }, &Rules::default(), None).fixed, first.fixed);
        let within = |makespan: &f64| (0.7 * first.nominal..=1.3 * first.nominal).contains(makespan);
        assert!(first.fixed.iter().all(within), "{first:?}");
        assert!(first.mean() < first.percentile(0.95) && first.percentile(0.0) < first.mean());
        // With known uncertainties, the spread counts only for transfers.
        let known = drawn(Stochastic { spread: 0.0, ..parameters }, &Rules::default(), Some(2.0));
        assert!(known.percentile(1.0) > 1.05 * known.nominal, "{known:?}");
    }

    /// A fixed order that waits for a late task costs time: task 1 is drawn before task 2, or the other way round.
    #[test]
    fn a_fixed_order_waits_and_a_free_order_does_not() {
        let graph = crate::sample::graph(&[10.0, 10.1, 10.0, 10.0], &[(0, 2, 0), (1, 3, 0)]);
        let loaded = crate::sample::problem(graph, &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        let nominal = simulate(&problem, &[0, 1, 2, 2].map(DeviceId), &Fifo).unwrap();
        let parameters = Stochastic { draws: 200, ..Stochastic::default() };
        let drawn = parameters.run(&problem, &|_, _| None, &nominal, &Fifo).unwrap();
        assert!(drawn.price() > 1.02, "{}", drawn.price());
        assert!(drawn.fixed.iter().zip(&drawn.reordered).all(|(fixed, free)| fixed >= free));
        let frugal = parameters.run(&problem, &|_, _| None, &nominal, &Frugal);
        assert_eq!(frugal, Err(StochasticError::Order("frugal")));
        let wide = Stochastic { spread: 1.5, ..parameters };
        assert_eq!(wide.run(&problem, &|_, _| None, &nominal, &Pct), Err(StochasticError::Spread(1.5)));
        let short = Schedule { tasks: nominal.tasks[..1].to_vec(), ..nominal.clone() };
        let short = parameters.run(&problem, &|_, _| None, &short, &Pct);
        assert!(matches!(short, Err(StochasticError::Simulate(_))));
    }

    /// The order of the given plan is kept, also if the rule chooses another.
    #[test]
    fn a_plan_keeps_its_own_order() {
        let graph = crate::sample::graph(&[1.0, 2.0, 4.0], &[(1, 2, 0)]);
        let loaded = crate::sample::problem(graph, &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let order = InOrder::new(&[TaskId(0), TaskId(1), TaskId(2)]);
        let nominal = simulate(&problem, &[0, 0, 1].map(DeviceId), &order).unwrap();
        let parameters = Stochastic { draws: 1, spread: 0.0, seed: 0 };
        let drawn = parameters.run(&problem, &|_, _| None, &nominal, &Pct).unwrap();
        assert_eq!((drawn.nominal, drawn.fixed, drawn.reordered), (7.0, vec![7.0], vec![6.0]));
    }

    #[test]
    fn factors_of_an_uncertainty_have_logarithms_around_0() {
        let loaded = cholesky();
        let problem = loaded.problem().unwrap();
        let costs =
            DrawnCosts { problem: &problem, uncertainty: &|_, _| None, parameters: Stochastic::default(), draw: 0 };
        let factors: Vec<f64> = (0..1000).map(|item| costs.factor(0, item, DeviceId(0), Some(4.0))).collect();
        assert!(factors.iter().all(|factor| (0.25..=4.0).contains(factor)));
        assert!((mean(&factors.iter().map(|factor| factor.ln()).collect::<Vec<_>>())).abs() < 0.1);
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let drawn = Drawn { nominal: 1.0, fixed: (1..=20).map(f64::from).collect(), reordered: vec![10.5; 20] };
        assert_eq!([0.0, 0.5, 0.95, 1.0].map(|share| drawn.percentile(share)), [1.0, 10.0, 19.0, 20.0]);
        assert_eq!((drawn.mean(), drawn.price()), (10.5, 1.0));
        let empty = Drawn { nominal: 1.0, fixed: vec![], reordered: vec![] };
        assert!(empty.mean().is_nan() && empty.percentile(0.5).is_nan());
    }
}
