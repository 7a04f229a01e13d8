//! Prepares plans for input shapes, and caches them.

use super::budget::{Charge, Demand};
use super::cache::Cache;
use super::error::{InputError, SessionError, within_memory};
use super::inputs::Inputs;
use super::open::{PHASES, Session};
use super::parts;
use crate::borrowed;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::interruption;
use anabranch_execute::{Deadline, ExecError, Executor, RunOptions, verify_devices};
use anabranch_ir::program::Program;
use anabranch_kernels::{KernelError, Shape, Tensor};
use anabranch_onnx::import::ValueIndex;
use anabranch_onnx::lower::{LowerError, LowerOptions, Phase, is_small};
use anabranch_placement_core::loaded::LoadedProblem;
use anabranch_plan::{HOST, PlanOptions};
use anabranch_planning::{Lowered, Machine, PlanChoice, Planned, Planner, PlanningError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A program with its plan and the executor that runs it.
/// [`Session::prepare`] returns it, so that the first run plans and compiles nothing.
///
/// ```
/// # mod anabranch { pub use anabranch_session::{Inputs, Session, SessionConfig}; }
/// use anabranch::{Inputs, Session, SessionConfig};
///
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
/// let inputs = session.fill_random(Inputs::new(), 1)?;
/// let prepared = session.prepare(&inputs)?;
/// let plan = prepared.planned().plan();
/// println!("{} steps, placed by {}", plan.steps().len(), plan.strategy());
/// session.run(&inputs)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Prepared {
    planned: Arc<Planned>,
    #[doc(hidden)]
    pub executor: Executor,
    /// Names of the outputs, in the model's order.
    pub(crate) output_names: Arc<[String]>,
    /// Whether the plan has been run: the first run is cold.
    pub(super) warm: AtomicBool,
    /// Host time of the last run between plans, if this is the first of several plans.
    pub(super) on_host: Mutex<Option<Duration>>,
    /// Dropped last.
    _charge: Charge,
}

/// Key of a lowered program or plan by its inputs.
pub(super) struct Key {
    /// Number of the phase.
    phase: u64,
    /// Shapes of the inputs, by name.
    shapes: BTreeMap<String, Shape>,
    /// Elements of the small inputs that decide shapes, by name.
    fixed: BTreeMap<String, Tensor>,
}

impl Key {
    fn of(phase: &Phase, inputs: &Inputs, deciding: &BTreeSet<String>) -> Self {
        let fixed = inputs.iter().filter(|(name, tensor)| deciding.contains(*name) && is_small(tensor));
        let specs = inputs.specs().filter(|(name, _)| !phase.is_part(name));
        Self {
            phase: phase.id,
            shapes: specs.map(|(name, spec)| (name.to_owned(), spec.shape.clone())).collect(),
            fixed: fixed.map(|(name, tensor)| (name.to_owned(), borrowed::owned(tensor))).collect(),
        }
    }

    /// Whether inputs fit the key. Allocates nothing.
    fn fits(&self, phase: &Phase, inputs: &Inputs) -> bool {
        let shapes = self.shapes.iter().map(|(name, shape)| (&**name, shape));
        let same = |(name, tensor): (&String, &Tensor)| inputs.find(name).is_some_and(|given| given.same_bits(tensor));
        phase.id == self.phase
            && shapes
                .eq(inputs.specs().filter(|(name, _)| !phase.is_part(name)).map(|(name, spec)| (name, &spec.shape)))
            && self.fixed.iter().all(same)
    }
}

impl Prepared {
    /// Returns the plan.
    pub fn planned(&self) -> &Arc<Planned> {
        &self.planned
    }
}

impl Deref for Prepared {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        &self.planned
    }
}

impl Session {
    /// Prepares the model for the shapes of these inputs, or returns a prepared plan.
    ///
    /// The elements of small inputs that decide further shapes count, too. If shapes depend on computed values, the
    /// plan ends before them: see [`Planned::rest`].
    ///
    /// # Errors
    /// If shapes are missing or impossible, or there is no plan within the constraints.
    pub fn prepare(&self, inputs: &Inputs) -> Result<Arc<Prepared>, SessionError> {
        let _active = self.budget.enter();
        self.find_or_prepare(&self.whole, inputs, None, &Deadline::none())
    }

