//! One stage of a divided model, in the process that computes it.

use super::super::feedback::Feedback;
use super::super::interval::Cut;
use super::super::kept::Kept;
use super::super::mapping::{refused, resolved};
use super::super::part_planner::PartPlanner;
use super::super::processors::whole_devices;
use super::super::wiring::{Leaving, Route, Wiring};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_execute::{ExecError, Executor, RunOptions, RunOutput};
use anabranch_ir::program::{Program, ValueId};
use anabranch_kernels::Tensor;
use anabranch_session::borrowed::owned;
use anabranch_session::{Charge, Inputs, Session, SessionError, StatePair, ordered};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

/// One stage of a model that is divided over several processes. It holds the constants of its own nodes only.
///
/// Values that pass between stages are numbered by *slots*. A data set begins with the slots of the model's inputs. A
/// stage reads some slots, fills others, and says which slots no later stage reads.
pub struct DistributedStage {
    executor: Executor,
    /// The whole model, to which inputs are compared.
    whole: Arc<Program>,
    route: Route,
    /// Slots that come from other stages, and slots that go to them or to the caller.
    reads: Vec<usize>,
    makes: Vec<usize>,
    wiring: Wiring,
    /// Inputs that are states, of all stages.
    states: Vec<ValueId>,
    kept: Mutex<Kept>,
    sequences: usize,
    _charge: Charge,
}

/// State of a divided model: outputs of a data set that are inputs of the next one of its sequence. The stage that
/// reads such a state keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DividedState {
    /// Bound outputs and inputs.
    pub pairs: Vec<StatePair>,
    /// Number of sequences, each of which has a state of its own.
    pub sequences: NonZeroUsize,
}

impl Default for DividedState {
    fn default() -> Self {
        Self { pairs: Vec::new(), sequences: NonZeroUsize::MIN }
    }
}

/// Source of an output of the model.
#[derive(Clone, Debug)]
pub enum StageOutput {
    /// A slot, whose tensor gets this shape.
    Slot(usize, Vec<usize>),
    /// A constant, which is equal for every data set.
    Constant(Tensor),
}

