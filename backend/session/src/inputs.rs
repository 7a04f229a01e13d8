//! Named tensors that are given to a run.

use super::array::{self, ArrayError};
use super::error::{InputError, SessionError};
use super::open::Session;
use super::plausible;
use super::value_info::dims_text;
use anabranch_execute::{DeviceTensor, stands_for};
use anabranch_ir::program::Value;
use anabranch_kernels::dtype::Element;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use anabranch_onnx::import::Input;
use anabranch_onnx::lower::Sizes;
use ndarray::{ArrayRef, Dimension};
use std::collections::{BTreeMap, BTreeSet};

/// The tensors given to a run, by the model's input names. A sequence or an optional is given in parts
/// ([`Self::sequence`]).
///
/// ```
/// # mod anabranch { pub use anabranch_session::{Inputs}; }
/// use anabranch::Inputs;
/// use ndarray::array;
///
/// let mut inputs = Inputs::new().array("x", &array![[1f32, 2.0], [3.0, 4.0]])?;
/// // The next run has other elements in the same buffer.
/// inputs.assign("x", &array![[0f32, 0.0], [0.0, 1.0]])?;
/// assert_eq!(inputs.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    given: BTreeMap<String, Given>,
}

/// A tensor on the host or on a device.
#[derive(Clone, Debug)]
pub(super) enum Given {
    Host(Tensor),
    Device(DeviceTensor),
}

impl Given {
    pub(super) fn spec(&self) -> &TensorSpec {
        match self {
            Self::Host(tensor) => tensor.spec(),
            Self::Device(tensor) => tensor.spec(),
        }
    }

    /// Whether it stands for this input, which goes on with a former output.
    pub(super) fn stands_for(&self, value: &Value) -> bool {
        match self {
            Self::Host(tensor) => stands_for(tensor, value),
            Self::Device(tensor) => tensor.host().is_some_and(|tensor| stands_for(tensor, value)),
        }
    }

    /// The tensor on the host: a copy of one that is on a GPU.
    pub(super) fn on_host(&self) -> Result<Tensor, SessionError> {
        match self {
            Self::Host(tensor) => Ok(tensor.clone()),
            Self::Device(tensor) => Ok(tensor.read()?),
        }
    }
}

impl Inputs {
    /// Creates an empty set of inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array under an input's name. Copies its elements once, for any layout.
    ///
    /// # Errors
    /// If the array has more dimensions than tensors can have.
    pub fn array<T: Element, D: Dimension>(self, name: &str, array: &ArrayRef<T, D>) -> Result<Self, ArrayError> {
        Ok(self.tensor(name, array::tensor(array)?))
    }

    /// Adds a tensor under an input's name; its data is shared, not copied.
    pub fn tensor(mut self, name: &str, tensor: Tensor) -> Self {
        self.given.insert(name.to_owned(), Given::Host(tensor));
        self
    }

    /// Adds a tensor on a device under the name of an input that stays there ([`SessionConfig::with_resident`]). A
    /// tensor in the host's memory works like any other tensor.
    ///
    /// [`SessionConfig::with_resident`]: super::SessionConfig::with_resident
    pub fn device_tensor(mut self, name: &str, tensor: DeviceTensor) -> Self {
        let given = tensor.host().cloned().map_or(Given::Device(tensor), Given::Host);
        self.given.insert(name.to_owned(), given);
        self
    }

    /// Copies an array's elements over the tensor of this name.
    ///
    /// The copy is in place if that tensor has the same type and shape and nothing else holds its data, so that runs
    /// can get new elements without allocation.
    ///
    /// # Errors
    /// If the array has more dimensions than tensors can have.
    pub fn assign<T: Element, D: Dimension>(&mut self, name: &str, array: &ArrayRef<T, D>) -> Result<(), ArrayError> {
        if let Some(Given::Host(tensor)) = self.given.get_mut(name)
            && tensor.dtype() == T::DTYPE
            && tensor.shape().dims() == array.shape()
            && let Some(elements) = tensor.elements_mut::<T>()
        {
            array::copy(array, elements);
            return Ok(());
        }
        self.given.insert(name.to_owned(), Given::Host(array::tensor(array)?));
        Ok(())
    }

    /// Removes the tensors with such names.
    pub(super) fn forget(&mut self, named: impl Fn(&str) -> bool) {
        self.given.retain(|name, _| !named(name));
    }

