//! Report of models that run in phases, because shapes in them depend on computed values.

use crate::text::{count, duration};
use anabranch::planning::Planned;
use anabranch::session::{Part, Run, RunPrediction};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Most phases in the text.
const SHOWN: usize = 12;

/// Time of a run by phase and host. Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phases {
    /// Number of later phases.
    plans: usize,
    /// Time of the whole run.
    took_ms: f64,
    /// Time in the plan of the first phase.
    first_ms: f64,
    /// Time in the plans of later phases.
    plans_ms: f64,
    /// Number of operators on the host between plans.
    steps: usize,
    steps_ms: f64,
    /// Time to find or make the plans.
    planning_ms: f64,
    /// Time to pass values on.
    between_ms: f64,
    /// Distinct plans, in the order in which the run came to them.
    each: Vec<PhaseLine>,
    /// Number of plans' runs without details, because there were too many.
    left_out: usize,
}

/// A plan. The plan of a loop's body runs in each pass.
#[derive(Clone, Debug, Serialize)]
struct PhaseLine {
    nodes: usize,
    runs: usize,
    /// Sum over these runs.
    predicted_ms: f64,
    measured_ms: f64,
    /// Maximum over these runs, by device.
    peak_bytes: Vec<u64>,
}

impl Phases {
    /// Returns the phases of a run; `None` if it had only one plan.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let later = run.later.as_ref()?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Some(Self {
            plans: later.phases,
            took_ms: ms(later.took),
            first_ms: ms(run.measured.makespan),
            plans_ms: ms(later.in_plans),
            steps: later.host_operator_count,
            steps_ms: ms(later.in_host_operators),
            planning_ms: ms(later.planning),
            between_ms: ms(later.between(run)),
            each: PhaseLine::all(&run.parts()),
            left_out: later.left_out,
        })
    }
}

impl PhaseLine {
    fn all(parts: &[Part<'_>]) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        for part in parts {
            if part.plan == lines.len() {
                let nodes = part.planned.program.nodes.len();
                lines.push(Self { nodes, runs: 0, predicted_ms: 0.0, measured_ms: 0.0, peak_bytes: Vec::new() });
            }
            let line = &mut lines[part.plan];
            line.runs += 1;
            line.predicted_ms += RunPrediction::of(part.planned).makespan * 1e3;
            line.measured_ms += part.measured.makespan.as_secs_f64() * 1e3;
            let peaks = &part.measured.peaks;
            line.peak_bytes.resize(peaks.len().max(line.peak_bytes.len()), 0);
            line.peak_bytes.iter_mut().zip(peaks).for_each(|(most, peak)| *most = (*most).max(*peak));
        }
        lines
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        writeln!(f, "phases    shapes follow from computed values: the run has phases, each with a plan of its own")?;
        let [took, first, plans] = [self.took_ms, self.first_ms, self.plans_ms].map(ms);
        let [steps, planning, between] = [self.steps_ms, self.planning_ms, self.between_ms].map(ms);
        writeln!(
            f,
            "          the run shown took {took}: {first} in the first plan, {plans} in {},",
            count(self.plans, "later plan")
        )?;
        writeln!(
            f,
            "          {steps} in {} on the host, {between} to hand on values,",
            count(self.steps, "operator")
        )?;
        write!(f, "          {planning} to find or make plans")?;
        for (number, line) in self.each.iter().enumerate().take(SHOWN) {
            let PhaseLine { nodes, runs, predicted_ms, measured_ms, .. } = line;
            let times = if *runs > 1 { format!(" in {runs} runs") } else { String::new() };
            let (predicted, measured) = (ms(*predicted_ms), ms(*measured_ms));
            write!(
                f,
                "\n          plan {number}: {}, predicted {predicted}, measured {measured}{times}",
                count(*nodes, "node")
            )?;
        }
        match self.each.len().saturating_sub(SHOWN) {
            0 => {}
            more => write!(f, "\n          and {more} more plans")?,
        }
        match self.left_out {
            0 => Ok(()),
            runs => {
                write!(f, "\n          nodes of {runs} further runs are not shown: there were too many")
            }
        }
    }
}

/// Returns a note if a plan covers only the first phase.
pub fn first_phase_note(planned: &Planned) -> Option<String> {
    let rest = planned.rest()?;
    let first = rest.host_operators().next().map_or(String::new(), |name| format!(", the first of them `{name}`"));
    let count = rest.operators();
    Some(format!(
        "phases    {count} of the model's operators are left{first}: shapes follow from computed values, so that this plan is of the first \
         phase, and only `anabranch run` goes on"
    ))
}
