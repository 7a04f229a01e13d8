//! A session: a model, the devices, their known costs, and plans for the shapes with which it was run.

use super::batch;
use super::budget::Budget;
use super::cache::Cache;
use super::config::{ResolvedConfig, SessionConfig};
use super::error::{SessionError, within_memory};
use super::loss::Lost;
use super::precompiled::Precompiled;
use super::prepare::{Key, Prepared};
use super::run::Run;
use super::value_info::ValueInfo;
use crate::compiled;
use anabranch_base::load::Load;
use anabranch_base::lock::lock;
use anabranch_costs::{CostStore, StoreError};
use anabranch_device::{Inventory, detect, detect_cpus};
use anabranch_execute::{DevicePool, RunOutput, Weights};
use anabranch_kernels::op::Precision;
use anabranch_learning::{Learned, ProfiledRun, calibrate, record};
use anabranch_onnx::import::{self, ImportError, Model};
use anabranch_onnx::lower::Phase;
use anabranch_planning::{
    Constraints, Lowered, Machine, MachineDevice, Planned, PlatformFile, compute_devices, machine_devices,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Average number of plans of later phases that are kept for each set of input shapes.
pub(super) const PHASES: usize = 32;

/// Most runs of later phases that are learned from in one run: a loop may have thousands of iterations.
const LEARNT: usize = 64;

/// A model that can be run any number of times, from any number of threads.
///
/// The first run with new input shapes lowers, places and plans the model for them; later runs with the same shapes
/// only execute. Plans for [`SessionConfig::plan_capacity`] sets of shapes are kept ready. They share the weights, the
/// threads and the opened GPUs, each of which exists once. The sum of a session's plans stays within each device's
/// limit. The limit does not cover the raw weights of models given as bytes, and the memory of `Session::dynamic`.
///
/// If shapes depend on computed values, a run has several phases, each with its own plan: see [`Later`](super::Later).
/// Values between phases are on the host, and the inputs of a phase must fit there.
///
/// # From several threads
///
/// Planning for some shapes does not delay runs with other shapes. Callers that need the same new plan wait until it is
/// made. Runs are serialised, because each uses all the devices of its plan; a queued run obeys its own timeout and
/// cancellation.
/// # Examples
///
/// The plan is there before anything runs:
///
/// ```
/// # mod anabranch { pub use anabranch_session::{Inputs, Session, SessionConfig}; }
/// use anabranch::{Inputs, Session, SessionConfig};
///
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
/// let mut inputs = session.fill_random(Inputs::new(), 1)?;
/// let planned = session.plan(&inputs)?;
/// for (device, memory) in planned.plan().devices().iter().zip(planned.plan().memory().devices()) {
///     println!("{}: {} bytes at most", device.name, memory.peak());
/// }
/// println!("{} s predicted", planned.plan().predicted().makespan);
///
/// let mut outputs = session.run(&inputs)?;
/// // Later runs with inputs of these shapes only execute, also into the same buffers.
/// inputs = session.fill_random(Inputs::new(), 2)?;
/// session.run_into(&inputs, &mut outputs)?;
/// assert_eq!(outputs.view::<f32>("y")?.shape(), [8, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    /// The whole model.
    pub whole: Arc<Phase>,
    /// Path of the model's file, if it has one, and the file's stamp when it was read.
    pub(super) source: Option<(PathBuf, String)>,
    /// Program and plan of a compiled model.
    pub(super) precompiled: Option<Precompiled>,
    /// Problems of reading the model.
    pub(super) problems: Vec<ImportError>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    pub(crate) inventory: Inventory,
    pub(super) machine_devices: Vec<MachineDevice>,
    /// Threads, teams and opened GPUs of all plans.
    pub pool: Arc<DevicePool>,
    /// Precision of matrix products on GPUs.
    pub(super) precision: Precision,
    /// Constants of all plans.
    pub(crate) weights: Arc<Weights>,
    /// Memory that all plans hold.
    pub(super) budget: Arc<Budget>,
    #[doc(hidden)]
    pub options: ResolvedConfig,
    /// Constraints on phases.
    pub(super) of_parts: Constraints,
    costs: Mutex<CostStore>,
    /// Held while costs are written.
    saving: Mutex<()>,
    /// Held while devices are calibrated: callers that need the rates wait for them. Load of the machine while that was
    /// done, if it was.
    calibrating: Mutex<Option<Load>>,
    /// Lost GPUs that plans do not use.
    pub(super) lost: Lost,
    pub(super) lowered: Cache<Key, Lowered, SessionError>,
    pub(super) prepared: Cache<Key, Prepared, SessionError>,
    /// Lowered programs and plans of later phases, of which a run may have many.
    pub(super) later_lowered: Cache<Key, Lowered, SessionError>,
    pub(super) later_prepared: Cache<Key, Prepared, SessionError>,
    pub(super) plans_made: AtomicU64,
}

