//! Scheduling at run time, without a plan, as a baseline for planned runs.
//!
//! As soon as all inputs of a node are made or in flight, the node goes to the device that is expected to finish it
//! first: StarPU's `dmda` (Augonnet 2011), see [`decide`]. The caller's thread decides. Every CPU device has a worker
//! with its team. Every GPU has a worker that encodes and submits, one for each direction of its link, and one that
//! watches for the end of submissions. Values are copied to their readers' devices as soon as the devices are known,
//! while these are still busy. Copies are kept as long as readers are left (valid, coming or invalid in each memory, as
//! in the MSI protocol).
//!
//! Devices, kernels and the ends of links are those of planned runs. Unlike a plan, this scheduler does not know the
//! future. A GPU keeps a buffer for every value that it may ever hold, because kernels are compiled for their buffers.
//! If that exceeds the GPU's limit, the last nodes of the program are left to the CPUs. Pins are honoured, colocations
//! are not.

mod decide;
#[cfg(feature = "gpu")]
mod gpu;
mod memory;
mod messages;
mod schedule;
mod workers;

use super::error::{Failure, FailureSite};
use super::supervise::Deadline;
use super::{DevicePool, Kernels, RunOptions, RunOutput, inside, verify_specs};
use anabranch_base::lock::lock;
use anabranch_kernels::Tensor;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, Forecast, PlanDevice};
use memory::Wiring;
use schedule::Schedule;
use std::borrow::Borrow;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use workers::Workers;

/// A program whose nodes are assigned to a pool's devices while it runs. Its runs queue with all other runs of the
/// pool.
pub struct DynamicExecutor {
    setup: Setup,
    /// `None` after a failure, until the next run.
    workers: Mutex<Option<Workers>>,
}

/// Data from which workers are created.
struct Setup {
    kernels: Arc<Kernels>,
    pool: Arc<DevicePool>,
    /// Devices of the pool, with their limits.
    devices: Vec<PlanDevice>,
    forecast: Forecast,
    wiring: Wiring,
}

impl DynamicExecutor {
    /// Prepares every kernel on every device of the pool that may run it. `devices` are the pool's devices, with their
    /// limits.
    ///
    /// # Errors
    /// If a kernel cannot be built, a GPU cannot be used or the system starts no more threads.
    pub fn new(
        kernels: Arc<Kernels>,
        pool: &Arc<DevicePool>,
        devices: Vec<PlanDevice>,
        forecast: Forecast,
    ) -> Result<Self, ExecError> {
        super::verify_devices(&devices, pool.devices())?;
        let wiring = Wiring::of(kernels.program());
        let setup = Setup { kernels, pool: Arc::clone(pool), devices, forecast, wiring };
        let workers = Mutex::new(Some(Workers::new(&setup)?));
        Ok(Self { setup, workers })
    }

    /// Runs the program on these inputs, in its order.
    ///
    /// Transfers in the events are numbered in the order of their ends. Peaks are the memory that was really taken:
    /// buffers on the host are reused but never returned to the system.
    ///
    /// # Errors
    /// If the inputs do not fit, a kernel or a device fails, or the run is cancelled or takes too long.
    pub fn run(&self, inputs: &[impl Borrow<Tensor>], options: &RunOptions) -> Result<RunOutput, ExecError> {
        let inputs: &[&Tensor] = &inputs.iter().map(Borrow::borrow).collect::<Vec<_>>();
        let program = self.setup.kernels.program();
        let wanted = program.inputs.iter().map(|id| program.value(*id));
        verify_specs(wanted, inputs.iter().map(|tensor| tensor.spec()), "inputs")?;
        let Some(_inside) = inside::enter_run() else {
            return Err(ExecError::internal("a run was asked for from within a kernel"));
        };
        let origin = Instant::now();
        let deadline = Deadline::new(options, origin);
        let _turn = self.setup.pool.turn(&deadline, options.spin)?;
        // A caller that panicked while it held the lock left no workers behind.
        let mut place = lock(&self.workers);
        let mut workers = match place.take() {
            Some(workers) => workers,
            None => Workers::new(&self.setup)?,
        };
        let (events, mut outputs) = Schedule::new(&mut workers, &self.setup, inputs, options, origin).run()?;
        let mut output = RunOutput {
            events,
            peaks: workers.accounting.peaks().collect(),
            makespan: origin.elapsed(),
            ..RunOutput::default()
        };
        outputs.sort_by_key(|(index, _)| *index);
        let specs = program.outputs.iter().map(|output| &output.spec);
        super::fill(specs, std::iter::empty(), outputs.drain(..), &mut output.outputs)?;
        *place = Some(workers);
        Ok(output)
    }
}

impl Setup {
    /// Adds names to the failure of a device's thread.
    fn named(&self, device: DeviceId, failure: Failure) -> ExecError {
        let node = match failure.place {
            FailureSite::Node(node) => Some(self.kernels.program().node(node).model_name().to_owned()),
            FailureSite::Transfer(_) | FailureSite::Nowhere => None,
        };
        let device = Some(self.devices[device.index()].name.clone());
        failure.error.at(node, device)
    }
}
