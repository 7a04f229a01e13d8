//! Runs of models whose shapes depend on computed values: the phases after the first plan.

use super::error::{InputError, SessionError};
use super::inputs::Inputs;
use super::open::Session;
use super::parts::{self, Named};
use super::run::Run;
use super::whole::RunPrediction;
use anabranch_execute::{Deadline, RunOptions, RunOutput};
use anabranch_onnx::import::{Node, ValueIndex};
use anabranch_onnx::item::Item;
use anabranch_onnx::lower::{Continuation, LowerError, Phase};
use anabranch_planning::{PlanChoice, Planned, Strategy};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most events of later phases, steps, and nodes of plans that a profiled run keeps: loops could produce any number.
const MOST_KEPT: usize = 100_000;

/// Weight of a plan besides its nodes, in events.
const PLAN: usize = 100;

/// Phases and host operators of a run after its first plan, whose shapes depend on computed values.
///
/// Each phase has its own plan, which is kept like the plans of whole models. Between phases, values are on the host.
#[derive(Default)]
pub struct Later {
    /// Runs of the plans, in order; those of a loop's body in each iteration. Only for runs with a profile.
    pub runs: Vec<LaterRun>,
    /// Operators that were computed on the host, in order, without branches and loops. Only for runs with a profile.
    pub host_operators: Vec<HostOperator>,
    /// Number of plans' runs that `runs` lacks, because there were too many.
    pub left_out: usize,
    /// Total number of plans' runs.
    pub phases: usize,
    /// Sum of the times of these runs, from the call until the last worker was done.
    pub in_plans: Duration,
    /// Number of operators that were computed on the host in between.
    pub host_operator_count: usize,
    /// Time of these operators, without the graphs within them.
    pub in_host_operators: Duration,
    /// Time to find or make the plans.
    pub planning: Duration,
    /// Time of the whole run, including the first phase.
    pub took: Duration,
    /// Whether one of the runs was its plan's first.
    pub cold: bool,
    /// Peak bytes of any plan on each device.
    pub peaks: Vec<u64>,
    /// Sum of the plans' predictions.
    pub(super) predicted: RunPrediction,
    /// Host time of the former run, if its inputs had the same shapes.
    pub(super) host_before: Option<Duration>,
    /// Number of events, steps and nodes of plans that are kept.
    kept: usize,
    /// Whether the limit was reached.
    full: bool,
}

/// A run of a later phase's plan.
pub struct LaterRun {
    /// Plan of the phase. It holds no memory.
    pub planned: Arc<Planned>,
    /// Events of the run, and its memory.
    pub measured: RunOutput,
    /// Whether this was the plan's first run.
    pub cold: bool,
    /// Time from the whole run's start until this plan was run.
    pub begun: Duration,
    /// Time to find or make the plan before that.
    pub planning: Duration,
}

/// An operator that was computed on the host between two plans.
#[derive(Clone, Debug)]
pub struct HostOperator {
    /// Name of the node.
    pub name: String,
    /// Operator of the node.
    pub operator: String,
    /// Names of its input values.
    pub reads: Vec<String>,
    /// Names of its output values.
    pub makes: Vec<String>,
    /// Bytes of the output values.
    pub bytes: u64,
    /// Time from the whole run's start.
    pub begun: Duration,
    /// Duration of the operator.
    pub took: Duration,
}

impl Later {
    /// Returns the time of the run without its plans and the search for them: host operators, and handing values on.
    pub fn on_host(&self, first: &Run) -> Duration {
        self.took.saturating_sub(first.measured.makespan + self.in_plans + self.planning)
    }

    /// Returns the time of the run without its plans, host operators and planning: handing values on.
    pub fn between(&self, first: &Run) -> Duration {
        self.on_host(first).saturating_sub(self.in_host_operators)
    }

    /// Counts a run of a plan.
    fn count(&mut self, run: &Run) {
        self.phases += 1;
        self.in_plans += run.measured.makespan;
        self.cold |= run.cold;
        self.predicted = self.predicted.then(RunPrediction::of(&run.prepared));
        self.peaks.resize(self.peaks.len().max(run.measured.peaks.len()), 0);
        for (most, peak) in self.peaks.iter_mut().zip(&run.measured.peaks) {
            *most = (*most).max(*peak);
        }
    }

    /// Whether the limit allows this many more events, steps and nodes of plans. After the first refusal, nothing more
    /// is kept.
    fn keeps(&mut self, more: usize) -> bool {
        self.full |= self.kept.saturating_add(more) > MOST_KEPT;
        self.kept += if self.full { 0 } else { more };
        !self.full
    }
}

/// Values by their index in the model.
pub(super) type Values = BTreeMap<ValueIndex, Item>;

/// A run in progress of a model in phases.
pub(super) struct PhasedRun<'r> {
    pub(super) session: &'r Session,
    pub(super) options: &'r RunOptions,
    /// Choice with which later phases are planned.
    choice: PlanChoice,
    pub(super) later: &'r mut Later,
    /// Start of the whole run.
    pub(super) begun: Instant,
}

/// Times of a plan's run.
struct When {
    begun: Duration,
    planning: Duration,
}