impl Session {
    /// Opens the ONNX model in a file, or a [compiled](crate::compiled) model, and takes the inventory of the devices.
    ///
    /// Options of a compiled model apply if `config` leaves them out.
    ///
    /// # Errors
    /// If the file is not a usable model, or the options name unknown devices.
    pub fn open(path: impl AsRef<Path>, config: SessionConfig) -> Result<Self, SessionError> {
        let path = path.as_ref();
        within_memory(|| match compiled::is_compiled(path) {
            true => Self::open_compiled(path, config),
            false => {
                let (stamp, options) = (compiled::stamp(path), config.resolve());
                let model = import::load_within(path, &options.limits)?;
                let session = Self::surveyed(model, Vec::new(), options)?;
                Ok(Self { source: Some((path.to_owned(), stamp)), ..session })
            }
        })
    }

    /// Opens an ONNX model without loading a graphics driver, to learn its inputs.
    pub(crate) fn open_on_cpus(path: &Path, mut options: ResolvedConfig) -> Result<Self, SessionError> {
        within_memory(|| {
            let inventory = options.detected(detect_cpus).or_else(|_| options.detected(detect))?;
            Ok(Self::on(inventory, import::load_within(path, &options.limits)?, Vec::new(), options))
        })
    }

    /// Opens as much of the ONNX model in a file as can be read, to describe it and all obstacles to running it.
    ///
    /// [`Self::problems`] lists the problems of reading, and an error of [`Self::plan`] the nodes that cannot be
    /// lowered ([`SessionError::obstacles`]). A model with problems never runs.
    ///
    /// # Errors
    /// If the file is not an ONNX model at all, or the options name unknown devices.
    pub fn survey(path: impl AsRef<Path>, config: SessionConfig) -> Result<Self, SessionError> {
        if compiled::is_compiled(path.as_ref()) {
            return Self::open(path, config);
        }
        let options = config.resolve();
        let (model, problems) = import::survey(path.as_ref(), &options.limits)?;
        Self::surveyed(model, problems, options)
    }

