//! Execution of plans: by the caller's thread or its deputy, and one thread for each further device and each link.
//!
//! A [`DevicePool`] holds the devices for all plans: threads, opened GPUs and a count of their memory. An [`Executor`]
//! allocates memory and prepares kernels for one [`Plan`] once, and then runs it any number of times. During a run
//! nothing is decided. Every worker has a worker program of steps, made from the plan's total order, and waits at
//! countdowns that other workers open. `README.md` next to this file explains why that cannot deadlock, its costs, and
//! the handling of failures.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "gpu"),
    allow(
        unused,
        unreachable_code,
        reason = "the code around GPUs is compiled in each build, so that few lines depend on the feature"
    )
)]

mod cpu;
mod diagnosis;
mod dynamic;
mod engine;
mod error;
mod event;
mod faults;
#[cfg(feature = "gpu")]
mod gpu;
mod in_place;
mod inside;
#[cfg(feature = "gpu")]
mod link;
mod memory_accounting;
#[cfg(not(feature = "gpu"))]
mod no_gpu;
mod options;
mod pool;
mod queue;
mod resident;
mod run_channels;
mod runner;
mod supervise;
#[cfg(test)]
mod tests;
mod threads;
mod times;
mod worker;
mod worker_program;

pub use anabranch_base::cancel::CancelToken;
pub use anabranch_device::{ComputeDevice, CpuTeam, GpuOpener};
pub use anabranch_plan::{ExecError, Forecast, Kernels, Weights};
pub use dynamic::DynamicExecutor;
pub use event::{Activity, Event, Lane};
#[cfg(any(test, feature = "testing"))]
pub use faults::lose_at_submission;
pub use in_place::{is_placeholder, placeholder, stands_for};
pub use options::{RunOptions, RunOutput};
pub use pool::DevicePool;
pub use resident::DeviceTensor;

use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::{Mutex, lock};
use anabranch_ir::program::{NodeId, Origin, Program, Value};
use anabranch_kernels::{Buffer, Tensor, TensorSpec};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, InPlace, Plan, PlanDevice, Route, TransferId};
use engine::{Call, Engine};
use in_place::HostInput;
#[cfg(not(feature = "gpu"))]
use no_gpu::{self as gpu, self as link};
use resident::OnGpus;
use runner::Work;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
pub use supervise::Deadline;

/// A plan that is ready to run on the devices of a pool. When dropped, it frees all its memory.
///
/// Runs of one pool are serialised; see [`DevicePool`].
pub struct Executor {
    plan: Arc<Plan>,
    kernels: Arc<Kernels>,
    /// Inputs that may lie in the memory of outputs, by their numbers among those of the host.
    in_place: Arc<[InPlace]>,
    /// Inputs that may lie in the memory of outputs, by their numbers among those of GPUs.
    in_place_on_gpus: Arc<[InPlace]>,
    host_inputs: Arc<[HostInput]>,
    state: Arc<Mutex<State>>,
    /// Dropped last: its threads run the engine.
    pool: Arc<DevicePool>,
}

/// State that changes from run to run. Only the caller with the pool's turn uses it.
#[derive(Default)]
struct State {
    /// `None` after a failure that made it unusable, until the next run.
    engine: Option<Arc<Engine>>,
    /// Buffers of former outputs, by output.
    spare: Vec<Option<Arc<Buffer>>>,
    /// Specs of these outputs.
    specs: Vec<TensorSpec>,
    /// Outputs of a run, with their numbers.
    made: Vec<(u32, Arc<Buffer>)>,
}

impl Executor {
    /// Prepares a plan on the devices for which it was made, in the plan's order.
    ///
    /// # Errors
    /// If the devices differ from the plan's, a kernel cannot be built, a GPU cannot be used, or the system has no more
    /// threads or memory.
    pub fn new(plan: impl Into<Arc<Plan>>, kernels: Arc<Kernels>, pool: &Arc<DevicePool>) -> Result<Self, ExecError> {
        let plan = plan.into();
        verify_devices(plan.devices(), pool.devices())?;
        let engine = Some(Arc::new(Engine::build(&plan, &kernels, pool)?));
        let state = Arc::new(Mutex::new(State { engine, ..State::default() }));
        let in_place = in_place::numbered(&plan, kernels.program(), |device| device == HOST);
        let in_place_on_gpus = in_place::numbered(&plan, kernels.program(), |device| device != HOST);
        let host_inputs = in_place::inputs_on_host(&plan, kernels.program(), &in_place);
        Ok(Self { plan, kernels, in_place, in_place_on_gpus, host_inputs, state, pool: Arc::clone(pool) })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        self.kernels.program()
    }