    /// [`Self::prepare`] for a run with these options: its token, and its time limit from now on, end the planning and
    /// the wait for memory.
    ///
    /// # Errors
    /// As [`Self::prepare`]; also if the run is cancelled or out of time meanwhile. A caller that waits for a plan
    /// which another caller makes learns of either when that plan is there.
    pub fn prepare_with(&self, inputs: &Inputs, options: &RunOptions) -> Result<Arc<Prepared>, SessionError> {
        let _active = self.budget.enter();
        self.find_or_prepare(&self.whole, inputs, None, &Deadline::new(options, Instant::now()))
    }

    /// Prepares a phase, planned as by `choice` or as the session's own plans, for a caller that is counted as active.
    pub(super) fn find_or_prepare(
        &self,
        phase: &Arc<Phase>,
        inputs: &Inputs,
        choice: Option<&PlanChoice>,
        deadline: &Deadline<'_>,
    ) -> Result<Arc<Prepared>, SessionError> {
        // A caller that waits for another caller's plan must not keep that caller waiting for memory.
        let pause = || self.budget.pause();
        let cache = if phase.is_whole() { &self.prepared } else { &self.later_prepared };
        loop {
            let deciding = phase.deciding.known();
            let plan = || {
                let lowered = self.lowered(phase, inputs)?;
                if !phase.deciding.is(&deciding) {
                    return Err(InputError::Undecided.into());
                }
                // The key must come from this lowering: a later one may have fixed more inputs than the key holds.
                let choice = choice.cloned().unwrap_or_else(|| self.choice());
                let planned = self.planned(&lowered, &choice)?;
                self.plans_made.fetch_add(1, Ordering::Relaxed);
                self.make_ready(&Arc::new(planned), deadline)
            };
            // An interruption may come to light as any error of work that was left half done.
            let plan = || match plan() {
                Err(_) if interruption::is_due() => Err(PlanningError::interrupted().into()),
                made => made,
            };
            let make = || interruption::under(deadline.watch(), plan);
            match cached(cache, phase, inputs, &deciding, pause, make) {
                // It may be the time of the caller that was waited for that is over, which says nothing of this one's.
                Err(error) if error.is_interruption() => match deadline.verdict() {
                    Some(own) => return Err(own.into()),
                    None if interruption::is_due() => return Err(PlanningError::interrupted().into()),
                    None => {}
                },
                // Newly found inputs that decide shapes belong into the key. A waiting caller may know them by now.
                // Each name is found once, so that this loop ends.
                Err(error) if error.is_undecided() || !phase.deciding.is(&deciding) => {}
                result => return result,
            }
        }
    }

    /// Returns the problem of placing the model for inputs of these shapes, in seconds; nothing is placed.
    ///
    /// The devices are the present ones or those of the platform file.
    ///
    /// # Errors
    /// If shapes are missing or impossible, some node cannot run on any device, or the platform file does not fit this
    /// machine.
    pub fn problem(&self, inputs: &Inputs) -> Result<LoadedProblem, SessionError> {
        Ok(self.planner(&*self.lowered(&self.whole, inputs)?, &self.machine()?).problem()?)
    }

    /// Lowers the model for inputs of these shapes, which checks that their sizes are possible; nothing is placed.
    ///
    /// Returns whether it runs in phases: see [`Later`](super::Later).
    ///
    /// # Errors
    /// If shapes are missing or impossible, or a part of the model cannot be lowered.
    pub fn check(&self, inputs: &Inputs) -> Result<bool, SessionError> {
        within_memory(|| Ok(self.lowered(&self.whole, inputs)?.rest.is_some()))
    }

    /// Places and plans the model for inputs of these shapes, on the present devices or those of the platform file.
    /// Prepares no device.
    ///
    /// # Errors
    /// As [`Self::prepare`]; also if the platform file does not fit this machine.
    pub fn plan(&self, inputs: &Inputs) -> Result<Planned, SessionError> {
        let lowered = self.lowered(&self.whole, inputs)?;
        match self.options.platform {
            None => self.planned(&lowered, &self.choice()),
            Some(_) => Ok(self.planner(&lowered, &self.machine()?).plan(&self.choice())?),
        }
    }

