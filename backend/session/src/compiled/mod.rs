//! Compiled models: a lowered program, its weights and its plan in one file (`MODEL.anabranch`). A session runs it
//! without lowering or planning.
//!
//! [`Session::compile`](crate::Session::compile) writes a compiled model, [`Session::open`](crate::Session::open) opens
//! it like an ONNX file. It is made for input shapes, a machine and a version of Anabranch. Elsewhere the model is
//! opened from its source, if that is unchanged, or rejected.
//!
//! A model that runs in phases is planned for its first phase. The rest of the model is stored with it (`rest`). A
//! session lowers and plans the rest when the first phase has run, as a session of the source does.
//!
//! The content of a file is foreign material, like a model. A checksum covers everything except the weights
//! (`container`), but does not say who wrote the file. The content is therefore checked from the definitions (`check`,
//! `graphs`, [`plan::check`](anabranch_plan::check())). Weights stay in the file, as those of models do, and so do the
//! forms that the plan's kernels make of them: both are mapped. Unless the file's modification time shows that it is
//! unchanged, each weight is compared with its own checksum before its first use.
//! [`Session::verify_weights`](crate::Session::verify_weights) does so at once and in any case.

#![forbid(unsafe_code)]

mod cache;
mod check;
mod container;
mod continuation;
mod error;
mod graphs;
mod program;
mod settings;
mod source;

pub use cache::{Cache, CacheOutcome, CachedSession};
pub use error::CompiledError;
pub(crate) use settings::stated;
pub(crate) use source::{Source, stamp};

use crate::{ResolvedConfig, SessionConfig};
use anabranch_base::files;
use anabranch_device::{Inventory, drivers};
use anabranch_ir::constant::Constant;
use anabranch_ir::program::Program;
use anabranch_kernels::TensorSpec;
use anabranch_kernels::cpu::Layout;
use anabranch_onnx::import::{Dim, Input, Kind, Labels, Model, Output, ValueIndex};
use anabranch_onnx::lower::Continuation;
use anabranch_plan::plan_file::PlanFile;
use anabranch_planning::PlanChoice;
use container::Container;
use continuation::StoredContinuation;
use program::{Gathered, StoredProgram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Origin and target of a compiled model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct About {
    /// Version of Anabranch that compiled the model.
    pub version: String,
    /// Further identification of the build, as given at compilation; it decides nothing.
    pub build: String,
    /// Version of the kernels.
    pub kernels: u32,
    /// Machine, as the cost store identifies it.
    pub machine: String,
    /// Devices: name, and key of its costs.
    pub devices: Vec<(String, String)>,
    /// Strategy that placed the nodes.
    pub strategy: String,
    /// Number of nodes of the lowered program.
    pub nodes: usize,
    /// Number of operators that are lowered and planned in each run, because their shapes depend on computed values.
    pub later: usize,
    /// Bytes of all constants.
    pub weights: u64,
    /// Inputs that decide shapes; the compiled model holds only for the elements that they had at compilation.
    pub fixed: Vec<String>,
    /// File of the model; `None` if it was given as bytes.
    pub source: Option<PathBuf>,
}

/// Inputs of a compilation.
pub(crate) struct Compilation<'a> {
    pub(crate) model: &'a Model,
    pub(crate) file: Option<&'a Path>,
    pub(crate) options: &'a ResolvedConfig,
    pub(crate) inventory: &'a Inventory,
    pub(crate) build: &'a str,
    /// Inputs in the model's order.
    pub(crate) inputs: Vec<(String, TensorSpec)>,
    /// Program as it was lowered.
    pub(crate) program: &'a Program,
    /// The rest of the model after its program; `None` if the program is the whole model.
    pub(crate) rest: Option<&'a Continuation>,
    /// Number of rows of the tables that inputs index, by the inputs' names.
    pub(crate) tables: BTreeMap<String, u64>,
    /// Forms of constants that the plan's kernels keep.
    pub(crate) packed: Vec<(&'a Constant, &'a Layout)>,
    pub(crate) plan: PlanFile,
}

