//! Gives every dimension of the model's inputs a number: from the shapes of the inputs at hand, or by name.

use super::LowerOptions;
use super::error::{LowerError, list};
use crate::error_kind::ErrorKind;
use crate::import::error::Name;
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
        let text =
            format!("the model has no input {}; its inputs are {}", Name(stranger), list(&names().collect::<Vec<_>>()));
        return Err(LowerError { input: Some(stranger.clone()), ..LowerError::new(ErrorKind::Input, text) });
    }
    let dims = model.inputs.iter().filter_map(|input| input.dims.as_ref()).flatten();
    let mut symbols: Vec<_> =
        dims.filter_map(|dim| if let Dim::Symbol(name) = dim { Some(name.clone()) } else { None }).collect();
    symbols.sort();
    symbols.dedup();
    match options.dims.keys().find(|name| !symbols.contains(name)) {
        Some(stranger) => {
            let fixed = symbols.is_empty();
            let known = if fixed { "all its sizes are fixed".into() } else { format!("it has {}", list(&symbols)) };
            let text = format!("the model has no symbolic dimension {}; {known}", Name(stranger));
            Err(LowerError { symbol: Some(stranger.clone()), ..LowerError::new(ErrorKind::Dimension, text) })
        }
        None => Ok(()),
    }
}

/// Learns the symbols of a given input from its shape.
fn unify(input: &Input, shape: &Shape, sizes: &mut Sizes) -> Result<(), LowerError> {
    let Some(dims) = &input.dims else { return Ok(()) };
    let mismatch = || {
        let declared = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let text = format!("the model declares {declared}, but the given shape is {shape}");
        LowerError::of_input(ErrorKind::Input, &input.name, text)
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
                    let text = format!(
                        "symbol {} is {first} {first_from} but {size} in dimension {axis} of input {}; make them agree, or \
                         correct the size given for the symbol",
                        Name(symbol),
                        Name(&input.name)
                    );
                    let (input, symbol) = (Some(input.name.clone()), Some(symbol.clone()));
                    return Err(LowerError { input, symbol, ..LowerError::new(ErrorKind::Dimension, text) });
                }
            }
        }
    }
    Ok(())
}

/// The shape of an input that is not at hand.
fn declared(input: &Input, sizes: &Sizes) -> Result<TensorSpec, LowerError> {
    let fault = |text: String| LowerError::of_input(ErrorKind::Dimension, &input.name, text);
    let unknown =
        |missing: &str| fault(format!("the model does not say {missing}; give the input itself or its shape"));
    let dims = input.dims.as_ref().ok_or_else(|| unknown("how many dimensions it has"))?;
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Known(size) => Ok(*size),
        Dim::Unknown => Err(unknown(&format!("the size of dimension {axis}"))),
        Dim::Symbol(symbol) => sizes.get(symbol).map(|(size, _)| *size).ok_or_else(|| {
            let what = format!("dimension {axis} is the symbol {}, which has no size", Name(symbol));
            let error = fault(format!("{what}; give the input itself, or the symbol's size"));
            LowerError { symbol: Some(symbol.clone()), ..error }
        }),
    };
    let dims = dims.iter().enumerate().map(size).collect::<Result<Vec<_>, _>>()?;
    let shape = Shape::new(dims).map_err(|error| LowerError::of_input(ErrorKind::Input, &input.name, error))?;
    Ok(TensorSpec::new(input.dtype, shape))
}
