//! A session: a model, the devices, what is known of their costs, and plans for the shapes that it was run with.

use super::budget::{Budget, Limit};
use super::cache::Cache;
use super::error::{SessionError, within_memory};
use super::loss::Lost;
use super::options::SessionOptions;
use super::precompiled::Precompiled;
use super::prepare::{Key, Prepared};
use super::run::Run;
use super::value_info::ValueInfo;
use crate::compiled;
use anabranch_base::lock::lock;
use anabranch_costs::{CostStore, StoreError};
use anabranch_device::{Inventory, detect, detect_cpus};
use anabranch_execute::{DevicePool, RunOutput, Weights};
use anabranch_learning::{Learned, ProfiledRun, calibrate, record};
use anabranch_onnx::import::{self, ImportError, Model};
use anabranch_onnx::lower::Phase;
use anabranch_planning::{Constraints, Lowered, Machine, MachineDevice, Planned, compute_devices, machine_devices};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Plans of later phases that are kept for each set of input shapes, on average.
pub(super) const PHASES: usize = 32;

/// Runs of later phases that are learnt from in one run: a loop may have thousands of passes.
const LEARNT: usize = 64;

/// A model that can be run any number of times, from any number of threads.
///
/// The first run with new input shapes lowers, places and plans the model for them; later runs with the same shapes only
/// execute. Plans for [`SessionOptions::plan_capacity`] sets of shapes are kept ready. They share the weights, the threads and the
/// opened GPUs, so that each of these is there once, and the plans that a session keeps are within each device's limit in
/// sum. Not counted are the raw weights of models given as bytes, and what `Session::dynamic` takes.
///
/// Where shapes follow from computed values, a run has several phases, each with a plan of its own: see [`Later`](super::Later). The
/// values between them are on the host, and what a phase reads of them must fit there.
///
/// # From several threads
/// Planning for some shapes does not hold up runs with others; callers that need the same new plan wait for whoever makes it. Runs
/// follow each other, since each uses all the devices of its plan; a run that is queued obeys its own timeout and cancellation.
pub struct Session {
    /// All of the model.
    pub whole: Arc<Phase>,
    /// Where it was read, if it was in a file, and that file's stamp then.
    pub(super) source: Option<(PathBuf, String)>,
    /// What it was lowered and planned to before, if it is a compiled one.
    pub(super) precompiled: Option<Precompiled>,
    /// What could not be read of it.
    pub(super) problems: Vec<ImportError>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    pub(crate) inventory: Inventory,
    pub(super) machine_devices: Vec<MachineDevice>,
    /// The threads, teams and opened GPUs of all plans.
    pub pool: Arc<DevicePool>,
    /// The constants of all plans.
    pub(crate) weights: Arc<Weights>,
    /// What all plans hold.
    pub(super) budget: Arc<Budget>,
    #[doc(hidden)]
    pub options: SessionOptions,
    /// The constraints on phases.
    pub(super) of_parts: Constraints,
    costs: Mutex<CostStore>,
    /// Held while costs are written.
    saving: Mutex<()>,
    /// Held while devices are calibrated: who needs the rates waits for them.
    calibrating: Mutex<()>,
    /// The GPUs that plans do without.
    pub(super) lost: Lost,
    pub(super) lowered: Cache<Key, Lowered, SessionError>,
    pub(super) prepared: Cache<Key, Prepared, SessionError>,
    /// The same of later phases, of which a run may have many.
    pub(super) later_lowered: Cache<Key, Lowered, SessionError>,
    pub(super) later_prepared: Cache<Key, Prepared, SessionError>,
    pub(super) plans_made: AtomicU64,
}

impl Session {
    /// Opens the ONNX model in a file, or a [compiled](crate::compiled) one, and takes the inventory of the devices. The settings that a
    /// model was compiled with hold where `options` are as by default.
    ///
    /// # Errors
    /// If the file is no usable model, or the options name devices that are not there.
    pub fn open(path: impl AsRef<Path>, options: SessionOptions) -> Result<Self, SessionError> {
        let path = path.as_ref();
        within_memory(|| match compiled::is_compiled(path) {
            true => Self::open_compiled(path, options),
            false => {
                let stamp = compiled::stamp(path);
                let session = Self::new(import::load_within(path, &options.limits)?, options)?;
                Ok(Self { source: Some((path.to_owned(), stamp)), ..session })
            }
        })
    }

    /// The same of an ONNX model, to learn what its inputs are: no graphics driver is loaded.
    pub(crate) fn open_on_cpus(path: &Path, options: SessionOptions) -> Result<Self, SessionError> {
        within_memory(|| {
            let inventory = detect_cpus(&options.devices).or_else(|_| detect(&options.devices))?;
            Ok(Self::on(inventory, import::load_within(path, &options.limits)?, Vec::new(), options))
        })
    }

    /// Opens as much of the ONNX model in a file as can be read, to ask what it is and all that stops it: [`Self::problems`], and what
    /// [`Self::plan`] answers ([`SessionError::obstacles`]). With problems, it never runs.
    ///
    /// # Errors
    /// If the file is no ONNX model at all, or the options name devices that are not there.
    pub fn survey(path: impl AsRef<Path>, options: SessionOptions) -> Result<Self, SessionError> {
        if compiled::is_compiled(path.as_ref()) {
            return Self::open(path, options);
        }
        let (model, problems) = import::survey(path.as_ref(), &options.limits)?;
        Self::surveyed(model, problems, options)
    }

