//! A session: a model, the devices, what is known of their costs, and plans for the shapes that it was run with.

use super::budget::{Budget, Limit};
use super::cache::Cache;
use super::deciding::Deciding;
use super::error::SessionError;
use super::options::SessionOptions;
use super::prepare::{Key, Prepared};
use super::run::Run;
use super::value_info::ValueInfo;
use crate::device::{Inventory, detect};
use crate::execute::{DevicePool, Weights};
use crate::import::{self, Model};
use crate::learning::{Learned, ProfiledRun, calibrate, record};
use crate::lock::lock;
use crate::planning::{Lowered, Machine, MachineDevice, compute_devices, machine_devices};
use crate::profile::{CostStore, StoreError};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A model that can be run any number of times, from any number of threads.
///
/// The first run with new input shapes lowers, places and plans the model for them; later runs with the same shapes only
/// execute. Plans for [`SessionOptions::plan_capacity`] sets of shapes are kept ready. They share the weights, the threads and the
/// opened GPUs, so that each of these is there once, and the plans that a session keeps are within each device's limit in
/// sum. Not counted are the raw weights of models given as bytes, and what `Session::dynamic` takes.
///
/// # From several threads
/// Planning for some shapes does not hold up runs with others; callers that need the same new plan wait for whoever makes it. Runs
/// follow each other, since each uses all the devices of its plan; a run that is queued obeys its own timeout and cancellation.
pub struct Session {
    pub(super) model: Model,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    pub(super) inventory: Inventory,
    pub(super) machine_devices: Vec<MachineDevice>,
    /// The threads, teams and opened GPUs of all plans.
    pub(super) pool: Arc<DevicePool>,
    /// The constants of all plans.
    pub(super) weights: Arc<Weights>,
    /// What all plans hold.
    pub(super) budget: Arc<Budget>,
    pub(super) options: SessionOptions,
    costs: Mutex<CostStore>,
    /// Held while devices are calibrated: who needs the rates waits for them.
    calibrating: Mutex<()>,
    pub(super) deciding: Deciding,
    pub(super) lowered: Cache<Key, Lowered, SessionError>,
    pub(super) prepared: Cache<Key, Prepared, SessionError>,
}

impl Session {
    /// Opens the ONNX model in a file and takes the inventory of the devices.
    ///
    /// # Errors
    /// If the file is no usable model, or the options name devices that are not there.
    pub fn open(path: impl AsRef<Path>, options: SessionOptions) -> Result<Self, SessionError> {
        Self::new(import::load(path.as_ref())?, options)
    }

    /// Opens the ONNX model in `bytes`, which must not refer to external data.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(bytes: &[u8], options: SessionOptions) -> Result<Self, SessionError> {
        Self::new(import::from_bytes(bytes, None)?, options)
    }

    fn new(model: Model, mut options: SessionOptions) -> Result<Self, SessionError> {
        let mut inventory = detect(&options.devices)?;
        let mut costs = std::mem::take(&mut options.costs);
        inventory.notes.extend(costs.settle(&inventory.fingerprint()));
        Ok(Self {
            inputs: ValueInfo::inputs(&model),
            outputs: ValueInfo::outputs(&model),
            machine_devices: machine_devices(&inventory),
            pool: DevicePool::new(compute_devices(&inventory)),
            weights: Arc::default(),
            budget: Budget::new(inventory.devices().map(Limit::of).collect()),
            costs: Mutex::new(costs),
            calibrating: Mutex::default(),
            deciding: Deciding::default(),
            lowered: Cache::new(options.plan_capacity),
            prepared: Cache::new(options.plan_capacity),
            model,
            inventory,
            options,
        })
    }

    /// The model's inputs, in its order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// The model's outputs, in its order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// The devices.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Bytes that the plans that are ready hold on each device, in the inventory's order; what they share counts once. Plans that the
    /// caller holds ([`Prepared`]) count, too.
    pub fn held_bytes(&self) -> Vec<u64> {
        self.budget.held()
    }

    /// Of how many sets of input shapes plans are ready, or being made.
    pub fn ready_plans(&self) -> usize {
        self.prepared.len()
    }

    /// What is known of the devices' costs by now.
    pub fn costs(&self) -> CostStore {
        lock(&self.costs).clone()
    }

    /// Adds what this session has learnt to the cost store in a file, from which later sessions are given it by
    /// [`SessionOptions::with_costs`]. What other processes have added there meanwhile stays, and is known here afterwards.
    ///
    /// # Errors
    /// If the file is no cost store or cannot be written.
    pub fn save_costs(&self, path: &Path) -> Result<(), StoreError> {
        lock(&self.costs).save(path)
    }

    /// Measures every device whose rates are not known, its links with the host, and what it and other CPU devices take longer for each other's
    /// values: about a second a device. Later plans are made
    /// with what this shows; those that were made stay as they are.
    ///
    /// # Errors
    /// If a probe fails to run: then models would, too.
    pub fn calibrate(&self) -> Result<(), SessionError> {
        let _alone = lock(&self.calibrating);
        let mut measured = lock(&self.costs).here().rates_only();
        calibrate(&self.inventory, &mut measured)?;
        lock(&self.costs).here_mut().merge(&measured);
        Ok(())
    }

    /// Adds what a profiled run of this session measured to the costs: times of nodes, of transfers, and of the run as a whole. A
    /// plan's first run counts as cold. Plans that were made stay as they are; [`Self::plan_with`] makes one with what was learned.
    pub fn learn(&self, run: &Run) -> Learned {
        let profiled = ProfiledRun {
            program: &run.prepared.program,
            plan: run.prepared.plan(),
            run: &run.measured,
            cold: run.cold,
            streams_alone: false,
            devices: &self.machine_devices,
        };
        record(lock(&self.costs).here_mut(), profiled)
    }

    /// The machine that is there, with the costs known by now; calibrated before, if the options want it.
    pub(super) fn machine_here(&self) -> Result<Machine, SessionError> {
        if self.options.calibrate {
            self.calibrate()?;
        }
        Ok(Machine::present(&self.inventory, lock(&self.costs).here()))
    }

    /// The machine to plan for: the one that is there, or that of the platform file.
    pub(super) fn machine(&self) -> Result<Machine, SessionError> {
        match &self.options.platform {
            None => self.machine_here(),
            Some(file) => Ok(Machine::described(file, &self.inventory, lock(&self.costs).here())?),
        }
    }
}
