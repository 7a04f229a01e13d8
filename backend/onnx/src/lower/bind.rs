//! Assigns a number to every dimension of the model's inputs: from the shapes of the given inputs, or by name.

use super::LowerOptions;
use super::error::{LowerError, list};
use super::sizes::Sizes;
use crate::import::error::Name;
use crate::import::{Input, Model};
use anabranch_base::error_kind::ErrorKind;
use anabranch_kernels::{Shape, TensorSpec};

/// Returns type and shape of each of the model's inputs, in their order.
///
/// `None` for a missing input with a default, and for an input that is not a tensor.
///
/// # Errors
/// If a given shape does not fit the declared one, two inputs disagree about a symbol, or a dimension stays unknown.
pub(super) fn bind(model: &Model, options: &LowerOptions) -> Result<Vec<Option<TensorSpec>>, LowerError> {
    refuse_strangers(model, options)?;
    let mut sizes = Sizes::named(&model.inputs, &options.dims)?;
    for input in &model.inputs {
        if let Some(shape) = options.input_shapes.get(&input.name).filter(|_| input.kind.is_tensor()) {
            sizes.learn(input, shape)?;
        }
    }
    // Sequences and optionals are not part of the program.
    let given =
        |input: &Input| input.kind.is_tensor() && (!input.optional || options.input_shapes.contains_key(&input.name));
    let spec = |input: &Input| match options.input_shapes.get(&input.name) {
        Some(shape) => Ok(TensorSpec::new(input.dtype, shape.clone())),
        None => declared(input, &sizes),
    };
    model.inputs.iter().map(|input| given(input).then(|| spec(input)).transpose()).collect()
}

/// Rejects inputs that the model does not have: their names are most likely misspelt.
fn refuse_strangers(model: &Model, options: &LowerOptions) -> Result<(), LowerError> {
    let names = || model.inputs.iter().map(|input| input.name.clone());
    match options.input_shapes.keys().find(|name| names().all(|known| known != **name)) {
        Some(stranger) => {
            let known = list(&names().collect::<Vec<_>>());
            let text = format!("the model has no input {}; its inputs are {known}", Name(stranger));
            Err(LowerError { input: Some(stranger.clone()), ..LowerError::new(ErrorKind::Input, text) })
        }
        None => Ok(()),
    }
}

/// Returns the declared shape of an input that is not given.
fn declared(input: &Input, sizes: &Sizes<'_>) -> Result<TensorSpec, LowerError> {
    let fault = |text: String| LowerError::of_input(ErrorKind::Dimension, &input.name, text);
    let unranked = || {
        let text =
            "the model does not state its number of dimensions; give the input, or sizes for all its axes from 0 on";
        LowerError { symbol: Some(format!("{}[0]", input.name)), is_open: true, ..fault(text.into()) }
    };
    let dims = sizes.dims(input).ok_or_else(unranked)?;
    let size = |(axis, size): (usize, Option<usize>)| {
        size.ok_or_else(|| {
            let symbol = input.dims.as_ref().and_then(|dims| dims.get(axis)?.open_name(&input.name, axis));
            let name = symbol.unwrap_or_else(|| format!("{}[{axis}]", input.name));
            let text = format!("dimension {axis}, {}, has no size; give the input, or this size", Name(&name));
            LowerError { symbol: Some(name), is_open: true, ..fault(text) }
        })
    };
    let dims = dims.into_iter().enumerate().map(size).collect::<Result<Vec<_>, _>>()?;
    let shape = Shape::new(dims).map_err(|error| LowerError::of_input(ErrorKind::Input, &input.name, error))?;
    Ok(TensorSpec::new(input.dtype, shape))
}
