//! Compiled models: a lowered program, its weights and its plan in one file (`MODEL.anabranch`), from which a session runs without lowering or
//! planning anything.
//!
//! [`Session::compile`](crate::Session::compile) writes one, [`Session::open`](crate::Session::open) takes it like an ONNX file. It is made for input
//! shapes, a machine and a version of Anabranch: elsewhere the model is opened from its source, if that is there unchanged, or refused.
//!
//! A model that runs in phases is planned for its first phase. The rest of the model stands next to it (`rest`). A session lowers and plans the
//! rest when the first phase has run, as a session of the source does.
//!
//! What a file holds is material from elsewhere, like a model: all but its weights is verified by a checksum (`container`), and then judged from the
//! definitions (`check`, `graphs`, [`plan::check`](anabranch_plan::check())), since a checksum says nothing of who wrote it. Weights stay in the file, as those of
//! models do, and so does what the plan's kernels make of them: both are mapped. Unless the file's time of modification says that it is as it was
//! written, each is compared with a checksum of its own before it is first read; [`Session::verify_weights`](crate::Session::verify_weights) does so
//! at once and in any case.

#![forbid(unsafe_code)]

mod cache;
mod check;
mod container;
mod error;
mod graphs;
mod program;
mod rest;
mod settings;
mod source;

pub use cache::{Cache, Course, Kept};
pub use error::CompiledError;
pub(crate) use source::{Source, stamp};

use crate::SessionOptions;
use anabranch_base::files;
use anabranch_device::{Inventory, drivers};
use anabranch_ir::constant::Constant;
use anabranch_ir::program::Program;
use anabranch_kernels::TensorSpec;
use anabranch_kernels::cpu::Layout;
use anabranch_onnx::import::{Dim, Input, Kind, Labels, Model, Output, ValueIndex};
use anabranch_onnx::lower::Rest;
use anabranch_planning::{KeptPlan, PlanChoice};
use container::Container;
use program::{Gathered, StoredProgram};
use rest::StoredRest;
use serde::{Deserialize, Serialize};
use settings::Settings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What made a compiled model, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct About {
    /// The version of Anabranch.
    pub version: String,
    /// What else tells one build from another, as the one who compiled it said; it decides nothing.
    pub build: String,
    /// The version of the kernels.
    pub kernels: u32,
    /// The machine, as the cost store knows it.
    pub machine: String,
    /// The devices: name and what its costs are filed under.
    pub devices: Vec<(String, String)>,
    /// The strategy that placed the nodes.
    pub strategy: String,
    /// Nodes of the lowered program.
    pub nodes: usize,
    /// Operators of the model that are lowered and planned in each run, because their shapes follow from computed values.
    pub later: usize,
    /// Bytes of all constants.
    pub weights: u64,
    /// The inputs that decide shapes: it is for the elements alone that they had when it was compiled.
    pub fixed: Vec<String>,
    /// The model's file; none if it was given as bytes.
    pub source: Option<PathBuf>,
}

/// What is compiled, and for what.
pub(crate) struct Compilation<'a> {
    pub(crate) model: &'a Model,
    pub(crate) file: Option<&'a Path>,
    pub(crate) options: &'a SessionOptions,
    pub(crate) inventory: &'a Inventory,
    pub(crate) build: &'a str,
    /// In the model's order.
    pub(crate) inputs: Vec<(String, TensorSpec)>,
    /// As it was lowered.
    pub(crate) program: &'a Program,
    /// The rest of the model after its program; `None` if the program is the whole model.
    pub(crate) rest: Option<&'a Rest>,
    /// Rows of the tables that inputs choose from, by the inputs' names.
    pub(crate) tables: BTreeMap<String, u64>,
    /// What its plan's kernels keep of constants.
    pub(crate) packed: Vec<(&'a Constant, &'a Layout)>,
    pub(crate) plan: KeptPlan,
}

/// All of a compiled model but its constants.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    about: About,
    source: Option<Source>,
    settings: Settings,
    /// What decided which GPUs were found, where none was.
    without_gpus: Option<String>,
    name: String,
    producer: String,
    opsets: BTreeMap<String, i64>,
    inputs: Vec<(String, TensorSpec)>,
    /// Rows of the tables that inputs choose from, by name: random inputs keep within them.
    tables: BTreeMap<String, u64>,
    /// Labels of outputs, by name.
    labels: BTreeMap<String, Labels>,
    program: StoredProgram,
    rest: Option<StoredRest>,
    plan: KeptPlan,
}

