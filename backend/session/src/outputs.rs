//! Named tensors that a run returns.

use super::array::{self, ArrayError};
use super::error::SessionError;
use super::inputs::Given;
use anabranch_execute::{DeviceTensor, RunOutput};
use anabranch_kernels::Tensor;
use anabranch_kernels::dtype::Element;
use anabranch_onnx::item::Item;
use anabranch_onnx::part::Part;
use anabranch_plan::{HOST, Plan};
use ndarray::{ArrayD, ArrayViewD};
use std::fmt;
use std::mem;
use std::sync::Arc;

/// The tensors that a run made, in the order of the model's outputs.
///
/// A sequence or an optional is returned in parts ([`Inputs::sequence`](super::Inputs::sequence)), under their names:
/// [`Self::item`] puts them together.
///
/// ```
/// # mod anabranch { pub use anabranch_session::{Inputs, Outputs, Session, SessionConfig}; }
/// use anabranch::{Inputs, Outputs, Session, SessionConfig};
/// use ndarray::array;
///
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
/// let session = Session::open(model, SessionConfig::default())?;
/// let outputs: Outputs = session.run(&Inputs::new().array("x", &array![[1f32, 2.0, 3.0, 4.0]])?)?;
/// // By name or by position; a view copies nothing.
/// assert_eq!(outputs.view::<f32>("y")?, array![[12.5, 4.0, 0.0]].into_dyn());
/// assert_eq!(outputs.array::<f32>(0)?.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    names: Arc<[String]>,
    /// Tensors on the host.
    tensors: Vec<Tensor>,
    /// Indices of the outputs on GPUs, ascending.
    resident: Vec<usize>,
    /// Tensors on GPUs, and the other parts of a run's result, empty, for reuse.
    spare: RunOutput,
}

/// Key of an output: its name, or its index in the model's order.
pub trait OutputKey: fmt::Display + Copy {
    /// Returns the index of the output among `names`.
    fn place(self, names: &[String]) -> Option<usize>;
}

impl OutputKey for &str {
    fn place(self, names: &[String]) -> Option<usize> {
        names.iter().position(|name| name == self)
    }
}

impl OutputKey for &String {
    fn place(self, names: &[String]) -> Option<usize> {
        self.as_str().place(names)
    }
}

impl OutputKey for usize {
    fn place(self, names: &[String]) -> Option<usize> {
        (self < names.len()).then_some(self)
    }
}

/// Error of an output that does not exist, is not on the host, or has another type than requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(String);

impl Outputs {
    /// Creates outputs from tensors and their names, in the model's order.
    pub fn new(names: Arc<[String]>, tensors: Vec<Tensor>) -> Self {
        debug_assert_eq!(names.len(), tensors.len());
        Self { names, tensors, ..Self::default() }
    }

    /// Creates outputs from tensors for the next run to write into, in the model's order: see
    /// [`Session::run_into`](super::Session::run_into).
    ///
    /// A tensor is reused if its size fits and nothing else holds it.
    pub fn over(tensors: Vec<Tensor>) -> Self {
        Self { tensors, ..Self::default() }
    }

    /// Returns the outputs on the host, in the model's order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Takes everything out, so that a run can reuse its memory.
    pub(super) fn take(&mut self) -> RunOutput {
        self.names = Arc::default();
        self.resident.clear();
        RunOutput { outputs: mem::take(&mut self.tensors), ..mem::take(&mut self.spare) }
    }

    /// Stores the result of a plan's run.
    pub(super) fn put(&mut self, plan: &Plan, names: &Arc<[String]>, mut result: RunOutput) {
        self.resident.extend((0..names.len()).filter(|place| plan.output_device(*place) != HOST));
        self.tensors = mem::take(&mut result.outputs);
        self.spare = result;
        self.names = Arc::clone(names);
    }

    /// The names of all outputs, in the model's order.
    pub(super) fn names(&self) -> &Arc<[String]> {
        &self.names
    }

    /// The output at a place in the model's order, where it is.
    pub(super) fn found(&self, place: usize) -> Given {
        match self.resident.binary_search(&place) {
            Ok(at) => Given::Device(self.spare.resident[at].clone()),
            Err(before) => Given::Host(self.tensors[place - before].clone()),
        }
    }

    /// Lets the next run leave the output at a place in this tensor's memory, if it fits and nothing else holds it. A
    /// caller's memory is only read.
    pub(super) fn write_over(&mut self, place: usize, former: Given) {
        match (self.resident.binary_search(&place), former) {
            (Ok(at), Given::Device(tensor)) => self.spare.resident[at] = tensor,
            (Err(before), Given::Host(tensor)) if !tensor.buffer().is_borrowed() => {
                self.tensors[place - before] = tensor
            }
            _ => {}
        }
    }

    /// Returns all outputs on the host; those on GPUs are copied.
    ///
    /// # Errors
    /// If a GPU was lost, or there is no memory.
    pub fn on_host(&self) -> Result<Self, SessionError> {
        let tensors = (0..self.names.len()).map(|place| self.found(place).on_host());
        Ok(Self::new(Arc::clone(&self.names), tensors.collect::<Result<_, _>>()?))
    }

    /// Bytes of the caller's tensors that GPUs copied in the run: none of a state that goes on in place.
    pub fn copied_on_gpus(&self) -> u64 {
        self.spare.copied_on_gpus
    }