impl DistributedStage {
    /// Opens stage `at` of a model that is divided into these stages, given as the names of their nodes, on one of the
    /// session's devices. `inputs` has the first state.
    ///
    /// # Errors
    /// If the stages are not the model's nodes in a topological order, or part a state. Also if the session has no such
    /// device, or the stage does not fit its memory.
    pub fn open(
        session: &Session,
        inputs: &Inputs,
        stages: &[Vec<String>],
        at: usize,
        device: &str,
        state: &DividedState,
    ) -> Result<Self, SessionError> {
        let parts = PartPlanner::of(session, inputs)?;
        let program = &parts.lowered.program;
        let (order, sizes) = resolved(program, stages)?;
        let states = Feedback::all(program, &state.pairs, &ordered(inputs, program, |_| true)?)?;
        Feedback::verify(&states, program, &order, &sizes)?;
        let mut cut = Cut::new(program, &order, &sizes, &states);
        let wiring = Wiring::of(&cut, program, &states)?;
        if at >= cut.parts.len() {
            return Err(refused(format!("there is no stage {at}: the model has {} stages", cut.parts.len())));
        }
        let part = cut.parts.swap_remove(at).program;
        let processors = whole_devices(session);
        let Some(processor) = processors.iter().find(|processor| processor.name == device) else {
            let known: Vec<&str> = processors.iter().map(|processor| processor.name.as_str()).collect();
            return Err(refused(format!("there is no device {device:?}; the devices are {}", known.join(", "))));
        };
        let planned = parts.plan(&part, processor, session.choice())?;
        let (route, sequences) = (wiring.routes[at].clone(), state.sequences.get());
        let own = Feedback::total(route.states.iter().map(|(number, ..)| &states[*number]), sequences);
        let (charge, _) = session.hold(&[(Arc::clone(&planned), processor.homes.clone())], own)?;
        let pool = processor.pool(session);
        let executor = Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &pool)?;
        let is_kept = |slot: &usize| route.states.iter().any(|(_, input, output)| slot == input || slot == output);
        let passes = |slot: &&usize| !is_kept(slot) || !route.drops.contains(slot);
        // The next state may come from an earlier stage, or be an input of the model.
        let next = route.states.iter().map(|(.., output)| output).filter(|slot| !route.makes.contains(slot));
        let wanted: BTreeSet<usize> = route.reads.iter().chain(next).copied().collect();
        let arrives = |slot: &usize| route.states.iter().all(|(_, input, _)| input != slot);
        let reads = wanted.into_iter().filter(arrives).collect();
        // A state may be a result, too.
        let own = route.makes.iter().chain(route.states.iter().map(|(_, input, _)| input));
        let makes = own.filter(passes).copied().collect();
        let kept = Mutex::new(Kept::new(&route, &states, sequences, &executor));
        let whole = Arc::clone(program);
        let states = states.iter().map(|state| state.input).collect();
        Ok(Self { executor, whole, route, reads, makes, wiring, states, kept, sequences, _charge: charge })
    }

    /// Names of the model's inputs, with their slots.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, usize)> {
        let names = self.whole.inputs.iter().map(|input| self.whole.value(*input).name.as_str());
        names.zip(&self.wiring.inputs).filter_map(|(name, slot)| Some((name, (*slot)?)))
    }

    /// Names of the model's outputs, with their sources.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, StageOutput)> {
        let source = |leaving: &Leaving| match leaving {
            Leaving::Slot(slot, shape) => StageOutput::Slot(*slot, shape.dims().to_vec()),
            Leaving::Constant(constant) => StageOutput::Constant(constant.clone()),
        };
        let outputs = self.whole.outputs.iter().zip(&self.wiring.outputs);
        outputs.filter_map(move |(output, leaving)| Some((output.name.as_str(), source(leaving.as_ref()?))))
    }

    /// Slots that the stage reads, without states.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }

    /// Slots that the stage fills, without states that only it reads.
    pub fn makes(&self) -> &[usize] {
        &self.makes
    }

    /// Slots that no later stage reads.
    pub fn drops(&self) -> &[usize] {
        &self.route.drops
    }

    /// Checks that the inputs of these slots have the types and shapes that the stages were opened for.
    ///
    /// # Errors
    /// The first of these inputs that is missing or differs.
    pub fn verify(&self, inputs: &Inputs, slots: impl Fn(usize) -> bool) -> Result<(), SessionError> {
        ordered(inputs, &self.whole, |at| self.wiring.inputs[at].is_some_and(&slots)).map(drop)
    }

    /// Computes the stage for one data set of a sequence. `values` are those of [`Self::reads`], the results those of
    /// [`Self::makes`]. The data sets of a sequence must come one after the other. If one `is_first`, the sequence
    /// begins with the first state.
    ///
    /// # Errors
    /// If the values do not fit, there is no such sequence, or the run fails.
    pub fn run(
        &self,
        (sequence, is_first): (usize, bool),
        values: &[&Tensor],
        options: &RunOptions,
    ) -> Result<Vec<Tensor>, SessionError> {
        let wrong = |text: &str| Err(ExecError::new(ErrorKind::Input, text).into());
        if sequence >= self.sequences {
            return wrong("a stage got a value of a sequence that it was not opened for");
        }
        if values.len() != self.reads.len() {
            return wrong("a stage got more or fewer values than it reads");
        }
        let mut by_slot = vec![None; self.wiring.slots];
        self.reads.iter().zip(values).for_each(|(slot, value)| by_slot[*slot] = Some(Tensor::clone(value)));
        let mut kept = lock(&self.kept);
        let mut output = RunOutput::default();
        kept.load(sequence, is_first, &mut by_slot, &mut output);
        let missing = || ExecError::internal("a stage reads a value that does not exist");
        let inputs = self.route.reads.iter().map(|slot| by_slot[*slot].as_ref().ok_or_else(missing));
        self.executor.run_into(&inputs.collect::<Result<Vec<_>, _>>()?, options, &mut output)?;
        self.route.makes.iter().zip(&output.outputs).for_each(|(slot, made)| by_slot[*slot] = Some(made.clone()));
        kept.store(sequence, &by_slot, &mut output)?;
        Ok(self.makes.iter().filter_map(|slot| by_slot[*slot].take()).collect())
    }

    /// Returns the states that the stage keeps, of all sequences, by the names of their inputs.
    pub fn states(&self) -> Vec<(String, Vec<Tensor>)> {
        let name = |number: usize| self.whole.value(self.states[number]).name.clone();
        lock(&self.kept).all().map(|(number, states)| (name(number), states)).collect()
    }

    /// Goes on from the states of all sequences of an input. Other stages than the one that keeps them do nothing.
    ///
    /// # Errors
    /// If they are not as many as sequences, or have another type or shape.
    pub fn restore(&self, input: &str, states: &[Tensor]) -> Result<(), SessionError> {
        let named = |state: &ValueId| self.whole.value(*state).name == input;
        let Some(number) = self.states.iter().position(named) else { return Ok(()) };
        let spec = &self.whole.value(self.states[number]).spec;
        if states.len() != self.sequences || states.iter().any(|state| state.spec() != spec) {
            let text = format!("the states of {input:?} are not {} of {spec}", self.sequences);
            return Err(ExecError::new(ErrorKind::Input, text).into());
        }
        lock(&self.kept).restore(number, states.iter().map(owned).collect());
        Ok(())
    }
}

impl std::fmt::Debug for DistributedStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedStage").field("reads", &self.reads).finish_non_exhaustive()
    }
}