    /// Puts a tensor under an input's name, and returns the former one. Allocates nothing if there is one.
    pub(super) fn exchange(&mut self, name: &str, given: Given) -> Option<Given> {
        match self.given.get_mut(name) {
            Some(former) => Some(std::mem::replace(former, given)),
            None => self.given.insert(name.to_owned(), given),
        }
    }

    /// Adds all tensors of other inputs. Returns the tensors that they replace, in the order of the others.
    pub(super) fn take_over(&mut self, others: &Self) -> Vec<Option<Given>> {
        others.given.iter().map(|(name, given)| self.exchange(name, given.clone())).collect()
    }

    /// Undoes [`Self::take_over`] of these others.
    pub(super) fn give_back(&mut self, others: &Self, replaced: Vec<Option<Given>>) {
        for (name, former) in others.given.keys().zip(replaced) {
            match former {
                Some(former) => drop(self.exchange(name, former)),
                None => drop(self.given.remove(name)),
            }
        }
    }

    /// The tensor of this name, if it is in the host's memory.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        match self.given.get(name)? {
            Given::Host(tensor) => Some(tensor),
            Given::Device(_) => None,
        }
    }

    /// Returns the tensor given under this name, on the host or on a device.
    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Iterates over the names and tensors in the host's memory, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.given.iter().filter_map(|(name, given)| match given {
            Given::Host(tensor) => Some((name.as_str(), tensor)),
            Given::Device(_) => None,
        })
    }

    /// Iterates over all names with types and shapes, by name.
    pub fn specs(&self) -> impl Iterator<Item = (&str, &TensorSpec)> {
        self.given.iter().map(|(name, given)| (name.as_str(), given.spec()))
    }
}

impl From<BTreeMap<String, Tensor>> for Inputs {
    fn from(tensors: BTreeMap<String, Tensor>) -> Self {
        Self { given: tensors.into_iter().map(|(name, tensor)| (name, Given::Host(tensor))).collect() }
    }
}

impl Session {
    /// Fills the missing inputs with seeded random elements.
    ///
    /// Floats are in −1 … 1. Integers are row numbers of a table of the model, ones for masks that hide nothing, or
    /// else 0 or 1. A sequence or an optional gets one element.
    ///
    /// # Errors
    ///
    /// If a shape is not known from the model, the given inputs and the options, or the inputs on the host exceed its
    /// memory limit. Both are checked before any memory is allocated.
    pub fn fill_random(&self, inputs: Inputs, seed: u64) -> Result<Inputs, SessionError> {
        self.fill_sized(inputs, seed, &BTreeMap::new())
    }

    /// Fills the inputs as [`Self::fill_random`] does, with size 1 for unknown dimensions. Returns the inputs and the
    /// assumed dimensions: see [`Self::open_dims`].
    ///
    /// # Errors
    /// As [`Self::fill_random`], for an input with an unknown number of dimensions.
    pub fn fill_assumed(&self, inputs: Inputs, seed: u64) -> Result<(Inputs, Vec<String>), SessionError> {
        let open = self.open_dims(&inputs)?;
        let sizes = open.iter().map(|name| (name.clone(), 1)).collect();
        Ok((self.fill_sized(inputs, seed, &sizes)?, open))
    }

    /// Fills the inputs as [`Self::fill_random`] does, with these sizes of dimensions: by symbol, or by input and axis
    /// (`x[1]`).
    ///
    /// # Errors
    /// As [`Self::fill_random`]; also if a name is not in the model.
    pub fn fill_sized(
        &self,
        inputs: Inputs,
        seed: u64,
        sizes: &BTreeMap<String, usize>,
    ) -> Result<Inputs, SessionError> {
        let sizes = self.sizes(&inputs, sizes)?;
        let known = self.precompiled.as_ref().map(|compiled| compiled.tables().clone());
        let tables = known.unwrap_or_else(|| plausible::tables(self.model()));
        let mut missing = Vec::new();
        for input in self.missing(&inputs) {
            missing.push((input.name.clone(), TensorSpec::new(input.dtype, concrete(input, &sizes)?)));
        }
        missing.extend(self.missing_parts(&inputs, &sizes)?);
        let held = inputs.iter().map(|(name, tensor)| (name, tensor.spec()));
        self.check_host_memory(held.chain(missing.iter().map(|(name, spec)| (&**name, spec))))?;
        let mut filled = inputs;
        for (name, spec) in &missing {
            let short = || InputError::NoMemory { name: name.to_owned(), bytes: spec.bytes() };
            let fixed = self.precompiled.as_ref().and_then(|compiled| compiled.fixed(name)).cloned();
            let made = || plausible::tensor(name, spec, seed, tables.get(name).copied());
            filled = filled.tensor(name, fixed.or_else(made).ok_or_else(short)?);
        }
        Ok(filled)
    }

