//! Execution: a plan followed by one thread for each device and one for each link.
//!
//! An [`Executor`] takes all memory, prepares all kernels and starts all threads of a [`Plan`] once, and
//! then runs it as often as wanted. During a run nothing is decided: every worker has a script of steps, made from the
//! plan's total order, and counts down the messages that each step waits for. `README.md` beside this file says why that
//! cannot deadlock, what it costs, and what happens when something fails.

#![forbid(unsafe_code)]

mod actor;
mod cancel;
mod cpu;
mod device;
mod dynamic;
mod engine;
mod error;
mod event;
mod gates;
mod gpu;
mod inside;
mod kernels;
mod ledger;
mod link;
mod message;
mod ring;
mod script;
mod spawn;
#[cfg(test)]
mod tests;

pub use cancel::CancelToken;
pub use device::{ComputeDevice, CpuTeam, GpuOpener};
pub use dynamic::{DynamicExecutor, Forecast};
pub use error::{ExecError, InputMismatch, RunError, RunErrorKind, Waiting};
pub use event::{Activity, Event, Lane};
pub(crate) use gpu::BATCH as GPU_BATCH;
pub use kernels::Kernels;

use crate::plan::HOST;
use crate::plan::Plan;
use crate::program::Program;
use anabranch_kernels::Tensor;
use anabranch_placement::platform::DeviceKind;
use engine::{Engine, Finished};
use message::Run;
use spawn::Setup;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How one run is made.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stops the run when cancelled.
    pub cancel: Option<CancelToken>,
    /// The longest that the run may take.
    pub timeout: Option<Duration>,
    /// Whether to note when everything happened; costs a look at the clock a node.
    pub profile: bool,
    /// How long all workers may wait for each other before the run is called stalled.
    pub stall_after: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { cancel: None, timeout: None, profile: false, stall_after: Duration::from_secs(2) }
    }
}

impl RunOptions {
    /// Why the run must end now.
    fn verdict(&self, origin: Instant) -> Option<RunErrorKind> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Some(RunErrorKind::Cancelled);
        }
        self.timeout.filter(|timeout| origin.elapsed() >= *timeout).map(RunErrorKind::Timeout)
    }

    /// How long to wait before the next look.
    fn patience(&self, origin: Instant, tick: Duration) -> Duration {
        self.timeout
            .map_or(tick, |timeout| timeout.saturating_sub(origin.elapsed()).clamp(Duration::from_micros(100), tick))
    }
}

/// What a run has given.
#[derive(Clone, Debug)]
pub struct RunOutput {
    /// The program's outputs, in order.
    pub outputs: Vec<Tensor>,
    /// What happened when, by start; empty without profile.
    pub events: Vec<Event>,
    /// Bytes that were taken on each device, at most, since the executor was made.
    pub peaks: Vec<u64>,
    /// From the call until the last worker was done.
    pub makespan: Duration,
}

/// A plan that is ready to run. Runs are made one at a time; further callers wait.
pub struct Executor {
    setup: Setup,
    /// Gone after a failure that the devices did not survive, until the next run.
    engine: Mutex<Option<Engine>>,
}

impl Executor {
    /// Prepares a plan on the devices that it was made for, in the plan's order.
    ///
    /// # Errors
    /// If these are other devices, a kernel cannot be built, a GPU cannot be used or the system gives no more threads.
    pub fn new(
        plan: impl Into<Arc<Plan>>,
        kernels: Arc<Kernels>,
        devices: Vec<ComputeDevice>,
    ) -> Result<Self, ExecError> {
        let plan = plan.into();
        verify_devices(&plan, &devices)?;
        let setup = Setup {
            plan,
            kernels,
            devices,
            #[cfg(test)]
            lost: Mutex::default(),
        };
        let engine = Mutex::new(Some(setup.build()?));
        Ok(Self { setup, engine })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.setup.plan
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.setup.kernels.program()
    }