    /// Runs the plan on these inputs, in the program's order.
    ///
    /// After an error all workers are idle and the next run can start.
    ///
    /// The calling thread computes the host's part. If other threads compute on CPU cores, it may be pinned to the
    /// host's first processing unit until the run ends, provided that its own affinity allows that unit.
    ///
    /// # Errors
    /// If the inputs do not fit, a kernel or a device fails, or the run is cancelled or takes too long, even in the
    /// queue.
    pub fn run(&self, inputs: &[impl Borrow<Tensor>], options: &RunOptions) -> Result<RunOutput, ExecError> {
        let mut output = RunOutput::default();
        self.run_into(&inputs.iter().map(Borrow::borrow).collect::<Vec<_>>(), options, &mut output)?;
        Ok(output)
    }

    /// Runs the plan as [`Self::run`] does, and reuses the memory of a former result.
    ///
    /// Tensors of `output` that nothing else holds are overwritten. A repeated run on CPUs with the same `output`, if
    /// it is not queued, allocates nothing but a few bytes for a token or a timeout, which kernels check. After an
    /// error `output` has at most the former outputs that the run went on with, in their places.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_into(&self, inputs: &[&Tensor], options: &RunOptions, output: &mut RunOutput) -> Result<(), ExecError> {
        self.run_resident(inputs, &[], options, output)
    }

    /// Runs a plan that has inputs or outputs on GPUs, as [`Self::run_into`] does.
    ///
    /// `inputs` are the inputs on the host and `resident` the others, both in the program's order. Outputs are divided
    /// likewise.
    ///
    /// # Errors
    /// As [`Self::run`]; also if a tensor is not on the device that the plan reads it on, or an input is a
    /// [`placeholder`] of which `output` has no former one.
    pub fn run_resident(
        &self,
        inputs: &[&Tensor],
        resident: &[DeviceTensor],
        options: &RunOptions,
        output: &mut RunOutput,
    ) -> Result<(), ExecError> {
        output.events.clear();
        self.verify_inputs(inputs)?;
        let Some(_inside) = inside::enter_run() else {
            return Err(ExecError::internal("a run was asked for from within a kernel"));
        };
        let origin = Instant::now();
        if self.plan.predicted().makespan < runner::LONG || !self.pool.is_taken() {
            return self.run_in_turn(inputs, resident, options, origin, output);
        }
        // If the system starts no more threads, the calling thread runs the plan.
        let Ok(queue) = self.pool.runner() else {
            return self.run_in_turn(inputs, resident, options, origin, output);
        };
        let work = Work {
            executor: self.share(),
            inputs: inputs.iter().copied().cloned().collect(),
            resident: resident.to_vec(),
            options: options.clone(),
            origin,
            output: std::mem::take(output),
        };
        let result;
        (result, *output) = work.run_by(&queue);
        result
    }

    /// Checks that these are tensors for the inputs on the host; some may go on with former outputs.
    fn verify_inputs(&self, inputs: &[&Tensor]) -> Result<(), ExecError> {
        let values = || self.host_inputs.iter().map(|input| (self.program().value(input.value), input.in_place));
        let mut may = values();
        let given = inputs.iter().map(|tensor| match may.next() {
            Some((value, true)) if stands_for(tensor, value) => &value.spec,
            _ => tensor.spec(),
        });
        verify_specs(values().map(|(value, _)| value), given, "inputs")
    }

    /// Runs the plan on the calling thread, as soon as it has its turn.
    fn run_in_turn(
        &self,
        inputs: &[&Tensor],
        resident: &[DeviceTensor],
        options: &RunOptions,
        origin: Instant,
        output: &mut RunOutput,
    ) -> Result<(), ExecError> {
        let _turn = self.pool.turn(&Deadline::new(options, origin), options.spin)?;
        // A caller that panicked while it held the lock had its turn, so that all workers are idle or gone.
        let mut state = lock(&self.state);
        let engine = self.current_engine(&mut state)?;
        let on_gpus = self.on_gpus(&engine);
        let tensors = on_gpus.tensors(resident, &mut output.resident)?;
        state.keep(output);
        let moved = match self.go_on(&engine, &mut state, inputs) {
            Ok(moved) => moved,
            Err(error) => {
                state.put_back(output);
                output.resident = on_gpus.left(resident, &tensors.inputs);
                return Err(error);
            }
        };
        let replaced = moved.over(inputs);
        let read = replaced.as_deref().unwrap_or(inputs);
        let given = read.iter().map(|tensor| tensor.bytes().len()).sum();
        let held = || (1..).map(DeviceId).zip(self.plan.memory().devices().iter().skip(1));
        engine.accounting.take(HOST, given);
        held().for_each(|(device, memory)| engine.accounting.take(device, memory.given as usize));
        let mut call = Call { inputs: read, options, origin, spare: &mut state.spare, tensors };
        let result = engine.run(&self.pool, &mut call);
        let tensors = call.tensors;
        engine.accounting.give(HOST, given);
        held().for_each(|(device, memory)| engine.accounting.give(device, memory.given as usize));
        state.spare.clear();
        if let Err(broken) = result {
            drop(replaced);
            self.leave(&engine, inputs, moved, &mut output.outputs);
            output.resident = on_gpus.left(resident, &tensors.inputs);
            if broken.beyond_repair || !engine.reset() {
                state.engine = None;
                self.pool.forget_lost();
            }
            return Err(broken.error);
        }
        output.makespan = origin.elapsed();
        output.peaks.clear();
        output.peaks.extend(engine.accounting.peaks());
        output.copied_on_gpus = engine.take_log(&mut output.events);
        event::start_copies(&mut output.events, |id| self.maker_on_gpu(id));
        event::part_copies(&mut output.events, |id| self.sent_whole(id));
        output.events.sort_unstable_by_key(|event| (event.start, event.end, event.lane, event.what));
        output.resident = tensors.outputs;
        let on_host = |at: usize| self.plan.output_device(at) == HOST;
        state.fill(self.program(), on_host, &engine, output)
    }

    fn on_gpus<'a>(&'a self, engine: &'a Engine) -> OnGpus<'a> {
        OnGpus { plan: &self.plan, program: self.program(), pool: &self.pool, engine, in_place: &self.in_place_on_gpus }
    }

    /// Returns the GPU node whose value a transfer moves, and whether it passes the value on while it computes.
    fn maker_on_gpu(&self, id: TransferId) -> Option<(NodeId, bool)> {
        let transfer = self.plan.transfer(id);
        let made = match self.program().value(transfer.value).origin {
            Origin::Node(node) if self.plan.device(transfer.from).kind == DeviceKind::Gpu => node,
            _ => return None,
        };
        Some((made, transfer.stream().is_some_and(|stream| stream.producer.is_some())))
    }

    /// Returns the GPU to which a CPU sends a transfer's value whole.
    fn sent_whole(&self, id: TransferId) -> Option<DeviceId> {
        let transfer = self.plan.transfer(id);
        let ends = [transfer.from, transfer.to].map(|end| self.plan.device(end).kind);
        let sent = transfer.route == Route::Copied && ends == [DeviceKind::Cpu, DeviceKind::Gpu];
        sent.then_some(transfer.to)
    }

    /// Returns another handle of this executor.
    fn share(&self) -> Self {
        let (plan, kernels) = (Arc::clone(&self.plan), Arc::clone(&self.kernels));
        let [in_place, in_place_on_gpus] = [&self.in_place, &self.in_place_on_gpus].map(Arc::clone);
        let host_inputs = Arc::clone(&self.host_inputs);
        let (state, pool) = (Arc::clone(&self.state), Arc::clone(&self.pool));
        Self { plan, kernels, in_place, in_place_on_gpus, host_inputs, state, pool }
    }

    /// Returns the engine. It is built again if it broke, or if another plan's run has found one of its GPUs lost.
    fn current_engine(&self, state: &mut State) -> Result<Arc<Engine>, ExecError> {
        if let Some(engine) = state.engine.as_ref().filter(|engine| engine.is_current(&self.pool)) {
            return Ok(Arc::clone(engine));
        }
        state.engine = None;
        let engine = Arc::new(Engine::build(&self.plan, &self.kernels, &self.pool)?);
        Ok(Arc::clone(state.engine.insert(engine)))
    }
}