    /// The type and shape of an input whose sizes these inputs and the options tell; the growing axis has no elements
    /// unless they do.
    ///
    /// # Errors
    /// If a size is not told, or two contradict each other.
    pub(super) fn first_state(
        &self,
        name: &str,
        growing: Option<usize>,
        inputs: &Inputs,
    ) -> Result<TensorSpec, SessionError> {
        let sizes = self.sizes(inputs, &BTreeMap::new())?;
        let input = self.model().inputs.iter().find(|input| input.name == name);
        let input = input.ok_or_else(|| InputError::Unmade { name: name.to_owned() })?;
        let unknown = growing.filter(|axis| sizes.size(input, *axis).is_none());
        let nothing = unknown.map(|axis| (format!("{name}[{axis}]"), 0));
        let sizes = self.sizes(inputs, &nothing.into_iter().collect())?;
        Ok(TensorSpec::new(input.dtype, concrete(input, &sizes)?))
    }

    /// The dimensions of inputs that are not given whose sizes are told neither by the model, nor by these inputs, nor
    /// by the options: symbols, or inputs with axes (`x[1]`). Of an input in [`Self::unranked`] there is none.
    ///
    /// # Errors
    /// If known sizes contradict each other.
    pub fn open_dims(&self, inputs: &Inputs) -> Result<Vec<String>, SessionError> {
        let sizes = self.sizes(inputs, &BTreeMap::new())?;
        let names = self.missing(inputs).flat_map(|input| open_names(input, &sizes));
        let mut known = BTreeSet::new();
        Ok(names.filter(|name| known.insert(name.clone())).collect())
    }

    /// Returns the names among the sizes of the options that are no dimension of this model.
    pub fn unknown_dims(&self) -> Vec<String> {
        let model = self.model();
        let given = |name: &String, size: usize| BTreeMap::from([(name.clone(), size)]);
        let is_unknown = |(name, size): &(&String, &usize)| {
            Sizes::named(&model.inputs, &given(name, **size)).is_err_and(|error| error.input.is_none())
        };
        self.options.dims.iter().filter(is_unknown).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the required inputs that are missing and have an unknown number of dimensions.
    ///
    /// # Errors
    /// As [`Self::open_dims`].
    pub fn unranked(&self, inputs: &Inputs) -> Result<Vec<&str>, SessionError> {
        let sizes = self.sizes(inputs, &BTreeMap::new())?;
        Ok(self.missing(inputs).filter(|input| sizes.dims(input).is_none()).map(|input| &*input.name).collect())
    }

    /// Required tensors that are not given.
    fn missing(&self, inputs: &Inputs) -> impl Iterator<Item = &Input> {
        let is_needed = |input: &&Input| input.kind.is_tensor() && !input.optional;
        self.model().inputs.iter().filter(is_needed).filter(|input| inputs.given(&input.name).is_none())
    }

    /// Returns the known sizes: from the options, from `more`, and from the given inputs.
    fn sizes(&self, inputs: &Inputs, more: &BTreeMap<String, usize>) -> Result<Sizes<'_>, SessionError> {
        // In a compiled model, numbers replace the dimensions that the options named.
        let mut dims = if self.precompiled.is_some() { BTreeMap::new() } else { self.options.dims.clone() };
        dims.extend(more.iter().map(|(name, size)| (name.clone(), *size)));
        let model = self.model();
        let mut sizes = Sizes::named(&model.inputs, &dims)?;
        for input in &model.inputs {
            if let Some(given) = inputs.given(&input.name).filter(|_| input.kind.is_tensor()) {
                sizes.learn(input, &given.spec().shape)?;
            }
        }
        Ok(sizes)
    }

