//! Scheduling at run time, without a plan: what planned runs are compared with.
//!
//! Each node goes, as soon as all that it reads is made or under way, to the device that is expected to finish it first: `dmda`
//! of StarPU (Augonnet 2011), see [`decide`]. The caller's thread decides; every CPU device has a worker with its team, and every
//! GPU one that encodes and submits, one for each direction of its link, and one that watches for the end of submissions. Values
//! are copied to where they are read as soon as that is known, while the device is busy with what it was given before, and
//! copies are kept as long as readers are left (valid, coming or invalid in each memory, as in the MSI protocol).
//!
//! Devices, kernels and the ends of links are those of planned runs. What a plan knows and this does not is the future: a GPU
//! keeps a buffer for every value that it may ever hold, because kernels are compiled for their buffers; where that is more
//! than the GPU's limit, the last nodes of the program are left to the CPUs. Colocations are not kept; pins are.

mod crew;
mod decide;
mod gpu;
mod memory;
mod schedule;

use super::error::{ExecError, RunError, RunErrorKind};
use super::{ComputeDevice, Kernels, RunOptions, RunOutput, inside, verify_inputs};
use crate::plan::PlanDevice;
use anabranch_kernels::Tensor;
use anabranch_placement::cost::TransferCurve;
use anabranch_placement::platform::DeviceId;
use crew::Crew;
use schedule::Schedule;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What is predicted: the scheduler goes by nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of each node on each device; `None` where it must not or cannot run.
    pub nodes: Vec<Vec<Option<f64>>>,
    /// From each device to each: seconds of a transfer by its size.
    pub links: Vec<Vec<TransferCurve>>,
}

/// A program whose nodes are given to devices while it runs. Runs are made one at a time; further callers wait.
pub struct DynamicExecutor {
    setup: Setup,
    /// Gone after a failure, until the next run.
    crew: Mutex<Option<Crew>>,
}

/// What a crew is made of.
struct Setup {
    kernels: Arc<Kernels>,
    devices: Vec<(ComputeDevice, PlanDevice)>,
    forecast: Forecast,
}

impl DynamicExecutor {
    /// Prepares every kernel on every device that may run it. The first device is the host.
    ///
    /// # Errors
    /// If a kernel cannot be built, a GPU cannot be used or the system gives no more threads.
    pub fn new(
        kernels: Arc<Kernels>,
        devices: Vec<(ComputeDevice, PlanDevice)>,
        forecast: Forecast,
    ) -> Result<Self, ExecError> {
        let setup = Setup { kernels, devices, forecast };
        let crew = Mutex::new(Some(Crew::new(&setup)?));
        Ok(Self { setup, crew })
    }

    /// Runs the program on these inputs, in its order. The transfers in the events are numbered as they ended. Peaks are the
    /// memory that was really taken: buffers on the host are used again but never given back to the system.
    ///
    /// # Errors
    /// If the inputs do not fit, a kernel or a device fails, or the run is cancelled or takes too long.
    pub fn run(&self, inputs: &[Tensor], options: &RunOptions) -> Result<RunOutput, RunError> {
        let anywhere = |kind| RunError { kind, node: None, device: None };
        let program = self.setup.kernels.program();
        verify_inputs(program, inputs).map_err(anywhere)?;
        if inside::is_inside() {
            return Err(anywhere(RunErrorKind::Internal("a run was asked for from within a kernel")));
        }
        // A caller that panicked while it held the lock left no crew behind.
        let mut place = self.crew.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = Instant::now();
        if let Some(kind) = options.verdict(origin) {
            return Err(anywhere(kind));
        }
        let mut crew = match place.take() {
            Some(crew) => crew,
            None => Crew::new(&self.setup).map_err(|error| anywhere(RunErrorKind::Rebuild(Box::new(error))))?,
        };
        let result = Schedule::new(&mut crew, &self.setup, inputs, options, origin).run();
        let finished = result.map_err(|(device, failure)| self.setup.named(device, failure))?;
        let makespan = origin.elapsed();
        let output = super::output(program, finished, crew.ledger.peaks(), makespan).map_err(anywhere)?;
        *place = Some(crew);
        Ok(output)
    }
}

impl Setup {
    /// Puts names to a failure.
    fn named(&self, device: Option<DeviceId>, failure: super::error::Failure) -> RunError {
        let node = match failure.place {
            super::error::Place::Node(node) => Some(self.kernels.program().node(node).name.clone()),
            super::error::Place::Transfer(_) | super::error::Place::Nowhere => None,
        };
        let device = device.map(|device| self.devices[device.index()].1.name.clone());
        RunError { kind: failure.kind, node, device }
    }
}
