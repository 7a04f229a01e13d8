//! A value of a model: a tensor, a sequence of tensors, or an empty optional.

use anabranch_kernels::Tensor;
use std::sync::Arc;

/// A value of a model. An optional with content is the tensor or sequence that it holds.
#[derive(Clone, Debug)]
pub enum Item<T = Tensor> {
    /// A tensor.
    Tensor(T),
    /// Any number of tensors in order. Copies share them.
    Sequence(Arc<Vec<T>>),
    /// An empty optional.
    Absent,
}

impl Item {
    /// Returns the bytes of its elements, and of a sequence's entries for its tensors.
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
            Self::Absent => "an empty optional",
        }
    }
}
