//! Inputs and axes of the batch that a caller divides.

use anabranch_onnx::import::{Dim, Model};
use anabranch_planning::Split;
use std::collections::BTreeSet;

/// Name that stands for the first axis of the inputs if the model has no such dimension.
const USUAL: &str = "batch";

/// Finds the inputs and axes of the dimension that is divided: those of its symbol, or those of its input and axis.
///
/// If the model has no dimension `batch`, this name is the first axis of its first input, and of all inputs whose first
/// axis is the same. O(inputs × rank).
pub(super) fn located(split: Split, model: &Model) -> Split {
    let all = || {
        let dims = model.inputs.iter().filter_map(|input| Some((&input.name, input.dims.as_ref()?)));
        dims.flat_map(|(name, dims)| dims.iter().enumerate().map(move |(axis, dim)| (name, axis, dim)))
    };
    let is_named = |name: &str, axis: usize, dim: &Dim| {
        let symbol = matches!(dim, Dim::Symbol(symbol) if *symbol == split.dim);
        symbol || split.dim == format!("{name}[{axis}]")
    };
    let pairs = |found: &dyn Fn(&str, usize, &Dim) -> bool| -> Vec<(String, usize)> {
        let found = all().filter(|(name, axis, dim)| found(name, *axis, dim));
        found.map(|(name, axis, _)| (name.clone(), axis)).collect()
    };
    let mut axes = pairs(&is_named);
    if axes.is_empty()
        && split.dim == USUAL
        && let Some((_, _, first)) = all().find(|(_, axis, _)| *axis == 0)
    {
        axes = pairs(&|_, axis, dim| axis == 0 && dim == first);
    }
    let known = all().map(|(name, axis, dim)| match dim {
        Dim::Symbol(symbol) => symbol.clone(),
        _ => format!("{name}[{axis}]"),
    });
    let known: BTreeSet<_> = known.collect();
    split.along(axes, known.into_iter().collect())
}