/// An opened compiled model, of which the program is not checked yet.
pub(crate) struct CompiledFile {
    path: PathBuf,
    container: Container,
    description: Description,
}

/// A compiled model that is ready to be run.
pub(crate) struct Compiled {
    pub(crate) file: PathBuf,
    pub(crate) about: About,
    /// What it was made of, if that is known.
    pub(crate) source: Option<Source>,
    pub(crate) inputs: BTreeMap<String, TensorSpec>,
    /// Rows of the tables that inputs choose from, by the inputs' names.
    pub(crate) tables: BTreeMap<String, u64>,
    pub(crate) program: Program,
    /// The rest of the model after its program; `None` if the program is the whole model.
    pub(crate) rest: Option<Arc<Rest>>,
    /// All that the file holds.
    pub(crate) constants: Vec<Constant>,
    pub(crate) plan: KeptPlan,
    /// How the plan was made.
    pub(crate) choice: PlanChoice,
}

/// Whether a file is a compiled model: by its content, whatever its name.
pub fn is_compiled(path: &Path) -> bool {
    container::is_one(path)
}

impl Compilation<'_> {
    /// Writes the compiled model; a file that is there is replaced as a whole. Equal compilations give equal files.
    ///
    /// # Errors
    /// If the source or a constant cannot be read, or the file cannot be written.
    pub(crate) fn write(self, path: &Path) -> Result<About, CompiledError> {
        let refused = |error: String| CompiledError::io(path, error);
        let mut gathered = Gathered::default();
        let names = self.inputs.iter().map(|(name, _)| name.as_str());
        let rest = self.rest.map(|rest| StoredRest::of(rest, names, &mut gathered)).transpose().map_err(refused)?;
        let program = StoredProgram::of(self.program, &self.packed, &mut gathered).map_err(refused)?;
        // A path that cannot be written down is not remembered.
        let source = self
            .file
            .map(|file| Source::of(file, &self.options.limits))
            .transpose()
            .map_err(refused)?
            .filter(Source::is_text);
        let about = About {
            version: env!("CARGO_PKG_VERSION").into(),
            build: self.build.into(),
            kernels: anabranch_kernels::VERSION,
            machine: self.inventory.fingerprint(),
            devices: devices(self.inventory),
            strategy: self.options.strategy.to_string(),
            nodes: self.program.nodes.len(),
            later: self.rest.map_or(0, Rest::operators),
            weights: gathered.held.len() as u64 + gathered.bytes,
            fixed: self.program.fixed.keys().cloned().collect(),
            source: source.as_ref().map(|source| source.model().to_owned()),
        };
        let Model { name, producer, opsets, outputs, .. } = self.model;
        let labels = outputs.iter().filter_map(|output| Some((output.name.clone(), output.labels.clone()?)));
        let description = Description {
            about: about.clone(),
            source,
            settings: Settings::of(self.options),
            without_gpus: self.inventory.drivers.clone().filter(|_| self.inventory.gpus.is_empty()),
            name: name.clone(),
            producer: producer.clone(),
            opsets: opsets.clone(),
            inputs: self.inputs,
            tables: self.tables,
            labels: labels.collect(),
            program,
            rest,
            plan: self.plan,
        };
        let mut bytes = Vec::new();
        ciborium::into_writer(&description, &mut bytes).map_err(|error| refused(error.to_string()))?;
        let write = |out: &mut dyn std::io::Write| {
            container::write(out, &bytes, &gathered.held, gathered.size(), |put| gathered.emit(put))
        };
        files::write_sealed(path, write).map_err(|error| CompiledError::io(path, error))?;
        Ok(about)
    }
}

/// The devices of an inventory, in its order.
fn devices(inventory: &Inventory) -> Vec<(String, String)> {
    inventory.devices().map(|device| (device.name().to_owned(), device.key().to_owned())).collect()
}

impl CompiledFile {
    /// Opens a compiled model and verifies all but its weights.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is of another format.
    pub(crate) fn open(path: &Path) -> Result<Self, CompiledError> {
        let container = Container::open(path)?;
        let description = ciborium::from_reader(container.description());
        let description =
            description.map_err(|error| CompiledError::damaged(path, format!("cannot be understood: {error}")))?;
        Ok(Self { path: path.to_owned(), container, description })
    }

    /// What of the options a session of it has, and whether its plan can be of use with them.
    ///
    /// # Errors
    /// If the options want another program.
    pub(crate) fn adopted(&self, options: SessionOptions) -> Result<(SessionOptions, bool), CompiledError> {
        self.description.settings.adopted(&self.path, options)
    }