    /// An output's elements as an array, without a copy. `view.to_owned()` and `array.assign(&view)` copy them. Truth
    /// values are read as `u8`.
    ///
    /// # Errors
    /// If there is no such output, or its elements are not of type `T`.
    pub fn view<T: Element>(&self, key: impl OutputKey) -> Result<ArrayViewD<'_, T>, OutputError> {
        let place = self.place(key)?;
        array::view(self.at(place)?).map_err(|error| self.refused(place, &error))
    }

    /// Returns a copy of an output's elements as an array.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn array<T: Element>(&self, key: impl OutputKey) -> Result<ArrayD<T>, OutputError> {
        Ok(self.view(key)?.to_owned())
    }

    /// Copies an output's elements, in row-major order, to a slice of equal length.
    ///
    /// # Errors
    /// As [`Self::view`]; also if the slice has another length.
    pub fn copy_to_slice<T: Element>(&self, key: impl OutputKey, slice: &mut [T]) -> Result<(), OutputError> {
        let place = self.place(key)?;
        let elements = array::elements::<T>(self.at(place)?).map_err(|error| self.refused(place, &error))?;
        if elements.len() != slice.len() {
            let text = format!("the output has {} elements, but the buffer holds {}", elements.len(), slice.len());
            return Err(self.refused(place, &ArrayError(text)));
        }
        slice.copy_from_slice(elements);
        Ok(())
    }

    /// Returns an output.
    ///
    /// # Errors
    /// If there is no such output, or it is on a GPU.
    pub fn tensor(&self, key: impl OutputKey) -> Result<&Tensor, OutputError> {
        self.at(self.place(key)?)
    }

    /// Returns an output as its kind: a tensor, a sequence, or an empty optional. O(outputs).
    ///
    /// # Errors
    /// If there is no such output, or it is on a GPU.
    pub fn item(&self, name: &str) -> Result<Item, OutputError> {
        if name.place(&self.names).is_some() {
            return Ok(Item::Tensor(self.tensor(name)?.clone()));
        }
        let mut elements = Vec::new();
        let mut is_there = false;
        for (place, own) in self.names.iter().enumerate() {
            match Part::of(own).filter(|(of, _)| *of == name) {
                Some((_, Part::Element(_))) => elements.push(self.tensor(place)?.clone()),
                Some((_, Part::Absent)) => return Ok(Item::Absent),
                Some((_, Part::Empty)) => {}
                None => continue,
            }
            is_there = true;
        }
        match is_there {
            true => Ok(Item::Sequence(Arc::new(elements))),
            false => Err(self.unknown(name)),
        }
    }

    /// Returns an output on its device, as the input of another run there. Also works for outputs on the host.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn device_tensor(&self, key: impl OutputKey) -> Result<DeviceTensor, OutputError> {
        let place = self.place(key)?;
        match self.resident.binary_search(&place) {
            Ok(at) => Ok(self.spare.resident[at].clone()),
            Err(before) => Ok(DeviceTensor::on_host("the host", self.tensors[place - before].clone())),
        }
    }

    /// Returns the output at an index, if it is on the host.
    fn at(&self, place: usize) -> Result<&Tensor, OutputError> {
        match self.resident.binary_search(&place) {
            Ok(at) => {
                let (name, device) = (&self.names[place], self.spare.resident[at].device());
                let text =
                    format!("output `{name}` stays on {device}; get it with `device_tensor`, and read that tensor");
                Err(OutputError(text))
            }
            Err(before) => Ok(&self.tensors[place - before]),
        }
    }

    /// Iterates over the names and tensors of the outputs on the host, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let on_host = |(place, _): &(usize, &String)| self.resident.binary_search(place).is_err();
        let names = self.names.iter().enumerate().filter(on_host).map(|(_, name)| name.as_str());
        names.zip(&self.tensors)
    }

    fn place(&self, key: impl OutputKey) -> Result<usize, OutputError> {
        key.place(&self.names).ok_or_else(|| self.unknown(key))
    }

    fn unknown(&self, key: impl OutputKey) -> OutputError {
        OutputError(format!("the model has no output `{key}`; its outputs are {}", self.names.join(", ")))
    }

    fn refused(&self, place: usize, error: &ArrayError) -> OutputError {
        OutputError(format!("output `{}`: {error}", self.names[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_found_by_name_place_and_type() {
        let outputs = Outputs::new(Arc::new(["y".to_owned()]), vec![Tensor::from_i64s(&[1, 2])]);
        assert_eq!(outputs.array::<i64>("y").expect("there").as_slice(), Some(&[1, 2][..]));
        let view = outputs.view::<i64>(0).expect("there");
        assert_eq!(view.as_ptr().cast(), outputs.tensor("y").expect("there").bytes().as_ptr());
        let mut slice = [0i64; 2];
        outputs.copy_to_slice("y", &mut slice).expect("as long");
        assert_eq!(slice, [1, 2]);
        assert!(outputs.copy_to_slice("y", &mut [0i64; 3]).is_err());
        assert!(outputs.view::<f32>("y").expect_err("integers").to_string().contains("`y`"));
        for missing in [outputs.tensor("z"), outputs.tensor(1)] {
            let missing = missing.expect_err("no such output").to_string();
            assert!(missing.contains("are y"), "{missing}");
        }
        let mut taken = outputs;
        drop(taken.take());
        assert!(taken.view::<i64>("y").is_err() && taken.tensor(0).is_err(), "a run that failed leaves nothing");
    }
}
