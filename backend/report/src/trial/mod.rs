//! One trial of a problem: placed, simulated, checked and measured, as the command `simulate` and the Python package do
//! it.

mod chart;
mod placement;
mod units;

pub use chart::chart;
pub use placement::{AUTO, OrderName, TrialError, TrialPlacement, strategy};
pub use units::{nanoseconds, time_format, with_unit};

use anabranch_placement::check::check_placement;
use anabranch_placement::evaluate::{Baseline, DeviceMetrics, Metrics};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::place::Auto;
use anabranch_placement::problem::{MemoryRule, Problem, ProblemError};
use anabranch_placement::quoted::Line;
use anabranch_placement::rules::{LinkContention, Rules, SendCosts};
use anabranch_placement::schedule::Schedule;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Options for placing and simulating a problem. Fields are named as the arguments of the command `simulate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TryOptions {
    /// Name of the strategy; default `heft`.
    pub place: String,
    /// Rule by which a device's next task is chosen from the ready ones; default `pct`.
    pub order: OrderName,
    /// Seed of the search; default 0.
    pub seed: u64,
    /// Number of placements that `auto` simulates; by default as many as a minute allows.
    pub evaluations: Option<u64>,
    /// Operations that a send takes on the sending device; default 0.
    pub send_ops: f64,
    /// Whether a link carries one transfer at a time; default false.
    pub contention: bool,
    /// Bytes that count against a device's memory; default: the problem's own rule.
    pub memory_rule: Option<MemoryRule>,
}

impl Default for TryOptions {
    fn default() -> Self {
        Self {
            place: "heft".into(),
            order: OrderName::Pct,
            seed: 0,
            evaluations: None,
            send_ops: 0.0,
            contention: false,
            memory_rule: None,
        }
    }
}

/// Returns the rules of sends and links. Path computation times count a receive as much as a send, as in the evaluation
/// of Laich 2017.
pub fn rules(send_ops: f64, contention: bool) -> Rules {
    let send_costs = SendCosts { send_operations: send_ops, receive_operations: send_ops };
    let contention = if contention { LinkContention::Serial } else { LinkContention::None };
    Rules::default().with_send_costs(send_costs).with_contention(contention)
}

impl TryOptions {
    /// Returns the problem under these rules.
    ///
    /// # Errors
    /// If it has no solution, or is invalid under the rules.
    pub fn problem<'a>(&self, loaded: &'a LoadedProblem) -> Result<Problem<'a>, ProblemError> {
        loaded.problem()?.under(rules(self.send_ops, self.contention))
    }

    /// Returns the search strategy with these options.
    pub fn auto(&self) -> Auto {
        Auto { evaluations: self.evaluations, seed: self.seed }
    }
}

/// Result of a placement.
pub struct Outcome<'p> {
    /// The problem, with the facts of its file.
    pub loaded: &'p LoadedProblem,
    /// The placement.
    pub placed: TrialPlacement,
    /// Device and times of each task.
    pub schedule: Schedule,
    /// Figures of the schedule.
    pub metrics: Metrics,
    /// Constraints that a given placement breaks. Strategies break none.
    pub violations: Vec<String>,
    /// Time that the simulation took.
    pub simulate_time: Duration,
    /// Number of placements that the search strategy simulated.
    evaluations: Option<u64>,
}

impl<'p> Outcome<'p> {
    /// Simulates a placement of `problem`, which is `loaded` under the rules of `options`, and measures the schedule.
    ///
    /// # Errors
    /// If the order is `planned` and the strategy plans none, or the schedule breaks a constraint.
    pub fn of(
        options: &TryOptions,
        loaded: &'p LoadedProblem,
        problem: &Problem<'_>,
        placed: TrialPlacement,
    ) -> Result<Self, TrialError> {
        let violations = check_placement(problem, &placed.device_of).iter().map(ToString::to_string).collect();
        let started = Instant::now();
        let schedule = placed.schedule(problem, options.order)?;
        let simulate_time = started.elapsed();
        let metrics = Metrics::of(problem, &Baseline::of(problem), &schedule);
        let evaluations = (placed.strategy == AUTO).then(|| options.auto().budget(problem));
        Ok(Self { loaded, placed, schedule, metrics, violations, simulate_time, evaluations })
    }

    /// Returns all figures, with their options.
    pub fn json(&self, options: &TryOptions) -> Value {
        let Self { metrics, loaded, placed, .. } = self;
        let device = |metrics: &DeviceMetrics| {
            let device = loaded.platform.device(metrics.device);
            json!({
                "name": device.name,
                "kind": device.kind,
                "tasks": metrics.tasks,
                "busy": metrics.busy,
                "utilisation": metrics.utilisation,
                "peak_memory": metrics.peak_memory,
                "memory_limit": device.memory,
                "executable": metrics.executable,
            })
        };
        json!({
            "problem": loaded.name,
            "tasks": loaded.graph.task_count(),
            "edges": loaded.graph.edge_count(),
            "time_unit": loaded.facts.time_unit,
            "strategy": placed.strategy,
            "seed": self.evaluations.map(|_| options.seed),
            "evaluations": self.evaluations,
            "order": options.order.name(),
            "send_ops": options.send_ops,
            "contention": options.contention,
            "memory_rule": memory_rule_name(loaded.memory_rule),
            "valid": self.violations.is_empty(),
            "violations": self.violations,
            "makespan": metrics.makespan,
            "bound": metrics.bound.value,
            "bound_kind": metrics.bound.kind,
            "gap": metrics.gap,
            "exact": placed.proof.map(|proof| json!({
                "optimal": proof.is_optimal(),
                "makespan": proof.makespan,
                "bound": proof.bound,
                "gap": proof.gap(),
                "nodes": proof.nodes,
            })),
            "slr": metrics.slr,
            "speedup": metrics.speedup,
            "traffic": in_file_units(loaded, metrics.traffic),
            "traffic_per_edge": in_file_units(loaded, metrics.traffic_per_edge),
            "sends": metrics.sends,
            "cut_edges": metrics.cut_edges,
            "utilisation": metrics.utilisation,
            "peak_memory": metrics.peak_memory(),
            "place_seconds": placed.time.as_secs_f64(),
            "simulate_seconds": self.simulate_time.as_secs_f64(),
            "devices": metrics.devices.iter().map(device).collect::<Vec<_>>(),
            "figures": loaded.facts.figures,
        })
    }
}

/// Returns a memory rule as typed on a command line.
fn memory_rule_name(rule: MemoryRule) -> &'static str {
    match rule {
        MemoryRule::Resident => "resident",
        MemoryRule::SizeEstimate => "size-estimate",
        MemoryRule::Ignore => "ignore",
    }
}

/// Returns bytes in the unit of the file, whose sizes may be fractions.
fn in_file_units(loaded: &LoadedProblem, bytes: u64) -> Value {
    let unit = loaded.facts.bytes_a_unit;
    if unit == 1.0 { json!(bytes) } else { json!(bytes as f64 / unit) }
}

/// A problem that was placed and simulated.
pub struct Tried {
    /// Output of `simulate --json`.
    pub facts: Value,
    /// Chart of `simulate --gantt`, as SVG.
    pub chart: String,
    /// Device and times of each task.
    pub schedule: Schedule,
}

/// Places a problem, simulates it and checks the result.
///
/// Takes the time of the strategy and the simulation. `auto` takes a minute at most if the number of its evaluations is
/// not given.
///
/// # Errors
/// If there is no such strategy, it finds no placement, or the problem is invalid under the rules. The error is a
/// sentence.
pub fn try_problem(loaded: &LoadedProblem, options: &TryOptions) -> Result<Tried, TrialError> {
    let mut loaded = loaded.clone();
    loaded.memory_rule = options.memory_rule.unwrap_or(loaded.memory_rule);
    let about = |error: &dyn std::fmt::Display| TrialError::Input(format!("problem ({}): {error}", Line(&loaded.name)));
    let refuse = |error: TrialError| if matches!(error, TrialError::Input(_)) { about(&error) } else { error };
    let problem = options.problem(&loaded).map_err(|error| about(&error))?;
    let placer = strategy(&options.place, options.auto())?;
    let placed = TrialPlacement::by(placer.as_ref(), &problem).map_err(refuse)?;
    let outcome = Outcome::of(options, &loaded, &problem, placed).map_err(refuse)?;
    let chart = chart(&problem, &outcome, options.order.name()).svg();
    Ok(Tried { facts: outcome.json(options), chart, schedule: outcome.schedule })
}