    /// Whether no GPU would be found now, with the same options: none was when it was compiled, and no driver and no device has come since.
    pub(crate) fn knows_no_gpu(&self) -> bool {
        self.description.without_gpus.is_some() && self.description.without_gpus == drivers()
    }

    /// Why it is of no use here, if it is of none: another version, kernels, machine or, where its plan is wanted (`planned`), other devices.
    pub(crate) fn unfit(&self, inventory: &Inventory, planned: bool) -> Option<String> {
        let About { version, kernels, machine, devices, .. } = &self.description.about;
        let here = (env!("CARGO_PKG_VERSION"), anabranch_kernels::VERSION, inventory.fingerprint());
        if version != here.0 {
            Some(format!("was compiled by version {version} of Anabranch, and this is {}", here.0))
        } else if *kernels != here.1 {
            Some(format!("was compiled for version {kernels} of the kernels, and these are {}", here.1))
        } else if *machine != here.2 {
            Some(format!("was compiled on another machine ({machine}; this is {})", here.2))
        } else if planned && *devices != self::devices(inventory) {
            let names = devices.iter().map(|(name, key)| format!("{name} ({key})")).collect::<Vec<_>>().join(", ");
            Some(format!("was compiled for other devices than are here: {names}"))
        } else {
            None
        }
    }

    /// The model that it was compiled from, if that is there and the same. Reads it.
    pub(crate) fn source(&self) -> Option<&Path> {
        self.description.source.as_ref().filter(|source| source.is_unchanged()).map(Source::model)
    }

    /// Whether it was compiled from this source.
    fn is_of(&self, source: &Source) -> bool {
        self.description.source.as_ref() == Some(source)
    }

    /// Its inputs and outputs as a model without operators.
    pub(crate) fn model(&self) -> Model {
        let Description { name, producer, opsets, inputs, labels, program, rest, .. } = &self.description;
        let known = |spec: &TensorSpec| Some(spec.shape.dims().iter().map(|dim| Dim::Known(*dim)).collect());
        let mut values: Vec<String> = inputs.iter().map(|(name, _)| name.clone()).collect();
        let input = |(at, (name, spec)): (usize, &(String, TensorSpec))| Input {
            name: name.clone(),
            value: ValueIndex(at as u32),
            kind: Kind::default(),
            dtype: spec.dtype,
            dims: known(spec),
            optional: false,
        };
        let inputs = inputs.iter().enumerate().map(input).collect();
        let declared = match rest {
            Some(rest) => rest.outputs().to_vec(),
            None => program.outputs(),
        };
        let mut outputs = Vec::new();
        for output in declared {
            let value = ValueIndex(values.len() as u32);
            values.push(output.name.clone());
            let labels = labels.get(&output.name).cloned();
            outputs.push(Output { value, labels, ..output });
        }
        let (nodes, initializers) = (Vec::new(), BTreeMap::new());
        let (name, producer, opsets) = (name.clone(), producer.clone(), opsets.clone());
        Model { name, producer, opsets, values: values.into(), inputs, outputs, nodes, initializers }
    }

    /// The program with its plan.
    ///
    /// # Errors
    /// If it is none that lowering could have made.
    pub(crate) fn read(self) -> Result<Compiled, CompiledError> {
        let shell = self.model();
        let Self { path, container, description } = self;
        let Description { about, source, settings, inputs, tables, program, rest, plan, .. } = description;
        let wrong = |fault: String| CompiledError::damaged(&path, format!("its program is wrong: {fault}"));
        let names = rest.iter().flat_map(StoredRest::names);
        let constants = program.constants(&container, names).map_err(wrong)?;
        let rest = rest.map(|rest| rest.read(shell, &constants)).transpose().map_err(wrong)?.map(Arc::new);
        let program = program.program(&constants).map_err(wrong)?;
        if rest.as_ref().is_some_and(|rest| rest.made.len() != program.outputs.len()) {
            return Err(wrong("it makes more or less than is read of it".into()));
        }
        let given: BTreeMap<_, _> = inputs.into_iter().collect();
        let wanted = program.inputs.iter().map(|input| program.value(*input));
        let unknown = wanted.into_iter().find(|value| given.get(&value.name) != Some(&value.spec));
        match unknown {
            Some(value) => Err(CompiledError::damaged(&path, format!("its input {:?} is not listed", value.name))),
            None => {
                let (inputs, choice) = (given, settings.choice());
                Ok(Compiled { file: path, about, source, inputs, tables, program, rest, constants, plan, choice })
            }
        }
    }
}

#[cfg(test)]
mod tests;