    /// Runs the plan on these inputs, in the program's order. After an error all workers are idle and the next run can
    /// begin.
    ///
    /// # Errors
    /// If the inputs do not fit, a kernel or a device fails, or the run is cancelled or takes too long.
    pub fn run(&self, inputs: &[Tensor], options: &RunOptions) -> Result<RunOutput, RunError> {
        let anywhere = |kind| RunError { kind, node: None, device: None };
        verify_inputs(self.program(), inputs).map_err(anywhere)?;
        if inside::is_inside() {
            return Err(anywhere(RunErrorKind::Internal("a run was asked for from within a kernel")));
        }
        // A caller that panicked while it held the lock left an engine whose workers are idle or gone.
        let mut place = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = Instant::now();
        if let Some(kind) = options.verdict(origin) {
            return Err(anywhere(kind));
        }
        let engine = match &mut *place {
            Some(engine) => engine,
            place => {
                place.insert(self.setup.build().map_err(|error| anywhere(RunErrorKind::Rebuild(Box::new(error))))?)
            }
        };
        let given = inputs.iter().map(|tensor| tensor.bytes().len()).sum();
        engine.ledger.take(HOST, given);
        let buffers = inputs.iter().map(|tensor| Arc::clone(tensor.buffer())).collect();
        let run = Run { origin, profile: options.profile, inputs: buffers };
        let result = engine.run(run, options);
        engine.ledger.give(HOST, given);
        let (makespan, peaks) = (origin.elapsed(), engine.ledger.peaks());
        match result {
            Ok(finished) => output(self.program(), finished, peaks, makespan).map_err(anywhere),
            Err(broken) => {
                if broken.beyond_repair {
                    *place = None;
                }
                Err(broken.error)
            }
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("setup", &self.setup).finish_non_exhaustive()
    }
}

fn verify_devices(plan: &Plan, devices: &[ComputeDevice]) -> Result<(), ExecError> {
    let kind = |device: &ComputeDevice| match device {
        ComputeDevice::Cpu(_) => DeviceKind::Cpu,
        ComputeDevice::Gpu(_) => DeviceKind::Gpu,
    };
    let planned = plan.devices();
    let same = |(planned, given): (&crate::plan::PlanDevice, &ComputeDevice)| {
        planned.name == given.name() && planned.kind == kind(given)
    };
    if planned.len() == devices.len() && planned.iter().zip(devices).all(same) {
        return Ok(());
    }
    let names = |names: Vec<&str>| names.join(", ");
    Err(ExecError::Devices {
        planned: names(planned.iter().map(|device| &*device.name).collect()),
        given: names(devices.iter().map(ComputeDevice::name).collect()),
    })
}

fn verify_inputs(program: &Program, inputs: &[Tensor]) -> Result<(), RunErrorKind> {
    if inputs.len() != program.inputs.len() {
        return Err(RunErrorKind::InputCount { expected: program.inputs.len(), given: inputs.len() });
    }
    for (id, tensor) in program.inputs.iter().zip(inputs) {
        let value = program.value(*id);
        if value.spec != *tensor.spec() {
            let (name, expected, given) = (value.name.clone(), value.spec.clone(), tensor.spec().clone());
            return Err(RunErrorKind::Input(Box::new(InputMismatch { name, expected, given })));
        }
    }
    Ok(())
}

/// What a run has given, as its caller receives it.
fn output(
    program: &Program,
    finished: Finished,
    peaks: Vec<u64>,
    makespan: Duration,
) -> Result<RunOutput, RunErrorKind> {
    let Finished { mut events, mut outputs } = finished;
    events.sort_by_key(|event| (event.start, event.end, event.lane, event.what));
    outputs.sort_by_key(|(index, _)| *index);
    let specs = program.outputs.iter().map(|output| output.spec.clone());
    if outputs.len() != specs.len() {
        return Err(RunErrorKind::Internal("not every output was made"));
    }
    let tensor = |(spec, (_, buffer))| Tensor::new(spec, buffer);
    let outputs = specs.zip(outputs).map(tensor).collect::<Result<_, _>>();
    let outputs = outputs.map_err(|_| RunErrorKind::Internal("an output has the wrong size"))?;
    Ok(RunOutput { outputs, events, peaks, makespan })
}
