//! Sessions of compiled models: writing, fallback to the source, and the replacement of lowering and planning.

use super::config::{ResolvedConfig, SessionConfig};
use super::error::{InputError, SessionError, within_memory};
use super::inputs::Inputs;
use super::open::Session;
use super::plausible;
use crate::compiled::{self, About, Compilation, Compiled, CompiledError, CompiledFile, Source};
use anabranch_base::error_kind::ErrorKind;
use anabranch_device::{Inventory, detect, detect_cpus};
use anabranch_ir::constant::{Constant, ConstantError};
use anabranch_ir::program::{Node, Program};
use anabranch_kernels::op::Op;
use anabranch_onnx::import;
use anabranch_onnx::lower::Continuation;
use anabranch_planning::{Constraints, Lowered, Machine, PlanChoice, Planned, Planner, Strategy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Program and plan that replace the graph in a session of a compiled model.
pub(super) struct Precompiled {
    compiled: Compiled,
    program: Arc<Program>,
    /// Whether devices and constraints are those of its plan.
    same: bool,
    /// Whether the batch is divided among devices in the program.
    is_divided: bool,
}

impl Session {
    /// Compiles the model for inputs like these, and writes it to a file, which [`Self::open`] opens without lowering
    /// or planning.
    ///
    /// `build` is stored for information. If the model runs in phases, the file has the plan of the first phase, and
    /// the operators of later phases as they are.
    ///
    /// # Errors
    /// As [`Self::prepare`]; if the model is compiled already, or is planned for devices of a platform file; and if the
    /// file cannot be written.
    pub fn compile(&self, inputs: &Inputs, path: &Path, build: &str) -> Result<About, SessionError> {
        let refused = |problem: String| SessionError::from(CompiledError::io(path, problem));
        if self.precompiled.is_some() {
            let source = self.compiled().and_then(|about| about.source.as_ref());
            let source = source.map_or_else(String::new, |source| format!(", {}", source.display()));
            return Err(refused(format!("the model is compiled already; name its source{source}")));
        }
        if self.options.platform.is_some() {
            return Err(refused(
                "a model cannot be compiled for the devices of a platform file; leave the platform out".into(),
            ));
        }
        if self.source.as_ref().is_some_and(|(model, stamp)| compiled::stamp(model) != *stamp) {
            return Err(refused("the model's file has changed since it was opened; open it again".into()));
        }
        if let Some(value) = self.inputs().iter().chain(self.outputs()).find(|value| !value.kind().is_tensor()) {
            return Err(refused(format!(
                "`{value}` is not a tensor, but a compiled model has only tensors; run the model itself"
            )));
        }
        within_memory(|| {
            let (lowered, machine) = (self.lowered(&self.whole, inputs)?, self.machine_here()?);
            let (planner, choice) = (self.planner(&lowered, &machine), self.choice());
            let planned = planner.plan(&choice)?;
            // A divided program needs no division any more.
            let planner = planner.of(&planned);
            let lowered = planner.lowered;
            let plan = planned.kept(&choice.plan);
            let again = planner.restore(&plan, &choice)?;
            if !again.is_same_plan(&planned) || again.plan().memory() != planned.plan().memory() {
                return Err(refused(
                    "the plan changes when it is stored, which is a bug in Anabranch; please report it".into(),
                ));
            }
            let order = self.whole.model.inputs.iter();
            let given = order.filter_map(|input| Some((input.name.clone(), inputs.given(&input.name)?.spec().clone())));
            let shared = planned.plan().memory().devices().iter().flat_map(|device| &device.shared);
            let packed = shared.filter_map(|kept| planned.program.constant(kept.value).zip(kept.layout.as_ref()));
            let compilation = Compilation {
                model: &self.whole.model,
                file: self.source.as_ref().map(|(model, _)| model.as_path()),
                options: &self.options,
                inventory: &self.inventory,
                build,
                inputs: given.collect(),
                program: &lowered.program,
                rest: lowered.rest.as_deref(),
                tables: plausible::tables(&self.whole.model),
                packed: packed.collect(),
                plan,
            };
            Ok(compilation.write(path)?)
        })
    }

    /// Opens a compiled model. If it is not usable here, opens its source, if that is unchanged, with a note.
    pub(super) fn open_compiled(path: &Path, config: SessionConfig) -> Result<Self, SessionError> {
        let file = CompiledFile::open(path)?;
        let given = config.clone();
        let (mut options, same) = file.adopted(config)?;
        options.verify_split()?;
        // No graphics driver is loaded if it would find nothing.
        let known = if same && file.knows_no_gpu() { options.detected(detect_cpus).ok() } else { None };
        let inventory = match known.map_or_else(|| options.detected(detect), Ok) {
            Ok(inventory) => inventory,
            Err(error) if given.clone().resolve().detected(detect).is_ok() => return Err(file.stale(error).into()),
            Err(error) => return Err(error.into()),
        };
        file.verify_devices(&given, &options, &inventory)?;
        let mut session = Self::on(inventory, file.model(), Vec::new(), options.clone());
        // A file must not raise the limits beyond the present memory.
        let host = session.inventory.host.memory;
        let is_beyond = session.inventory.cpus.iter().any(|cpu| cpu.memory > host);
        let beyond = is_beyond.then(|| "was compiled for more memory than this machine has".to_owned());
        // The stored program is divided among the devices of its options.
        let divided = file.split().filter(|_| !same);
        let divided = divided.map(|split| format!("was compiled with the split {split} and other options"));
        if let Some(why) = file.unfit(&session.inventory, same).or(beyond) {
            return Self::open_source(path, &file, &why, options);
        }
        if let Some(why) = divided {
            if file.source().is_some() {
                return Self::open_source(path, &file, &why, options);
            }
            session.inventory.notes.push(format!("{} {why}: its program stays divided", path.display()));
        }
        let is_divided = file.split().is_some();
        if is_divided {
            // The stored program is the divided one.
            session.options.constraints.split = None;
        }
        let mut compiled = file.read()?;
        let of_units = |node: &Node| matches!(&node.spec.op, Op::MatMul(op) if !op.precision.is_full());
        if session.precision.is_full() && compiled.program.nodes.iter().any(of_units) {
            let why = format!("was compiled for products in {}, which these devices do not have", options.precision);
            return Self::open_source(path, &CompiledFile::open(path)?, &why, options);
        }
        let program = Arc::new(std::mem::take(&mut compiled.program));
        session.precompiled = Some(Precompiled { compiled, program, same, is_divided });
        Ok(session)
    }

    fn open_source(path: &Path, file: &CompiledFile, why: &str, options: ResolvedConfig) -> Result<Self, SessionError> {
        let Some(source) = file.source() else {
            let text = format!("{why}, and its source model is gone or has changed");
            return Err(CompiledError::elsewhere(path, text).into());
        };
        let stamp = compiled::stamp(source);
        let mut session = Self::surveyed(import::load_within(source, &options.limits)?, Vec::new(), options)?;
        session.source = Some((source.to_owned(), stamp));
        let (name, source) = (path.display(), source.display());
        session.inventory.notes.push(format!(
            "{name} {why}: the model is lowered and planned again from {source}; compile it again for this \
             machine with `anabranch compile`"
        ));
        Ok(session)
    }

    /// Returns the origin of the model, if it is a compiled model.
    pub fn compiled(&self) -> Option<&About> {
        self.precompiled.as_ref().map(|precompiled| &precompiled.compiled.about)
    }

    /// Returns the options with which a compiled model was made and that differ from their defaults, by the names of
    /// [`SETTINGS`](crate::SETTINGS); empty for other models.
    pub fn compiled_settings(&self) -> BTreeMap<String, Value> {
        let settings = self.precompiled.as_ref().map(|precompiled| &precompiled.compiled.settings);
        settings.map_or_else(BTreeMap::new, compiled::stated)
    }

    /// Returns the open file, if it is a compiled model.
    pub fn compiled_file(&self) -> Option<&Path> {
        self.precompiled.as_ref().map(|precompiled| precompiled.compiled.file.as_path())
    }

    /// Reads all weights of a compiled model and compares them with their checksums.
    ///
    /// Otherwise each weight is compared before its first use, and only if the file's modification time shows that it
    /// was modified or copied. Does nothing for other models, which have no checksums.
    ///
    /// # Errors
    /// If a weight differs from what was written, or cannot be read.
    pub fn verify_weights(&self) -> Result<(), ConstantError> {
        self.constants().for_each(Constant::doubt);
        self.constants().try_for_each(Constant::verify_all)
    }

    /// Verifies the weights like [`Self::verify_weights`], unless the file's modification time shows that they are
    /// unchanged.
    pub(crate) fn verify_doubtful_weights(&self) -> Result<(), ConstantError> {
        self.constants().try_for_each(Constant::verify_all)
    }

    /// Constants of a compiled model.
    fn constants(&self) -> impl Iterator<Item = &Constant> {
        self.precompiled.iter().flat_map(|precompiled| &precompiled.compiled.constants)
    }

    /// Whether the source files of a compiled model are unchanged, if they are known. Reads them.
    pub fn has_source(&self) -> Option<bool> {
        self.precompiled.as_ref()?.compiled.source.as_ref().map(Source::is_unchanged)
    }

    /// Returns the plan of a phase that `choice` makes here and now: the compiled plan, if it is for this phase and
    /// choice.
    pub(super) fn planned(&self, lowered: &Lowered, choice: &PlanChoice) -> Result<Planned, SessionError> {
        if let Some(precompiled) = self.precompiled.as_ref().filter(|known| known.is_of(lowered, choice))
            && self.lost.names().is_empty()
        {
            // Devices are not calibrated for an existing plan.
            let machine = Machine::present(&self.inventory, self.costs().here());
            match self.planner(lowered, &machine).restore(&precompiled.compiled.plan, choice) {
                // The devices may have less memory now.
                Err(error) if error.kind() == ErrorKind::Memory => {}
                // It says nothing of the file.
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error.into()),
                Err(error) => return Err(CompiledError::elsewhere(&precompiled.compiled.file, error).into()),
                Ok(planned) => return Ok(planned),
            }
        }
        let machine = self.machine_here()?;
        let planner = self.planner(lowered, &machine);
        match &self.precompiled {
            Some(precompiled) if precompiled.is_divided && choice.strategy == Strategy::Split => {
                // The parts of the stored program are nodes, which stay on their devices.
                let constraints = precompiled.with_parts(planner.constraints, &self.inventory);
                let free = PlanChoice { strategy: Strategy::default(), ..choice.clone() };
                let planned = Planner { constraints: &constraints, ..planner }.plan(&free)?;
                Ok(planned.named(&choice.strategy.to_string()))
            }
            _ => Ok(planner.plan(choice)?),
        }
    }
}

