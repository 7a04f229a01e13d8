//! Places, simulates, checks and measures.

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

/// Which strategies are measured.
#[derive(Default)]
pub(crate) struct Selection {
    /// Whether the one that searches is among them.
    pub(crate) auto: bool,
    /// Only these.
    pub(crate) only: Option<Vec<String>>,
}

impl Selection {
    /// The strategies, with the search last.
    fn strategies(&self) -> Vec<Box<dyn Placer>> {
        let wanted = |name: &&str| self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name));
        let listed = STRATEGIES.iter().map(|&(name, _)| name).filter(wanted).filter_map(strategy_by_name);
        listed.chain(self.auto.then(|| Box::new(Auto::default()) as Box<dyn Placer>)).collect()
    }
}

/// What was measured of one problem.
#[derive(Serialize)]
pub(crate) struct Survey {
    pub(crate) graph: String,
    pub(crate) devices: String,
    pub(crate) tasks: usize,
    pub(crate) edges: usize,
    pub(crate) baseline: Baseline,
    /// Seconds for the baseline, nearly all of them for the bound.
    pub(crate) baseline_seconds: f64,
    /// What the thesis' HEFT reaches once mended, where that is known.
    pub(crate) corrected_heft: Option<f64>,
    pub(crate) rows: Vec<Row>,
}

/// What was measured of one strategy.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) strategy: String,
    /// What the thesis' evaluation reaches under PCT, where that is known.
    pub(crate) reference: Option<f64>,
    pub(crate) place_seconds: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// What came of it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Under each order.
    Runs(BTreeMap<String, Run>),
    /// Why nothing came of it.
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
    /// The run under `order`, if there is one.
    pub(crate) fn run(&self, order: &str) -> Option<&Metrics> {
        match &self.outcome {
            Outcome::Runs(runs) => runs.get(order).map(|run| &run.metrics),
            Outcome::Refused(_) => None,
        }
    }

    /// The smallest makespan under any order.
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

/// Under every order, and where the strategy plans a schedule in the order of that too.
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