impl State {
    /// Takes the tensors of a former result apart, to reuse their memory.
    fn keep(&mut self, output: &mut RunOutput) {
        self.spare.clear();
        self.specs.clear();
        for tensor in output.outputs.drain(..) {
            let (spec, buffer) = tensor.into_parts();
            self.specs.push(spec);
            self.spare.push(Some(buffer));
        }
    }

    /// Makes the former result again of its parts.
    fn put_back(&mut self, output: &mut RunOutput) {
        let parts = self.specs.drain(..).zip(self.spare.drain(..));
        output.outputs.extend(parts.filter_map(|(spec, buffer)| Tensor::new(spec, buffer?).ok()));
    }

    /// Moves the outputs of a run into the caller's result.
    fn fill(
        &mut self,
        program: &Program,
        on_host: impl Fn(usize) -> bool,
        engine: &Engine,
        output: &mut RunOutput,
    ) -> Result<(), ExecError> {
        engine.take_outputs(&mut self.made);
        self.made.sort_unstable_by_key(|(index, _)| *index);
        let specs = program.outputs.iter().enumerate().filter(|(at, _)| on_host(*at)).map(|(_, output)| &output.spec);
        fill(specs, self.specs.drain(..), self.made.drain(..), &mut output.outputs)
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("plan", &self.plan.strategy())
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Checks that the devices are those for which a plan was made.
pub fn verify_devices(planned: &[PlanDevice], given: &[ComputeDevice]) -> Result<(), ExecError> {
    let kind = |device: &ComputeDevice| match device {
        ComputeDevice::Cpu(_) => DeviceKind::Cpu,
        ComputeDevice::Gpu(_) => DeviceKind::Gpu,
    };
    let same =
        |(planned, given): (&PlanDevice, &ComputeDevice)| planned.name == given.name() && planned.kind == kind(given);
    if planned.len() == given.len() && planned.iter().zip(given).all(same) {
        return Ok(());
    }
    let planned = planned.iter().map(|device| &*device.name).collect::<Vec<_>>().join(", ");
    let given = given.iter().map(ComputeDevice::name).collect::<Vec<_>>().join(", ");
    let text = format!("the plan was made for {planned}, but the devices are {given}; make the plan again");
    Err(ExecError::new(ErrorKind::DeviceFailure, text))
}

/// Checks that the number of tensors is right, and that each has its input's type and shape.
fn verify_specs<'p, 't>(
    wanted: impl Iterator<Item = &'p Value> + Clone,
    given: impl ExactSizeIterator<Item = &'t TensorSpec>,
    what: &str,
) -> Result<(), ExecError> {
    let (expected, count) = (wanted.clone().count(), given.len());
    if count != expected {
        let text = format!("{count} tensors were given for {expected} {what}");
        return Err(ExecError::new(ErrorKind::Input, text));
    }
    match wanted.zip(given).find(|(value, spec)| value.spec != **spec) {
        None => Ok(()),
        Some((value, given)) => {
            let text = format!("input {:?} must be {}, but is {given}", value.name, value.spec);
            Err(ExecError::new(ErrorKind::Input, text))
        }
    }
}

/// Builds tensors from the buffers of a run, in the order of the outputs. Equal specs of `former` tensors are reused.
fn fill<'p>(
    mut specs: impl Iterator<Item = &'p TensorSpec>,
    mut former: impl Iterator<Item = TensorSpec>,
    made: impl Iterator<Item = (u32, Arc<Buffer>)>,
    outputs: &mut Vec<Tensor>,
) -> Result<(), ExecError> {
    for ((_, buffer), expected) in made.zip(specs.by_ref()) {
        let spec = former.next().filter(|spec| spec == expected).unwrap_or_else(|| expected.clone());
        let tensor = Tensor::new(spec, buffer);
        outputs.push(tensor.map_err(|_| ExecError::internal("an output has the wrong size"))?);
    }
    match specs.next() {
        None => Ok(()),
        Some(_) => Err(ExecError::internal("not every output was made")),
    }
}