    /// For each node of a program, why a GPU has no kernel for it: one of this machine's GPUs or, if there is none, a
    /// typical GPU.
    pub fn gpu_refusals(&self, program: &Program) -> Vec<Option<KernelError>> {
        Machine::present(&self.inventory, self.costs().here()).gpu_refusals(program)
    }

    /// Returns the choice for the session's own plans.
    pub fn choice(&self) -> PlanChoice {
        self.choice_for_the_rest()
    }

    /// Places and plans the model for inputs of these shapes as `choice` says, with the present costs.
    ///
    /// Prepares nothing: see [`Self::ready`]. If the model runs in phases, `choice` also applies to later phases in
    /// runs of this plan.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn plan_with(&self, inputs: &Inputs, choice: &PlanChoice) -> Result<Arc<Planned>, SessionError> {
        let mut planned = self.planner(&*self.lowered(&self.whole, inputs)?, &self.machine_here()?).plan(choice)?;
        planned.rest = planned.rest.map(|rest| Arc::new(rest.apart()));
        Ok(Arc::new(planned))
    }

    /// Predicts the same plan again with the present costs.
    ///
    /// # Errors
    /// If the plan no longer fits the devices.
    pub fn predict(
        &self,
        inputs: &Inputs,
        planned: &Planned,
        options: &PlanOptions,
    ) -> Result<Arc<Planned>, SessionError> {
        Ok(Arc::new(
            self.planner(&*self.lowered(&self.whole, inputs)?, &self.machine_here()?)
                .predict_again(planned, options)?,
        ))
    }

    /// Allocates the memory and starts the threads that a plan needs in addition to the session's.
    ///
    /// These are threads, opened GPUs, and weights in the layouts that kernels read. If memory is short, idle plans of
    /// the session are dropped.
    ///
    /// # Errors
    /// If a device or a kernel cannot be prepared, or the plan does not fit next to plans in use.
    pub fn ready(&self, planned: &Arc<Planned>) -> Result<Arc<Prepared>, SessionError> {
        let _active = self.budget.enter();
        within_memory(|| self.make_ready(planned, &Deadline::none()).map(Arc::new))
    }

    /// Reserves the memory of several plans together, and `passing` more bytes on the host.
    ///
    /// The plans' devices are, or are parts of, the devices `homes` of the session. Also returns the bytes of each of
    /// the session's devices; shared memory counts once.
    ///
    /// # Errors
    /// If the memory does not fit next to plans in use.
    pub fn hold(&self, plans: &[(Arc<Planned>, Vec<usize>)], passing: u64) -> Result<(Charge, Vec<u64>), SessionError> {
        let mut demand = Demand::default();
        plans.iter().for_each(|(planned, homes)| demand.add(planned, homes));
        demand.take(HOST.index(), passing);
        let bytes = demand.bytes(self.machine_devices.len());
        let _active = self.budget.enter();
        Ok((self.budget.charge(demand, || self.forget_idle(), &Deadline::none())?, bytes))
    }

    /// Verifies that the model computes each row of these inputs by itself, and that all outputs have these rows. Rows
    /// are along the first axis.
    ///
    /// # Errors
    /// If `inputs` do not fit the model, rows depend on each other, or shapes depend on computed values.
    pub fn verify_rows(&self, inputs: &Inputs, batched: &[&str]) -> Result<(), SessionError> {
        let lowered = self.lowered(&self.whole, inputs)?;
        if lowered.rest.is_some() {
            let text = "the shapes of this model depend on computed values, so that its rows cannot be followed";
            return Err(ExecError::new(ErrorKind::Constraint, text).into());
        }
        Ok(anabranch_planning::verify_rows(&lowered.program, batched)?)
    }

    fn make_ready(&self, planned: &Arc<Planned>, deadline: &Deadline<'_>) -> Result<Prepared, SessionError> {
        verify_devices(planned.plan().devices(), self.pool.devices())?;
        let charge = self.budget.charge(Demand::of(planned), || self.forget_idle(), deadline);
        let _charge =
            charge.map_err(|shortage| deadline.verdict().map_or_else(|| shortage.into(), SessionError::from))?;
        let executor = Executor::new(Arc::clone(planned.plan()), Arc::new(planned.kernels()), &self.pool)?;
        let output_names = planned.program.outputs.iter().map(|output| output.name.clone()).collect();
        let warm = AtomicBool::new(false);
        Ok(Prepared { planned: Arc::clone(planned), executor, output_names, warm, on_host: Mutex::default(), _charge })
    }

    /// Drops the longest unused plan that no caller runs or holds, and the weights that only it used.
    fn forget_idle(&self) -> bool {
        let idle = |prepared: &Arc<Prepared>| Arc::strong_count(prepared) == 1;
        let forgotten = self.later_prepared.forget_one(idle).or_else(|| self.prepared.forget_one(idle));
        let some = forgotten.is_some();
        drop(forgotten);
        self.weights.trim();
        some
    }

    pub(crate) fn planner<'a>(&'a self, lowered: &'a Lowered, machine: &'a Machine) -> Planner<'a> {
        let constraints = if lowered.rest.is_some() { &self.of_parts } else { &self.options.constraints };
        Planner { lowered, machine, constraints }
    }

    /// Returns a phase lowered for the shapes of these inputs, and the elements of those that decide further shapes.
    pub fn lowered(&self, phase: &Arc<Phase>, inputs: &Inputs) -> Result<Arc<Lowered>, SessionError> {
        let cache = if phase.is_whole() { &self.lowered } else { &self.later_lowered };
        loop {
            let deciding = phase.deciding.known();
            let lowered = cached(cache, phase, inputs, &deciding, || (), || self.lower(phase, inputs, &deciding));
            match lowered {
                // Another caller's time may be over, which says nothing of this one's.
                Err(error) if error.is_interruption() && !interruption::is_due() => {}
                // Another caller has found other deciding inputs meanwhile, and they count as well.
                Err(_) if !phase.deciding.is(&deciding) => {}
                lowered => return lowered,
            }
        }
    }

    fn lower(&self, phase: &Arc<Phase>, inputs: &Inputs, deciding: &BTreeSet<String>) -> Result<Lowered, SessionError> {
        if let Some(precompiled) = self.precompiled.as_ref().filter(|_| phase.is_whole()) {
            self.check_names(inputs)?;
            let (program, rest) = (Arc::clone(precompiled.program(inputs)?), precompiled.rest().cloned());
            self.check_resident(rest.is_some())?;
            return Ok(Lowered { program, weights: Arc::clone(&self.weights), rest });
        }
        let (dims, fuse, cached) = (self.options.dims.clone(), self.options.fuse, self.options.cached);
        let precision = self.precision;
        let Key { shapes: input_shapes, fixed, .. } = Key::of(phase, inputs, deciding);
        let budget = usize::try_from(self.options.limits.folded_bytes).unwrap_or(usize::MAX);
        // GPUs have no kernel for convolutions of integers.
        let integer_convolutions = match self.options.platform {
            None => self.inventory.gpus.is_empty(),
            Some(_) => self.machine().is_ok_and(|machine| !machine.has_gpu()),
        };
        let mut options =
            LowerOptions { dims, input_shapes, fixed, fuse, budget, cached, integer_convolutions, precision };
        if !phase.is_whole() {
            // All later phases of a model share the folding budget of a whole model.
            options.budget /= PHASES;
        }
        let given = |value: &ValueIndex| Some((*value, inputs.given(phase.model.value_name(*value))?.spec().clone()));
        let given: Vec<_> = match phase.is_whole() {
            true => self.check_names(inputs).map(|()| Vec::new())?,
            false => phase.reads().iter().filter_map(given).collect(),
        };
        let learn = |wanted: &[Vec<String>]| phase.deciding.learn(wanted, |name| inputs.find(name));
        match phase.lower(&options, &given) {
            _ if interruption::is_due() => Err(LowerError::interrupted().into()),
            Ok(_) if let Some(problem) = self.problems.first() => Err(problem.clone().into()),
            Ok((_, Some(rest))) if learn(&rest.wanted) => Err(InputError::Undecided.into()),
            Ok((program, rest)) => {
                if phase.is_whole() && rest.is_none() {
                    parts::require_tensors(&self.model().outputs)?;
                }
                self.check_resident(rest.is_some())?;
                let (program, weights) = (Arc::new(program), Arc::clone(&self.weights));
                Ok(Lowered { program, weights, rest: rest.map(Arc::new) })
            }
            Err(error) => {
                learn(error.wanted());
                Err(error.into())
            }
        }
    }

    /// Checks that no tensor stays on a device from run to run if the model runs in phases.
    fn check_resident(&self, in_phases: bool) -> Result<(), InputError> {
        match in_phases && !self.options.constraints.resident.is_empty() {
            true => Err(InputError::Resident),
            false => Ok(()),
        }
    }

    /// Checks that all names are in the model, and that sequences and optionals are given as such.
    fn check_names(&self, inputs: &Inputs) -> Result<(), SessionError> {
        let unknown = inputs.specs().find(|(name, _)| self.input_info(name).is_none());
        match unknown {
            None => self.items(inputs).map(drop),
            Some((name, _)) => Err(SessionError::from(InputError::Unknown {
                name: name.to_owned(),
                known: self.inputs().iter().map(|input| input.name()).collect::<Vec<_>>().join(", "),
            })),
        }
    }
}

