//! Named tensors that come out of a run.

use super::array::{self, ArrayError};
use crate::execute::RunOutput;
use anabranch_kernels::Tensor;
use anabranch_kernels::dtype::Element;
use ndarray::{ArrayD, ArrayViewD};
use std::fmt;
use std::mem;
use std::sync::Arc;

/// The tensors that a run made, in the order of the model's outputs.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    names: Arc<[String]>,
    tensors: Vec<Tensor>,
    /// The other parts of a run's result, empty, to be used again.
    spare: RunOutput,
}

/// What finds one of the outputs: its name, or its place in the model's order.
pub trait OutputKey: fmt::Display + Copy {
    /// The place of the output among `names`.
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

/// An output that is not there, or not of the type asked for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The model has no such output.
    #[error("the model has no output `{key}`; its outputs are {known}")]
    Unknown {
        /// The name or place asked for.
        key: String,
        /// The model's outputs.
        known: String,
    },
    /// The output has another type.
    #[error("output `{name}`: {source}")]
    Array {
        /// The output.
        name: String,
        /// What does not fit.
        source: ArrayError,
    },
}

impl Outputs {
    /// Tensors under their names, in the model's order.
    pub(crate) fn new(names: Arc<[String]>, tensors: Vec<Tensor>) -> Self {
        debug_assert_eq!(names.len(), tensors.len());
        Self { names, tensors, spare: RunOutput::default() }
    }

    /// Takes everything out, so that a run can use its memory again.
    pub(super) fn take(&mut self) -> RunOutput {
        RunOutput { outputs: mem::take(&mut self.tensors), ..mem::take(&mut self.spare) }
    }

    /// Puts a run's result in.
    pub(super) fn put(&mut self, names: &Arc<[String]>, mut result: RunOutput) {
        self.tensors = mem::take(&mut result.outputs);
        self.spare = result;
        self.names = Arc::clone(names);
    }

    /// An output's elements as an array, without a copy. `view.to_owned()` and `array.assign(&view)` copy them. Truth values are read
    /// as `u8`.
    ///
    /// # Errors
    /// If there is no such output, or its elements are not of type `T`.
    pub fn view<T: Element>(&self, key: impl OutputKey) -> Result<ArrayViewD<'_, T>, OutputError> {
        let place = self.place(key)?;
        let refuse = |source| OutputError::Array { name: self.names[place].clone(), source };
        array::view(&self.tensors[place]).map_err(refuse)
    }

    /// A copy of an output's elements as an array.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn array<T: Element>(&self, key: impl OutputKey) -> Result<ArrayD<T>, OutputError> {
        Ok(self.view(key)?.to_owned())
    }

    /// Copies an output's elements, in row-major order, to a slice of as many.
    ///
    /// # Errors
    /// As [`Self::view`]; also if the slice has another length.
    pub fn copy_to_slice<T: Element>(&self, key: impl OutputKey, slice: &mut [T]) -> Result<(), OutputError> {
        let place = self.place(key)?;
        let refuse = |source| OutputError::Array { name: self.names[place].clone(), source };
        let elements = array::elements::<T>(&self.tensors[place]).map_err(refuse)?;
        if elements.len() != slice.len() {
            return Err(refuse(ArrayError::Length { elements: elements.len(), given: slice.len() }));
        }
        slice.copy_from_slice(elements);
        Ok(())
    }

    /// An output.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn tensor(&self, key: impl OutputKey) -> Result<&Tensor, OutputError> {
        Ok(&self.tensors[self.place(key)?])
    }

    /// All names and tensors, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.names.iter().map(String::as_str).zip(&self.tensors)
    }

    fn place(&self, key: impl OutputKey) -> Result<usize, OutputError> {
        key.place(&self.names)
            .ok_or_else(|| OutputError::Unknown { key: key.to_string(), known: self.names.join(", ") })
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
    }
}