/// Everything in a compiled model except its constants.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    about: About,
    source: Option<Source>,
    #[serde(with = "settings::json")]
    settings: SessionConfig,
    /// Facts that decided which GPUs were found, if none was found.
    without_gpus: Option<String>,
    name: String,
    producer: String,
    opsets: BTreeMap<String, i64>,
    inputs: Vec<(String, TensorSpec)>,
    /// Number of rows of the tables that inputs index, by name: random inputs stay within them.
    tables: BTreeMap<String, u64>,
    /// Labels of outputs, by name.
    labels: BTreeMap<String, Labels>,
    program: StoredProgram,
    rest: Option<StoredContinuation>,
    plan: PlanFile,
}

/// An opened compiled model whose program is not checked yet.
pub(crate) struct CompiledFile {
    path: PathBuf,
    container: Container,
    description: Description,
}

/// A compiled model that is ready to run.
pub(crate) struct Compiled {
    pub(crate) file: PathBuf,
    pub(crate) about: About,
    /// Source from which it was compiled, if known.
    pub(crate) source: Option<Source>,
    /// Options with which it was compiled.
    pub(crate) settings: SessionConfig,
    pub(crate) inputs: BTreeMap<String, TensorSpec>,
    /// Number of rows of the tables that inputs index, by the inputs' names.
    pub(crate) tables: BTreeMap<String, u64>,
    pub(crate) program: Program,
    /// The rest of the model after its program; `None` if the program is the whole model.
    pub(crate) rest: Option<Arc<Continuation>>,
    /// All constants in the file.
    pub(crate) constants: Vec<Constant>,
    pub(crate) plan: PlanFile,
    /// Choice with which the plan was made.
    pub(crate) choice: PlanChoice,
}

/// Whether a file is a compiled model, by its content, not its name.
pub fn is_compiled(path: &Path) -> bool {
    container::is_one(path)
}

