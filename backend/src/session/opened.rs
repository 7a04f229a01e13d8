//! A session: a model, the devices, what is known of their costs, and one compiled plan per set of input shapes.

use super::calibration::calibrate;
use super::error::SessionError;
use super::inputs::{Inputs, Outputs};
use super::learning::{Learned, Lesson, learn};
use super::machine::{Machine, targets};
use super::options::SessionOptions;
use super::placing::Target;
use super::prepared::{Lowered, Planned, Prepared, devices, plan, problem, wish};
use super::random::random_tensor;
use crate::device::{Inventory, detect};
use crate::execute::{DevicePool, RunOptions, RunOutput};
use crate::import::{self, Dim, Input, Model};
use crate::lower::{LowerOptions, lower};
use crate::profile::CostStore;
use crate::program::Program;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use anabranch_placement::format::LoadedProblem;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model that can be run any number of times, from any number of threads (whose runs then follow each other).
///
/// The first run with new input shapes lowers, places and plans the model for them; later runs with the same shapes only
/// execute.
pub struct Session {
    model: Model,
    inventory: Inventory,
    pub(super) targets: Vec<Target>,
    /// Shared by all executors, so that a GPU is opened once.
    pub(super) pool: Arc<DevicePool>,
    pub(super) options: SessionOptions,
    costs: Mutex<CostStore>,
    lowered: Mutex<BTreeMap<Shapes, Arc<Lowered>>>,
    prepared: Mutex<BTreeMap<Shapes, Arc<Prepared>>>,
}

type Shapes = BTreeMap<String, Shape>;

