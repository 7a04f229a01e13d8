//! Runs of models whose shapes follow from computed values: what comes after the first phase's plan.

use super::error::{InputError, SessionError};
use super::inputs::Inputs;
use super::open::Session;
use super::run::Run;
use crate::execute::{Deadline, RunOptions, RunOutput};
use crate::import::ValueIndex;
use crate::lower::{LowerError, Phase, Rest};
use crate::planning::Planned;
use crate::steps::Item;
use anabranch_kernels::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs of later phases whose profiles are kept, to learn from: loops have no end of them.
const PROFILES: usize = 64;

/// What a run did after the plan of its first phase, because only computed values told the shapes.
///
/// Each phase has a plan of its own, which is kept like those of whole models. Between them values are on the host.
#[derive(Default)]
pub struct Later {
    /// The first of the plans' runs, in order; those of a loop's body in each pass. Only of runs with a profile.
    pub runs: Vec<LaterRun>,
    /// How many there were in all.
    pub phases: usize,
    /// From the calls of all these until their last workers were done.
    pub in_plans: Duration,
    /// Operators that were computed on the host in between.
    pub steps: usize,
    /// The time for these, without that of graphs within them.
    pub in_steps: Duration,
    /// The time to find or make the plans.
    pub planning: Duration,
    /// The time of the whole run, with the first phase.
    pub took: Duration,
}

/// A run of the plan of a later phase.
pub struct LaterRun {
    /// The plan. Nothing is held for it.
    pub planned: Arc<Planned>,
    /// When what happened, and how much memory it took.
    pub measured: RunOutput,
    /// Whether it was the plan's first.
    pub cold: bool,
}

impl Later {
    /// What the run took beside its plans, steps and planning: values that are handed on.
    pub fn between(&self, first: &Run) -> Duration {
        self.took.saturating_sub(first.measured.makespan + self.in_plans + self.in_steps + self.planning)
    }
}

/// Values by where the model has them.
pub(super) type Values = BTreeMap<ValueIndex, Item>;

/// A run under way.
pub(super) struct Course<'r> {
    pub(super) session: &'r Session,
    pub(super) options: &'r RunOptions,
    pub(super) later: &'r mut Later,
}

impl Session {
    /// The model's outputs, from what its first phase made.
    pub(super) fn go_on(
        &self,
        rest: &Arc<Rest>,
        inputs: &Inputs,
        first: &Run,
        options: &RunOptions,
        later: &mut Later,
    ) -> Result<Vec<Tensor>, SessionError> {
        let given = self.whole.model.inputs.iter();
        let given = given.filter_map(|input| Some((input.value, Item::Tensor(inputs.find(&input.name)?.clone()))));
        let mut course = Course { session: self, options, later };
        let values = course.after(rest, given.collect(), first)?;
        let outputs = course.finish(Arc::clone(&rest.next), values)?;
        let tensors = outputs.into_iter().zip(&self.whole.model.outputs).map(|(item, output)| match item {
            Item::Tensor(tensor) => Ok(tensor),
            Item::Sequence(_) => Err(InputError::Sequence { name: output.name.clone() }.into()),
        });
        tensors.collect()
    }
}

impl Course<'_> {
    /// Runs phase after phase, and gives what the graph's outputs are.
    pub(super) fn finish(&mut self, mut phase: Arc<Phase>, mut values: Values) -> Result<Vec<Item>, SessionError> {
        while !phase.is_over() {
            let run = self.run(&phase, &values)?;
            let rest = run.prepared.rest.clone().ok_or(InputError::Undecided)?;
            values = self.after(&rest, values, &run)?;
            self.keep(run);
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
    fn run(&mut self, phase: &Arc<Phase>, values: &Values) -> Result<Run, SessionError> {
        let mut inputs = Inputs::new();
        for value in phase.reads() {
            if let Some(Item::Tensor(tensor)) = values.get(value) {
                inputs = inputs.tensor(phase.model.value_name(*value), tensor.clone());
            }
        }
        self.session.check_room(inputs.specs())?;
        let begun = Instant::now();
        let prepared = self.session.find_or_prepare(phase, &inputs, &Deadline::new(self.options, begun))?;
        self.later.planning += begun.elapsed();
        let run = self.session.run_plan(&prepared, &inputs, self.options)?;
        self.later.phases += 1;
        self.later.in_plans += run.measured.makespan;
        Ok(run)
    }

    /// Keeps what can be learned from a run. Its plan's memory is free for others.
    fn keep(&mut self, run: Run) {
        if self.options.profile && self.later.runs.len() < PROFILES {
            let (planned, cold) = (Arc::clone(run.prepared.planned()), run.cold);
            self.later.runs.push(LaterRun { planned, measured: run.measured, cold });
        }
    }

    /// The values that the next phase reads: what a plan made, and what the steps after it make.
    fn after(&mut self, rest: &Rest, mut values: Values, run: &Run) -> Result<Values, SessionError> {
        for (place, value) in rest.made.iter().enumerate() {
            let tensor = run.outputs.tensor(place).map_err(|_| InputError::Resident)?;
            values.insert(*value, Item::Tensor(tensor.clone()));
        }
        for at in &rest.steps {
            let node = &rest.phase.model.nodes[*at as usize];
            let made = self.step(rest, *at, &values)?;
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

/// A value that is the same in each run.
pub(super) fn constant(phase: &Phase, value: ValueIndex) -> Result<Option<Item>, SessionError> {
    let Some(constant) = phase.constant(value) else { return Ok(None) };
    Ok(Some(Item::Tensor(constant.load().map_err(LowerError::from)?)))
}