    /// Opens the ONNX model in `bytes`, which must not refer to external data.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(bytes: &[u8], options: SessionOptions) -> Result<Self, SessionError> {
        within_memory(|| Self::new(import::from_bytes_within(bytes, None, &options.limits)?, options))
    }

    /// Opens a model that [`import`] has made.
    ///
    /// # Errors
    /// If the options name devices that are not there.
    pub fn new(model: Model, options: SessionOptions) -> Result<Self, SessionError> {
        Self::surveyed(model, Vec::new(), options)
    }

    /// A model of which some could not be read.
    pub(super) fn surveyed(
        model: Model,
        problems: Vec<ImportError>,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let inventory = detect(&options.devices)?;
        Ok(Self::on(inventory, model, problems, options))
    }

    /// The same on devices that are found already.
    pub(super) fn on(
        mut inventory: Inventory,
        model: Model,
        problems: Vec<ImportError>,
        mut options: SessionOptions,
    ) -> Self {
        let mut costs = std::mem::take(&mut options.costs);
        inventory.notes.extend(costs.settle(&inventory.fingerprint()));
        Self {
            inputs: ValueInfo::inputs(&model),
            outputs: ValueInfo::outputs(&model),
            machine_devices: machine_devices(&inventory),
            pool: DevicePool::new(compute_devices(&inventory)),
            weights: Arc::default(),
            budget: Budget::new(inventory.devices().map(Limit::of).collect()),
            costs: Mutex::new(costs),
            saving: Mutex::default(),
            calibrating: Mutex::default(),
            lost: Lost::default(),
            lowered: Cache::new(options.plan_capacity),
            prepared: Cache::new(options.plan_capacity),
            later_lowered: Cache::new(options.plan_capacity.saturating_mul(PHASES)),
            later_prepared: Cache::new(options.plan_capacity.saturating_mul(PHASES)),
            plans_made: AtomicU64::new(0),
            whole: Phase::whole(Arc::new(model)),
            source: None,
            precompiled: None,
            of_parts: options.constraints.of_parts(),
            problems,
            inventory,
            options,
        }
    }

    /// The model as its file gives it.
    pub fn model(&self) -> &Model {
        &self.whole.model
    }

    /// The inputs, by name, that were found by now to decide shapes by their elements.
    pub fn deciding_inputs(&self) -> Vec<String> {
        self.whole.deciding.known().iter().cloned().collect()
    }

    /// What could not be read of a model that [`Self::survey`] opened.
    pub fn problems(&self) -> &[ImportError] {
        &self.problems
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

    /// How many plans of later phases are ready, or being made: see [`Later`](super::Later).
    pub fn ready_phases(&self) -> usize {
        self.later_prepared.len()
    }

    /// How many plans were made so far, with those of later phases.
    pub fn plans_made(&self) -> u64 {
        self.plans_made.load(Ordering::Relaxed)
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
        let _alone = lock(&self.saving);
        // Runs are planned and learnt from while the file is waited for.
        let before = self.costs();
        let mut saved = before.clone();
        saved.save(path)?;
        let mut costs = lock(&self.costs);
        saved.catch_up(&before, &costs);
        *costs = saved;
        Ok(())
    }

    /// Measures every device whose rates are not known, its links with the host, and what it and other CPU devices take longer for each other's
    /// values: about a second a device. Later plans are made
    /// with what this shows; those that were made stay as they are.
    ///
    /// # Errors
    /// If a probe fails to run: then models would, too.
    pub fn calibrate(&self) -> Result<(), SessionError> {
        self.calibrate_parts(&self.inventory)
    }

    /// The same for devices that are parts of this session's.
    pub fn calibrate_parts(&self, inventory: &Inventory) -> Result<(), SessionError> {
        let _alone = lock(&self.calibrating);
        let mut measured = lock(&self.costs).here().rates_only();
        calibrate(inventory, &mut measured)?;
        lock(&self.costs).here_mut().merge(&measured);
        Ok(())
    }

    /// Adds what a profiled run of this session measured to the costs: times of nodes, of transfers, and of the run as a whole. A
    /// plan's first run counts as cold. Plans that were made stay as they are; [`Self::plan_with`] makes one with what was learned. Of a
    /// model that is run in phases what the others measured is added, too; what is returned is of the first.
    pub fn learn(&self, run: &Run) -> Learned {
        run.later.iter().flat_map(|later| later.runs.iter().take(LEARNT)).for_each(|later| {
            self.learn_from(&later.planned, &later.measured, later.cold);
        });
        self.learn_from(&run.prepared, &run.measured, run.cold)
    }

    fn learn_from(&self, planned: &Planned, run: &RunOutput, cold: bool) -> Learned {
        let (program, plan, devices) = (&planned.program, planned.plan(), &self.machine_devices);
        let profiled = ProfiledRun { program, plan, run, cold, streams_alone: false, devices };
        record(lock(&self.costs).here_mut(), profiled)
    }

    /// The machine that is there, with the costs known by now; calibrated before, if the options want it.
    pub(super) fn machine_here(&self) -> Result<Machine, SessionError> {
        if self.options.calibrate {
            within_memory(|| self.calibrate())?;
        }
        Ok(Machine::present(&self.inventory, lock(&self.costs).here()).without(&self.lost.names()))
    }

    /// The machine to plan for: the one that is there, or that of the platform file.
    pub(super) fn machine(&self) -> Result<Machine, SessionError> {
        match &self.options.platform {
            None => self.machine_here(),
            Some(file) => Ok(Machine::described(file, &self.inventory, lock(&self.costs).here())?),
        }
    }
}