/// A finished run.
pub struct Run {
    /// What the model made.
    pub outputs: Outputs,
    /// When what happened, and how much memory it took.
    pub measured: RunOutput,
    /// The plan that was followed.
    pub prepared: Arc<Prepared>,
    /// Whether it was the plan's first run, in which memory is touched and kernels are compiled for the first time.
    pub cold: bool,
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
        let (targets, pool, costs) = (targets(&inventory), devices(&inventory), Mutex::new(costs));
        let (lowered, prepared) = (Mutex::default(), Mutex::default());
        Ok(Self { model, inventory, targets, pool, options, costs, lowered, prepared })
    }

    /// The model's inputs, in its order.
    pub fn inputs(&self) -> &[Input] {
        &self.model.inputs
    }

    /// The devices.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// What is known of the devices' costs by now.
    pub fn costs(&self) -> CostStore {
        lock(&self.costs).clone()
    }

    /// Runs the model.
    ///
    /// # Errors
    /// If inputs are missing or do not fit the model, there is no plan for their shapes, or the run fails.
    pub fn run(&self, inputs: &Inputs) -> Result<Outputs, SessionError> {
        Ok(self.run_with(inputs, &RunOptions::default())?.outputs)
    }

    /// Runs the model and tells when what happened. With [`RunOptions::profile`] the measured times go into the costs.
    ///
    /// # Errors
    /// As [`Self::run`]; also if the run is cancelled or takes too long.
    pub fn run_with(&self, inputs: &Inputs, options: &RunOptions) -> Result<Run, SessionError> {
        self.run_prepared(&self.prepare(inputs)?, inputs, options)
    }

    /// Adds what a profiled run of this session measured to the costs: times of nodes, of transfers, and of the run as a whole. A
    /// plan's first run counts as cold. Plans that were made stay as they are; [`Self::plan_with`] makes one with what was learned.
    pub fn learn(&self, run: &Run) -> Learned {
        let lesson = Lesson {
            program: &run.prepared.program,
            plan: run.prepared.plan(),
            run: &run.measured,
            cold: run.cold,
            streams_alone: false,
            targets: &self.targets,
        };
        learn(lock(&self.costs).here_mut(), lesson)
    }

    /// Compiles the model for the shapes of these inputs, or finds it compiled.
    ///
    /// # Errors
    /// If shapes are missing or impossible, or there is no plan within the constraints.
    pub fn prepare(&self, inputs: &Inputs) -> Result<Arc<Prepared>, SessionError> {
        let shapes = shapes(inputs);
        let mut prepared = lock(&self.prepared);
        if let Some(found) = prepared.get(&shapes) {
            return Ok(Arc::clone(found));
        }
        let made = self.ready(&self.plan_with(inputs, &self.choice())?)?;
        prepared.insert(shapes, Arc::clone(&made));
        Ok(made)
    }

    /// The problem of placing the model for inputs of these shapes on these devices or those of the platform file, in
    /// seconds: nothing is placed.
    ///
    /// # Errors
    /// If shapes are missing or impossible, some node can run nowhere, or the platform file does not fit this machine.
    pub fn problem(&self, inputs: &Inputs) -> Result<LoadedProblem, SessionError> {
        problem(&*self.lowered(inputs)?, &self.machine()?, &self.options.wishes)
    }

    /// Places and plans the model for inputs of these shapes, on these devices or those of the platform file, and readies
    /// no device.
    ///
    /// # Errors
    /// As [`Self::prepare`]; also if the platform file does not fit this machine.
    pub fn plan(&self, inputs: &Inputs) -> Result<Planned, SessionError> {
        let (lowered, machine, choice) = (self.lowered(inputs)?, self.machine()?, self.choice());
        let wish = wish(&lowered, &machine, &choice)?;
        plan(&lowered, (&machine, &self.options.wishes), (&wish, &choice.plan))
    }

    /// The machine to place on.
    fn machine(&self) -> Result<Machine, SessionError> {
        match &self.options.platform {
            None => self.present(),
            Some(file) => Ok(Machine::imagined(file, &self.inventory, self.calibrated()?.here())?),
        }
    }

    /// The machine that is there.
    pub(super) fn present(&self) -> Result<Machine, SessionError> {
        Ok(Machine::present(&self.inventory, self.calibrated()?.here()))
    }

    /// The model lowered for the shapes of these inputs.
    pub(super) fn lowered(&self, inputs: &Inputs) -> Result<Arc<Lowered>, SessionError> {
        let input_shapes = shapes(inputs);
        let mut lowered = lock(&self.lowered);
        if let Some(found) = lowered.get(&input_shapes) {
            return Ok(Arc::clone(found));
        }
        self.check_names(inputs)?;
        let shapes = input_shapes.clone();
        let lowering = LowerOptions {
            dims: self.options.dims.clone(),
            input_shapes,
            fuse: self.options.fuse,
            ..LowerOptions::default()
        };
        let made = Arc::new(Lowered::new(lower(&self.model, &lowering)?));
        lowered.insert(shapes, Arc::clone(&made));
        Ok(made)
    }

    /// Fills the inputs that are not given with seeded random elements.
    ///
    /// # Errors
    /// If the shape of one is not known from the model, the given inputs and the options.
    pub fn fill_random(&self, inputs: Inputs, seed: u64) -> Result<Inputs, SessionError> {
        let mut filled = inputs.clone();
        let dims = self.bound_dims(&inputs);
        for input in self.model.inputs.iter().filter(|i| !i.optional && inputs.find(&i.name).is_none()) {
            let spec = TensorSpec::new(input.dtype, concrete(input, &dims)?);
            filled = filled.tensor(&input.name, random_tensor(&input.name, &spec, seed));
        }
        Ok(filled)
    }

    /// The sizes of symbols, from the options and the given inputs.
    fn bound_dims(&self, inputs: &Inputs) -> BTreeMap<String, usize> {
        let mut bound = self.options.dims.clone();
        for input in &self.model.inputs {
            let given = inputs.find(&input.name).map(|tensor| tensor.shape().dims());
            for (dim, size) in input.dims.iter().flatten().zip(given.unwrap_or(&[])) {
                if let Dim::Symbol(name) = dim {
                    bound.insert(name.clone(), *size);
                }
            }
        }
        bound
    }

    fn check_names(&self, inputs: &Inputs) -> Result<(), SessionError> {
        let unknown = inputs.iter().find(|(name, _)| !self.model.inputs.iter().any(|input| input.name == *name));
        match unknown {
            None => Ok(()),
            Some((name, _)) => Err(SessionError::UnknownInput {
                name: name.to_owned(),
                known: self.model.inputs.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The tensors in the program's order.
    pub(super) fn ordered(inputs: &Inputs, program: &Program) -> Result<Vec<Tensor>, SessionError> {
        let tensor = |value: &crate::program::ValueId| {
            let value = program.value(*value);
            let name = || value.name.clone();
            let expected = value.spec.to_string();
            match inputs.find(&value.name) {
                None => Err(SessionError::MissingInput { name: name(), expected }),
                Some(given) if *given.spec() != value.spec => {
                    Err(SessionError::Input { name: name(), given: given.spec().clone(), expected })
                }
                Some(given) => Ok(given.clone()),
            }
        };
        program.inputs.iter().map(tensor).collect()
    }

    /// The costs, after calibrating the devices that were not, if the options want it.
    fn calibrated(&self) -> Result<CostStore, SessionError> {
        let mut costs = lock(&self.costs);
        if self.options.calibrate {
            calibrate(&self.inventory, costs.here_mut())?;
        }
        Ok(costs.clone())
    }
}

fn shapes(inputs: &Inputs) -> Shapes {
    inputs.iter().map(|(name, tensor)| (name.to_owned(), tensor.shape().clone())).collect()
}

/// The shape of an input whose dimensions are all numbers or bound symbols.
fn concrete(input: &Input, bound: &BTreeMap<String, usize>) -> Result<Shape, SessionError> {
    let size = |dim: &Dim| match dim {
        Dim::Known(size) => Some(*size),
        Dim::Symbol(name) => bound.get(name).copied(),
        Dim::Unknown => None,
    };
    let dims: Option<Vec<usize>> = input.dims.as_ref().and_then(|dims| dims.iter().map(size).collect());
    dims.and_then(|dims| Shape::new(dims).ok()).ok_or_else(|| SessionError::UnknownShape {
        name: input.name.clone(),
        dims: input
            .dims
            .as_ref()
            .map_or("?".into(), |dims| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")),
    })
}

/// What a panicking thread left behind is whole here: every update is one insertion.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