    /// Checks that the host may hold these tensors together.
    ///
    /// # Errors
    /// If they exceed its limit.
    pub fn check_host_memory<'a>(
        &self,
        tensors: impl IntoIterator<Item = (&'a str, &'a TensorSpec)>,
    ) -> Result<(), SessionError> {
        let mut needed = 0u64;
        tensors.into_iter().try_for_each(|(name, spec)| {
            needed = needed.saturating_add(spec.bytes() as u64);
            self.check_bytes(name, needed)
        })
    }

    /// Checks that the host may hold this many bytes for a node or input.
    ///
    /// # Errors
    /// If they exceed its limit.
    pub fn check_bytes(&self, name: &str, needed: u64) -> Result<(), SessionError> {
        let Some(host) = self.inventory.devices().next() else { return Ok(()) };
        let (device, limit) = (host.name().to_owned(), host.memory());
        if needed <= limit {
            Ok(())
        } else {
            Err(InputError::AboveLimit { name: name.to_owned(), device, needed, limit }.into())
        }
    }
}

/// Returns the shape of an input if all its dimensions have sizes.
fn concrete(input: &Input, sizes: &Sizes<'_>) -> Result<Shape, InputError> {
    let name = || input.name.clone();
    let dims: Option<Vec<usize>> = sizes.dims(input).and_then(|dims| dims.into_iter().collect());
    let unknown = || {
        let open = match &input.dims {
            Some(_) => open_names(input, sizes).collect(),
            None => vec![format!("{}[0]", input.name), "and each further axis".to_owned()],
        };
        InputError::Shape { name: name(), dims: dims_text(input.dims.as_deref()), open }
    };
    Shape::new(dims.ok_or_else(unknown)?).map_err(|problem| InputError::TooLarge { name: name(), problem })
}

/// Names of an input's dimensions without a size.
fn open_names(input: &Input, sizes: &Sizes<'_>) -> impl Iterator<Item = String> {
    let dims = input.dims.iter().flatten().enumerate().filter(|(axis, _)| sizes.size(input, *axis).is_none());
    dims.filter_map(|(axis, dim)| dim.open_name(&input.name, axis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionConfig;
    use anabranch_device::DetectOptions;
    use anabranch_onnx::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
    use ndarray::array;

    #[test]
    fn what_is_on_a_gpu_takes_no_memory_of_the_host() {
        let value = |name: &str| ValueInfoProto::f32s(name, &[1000]);
        let graph = GraphProto {
            node: vec![NodeProto::of("Add", &["state", "x"], &["y"])],
            input: vec![value("state"), value("x")],
            output: vec![value("y")],
            ..GraphProto::default()
        };
        let devices = DetectOptions::default().without_gpu().with_memory("cpu0", 6000);
        let options = SessionConfig::default().with_devices(devices);
        let session = Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), options).expect("a model");
        let state = Tensor::from_elements(Shape::new([1000]).expect("small"), &[0f32; 1000]).expect("as many");
        let on_host = Inputs::new().tensor("state", state.clone());
        session.fill_random(on_host, 0).expect_err("twice 4000 bytes");
        let given = Given::Device(DeviceTensor::on_host("gpu0", state));
        let away = Inputs { given: BTreeMap::from([("state".to_owned(), given)]) };
        assert_eq!(session.fill_random(away, 0).expect("4000 bytes").len(), 2);
    }

    #[test]
    fn elements_are_assigned_in_place_where_that_is_possible() {
        let mut inputs = Inputs::new().array("x", &array![1f32, 2.0]).expect("small");
        let place = |inputs: &Inputs| inputs.find("x").expect("given").bytes().as_ptr();
        let first = place(&inputs);
        inputs.assign("x", &array![3f32, 4.0]).expect("small");
        assert_eq!(place(&inputs), first);
        let held = inputs.clone();
        inputs.assign("x", &array![5f32, 6.0]).expect("small");
        assert_eq!(held.find("x").and_then(|x| x.elements::<f32>()), Some(&[3.0, 4.0][..]));
        assert_eq!(inputs.find("x").and_then(|x| x.elements::<f32>()), Some(&[5.0, 6.0][..]));
        inputs.assign("x", &array![7i64, 8, 9]).expect("small");
        assert_eq!(inputs.find("x").and_then(|x| x.elements::<i64>()), Some(&[7, 8, 9][..]));
    }
}