    /// Opens the ONNX model in `bytes`, which must not refer to external data.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(bytes: &[u8], config: SessionConfig) -> Result<Self, SessionError> {
        let options = config.resolve();
        within_memory(|| Self::surveyed(import::from_bytes_within(bytes, None, &options.limits)?, Vec::new(), options))
    }

    /// Opens a model that [`import`] has made.
    ///
    /// # Errors
    /// If the options name unknown devices.
    pub fn new(model: Model, config: SessionConfig) -> Result<Self, SessionError> {
        Self::surveyed(model, Vec::new(), config.resolve())
    }

    /// Opens a model that could be read only in part.
    pub(super) fn surveyed(
        model: Model,
        problems: Vec<ImportError>,
        mut options: ResolvedConfig,
    ) -> Result<Self, SessionError> {
        options.verify_split()?;
        let inventory = options.detected(detect)?;
        Ok(Self::on(inventory, model, problems, options))
    }

    /// Opens a model on devices that were already detected.
    pub(super) fn on(
        mut inventory: Inventory,
        model: Model,
        problems: Vec<ImportError>,
        mut options: ResolvedConfig,
    ) -> Self {
        let mut costs = std::mem::take(&mut options.costs);
        inventory.notes.extend(costs.settle(&inventory.fingerprint()));
        let (precision, note) = options.settled_precision(&inventory);
        inventory.notes.extend(note);
        let machine_devices = machine_devices(&inventory);
        options.constraints.split = options.constraints.split.map(|split| batch::located(split, &model));
        Self {
            inputs: ValueInfo::inputs(&model),
            outputs: ValueInfo::outputs(&model),
            pool: DevicePool::with_pinned(compute_devices(&inventory, precision), options.pinned),
            precision,
            weights: Arc::default(),
            budget: Budget::new(machine_devices.clone()),
            machine_devices,
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

    /// Returns the model as its file describes it.
    pub fn model(&self) -> &Model {
        &self.whole.model
    }

    /// Returns the inputs, by name, whose elements are so far known to decide shapes.
    pub fn deciding_inputs(&self) -> Vec<String> {
        self.whole.deciding.known().iter().cloned().collect()
    }

    /// Returns the problems of reading a model that [`Self::survey`] opened.
    pub fn problems(&self) -> &[ImportError] {
        &self.problems
    }

    /// Returns the model's inputs, in its order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// Returns the model's outputs, in its order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// Returns the devices.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the bytes that ready plans hold on each device, in the inventory's order; shared memory counts once.
    /// Plans that the caller holds ([`Prepared`]) count, too.
    pub fn held_bytes(&self) -> Vec<u64> {
        self.budget.held()
    }

    /// Returns the number of input-shape sets whose plan is ready or being made.
    pub fn ready_plans(&self) -> usize {
        self.prepared.len()
    }

    /// Returns the number of plans of later phases that are ready or being made: see [`Later`](super::Later).
    pub fn ready_phases(&self) -> usize {
        self.later_prepared.len()
    }

    /// The platform file that plans are for, if there is one.
    pub fn platform(&self) -> Option<&PlatformFile> {
        self.options.platform.as_ref()
    }

    /// Returns the number of plans made so far, with the plans of later phases.
    pub fn plans_made(&self) -> u64 {
        self.plans_made.load(Ordering::Relaxed)
    }

    /// Returns the present knowledge of the devices' costs.
    pub fn costs(&self) -> CostStore {
        lock(&self.costs).clone()
    }

    /// Replaces the knowledge of the devices' costs (default: the configuration's). Existing plans stay.
    pub fn replace_costs(&mut self, costs: CostStore) {
        let fingerprint = self.inventory.fingerprint();
        let mut costs = costs;
        for note in costs.settle(&fingerprint) {
            // Stores that are replaced again and again have the same notes.
            if !self.inventory.notes.contains(&note) {
                self.inventory.notes.push(note);
            }
        }
        self.costs = Mutex::new(costs);
    }

    /// Adds the costs that this session has learnt to a cost store file. Later sessions get them by
    /// [`SessionConfig::with_costs`].
    ///
    /// Additions of other processes stay in the file, and this session knows them afterwards.
    ///
    /// # Errors
    /// If the file is not a cost store or cannot be written.
    pub fn save_costs(&self, path: &Path) -> Result<(), StoreError> {
        let _alone = lock(&self.saving);
        // Runs can be planned and learned from while the file is written.
        let before = self.costs();
        let mut saved = before.clone();
        saved.save(path)?;
        let mut costs = lock(&self.costs);
        saved.catch_up(&before, &costs);
        *costs = saved;
        Ok(())
    }

    /// Measures every device without known rates, its links with the host, the extra time of reads between CPU devices,
    /// and the kernels of CPU devices.
    ///
    /// Takes about a second per device. Later plans use the results; existing plans stay unchanged.
    ///
    /// # Errors
    /// If a probe fails to run: models would fail, too.
    pub fn calibrate(&self) -> Result<(), SessionError> {
        self.calibrate_parts(&self.inventory)
    }

    /// Calibrates devices that are parts of this session's devices, as [`Self::calibrate`] does.
    pub fn calibrate_parts(&self, inventory: &Inventory) -> Result<(), SessionError> {
        let mut load = lock(&self.calibrating);
        let mut measured = lock(&self.costs).here().rates_only();
        let meanwhile = calibrate(inventory, &mut measured)?;
        *load = load.map(|load| meanwhile.map_or(load, |more| load.plus(more))).or(meanwhile);
        lock(&self.costs).here_mut().merge(&measured);
        Ok(())
    }

    /// Returns the load of the machine while this session measured its devices; `None` if all rates were known.
    ///
    /// On a busy machine the measured rates are too low, and predictions too long.
    pub fn calibration_load(&self) -> Option<Load> {
        *lock(&self.calibrating)
    }

    /// Adds the measurements of a profiled run of this session to the costs: times of nodes, of transfers, and of the
    /// run as a whole.
    ///
    /// A plan's first run counts as cold. Existing plans stay unchanged; [`Self::plan_with`] makes a plan with the new
    /// costs. If a model runs in phases, measurements of later phases are added, too, but the result describes the
    /// first phase.
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

    /// Returns the present machine with the present costs; calibrates it before, if the options require that.
    pub(super) fn machine_here(&self) -> Result<Machine, SessionError> {
        if self.options.calibrate {
            within_memory(|| self.calibrate())?;
        }
        Ok(Machine::present(&self.inventory, lock(&self.costs).here()).without(&self.lost.names()))
    }

    /// Returns the machine to plan for: the present machine, or that of the platform file.
    pub(super) fn machine(&self) -> Result<Machine, SessionError> {
        match &self.options.platform {
            None => self.machine_here(),
            Some(file) => Ok(Machine::described(file, &self.inventory, lock(&self.costs).here())?),
        }
    }
}
