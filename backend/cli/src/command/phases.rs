//! What is told of models that are run in phases, because shapes in them follow from computed values.

use super::table::duration;
use anabranch::planning::Planned;
use anabranch::session::Run;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The later phases of a run. Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phases {
    /// Of later phases.
    plans: usize,
    /// The whole run.
    took_ms: f64,
    /// In the plan of the first phase.
    first_ms: f64,
    /// In those of the others.
    plans_ms: f64,
    /// Operators on the host between plans.
    steps: usize,
    steps_ms: f64,
    /// To find or make the plans.
    planning_ms: f64,
    /// To hand on values.
    between_ms: f64,
}

impl Phases {
    /// Of a run that had any.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let later = run.later.as_ref()?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Some(Self {
            plans: later.phases,
            took_ms: ms(later.took),
            first_ms: ms(run.measured.makespan),
            plans_ms: ms(later.in_plans),
            steps: later.steps,
            steps_ms: ms(later.in_steps),
            planning_ms: ms(later.planning),
            between_ms: ms(later.between(run)),
        })
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        writeln!(
            f,
            "phases    shapes follow from computed values: what is told here is of the first phase's plan alone"
        )?;
        write!(
            f,
            "          the last run took {} in all: {} in this plan, {} in {} later ones, {} in {} steps on the host,\n          {} to find \
             or make plans, {} to hand on values",
            ms(self.took_ms),
            ms(self.first_ms),
            ms(self.plans_ms),
            self.plans,
            ms(self.steps_ms),
            self.steps,
            ms(self.planning_ms),
            ms(self.between_ms)
        )
    }
}

/// Says of a plan that it is of the first phase, if it is.
pub(super) fn note(planned: &Planned) -> Option<String> {
    let rest = planned.rest()?;
    let first = rest.steps().next().map_or(String::new(), |name| format!(", the first of them `{name}`"));
    let count = rest.operators();
    Some(format!(
        "phases    {count} of the model's operators are left{first}: shapes follow from computed values, so that this plan is of the first \
         phase, and only `anabranch run` goes on"
    ))
}
