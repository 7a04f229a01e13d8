//! Gives every dimension of the model's inputs a number: from the shapes of the inputs at hand, or by name.

use super::LowerOptions;
use super::error::LowerError;
use crate::import::{Dim, Input, Model};
use anabranch_kernels::{Shape, TensorSpec};
use std::collections::BTreeMap;

/// The sizes of the symbols known so far, each with where it came from.
type Sizes = BTreeMap<String, (usize, String)>;

/// Type and shape of each of the model's inputs, in their order; `None` for an optional one that is not given.
///
/// # Errors
/// If a given shape does not fit the declared one, two inputs disagree about a symbol, or a dimension stays unknown.
pub(super) fn bind(model: &Model, options: &LowerOptions) -> Result<Vec<Option<TensorSpec>>, LowerError> {
    refuse_strangers(model, options)?;
    let mut sizes: Sizes =
        options.dims.iter().map(|(name, size)| (name.clone(), (*size, "as given".to_owned()))).collect();
    for input in &model.inputs {
        if let Some(shape) = options.input_shapes.get(&input.name) {
            unify(input, shape, &mut sizes)?;
        }
    }
    let given = |input: &Input| !input.optional || options.input_shapes.contains_key(&input.name);
    let spec = |input: &Input| match options.input_shapes.get(&input.name) {
        Some(shape) => Ok(TensorSpec::new(input.dtype, shape.clone())),
        None => declared(input, &sizes),
    };
    model.inputs.iter().map(|input| given(input).then(|| spec(input)).transpose()).collect()
}

/// Refuses names that the model does not have: they are most likely misspelt.
fn refuse_strangers(model: &Model, options: &LowerOptions) -> Result<(), LowerError> {
    let names = || model.inputs.iter().map(|input| input.name.clone());
    if let Some(stranger) = options.input_shapes.keys().find(|name| names().all(|known| known != **name)) {
        return Err(LowerError::NoSuchInput { input: stranger.clone(), inputs: names().collect() });
    }
    let dims = model.inputs.iter().filter_map(|input| input.dims.as_ref()).flatten();
    let mut symbols: Vec<_> =
        dims.filter_map(|dim| if let Dim::Symbol(name) = dim { Some(name.clone()) } else { None }).collect();
    symbols.sort();
    symbols.dedup();
    match options.dims.keys().find(|name| !symbols.contains(name)) {
        Some(stranger) => Err(LowerError::NoSuchSymbol { symbol: stranger.clone(), symbols }),
        None => Ok(()),
    }
}

/// Learns the symbols of a given input from its shape.
fn unify(input: &Input, shape: &Shape, sizes: &mut Sizes) -> Result<(), LowerError> {
    let Some(dims) = &input.dims else { return Ok(()) };
    let mismatch = || LowerError::InputShape {
        input: input.name.clone(),
        declared: dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×"),
        given: shape.clone(),
    };
    if dims.len() != shape.rank() {
        return Err(mismatch());
    }
    for (axis, (dim, size)) in dims.iter().zip(shape.dims()).enumerate() {
        match dim {
            Dim::Known(known) if known != size => return Err(mismatch()),
            Dim::Known(_) | Dim::Unknown => {}
            Dim::Symbol(symbol) => {
                let here = || (*size, format!("in dimension {axis} of input `{}`", input.name));
                let (first, first_from) = sizes.entry(symbol.clone()).or_insert_with(here);
                if first != size {
                    return Err(LowerError::Conflict {
                        symbol: symbol.clone(),
                        first: *first,
                        first_from: first_from.clone(),
                        input: input.name.clone(),
                        axis,
                        second: *size,
                    });
                }
            }
        }
    }
    Ok(())
}

/// The shape of an input that is not at hand.
fn declared(input: &Input, sizes: &Sizes) -> Result<TensorSpec, LowerError> {
    let unknown = |missing: String| LowerError::Unknown { input: input.name.clone(), missing };
    let dims = input.dims.as_ref().ok_or_else(|| unknown("how many dimensions it has".into()))?;
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Known(size) => Ok(*size),
        Dim::Unknown => Err(unknown(format!("the size of dimension {axis}"))),
        Dim::Symbol(symbol) => sizes.get(symbol).map(|(size, _)| *size).ok_or_else(|| LowerError::Unbound {
            input: input.name.clone(),
            axis,
            symbol: symbol.clone(),
        }),
    };
    let dims = dims.iter().enumerate().map(size).collect::<Result<Vec<_>, _>>()?;
    let shape = Shape::new(dims).map_err(|source| LowerError::InputTooLarge { input: input.name.clone(), source })?;
    Ok(TensorSpec::new(input.dtype, shape))
}
