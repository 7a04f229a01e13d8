//! Operators that run on the host between the programs of a model, because their results alone determine the following
//! shapes.
//!
//! They select elements by value, or handle sequences of tensors. A few other operators are here because no kernel
//! computes them. [`Fault`] is what they and the lowering report of a node.
//!
//! This crate is a part of `anabranch`, not a public interface.

#![forbid(unsafe_code)]

mod bits;
mod boxes;
mod elements;
mod fault;
mod regions;
mod select;
mod sequence;
pub mod slices;
#[cfg(test)]
mod tests;
mod unique;
mod work;

pub use elements::{axis_of, integers, numbers};
pub use fault::Fault;
pub use regions::Settings as RegionSettings;
pub use slices::{side_by_side, slices};
pub use work::Work;

use anabranch_import::{Item, Node};
use anabranch_kernels::Tensor;
use std::sync::Arc;

/// Function of such an operator; returns all its outputs.
pub type HostOperator = fn(&Call<'_>) -> Result<Vec<Item>, Fault>;

/// An operator with its inputs.
pub struct Call<'a> {
    #[doc(hidden)]
    pub node: &'a Node,
    /// Inputs; `None` if one is left out.
    pub inputs: &'a [Option<Item>],
    /// Threads, cancellation and memory budget.
    pub work: &'a Work<'a>,
}

const TABLE: &[(&str, HostOperator)] = &[
    ("BitCast", bits::cast),
    ("NonZero", select::non_zero),
    ("Compress", select::compress),
    ("Unique", unique::unique),
    ("NonMaxSuppression", boxes::suppress),
    ("RoiAlign", regions::align),
    ("Identity", sequence::same),
    ("Optional", sequence::optional),
    ("OptionalGetElement", sequence::element),
    ("OptionalHasElement", sequence::has_element),
    ("SequenceEmpty", sequence::empty),
    ("SequenceConstruct", sequence::construct),
    ("SequenceInsert", sequence::insert),
    ("SequenceErase", sequence::erase),
    ("SequenceAt", sequence::at),
    ("SequenceLength", sequence::length),
    ("SplitToSequence", sequence::split),
    ("ConcatFromSequence", sequence::concatenate),
];

/// The operator that runs a graph for the elements of sequences: a host operator, of which only a run knows the graph's
/// phases.
pub const MAP: &str = "SequenceMap";

/// Most empty slices that a host operator handles one by one: nothing else limits how many a file can require.
const MOST_EMPTY: usize = 1 << 20;

/// Approximate bytes of a tensor besides its elements: the tensor, its shape, its buffer and their counts.
pub const TENSOR: usize = 256;

/// Returns the function of a node without graphs; `None` if the host does not compute it.
pub fn host_operator(node: &Node) -> Option<HostOperator> {
    TABLE.iter().find(|(name, _)| is_standard(node) && *name == node.op_type).map(|(_, operator)| *operator)
}

/// Whether a node can be a host operator for any inputs: branches and loops are host operators only if they cannot be
/// lowered.
pub fn is_host_operator(node: &Node) -> bool {
    host_operator(node).is_some() || is_standard(node) && node.op_type == MAP
}

fn is_standard(node: &Node) -> bool {
    matches!(&node.domain[..], "" | "ai.onnx")
}

impl Call<'_> {
    /// Returns the outputs of `operator`.
    ///
    /// # Errors
    /// If the inputs violate the operator's definition, memory is short, or the operator was interrupted.
    pub fn made_by(&self, operator: HostOperator) -> Result<Vec<Item>, Fault> {
        let tensors =
            self.inputs.iter().flatten().filter_map(|item| if let Item::Tensor(x) = item { Some(x) } else { None });
        let mut sizes = tensors.filter(|tensor| tensor.bytes().is_empty()).flat_map(|tensor| tensor.shape().dims());
        match sizes.find(|size| **size > MOST_EMPTY) {
            None => {
                let given: u64 = self.inputs.iter().flatten().map(Item::bytes).fold(0, u64::saturating_add);
                self.work.charge(usize::try_from(given).unwrap_or(usize::MAX))?;
                operator(self)
            }
            Some(size) => Err(Fault::invalid(format!(
                "an input without elements has an axis of {size}, but the limit is {MOST_EMPTY}"
            ))),
        }
    }

    fn optional(&self, index: usize) -> Option<&Item> {
        self.inputs.get(index)?.as_ref()
    }

    fn tensor(&self, index: usize) -> Result<&Tensor, Fault> {
        match self.optional(index) {
            Some(Item::Tensor(tensor)) => Ok(tensor),
            Some(item) => Err(Fault::invalid(format!("input {index} is {}; it must be a tensor", item.about()))),
            None => Err(Fault::missing(index)),
        }
    }

    fn sequence(&self, index: usize) -> Result<&Arc<Vec<Tensor>>, Fault> {
        match self.optional(index) {
            Some(Item::Sequence(sequence)) => Ok(sequence),
            Some(item) => Err(Fault::invalid(format!("input {index} is {}; it must be a sequence", item.about()))),
            None => Err(Fault::missing(index)),
        }
    }
}
