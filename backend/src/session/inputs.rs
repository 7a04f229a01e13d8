//! Named tensors that go into a run and come out of it.

use super::array::{self, ArrayError};
use anabranch_kernels::Tensor;
use anabranch_kernels::dtype::Element;
use ndarray::{ArrayD, ArrayRef, Dimension};
use std::collections::BTreeMap;

/// The tensors given to a run, by the model's input names.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    tensors: BTreeMap<String, Tensor>,
}

/// The tensors that a run made, in the order of the model's outputs.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    tensors: Vec<(String, Tensor)>,
}

/// An output that is not there, or not of the type asked for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The model has no output of this name.
    #[error("the model has no output `{name}`; its outputs are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The model's outputs.
        known: String,
    },
    /// The output has another type.
    #[error(transparent)]
    Array(#[from] ArrayError),
}

impl Inputs {
    /// No inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array under an input's name, copying its elements.
    ///
    /// # Errors
    /// If the array has more dimensions than tensors can have.
    pub fn array<T: Element, D: Dimension>(self, name: &str, array: &ArrayRef<T, D>) -> Result<Self, ArrayError> {
        Ok(self.tensor(name, array::tensor(array)?))
    }

    /// Adds a tensor under an input's name; its data is shared, not copied.
    pub fn tensor(mut self, name: &str, tensor: Tensor) -> Self {
        self.tensors.insert(name.to_owned(), tensor);
        self
    }

    /// The tensor of this name.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All names and tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

impl From<BTreeMap<String, Tensor>> for Inputs {
    fn from(tensors: BTreeMap<String, Tensor>) -> Self {
        Self { tensors }
    }
}

impl Outputs {
    /// Names and tensors, in the model's order.
    pub(crate) fn new(tensors: Vec<(String, Tensor)>) -> Self {
        Self { tensors }
    }

    /// The output of this name as an array.
    ///
    /// # Errors
    /// If there is no such output, or its elements are not of type `T`.
    pub fn array<T: Element>(&self, name: &str) -> Result<ArrayD<T>, OutputError> {
        Ok(array::array(self.tensor(name)?)?)
    }

    /// The output of this name.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, OutputError> {
        let found = self.iter().find(|(known, _)| *known == name);
        found.map(|(_, tensor)| tensor).ok_or_else(|| OutputError::Unknown {
            name: name.to_owned(),
            known: self.iter().map(|(known, _)| known).collect::<Vec<_>>().join(", "),
        })
    }

    /// All names and tensors, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_found_by_name_and_type() {
        let outputs = Outputs::new(vec![("y".into(), Tensor::from_i64s(&[1, 2]))]);
        assert_eq!(outputs.array::<i64>("y").expect("there").as_slice(), Some(&[1, 2][..]));
        assert!(outputs.array::<f32>("y").is_err());
        let missing = outputs.tensor("z").expect_err("no such output").to_string();
        assert!(missing.contains("`z`") && missing.contains("are y"), "{missing}");
    }
}
