//! One stage of a divided model, in the process that computes it.

use super::super::interval::Cut;
use super::super::mapping::{refused, resolved};
use super::super::part_planner::PartPlanner;
use super::super::processors::whole_devices;
use super::super::wiring::{Leaving, Route, Wiring};
use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::{ExecError, Executor, RunOptions, RunOutput};
use anabranch_ir::program::Program;
use anabranch_kernels::Tensor;
use anabranch_session::{Charge, Inputs, Session, SessionError, ordered};
use std::sync::Arc;

/// One stage of a model that is divided over several processes. It holds the constants of its own nodes only.
///
/// Values that pass between stages are numbered by *slots*. A data set begins with the slots of the model's inputs. A
/// stage reads some slots, fills others, and says which slots no later stage reads.
pub struct DistributedStage {
    executor: Executor,
    /// The whole model, to which inputs are compared.
    whole: Arc<Program>,
    /// The stage's own part.
    part: Arc<Program>,
    route: Route,
    wiring: Wiring,
    _charge: Charge,
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
    /// session's devices.
    ///
    /// # Errors
    /// If the stages are not the model's nodes in a topological order, the session has no such device, or the stage
    /// does not fit its memory.
    pub fn open(
        session: &Session,
        inputs: &Inputs,
        stages: &[Vec<String>],
        at: usize,
        device: &str,
    ) -> Result<Self, SessionError> {
        let parts = PartPlanner::of(session, inputs)?;
        let program = &parts.lowered.program;
        let (order, sizes) = resolved(program, stages)?;
        let mut cut = Cut::new(program, &order, &sizes, &[]);
        let wiring = Wiring::of(&cut, program, &[])?;
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
        let (charge, _) = session.hold(&[(Arc::clone(&planned), processor.homes.clone())], 0)?;
        let pool = processor.pool(session);
        let executor = Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &pool)?;
        let route = wiring.routes[at].clone();
        Ok(Self { executor, whole: Arc::clone(program), part, route, wiring, _charge: charge })
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

    /// Slots that the stage reads.
    pub fn reads(&self) -> &[usize] {
        &self.route.reads
    }

    /// Slots that the stage fills.
    pub fn makes(&self) -> &[usize] {
        &self.route.makes
    }

    /// Slots that no later stage reads.
    pub fn drops(&self) -> &[usize] {
        &self.route.drops
    }

    /// Checks that inputs have the types and shapes that the stages were opened for.
    ///
    /// # Errors
    /// The first input that is missing or differs.
    pub fn verify(&self, inputs: &Inputs) -> Result<(), SessionError> {
        ordered(inputs, &self.whole, |_| true).map(drop)
    }

    /// Computes the stage for one data set. `values` are those of [`Self::reads`], the results those of
    /// [`Self::makes`].
    ///
    /// # Errors
    /// If the values do not fit, or the run fails.
    pub fn run(&self, values: &[&Tensor], options: &RunOptions) -> Result<Vec<Tensor>, SessionError> {
        let specs = self.part.inputs.iter().map(|input| &self.part.value(*input).spec);
        if values.len() != self.part.inputs.len() || specs.zip(values).any(|(spec, value)| spec != value.spec()) {
            let text = "a stage got values of other types or shapes than it was opened for";
            return Err(ExecError::new(ErrorKind::Input, text).into());
        }
        let mut output = RunOutput::default();
        self.executor.run_into(values, options, &mut output)?;
        Ok(output.outputs)
    }
}

impl std::fmt::Debug for DistributedStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedStage").field("nodes", &self.part.nodes.len()).finish_non_exhaustive()
    }
}