impl Compilation<'_> {
    /// Writes the compiled model; an existing file is replaced as a whole. Equal compilations give equal files.
    ///
    /// # Errors
    /// If the source or a constant cannot be read, or the file cannot be written.
    pub(crate) fn write(self, path: &Path) -> Result<About, CompiledError> {
        let refused = |error: String| CompiledError::io(path, error);
        let mut gathered = Gathered::default();
        let names = self.inputs.iter().map(|(name, _)| name.as_str());
        let rest =
            self.rest.map(|rest| StoredContinuation::of(rest, names, &mut gathered)).transpose().map_err(refused)?;
        let program = StoredProgram::of(self.program, &self.packed, &mut gathered).map_err(refused)?;
        // A path that is not valid text is not stored.
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
            later: self.rest.map_or(0, Continuation::operators),
            weights: gathered.held.len() as u64 + gathered.bytes,
            fixed: self.program.fixed.keys().cloned().collect(),
            source: source.as_ref().map(|source| source.model().to_owned()),
        };
        let Model { name, producer, opsets, outputs, .. } = self.model;
        let labels = outputs.iter().filter_map(|output| Some((output.name.clone(), output.labels.clone()?)));
        let description = Description {
            about: about.clone(),
            source,
            settings: settings::of(self.options),
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

/// Returns the devices of an inventory, in its order.
fn devices(inventory: &Inventory) -> Vec<(String, String)> {
    inventory.devices().map(|device| (device.name().to_owned(), device.key().to_owned())).collect()
}

impl CompiledFile {
    /// Opens a compiled model and verifies everything except its weights.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or has another format.
    pub(crate) fn open(path: &Path) -> Result<Self, CompiledError> {
        let container = Container::open(path)?;
        let description = ciborium::from_reader(container.description());
        let description = description
            .map_err(|error| CompiledError::damaged(path, format!("its description is invalid: {error}")))?;
        Ok(Self { path: path.to_owned(), container, description })
    }

    /// Returns the options of a session of this model, and whether its plan is usable with them.
    ///
    /// # Errors
    /// If the options require another program.
    pub(crate) fn adopted(&self, config: SessionConfig) -> Result<(ResolvedConfig, bool), CompiledError> {
        settings::adopted(&self.path, &self.description.settings, config)
    }

    /// Checks that the devices which its own options name are there. Options that the caller gives (`given`) are the
    /// caller's.
    ///
    /// # Errors
    /// If one is missing.
    pub(crate) fn verify_devices(
        &self,
        given: &SessionConfig,
        options: &ResolvedConfig,
        inventory: &Inventory,
    ) -> Result<(), CompiledError> {
        match settings::missing_device(given, options, inventory) {
            Some(problem) => Err(self.stale(problem)),
            None => Ok(()),
        }
    }

    /// Creates the error of an option of its own that does not fit the present devices.
    pub(crate) fn stale(&self, problem: impl std::fmt::Display) -> CompiledError {
        CompiledError::elsewhere(&self.path, format!("its own options do not fit the present devices: {problem}"))
    }

    /// Whether no GPU would be found now with the same options: there was no GPU at compilation, and drivers and
    /// devices are unchanged.
    pub(crate) fn knows_no_gpu(&self) -> bool {
        self.description.without_gpus.is_some() && self.description.without_gpus == drivers()
    }

    /// Returns the reason that the file is not usable here, if any: another version, kernels, machine or, if its plan
    /// is needed (`planned`), other devices.
    pub(crate) fn unfit(&self, inventory: &Inventory, planned: bool) -> Option<String> {
        let About { version, kernels, machine, devices, .. } = &self.description.about;
        let here = (env!("CARGO_PKG_VERSION"), anabranch_kernels::VERSION, inventory.fingerprint());
        if version != here.0 {
            Some(format!("was compiled by version {version} of Anabranch, but this is {}", here.0))
        } else if *kernels != here.1 {
            Some(format!("was compiled for version {kernels} of the kernels, but these are version {}", here.1))
        } else if *machine != here.2 {
            Some(format!("was compiled on another machine ({machine}; this is {})", here.2))
        } else if planned && *devices != self::devices(inventory) {
            let names = devices.iter().map(|(name, key)| format!("{name} ({key})")).collect::<Vec<_>>().join(", ");
            Some(format!("was compiled for the devices {names}, but this machine has others"))
        } else {
            None
        }
    }

    /// Returns the division of the batch with which it was compiled, if there is one.
    pub(crate) fn split(&self) -> Option<String> {
        self.description.settings.split.as_ref().map(ToString::to_string)
    }

    /// Returns the model's source, if it is there and unchanged. Reads it.
    pub(crate) fn source(&self) -> Option<&Path> {
        self.description.source.as_ref().filter(|source| source.is_unchanged()).map(Source::model)
    }

    /// Whether it was compiled from this source.
    fn is_of(&self, source: &Source) -> bool {
        self.description.source.as_ref() == Some(source)
    }

    /// Returns its inputs and outputs as a model without operators.
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

    /// Returns the program with its plan.
    ///
    /// # Errors
    /// If it is not a program that lowering could have made.
    pub(crate) fn read(self) -> Result<Compiled, CompiledError> {
        let shell = self.model();
        let Self { path, container, description } = self;
        let Description { about, source, settings, inputs, tables, program, rest, plan, .. } = description;
        let wrong = |fault: String| CompiledError::damaged(&path, format!("its program is wrong: {fault}"));
        let names = rest.iter().flat_map(StoredContinuation::names);
        let constants = program.constants(&container, names).map_err(wrong)?;
        let rest = rest.map(|rest| rest.read(shell, &constants)).transpose().map_err(wrong)?.map(Arc::new);
        let program = program.program(&constants).map_err(wrong)?;
        if rest.as_ref().is_some_and(|rest| rest.made.len() != program.outputs.len()) {
            return Err(wrong("its outputs differ from the values that are read".into()));
        }
        let given: BTreeMap<_, _> = inputs.into_iter().collect();
        let wanted = program.inputs.iter().map(|input| program.value(*input));
        let unknown = wanted.into_iter().find(|value| given.get(&value.name) != Some(&value.spec));
        match unknown {
            Some(value) => Err(CompiledError::damaged(&path, format!("its input {:?} is not listed", value.name))),
            None => {
                let (inputs, choice) = (given, settings.clone().resolve().choice());
                let file = path;
                Ok(Compiled { file, about, source, settings, inputs, tables, program, rest, constants, plan, choice })
            }
        }
    }
}

#[cfg(test)]
mod tests;
