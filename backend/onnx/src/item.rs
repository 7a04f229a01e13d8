//! A value of a model: a tensor, a sequence of tensors, or an optional that holds nothing.

use anabranch_kernels::Tensor;
use std::sync::Arc;

/// A value of a model. An optional that holds a tensor or a sequence is that tensor or sequence.
#[derive(Clone, Debug)]
pub enum Item<T = Tensor> {
    /// A tensor.
    Tensor(T),
    /// Any number of tensors in order. Copies share them.
    Sequence(Arc<Vec<T>>),
    /// An optional that holds nothing.
    Absent,
}

impl Item {
    /// Bytes that it takes: those of its elements, and what a sequence takes for each of its tensors.
    pub fn bytes(&self) -> u64 {
        let listed = |tensor: &Tensor| (tensor.spec().bytes() + size_of::<Tensor>()) as u64;
        match self {
            Self::Tensor(tensor) => tensor.spec().bytes() as u64,
            Self::Sequence(tensors) => tensors.iter().map(listed).fold(0, u64::saturating_add),
            Self::Absent => 0,
        }
    }

    /// Returns the kind of the item in words, for errors.
    pub fn about(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Sequence(_) => "a sequence",
            Self::Absent => "an optional that holds nothing",
        }
    }
}