impl Session {
    /// Continues a run after its first phase, and returns the model's outputs with their names: sequences and optionals
    /// in parts.
    pub(super) fn go_on(
        &self,
        rest: &Arc<Continuation>,
        inputs: &Inputs,
        first: &Run,
        options: &RunOptions,
        later: &mut Later,
        begun: Instant,
    ) -> Result<Named, SessionError> {
        let given = rest.model().inputs.iter().filter(|input| input.kind.is_tensor());
        let given = given.filter_map(|input| Some((input.value, Item::Tensor(inputs.find(&input.name)?.clone()))));
        let choice = later_choice(&first.prepared.choice);
        let mut phased = PhasedRun { session: self, options, choice, later, begun };
        let values = phased.after(rest, given.chain(self.items(inputs)?).collect(), first)?;
        let outputs = phased.finish(Arc::clone(&rest.next), values)?;
        let mut named = Named::new();
        for (item, output) in outputs.into_iter().zip(&self.whole.model.outputs) {
            named.extend(parts::made(item, output)?);
        }
        Ok(named)
    }
}

impl PhasedRun<'_> {
    /// Runs phase after phase, and returns the graph's outputs.
    pub(super) fn finish(&mut self, mut phase: Arc<Phase>, mut values: Values) -> Result<Vec<Item>, SessionError> {
        while !phase.is_over() {
            let (run, when) = self.run(&phase, &values)?;
            let rest = run.prepared.rest.clone().ok_or(InputError::Undecided)?;
            values = self.after(&rest, values, &run)?;
            self.keep(run, when);
            phase = Arc::clone(&rest.next);
        }
        let item = |value| Ok(values.get(&value).cloned().or(constant(&phase, value)?));
        let outputs = phase.model.outputs.iter().map(|output| {
            let missing = || InputError::Unmade { name: output.name.clone() }.into();
            item(output.value).and_then(|item: Option<Item>| item.ok_or_else(missing))
        });
        outputs.collect()
    }

    /// Runs a phase's plan.
    fn run(&mut self, phase: &Arc<Phase>, values: &Values) -> Result<(Run, When), SessionError> {
        let mut inputs = Inputs::new();
        for value in phase.reads() {
            if let Some(Item::Tensor(tensor)) = values.get(value) {
                inputs = inputs.tensor(phase.model.value_name(*value), tensor.clone());
            }
        }
        self.session.check_host_memory(inputs.specs())?;
        let asked = Instant::now();
        let prepared =
            self.session.find_or_prepare(phase, &inputs, Some(&self.choice), &Deadline::new(self.options, asked))?;
        let when = When { begun: self.begun.elapsed(), planning: asked.elapsed() };
        self.later.planning += when.planning;
        let run = self.session.run_plan(&prepared, &inputs, self.options)?;
        self.later.count(&run);
        Ok((run, when))
    }

    /// Keeps the data of a run for learning. Its plan's memory is free for others.
    fn keep(&mut self, run: Run, When { begun, planning }: When) {
        if !self.options.profile {
            return;
        }
        let (planned, cold) = (Arc::clone(run.prepared.planned()), run.cold);
        let is_known = self.later.runs.last().is_some_and(|last| Arc::ptr_eq(&last.planned, &planned));
        let plan = if is_known { 0 } else { PLAN + planned.program.nodes.len() };
        if self.later.keeps(1 + run.measured.events.len() + plan) {
            self.later.runs.push(LaterRun { planned, measured: run.measured, cold, begun, planning });
        } else {
            self.later.left_out += 1;
        }
    }

    /// Keeps the times of an operator on the host.
    pub(super) fn keep_host_operator(&mut self, phase: &Phase, node: &Node, begun: Instant, bytes: u64) {
        if self.options.profile && self.later.keeps(1) {
            let named = |values: &[Option<ValueIndex>]| {
                values.iter().flatten().map(|value| phase.model.value_name(*value).to_owned()).collect()
            };
            self.later.host_operators.push(HostOperator {
                name: node.name.clone(),
                operator: node.op_type.clone(),
                reads: named(&node.inputs),
                makes: named(&node.outputs),
                bytes,
                begun: begun.saturating_duration_since(self.begun),
                took: begun.elapsed(),
            });
        }
    }

    /// Returns the inputs of the next phase: outputs of a plan, and of the host operators after it.
    fn after(&mut self, rest: &Continuation, mut values: Values, run: &Run) -> Result<Values, SessionError> {
        for (place, value) in rest.made.iter().enumerate() {
            let tensor = run.outputs.tensor(place).map_err(|_| InputError::Resident)?;
            values.insert(*value, Item::Tensor(tensor.clone()));
        }
        for at in &rest.host_operators {
            let node = &rest.model().nodes[*at as usize];
            let made = self.host_operator(rest, *at, &values)?;
            let named = node.outputs.iter().zip(made).filter_map(|(value, item)| Some(((*value)?, item)));
            values.extend(named);
        }
        values.retain(|value, _| rest.next.keeps(*value));
        Ok(values)
    }

    /// Ends a run that is cancelled or takes too long.
    pub(super) fn look(&self) -> Result<(), SessionError> {
        Deadline::new(self.options, Instant::now()).verdict().map_or(Ok(()), |verdict| Err(verdict.into()))
    }
}

/// Returns the choice for later phases: a plan file applies to the first phase only.
fn later_choice(first: &PlanChoice) -> PlanChoice {
    match first.strategy {
        Strategy::PlanFile(_) => PlanChoice { strategy: Strategy::default(), ..first.clone() },
        _ => first.clone(),
    }
}

/// Returns the value, if it is equal in each run.
pub(super) fn constant(phase: &Phase, value: ValueIndex) -> Result<Option<Item>, SessionError> {
    let Some(constant) = phase.constant(value) else { return Ok(None) };
    Ok(Some(Item::Tensor(constant.load().map_err(LowerError::from)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_after_the_first_that_does_not_fit() {
        let mut later = Later::default();
        assert!(later.keeps(MOST_KEPT - 1));
        assert!(!later.keeps(2) && !later.keeps(1));
        assert_eq!(later.kept, MOST_KEPT - 1);
    }
}