/// Returns a cached value for such inputs, and makes it if it is missing.
fn cached<V, P>(
    cache: &Cache<Key, V, SessionError>,
    phase: &Phase,
    inputs: &Inputs,
    deciding: &BTreeSet<String>,
    pause: impl FnOnce() -> P,
    make: impl FnOnce() -> Result<V, SessionError>,
) -> Result<Arc<V>, SessionError> {
    let make = || within_memory(make);
    cache.get_or_make(|key| key.fits(phase, inputs), || Key::of(phase, inputs, deciding), pause, make)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionConfig;
    use anabranch_base::error_kind::ErrorKind;
    use anabranch_device::{CpuGranularity, DetectOptions};
    use anabranch_execute::CancelToken;
    use std::sync::mpsc::channel;
    use std::thread;

    fn session() -> Session {
        let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Machine);
        let options = SessionConfig::default().with_devices(devices).with_dim("batch", 2);
        Session::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/mlp.onnx"), options).expect("a model")
    }

    /// Error of a run that waits for another caller's plan, which `make` makes once a caller waits for it.
    fn failure_behind(
        make: impl FnOnce(&Session, &Inputs) -> Result<Prepared, SessionError> + Send,
        options: &RunOptions,
    ) -> SessionError {
        let session = &session();
        let inputs = &session.fill_random(Inputs::new(), 0).expect("known shapes");
        let (tell, begun) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let once_awaited = || {
                    tell.send(()).expect("awaited");
                    while session.budget.waiting() == 0 {
                        thread::yield_now();
                    }
                    make(session, inputs)
                };
                let (whole, deciding) = (&session.whole, session.whole.deciding.known());
                cached(&session.prepared, whole, inputs, &deciding, || (), once_awaited).map(drop)
            });
            begun.recv().expect("the plan is being made");
            session.run_with(inputs, options).map(drop).expect_err("it must not run")
        })
    }

    #[test]
    fn a_caller_that_waited_for_another_plan_is_told_its_own_end() {
        let token = CancelToken::new();
        let cancel = token.clone();
        let out_of_time = move |_: &Session, _: &Inputs| {
            cancel.cancel();
            let theirs = RunOptions::default().with_timeout(Duration::ZERO);
            Err(Deadline::new(&theirs, Instant::now()).verdict().expect("no time").into())
        };
        let error = failure_behind(out_of_time, &RunOptions::default().with_cancel(token));
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    }

    #[test]
    fn the_time_for_a_plan_counts() {
        let late = |session: &Session, inputs: &Inputs| {
            thread::sleep(Duration::from_millis(600));
            session.make_ready(&session.plan_with(inputs, &session.choice())?, &Deadline::none())
        };
        // The time suffices for the run alone.
        let error = failure_behind(late, &RunOptions::default().with_timeout(Duration::from_millis(500)));
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
}
