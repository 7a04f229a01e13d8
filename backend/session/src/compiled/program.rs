//! A program in a compiled model: everything except constants is in the description, and the constants are stored next
//! to it.

use super::check;
use super::container::{ALIGNMENT, Container};
use anabranch_ir::constant::{Constant, Identity, LARGE, PackedForm};
use anabranch_ir::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use anabranch_kernels::cpu::Layout;
use anabranch_kernels::{Buffer, DType, Tensor, TensorSpec};
use anabranch_onnx::import::model;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A program without the elements of its constants.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredProgram {
    values: Vec<StoredValue>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Vec<Output>,
    /// Numbers of constants, by the names of inputs.
    fixed: BTreeMap<String, u32>,
    constants: Vec<StoredConstant>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredValue {
    name: String,
    spec: TensorSpec,
    origin: StoredOrigin,
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredOrigin {
    Input,
    /// Elements of the constant with this number, under the value's shape.
    Constant(u32),
    Node(NodeId),
}

/// Position of a constant among the small constants, which are read at once, or among the weights.
#[derive(Debug, Serialize, Deserialize)]
struct StoredConstant {
    spec: TensorSpec,
    small: bool,
    at: u64,
    /// Forms of the constant for the plan's kernels, also stored among the weights.
    packed: Vec<StoredForm>,
}

/// A weight in the layout of a kernel.
#[derive(Debug, Serialize, Deserialize)]
struct StoredForm {
    layout: Layout,
    /// Number of the weight among all weights; position and size follow.
    number: usize,
    at: u64,
    bytes: u64,
}

/// Constants to be written, each once.
#[derive(Default)]
pub(super) struct Gathered {
    numbers: BTreeMap<(Identity, DType), u32>,
    stored: Vec<StoredConstant>,
    /// Elements of the small constants.
    pub(super) held: Vec<u8>,
    /// Large constants, followed by their forms in layouts.
    weights: Vec<(Constant, Option<Layout>)>,
    /// Bytes of the weights, including the gaps between them.
    pub(super) bytes: u64,
}

impl Gathered {
    /// Returns the number of a constant.
    pub(super) fn number(&mut self, constant: &Constant) -> Result<u32, String> {
        let next = self.stored.len() as u32;
        let key = (constant.identity().clone(), constant.dtype());
        if let Some(known) = self.numbers.get(&key) {
            return Ok(*known);
        }
        let small = constant.bytes() < LARGE;
        let at = if small { self.held.len() as u64 } else { self.bytes };
        if small {
            self.held.extend_from_slice(constant.load().map_err(|error| error.to_string())?.bytes());
            self.held.resize(self.held.len().next_multiple_of(ALIGNMENT as usize), 0);
        } else {
            self.bytes += (constant.bytes() as u64).next_multiple_of(ALIGNMENT);
            self.weights.push((constant.clone(), None));
        }
        self.numbers.insert(key, next);
        self.stored.push(StoredConstant { spec: constant.spec().clone(), small, at, packed: Vec::new() });
        Ok(next)
    }

    /// Also stores a constant in a layout, if it is a large constant that is stored. Called after all constants were
    /// gathered.
    fn pack(&mut self, constant: &Constant, layout: &Layout) {
        let key = (constant.identity().clone(), constant.dtype());
        let known = self.numbers.get(&key).and_then(|number| self.stored.get_mut(*number as usize));
        let Some(stored) = known.filter(|stored| !stored.small) else { return };
        // Two values of one constant may have one layout.
        if stored.packed.iter().any(|form| form.layout == *layout) {
            return;
        }
        let bytes = layout.bytes() as u64;
        let form = StoredForm { layout: layout.clone(), number: self.weights.len(), at: self.bytes, bytes };
        stored.packed.push(form);
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        self.weights.push((constant.clone(), Some(layout.clone())));
    }

    /// Returns the number of weights, and their bytes including the gaps between them.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.weights.len(), self.bytes)
    }

    /// Passes the weights to `put`, one after the other. At most one weight is in memory at a time, with its packed
    /// form.
    pub(super) fn emit(&self, put: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.weights.iter().try_for_each(|(constant, layout)| {
            let raw = constant.load().map_err(io::Error::other)?;
            let Some(layout) = layout else { return put(raw.bytes()) };
            let mut packed = Buffer::try_zeroed(layout.bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
            layout.pack(raw.bytes(), packed.bytes_mut());
            put(packed.bytes())
        })
    }
}

impl StoredProgram {
    /// Converts a program for storage, and gathers its constants, some of them also in layouts.
    ///
    /// # Errors
    /// If a constant cannot be read.
    pub(super) fn of(
        program: &Program,
        packed: &[(&Constant, &Layout)],
        gathered: &mut Gathered,
    ) -> Result<Self, String> {
        let mut value = |value: &Value| {
            let origin = match &value.origin {
                Origin::Input => StoredOrigin::Input,
                Origin::Node(node) => StoredOrigin::Node(*node),
                Origin::Constant(constant) => StoredOrigin::Constant(gathered.number(constant)?),
            };
            Ok(StoredValue { name: value.name.clone(), spec: value.spec.clone(), origin })
        };
        let values = program.values.iter().map(&mut value).collect::<Result<Vec<_>, String>>()?;
        let mut number =
            |(name, tensor): (&String, &Tensor)| Ok((name.clone(), gathered.number(&Constant::from(tensor.clone()))?));
        let fixed = program.fixed.iter().map(&mut number).collect::<Result<_, String>>()?;
        packed.iter().for_each(|(constant, layout)| gathered.pack(constant, layout));
        Ok(Self {
            values,
            nodes: program.nodes.clone(),
            inputs: program.inputs.clone(),
            outputs: program.outputs.clone(),
            fixed,
            constants: std::mem::take(&mut gathered.stored),
        })
    }

    /// Returns the outputs that the caller receives, as those of a model without values.
    pub(super) fn outputs(&self) -> Vec<model::Output> {
        let declared = |Output { name, spec, .. }: &Output| model::Output {
            name: name.clone(),
            value: model::ValueIndex(0),
            kind: model::Kind::default(),
            dtype: Some(spec.dtype),
            dims: Some(spec.shape.dims().iter().map(|dim| model::Dim::Known(*dim)).collect()),
            labels: None,
        };
        self.outputs.iter().map(declared).collect()
    }

    /// Returns all constants of a file; large constants stay in the file. `names` are the names of constants that the
    /// program does not have.
    ///
    /// # Errors
    /// If a constant is not sound; the text names the fault.
    pub(super) fn constants<'n>(
        &'n self,
        container: &Container,
        names: impl Iterator<Item = (u32, &'n String)>,
    ) -> Result<Vec<Constant>, String> {
        // Small constants are copied, but together they are no larger than their part of the file.
        let small = self.constants.iter().filter(|stored| stored.small).map(|stored| stored.spec.bytes());
        if small.fold(0, usize::saturating_add) > container.held().len() {
            return Err("its small constants are larger than their section".into());
        }
        let mut named = BTreeMap::new();
        let own = self.values.iter().filter_map(|StoredValue { name, origin, .. }| match origin {
            StoredOrigin::Constant(number) => Some((*number, name)),
            StoredOrigin::Input | StoredOrigin::Node(_) => None,
        });
        for (number, name) in own.chain(names) {
            named.entry(number as usize).or_insert(name);
        }
        let (mut constants, mut weights) = (Vec::new(), 0);
        for (at, stored) in self.constants.iter().enumerate() {
            // Constants that only fix an input, or are only an attribute, have no name.
            let name = named.get(&at).map_or_else(String::new, |name| (*name).clone());
            constants.push(stored.constant(container, name, weights)?);
            weights += usize::from(!stored.small);
        }
        Ok(constants)
    }

    /// Returns the program with these constants, checked.
    ///
    /// # Errors
    /// If the program is not sound; the text names the fault.
    pub(super) fn program(self, constants: &[Constant]) -> Result<Program, String> {
        let constant =
            |number: u32| constants.get(number as usize).ok_or_else(|| format!("there is no constant {number}"));
        let value = |StoredValue { name, spec, origin }: StoredValue| {
            let origin = match origin {
                StoredOrigin::Input => Origin::Input,
                StoredOrigin::Node(node) => Origin::Node(node),
                StoredOrigin::Constant(number) => {
                    let same = constant(number)?.reshaped(spec.shape.clone());
                    Origin::Constant(same.map_err(|error| format!("constant {name:?}: {error}"))?)
                }
            };
            Ok(Value { name, spec, origin })
        };
        let values = self.values.into_iter().map(value).collect::<Result<Vec<_>, String>>()?;
        let fixed = |(name, number): (String, u32)| {
            let tensor = constant(number)?.held().ok_or_else(|| format!("input {name:?} is fixed and large"))?;
            Ok((name, tensor))
        };
        let fixed = self.fixed.into_iter().map(fixed).collect::<Result<_, String>>()?;
        let Self { nodes, inputs, outputs, .. } = self;
        let program = Program { values, nodes, inputs, outputs, fixed };
        match check::fault(&program) {
            None => Ok(program),
            Some(fault) => Err(fault),
        }
    }
}

impl StoredConstant {
    /// Returns the constant; for a large constant, from its name and its number among the weights.
    fn constant(&self, container: &Container, name: String, number: usize) -> Result<Constant, String> {
        let (bytes, spec) = (self.spec.bytes() as u64, self.spec.clone());
        let beyond = || "a constant lies beyond the end of the file".to_owned();
        if !self.small {
            let mut places = self.packed.iter().map(|form| form.at).chain([self.at]);
            if places.any(|at| !at.is_multiple_of(ALIGNMENT)) {
                return Err("a weight is not aligned".into());
            }
            let is_verified = container.is_sealed;
            let weight = |number: usize, at: u64, bytes: u64| container.weight(number, at, bytes).ok_or_else(beyond);
            let packed = self.packed.iter().map(|StoredForm { layout, number, at, bytes }| {
                let (at, checksum) = weight(*number, *at, *bytes)?;
                Ok(PackedForm::new(layout.clone(), (at, *bytes), checksum, is_verified))
            });
            let packed = packed.collect::<Result<_, String>>()?;
            let (at, checksum) = weight(number, self.at, bytes)?;
            let place = (Arc::clone(&container.file), at);
            return Ok(Constant::in_file_of(spec, place, name, (checksum, is_verified), packed));
        }
        let end = self.at.checked_add(bytes).ok_or_else(beyond)?;
        let (from, to) = (usize::try_from(self.at), usize::try_from(end));
        let raw = from.ok().zip(to.ok()).and_then(|(from, to)| container.held().get(from..to)).ok_or_else(beyond)?;
        if spec.dtype == DType::Bool && raw.iter().any(|byte| *byte > 1) {
            return Err("a constant holds an element that is not a bool".into());
        }
        let tensor = Tensor::new(spec, Arc::new(Buffer::copied(raw))).map_err(|error| error.to_string())?;
        Ok(tensor.into())
    }
}
