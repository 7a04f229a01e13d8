//! Operators that are computed on the host between the programs of a model, because only their results tell the shapes that follow:
//! elements that are picked by their values, and sequences of tensors. Few others are there because no kernel does what they do.

#![forbid(unsafe_code)]

mod bits;
mod boxes;
mod select;
mod sequence;
mod unique;

pub(crate) use sequence::side_by_side;

use crate::import::Node;
use crate::item::Item;
use crate::lower::Fault;
use anabranch_kernels::Tensor;
use std::sync::Arc;

/// How such an operator is computed; gives its outputs, as many as it has.
pub(crate) type Step = fn(&Call<'_>) -> Result<Vec<Item>, Fault>;

/// An operator with what it reads.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    /// `None` where one is left out.
    pub(crate) inputs: &'a [Option<Item>],
}

const TABLE: &[(&str, Step)] = &[
    ("BitCast", bits::cast),
    ("NonZero", select::non_zero),
    ("Compress", select::compress),
    ("Unique", unique::unique),
    ("NonMaxSuppression", boxes::suppress),
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

/// The operator that runs a graph for the elements of sequences: a step, of which only a run knows the graph's phases.
pub(crate) const MAP: &str = "SequenceMap";

/// Slices of no bytes that a step may handle one by one: nothing else bounds how many a file can ask for.
const MOST_EMPTY: usize = 1 << 20;

/// How a node without graphs is computed as a step, if it can be.
pub(crate) fn step(node: &Node) -> Option<Step> {
    TABLE.iter().find(|(name, _)| is_standard(node) && *name == node.op_type).map(|(_, step)| *step)
}

/// Whether a node can be a step, whatever it is given: branches and loops are steps only if they cannot be lowered.
pub(crate) fn is_step(node: &Node) -> bool {
    step(node).is_some() || is_standard(node) && node.op_type == MAP
}

fn is_standard(node: &Node) -> bool {
    matches!(&node.domain[..], "" | "ai.onnx")
}

impl Call<'_> {
    /// The outputs of `step`.
    ///
    /// # Errors
    /// If the inputs are not what the operator's definition allows, or memory is short.
    pub(crate) fn made_by(&self, step: Step) -> Result<Vec<Item>, Fault> {
        let tensors =
            self.inputs.iter().flatten().filter_map(|item| if let Item::Tensor(x) = item { Some(x) } else { None });
        let mut sizes = tensors.filter(|tensor| tensor.bytes().is_empty()).flat_map(|tensor| tensor.shape().dims());
        match sizes.find(|size| **size > MOST_EMPTY) {
            None => step(self),
            Some(size) => Err(Fault::invalid(format!(
                "an input without elements has an axis of {size}; at most {MOST_EMPTY} are taken"
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

/// A buffer that the system may refuse: results are as large as inputs make them.
fn buffer(bytes: usize) -> Result<anabranch_kernels::Buffer, Fault> {
    let short = || Fault::invalid(format!("its result takes {bytes} bytes, more memory than the system has left"));
    anabranch_kernels::Buffer::try_zeroed(bytes).ok_or_else(short)
}

/// Slices of `tensor` along `axis`, as the places say, all of which are in it.
pub(crate) fn slices(tensor: &Tensor, axis: usize, places: &[usize]) -> Result<Tensor, Fault> {
    use anabranch_kernels::{Shape, TensorSpec};
    let dims = tensor.shape().dims();
    let size = tensor.dtype().size();
    let inner = dims[axis + 1..].iter().product::<usize>() * size;
    let outer: usize = dims[..axis].iter().product();
    let mut wanted = dims.to_vec();
    wanted[axis] = places.len();
    let spec = TensorSpec::new(tensor.dtype(), Shape::new(wanted)?);
    let mut made = buffer(spec.bytes())?;
    if inner > 0 {
        let from = |row: usize, place: usize| (row * dims[axis] + place) * inner;
        let pairs = (0..outer).flat_map(|row| places.iter().map(move |place| (row, *place)));
        for (target, (row, place)) in made.bytes_mut().chunks_exact_mut(inner).zip(pairs) {
            target.copy_from_slice(&tensor.bytes()[from(row, place)..][..inner]);
        }
    }
    Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"))
}
