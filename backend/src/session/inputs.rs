//! Named tensors that go into a run.

use super::array::{self, ArrayError};
use super::error::{InputError, SessionError};
use super::open::Session;
use super::random::random_tensor;
use super::value_info::{ValueInfo, dims_text};
use crate::execute::DeviceTensor;
use crate::import::Dim;
use anabranch_kernels::dtype::Element;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use ndarray::{ArrayRef, Dimension};
use std::collections::BTreeMap;

/// The tensors given to a run, by the model's input names.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    given: BTreeMap<String, Given>,
}

/// A tensor, and where it is.
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
}

impl Inputs {
    /// No inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array under an input's name, copying its elements: once, whatever its layout.
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

    /// Adds a tensor that is on a device under the name of an input that stays there ([`SessionOptions::with_resident`]). One in the
    /// host's memory is as good as any other tensor.
    ///
    /// [`SessionOptions::with_resident`]: super::SessionOptions::with_resident
    pub fn device_tensor(mut self, name: &str, tensor: DeviceTensor) -> Self {
        let given = tensor.host().cloned().map_or(Given::Device(tensor), Given::Host);
        self.given.insert(name.to_owned(), given);
        self
    }

    /// Copies an array's elements over the tensor of this name, in place where that has the same type and shape and nothing else holds
    /// its data: the way to give new elements run after run without allocating.
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

    /// The tensor of this name, if it is in the host's memory.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        match self.given.get(name)? {
            Given::Host(tensor) => Some(tensor),
            Given::Device(_) => None,
        }
    }

    /// What was given under this name.
    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The names and tensors in the host's memory, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.given.iter().filter_map(|(name, given)| match given {
            Given::Host(tensor) => Some((name.as_str(), tensor)),
            Given::Device(_) => None,
        })
    }

    /// All names with types and shapes, by name.
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
    /// Fills the inputs that are not given with seeded random elements.
    ///
    /// # Errors
    /// If the shape of one is not known from the model, the given inputs and the options, or all that are on the host are more than
    /// it may hold: that is known before any memory is taken.
    pub fn fill_random(&self, inputs: Inputs, seed: u64) -> Result<Inputs, SessionError> {
        self.fill(inputs, seed, |_, _| None)
    }

    /// [`Self::fill_random`], where dimensions that nobody knows have size 1. Gives with the inputs what was assumed: symbols, or the
    /// names of inputs with the place of the dimension (`x[0]`).
    ///
    /// # Errors
    /// As [`Self::fill_random`], of an input whose number of dimensions is not known.
    pub fn fill_assumed(&self, inputs: Inputs, seed: u64) -> Result<(Inputs, Vec<String>), SessionError> {
        let mut assumed = Vec::new();
        let filled = self.fill(inputs, seed, |dim, place| {
            let name = if let Dim::Symbol(name) = dim { name.clone() } else { place() };
            if !assumed.contains(&name) {
                assumed.push(name);
            }
            Some(1)
        })?;
        Ok((filled, assumed))
    }

    /// Fills the inputs that are not given; `unknown` may give sizes to dimensions that nobody knows, which are told with their places.
    fn fill(
        &self,
        inputs: Inputs,
        seed: u64,
        mut unknown: impl FnMut(&Dim, &dyn Fn() -> String) -> Option<usize>,
    ) -> Result<Inputs, SessionError> {
        let dims = self.bound_dims(&inputs);
        let mut missing = Vec::new();
        for input in self.inputs().iter().filter(|input| !input.is_optional()) {
            if inputs.given(input.name()).is_none()
                && let Some(dtype) = input.dtype()
            {
                missing.push((input.name(), TensorSpec::new(dtype, concrete(input, &dims, &mut unknown)?)));
            }
        }
        let held = inputs.iter().map(|(name, tensor)| (name, tensor.spec()));
        self.check_room(held.chain(missing.iter().map(|(name, spec)| (*name, spec))))?;
        let mut filled = inputs;
        for (name, spec) in missing {
            let short = || InputError::NoMemory { name: name.to_owned(), bytes: spec.bytes() };
            let fixed = self.precompiled.as_ref().and_then(|compiled| compiled.fixed(name)).cloned();
            filled = filled.tensor(name, fixed.or_else(|| random_tensor(name, &spec, seed)).ok_or_else(short)?);
        }
        Ok(filled)
    }

    /// Sees that the host may hold tensors like these all at once.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_room<'a>(
        &self,
        tensors: impl IntoIterator<Item = (&'a str, &'a TensorSpec)>,
    ) -> Result<(), SessionError> {
        let mut needed = 0u64;
        tensors.into_iter().try_for_each(|(name, spec)| {
            needed = needed.saturating_add(spec.bytes() as u64);
            self.check_bytes(name, needed)
        })
    }

    /// Sees that the host may hold so many bytes, which are for this node or input.
    pub(super) fn check_bytes(&self, name: &str, needed: u64) -> Result<(), SessionError> {
        let Some(host) = self.inventory.devices().next() else { return Ok(()) };
        let (device, limit) = (host.name().to_owned(), host.memory());
        if needed <= limit {
            Ok(())
        } else {
            Err(InputError::NoRoom { name: name.to_owned(), device, needed, limit }.into())
        }
    }

    /// The sizes of symbols, from the options and the given inputs.
    fn bound_dims(&self, inputs: &Inputs) -> BTreeMap<String, usize> {
        let mut bound = self.options.dims.clone();
        for input in self.inputs() {
            let given = inputs.given(input.name()).map(|given| given.spec().shape.dims());
            for (dim, size) in input.dims().unwrap_or(&[]).iter().zip(given.unwrap_or(&[])) {
                if let Dim::Symbol(name) = dim {
                    bound.insert(name.clone(), *size);
                }
            }
        }
        bound
    }
}

/// The shape of an input whose dimensions are numbers, bound symbols, or else of the size that `unknown` gives.
fn concrete(
    input: &ValueInfo,
    bound: &BTreeMap<String, usize>,
    unknown: &mut impl FnMut(&Dim, &dyn Fn() -> String) -> Option<usize>,
) -> Result<Shape, InputError> {
    let mut size = |(axis, dim): (usize, &Dim)| {
        let known = match dim {
            Dim::Known(size) => Some(*size),
            Dim::Symbol(name) => bound.get(name).copied(),
            Dim::Unknown => None,
        };
        known.or_else(|| unknown(dim, &|| format!("{}[{axis}]", input.name())))
    };
    let dims: Option<Vec<usize>> = input.dims().and_then(|dims| dims.iter().enumerate().map(&mut size).collect());
    let name = || input.name().to_owned();
    let dims = dims.ok_or_else(|| InputError::Shape { name: name(), dims: dims_text(input.dims()) })?;
    Shape::new(dims).map_err(|problem| InputError::TooLarge { name: name(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DetectOptions;
    use crate::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
    use crate::session::SessionOptions;
    use ndarray::array;

    #[test]
    fn what_is_on_a_gpu_takes_no_room_on_the_host() {
        let value = |name: &str| ValueInfoProto::f32s(name, &[1000]);
        let graph = GraphProto {
            node: vec![NodeProto::of("Add", &["state", "x"], &["y"])],
            input: vec![value("state"), value("x")],
            output: vec![value("y")],
            ..GraphProto::default()
        };
        let devices = DetectOptions::default().without_gpu().with_memory("cpu0", 6000);
        let options = SessionOptions::default().with_devices(devices);
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
