//! Placement, simulation, checks and metrics.

use crate::clock::Clock;
use crate::sources::Case;
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::order::{ORDERS, Order, Planned, order_by_name};
use anabranch_placement::place::{Auto, Placement, Placer, STRATEGIES, strategy_by_name};
use anabranch_placement::problem::Problem;
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;

/// Strategies to measure.
#[derive(Default)]
pub(crate) struct Selection {
    /// Whether `auto`, which searches, is included.
    pub(crate) auto: bool,
    /// Names of the strategies to include (default: all).
    pub(crate) only: Option<Vec<String>>,
}

impl Selection {
    /// Returns the strategies, with the search last.
    pub(crate) fn strategies(&self) -> Vec<Box<dyn Placer>> {
        let wanted = |name: &&str| self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name));
        let listed = STRATEGIES.iter().map(|&(name, _)| name).filter(wanted).filter_map(strategy_by_name);
        listed.chain(self.auto.then(|| Box::new(Auto::default()) as Box<dyn Placer>)).collect()
    }
}

/// Measurements of one problem.
#[derive(Serialize)]
pub(crate) struct Survey {
    pub(crate) graph: String,
    pub(crate) devices: String,
    pub(crate) tasks: usize,
    pub(crate) edges: usize,
    pub(crate) baseline: Baseline,
    /// Seconds for the baseline, almost all of them for the bound.
    pub(crate) baseline_seconds: f64,
    /// Makespan of the thesis' HEFT after a correction, if known.
    pub(crate) corrected_heft: Option<f64>,
    pub(crate) rows: Vec<Row>,
}

/// Measurements of one strategy.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) strategy: String,
    /// Makespan of the thesis' evaluation under PCT, if known.
    pub(crate) reference: Option<f64>,
    pub(crate) place_seconds: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// Result of one strategy.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Results under each order.
    Runs(BTreeMap<String, Run>),
    /// Reason why the strategy placed nothing.
    Refused(String),
}

/// One simulation.
#[derive(Serialize)]
pub(crate) struct Run {
    pub(crate) simulate_seconds: f64,
    #[serde(flatten)]
    pub(crate) metrics: Metrics,
}

impl Row {
    /// Returns the run under `order`, if there is one.
    pub(crate) fn run(&self, order: &str) -> Option<&Metrics> {
        match &self.outcome {
            Outcome::Runs(runs) => runs.get(order).map(|run| &run.metrics),
            Outcome::Refused(_) => None,
        }
    }

    /// Returns the smallest makespan under any order.
    pub(crate) fn best(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Runs(runs) => runs.values().map(|run| run.metrics.makespan).reduce(f64::min),
            Outcome::Refused(_) => None,
        }
    }
}

/// Measures every strategy of the selection.
pub(crate) fn survey(case: &Case, selection: &Selection) -> Result<Survey, Box<dyn Error>> {
    let problem = case.problem.problem()?.under(case.rules.clone())?;
    let start = Clock::start();
    let baseline = Baseline::of(&problem);
    let baseline_seconds = start.seconds();
    let mut rows = Vec::new();
    for strategy in selection.strategies() {
        rows.push(row(case, &problem, &baseline, strategy.as_ref())?);
    }
    Ok(Survey {
        graph: case.graph.clone(),
        devices: case.devices.clone(),
        tasks: problem.graph().task_count(),
        edges: problem.graph().edge_count(),
        baseline,
        baseline_seconds,
        corrected_heft: None,
        rows,
    })
}

fn row(case: &Case, problem: &Problem<'_>, baseline: &Baseline, strategy: &dyn Placer) -> Result<Row, Box<dyn Error>> {
    let start = Clock::start();
    let placed = strategy.place(problem);
    let place_seconds = start.seconds();
    let outcome = match placed {
        Ok(placement) => Outcome::Runs(runs(case, problem, baseline, &placement)?),
        Err(refusal) => Outcome::Refused(refusal.to_string()),
    };
    Ok(Row { strategy: strategy.name().into(), reference: None, place_seconds, outcome })
}

/// Simulates under every order, and under the order of the planned schedule if there is one.
fn runs(
    case: &Case,
    problem: &Problem<'_>,
    baseline: &Baseline,
    placement: &Placement,
) -> Result<BTreeMap<String, Run>, Box<dyn Error>> {
    let violations = check_placement(problem, &placement.device_of);
    if let Some(violation) = violations.first() {
        return Err(format!("{} on {}: {violation}", placement.strategy, case.graph).into());
    }
    let planned = placement.planned.as_ref().map(|planned| Planned::new(&planned.order));
    let mut orders: Vec<Box<dyn Order + '_>> = ORDERS.iter().filter_map(|name| order_by_name(name)).collect();
    orders.extend(planned.map(|planned| Box::new(planned) as Box<dyn Order>));
    let mut runs = BTreeMap::new();
    for order in orders {
        let start = Clock::start();
        let schedule = anabranch_placement::simulate::simulate(problem, &placement.device_of, order.as_ref())?;
        let simulate_seconds = start.seconds();
        let violations = check_schedule(problem, &placement.device_of, &schedule);
        if let Some(violation) = violations.first() {
            return Err(format!("{} under {} on {}: {violation}", placement.strategy, order.name(), case.graph).into());
        }
        let metrics = Metrics::of(problem, baseline, &schedule);
        runs.insert(order.name().into(), Run { simulate_seconds, metrics });
    }
    Ok(runs)
}