impl Precompiled {
    /// Returns the constraints with pins of each part's nodes, whose names end with their device's.
    fn with_parts(&self, constraints: &Constraints, inventory: &Inventory) -> Constraints {
        let devices = inventory.cpus.iter().map(|cpu| &cpu.name).chain(inventory.gpus.iter().map(|gpu| &gpu.name));
        let parts = devices.map(|device| (format!("@{device}"), device));
        let present = parts.filter(|(end, _)| self.program.nodes.iter().any(|node| node.name.ends_with(end.as_str())));
        present.fold(constraints.clone(), |with, (end, device)| with.with_pin(format!("*{end}"), device.clone()))
    }

    fn is_of(&self, lowered: &Lowered, choice: &PlanChoice) -> bool {
        self.same && Arc::ptr_eq(&self.program, &lowered.program) && self.compiled.choice == *choice
    }

    /// Returns the rest of the model after its program.
    pub(super) fn rest(&self) -> Option<&Arc<Continuation>> {
        self.compiled.rest.as_ref()
    }

    /// Returns the program, if these inputs fit it.
    pub(super) fn program(&self, inputs: &Inputs) -> Result<&Arc<Program>, InputError> {
        let file = || self.compiled.file.display().to_string();
        let wrong = self
            .compiled
            .inputs
            .iter()
            .find(|(name, spec)| inputs.given(name).is_none_or(|given| given.spec() != *spec));
        if let Some((name, spec)) = wrong {
            let (name, expected) = (name.clone(), spec.to_string());
            return Err(match inputs.given(&name) {
                None => InputError::Missing { name, expected },
                Some(given) => InputError::Compiled { name, given: given.spec().clone(), expected, file: file() },
            });
        }
        let other = self
            .program
            .fixed
            .iter()
            .find(|(name, fixed)| !inputs.find(name).is_some_and(|given| given.same_bits(fixed)));
        match other {
            Some((name, _)) => Err(InputError::CompiledFixed { name: name.clone(), file: file() }),
            None => Ok(&self.program),
        }
    }

    /// Returns the number of rows of the tables that inputs index, by the inputs' names.
    pub(super) fn tables(&self) -> &BTreeMap<String, u64> {
        &self.compiled.tables
    }

    /// Returns the elements that an input must have.
    pub(super) fn fixed(&self, name: &str) -> Option<&anabranch_kernels::Tensor> {
        self.program.fixed.get(name)
    }
}
