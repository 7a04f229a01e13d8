//! Sizes of a model's open dimensions: by symbol (`batch`), or by input and axis (`x[1]`), which every dimension of an
//! input has.

use super::error::{LowerError, list};
use crate::import::error::Name;
use crate::import::{Dim, Input, is_loose};
use anabranch_base::error_kind::ErrorKind;
use anabranch_kernels::Shape;
use std::collections::{BTreeMap, BTreeSet};

/// The sizes that are known so far.
pub struct Sizes<'m> {
    inputs: &'m [Input],
    symbols: BTreeMap<String, Known>,
    /// Sizes by input and axis.
    places: BTreeMap<(String, usize), usize>,
}

/// A symbol's size, and its origin.
struct Known {
    size: usize,
    from: String,
}

impl<'m> Sizes<'m> {
    /// Creates the sizes that a caller names: symbols, or inputs with axes.
    ///
    /// # Errors
    /// If a name is not in the model, a dimension is fixed to another size, or two names of one dimension have
    /// different sizes.
    pub fn named(inputs: &'m [Input], dims: &BTreeMap<String, usize>) -> Result<Self, LowerError> {
        let mut sizes = Self { inputs, symbols: BTreeMap::new(), places: BTreeMap::new() };
        let known = symbols_of(inputs);
        let by_name: BTreeMap<&str, &Input> = inputs.iter().map(|input| (&*input.name, input)).collect();
        let (symbols, others): (Vec<_>, Vec<_>) = dims.iter().partition(|(name, _)| known.contains(name.as_str()));
        for (symbol, size) in symbols {
            sizes.name(symbol, *size, "as given".to_owned(), None)?;
        }
        for (name, size) in others {
            let place = place(name).and_then(|(input, axis)| Some((*by_name.get(input)?, axis)));
            let (input, axis) = place.ok_or_else(|| stranger(name, &sizes.open_names()))?;
            sizes.place(input, axis, *size)?;
        }
        Ok(sizes)
    }

    /// Learns sizes from the shape of a given input.
    ///
    /// # Errors
    /// If the shape contradicts the model's declaration, or known sizes.
    pub fn learn(&mut self, input: &Input, shape: &Shape) -> Result<(), LowerError> {
        let dims = input.dims.as_deref().unwrap_or_default();
        let fits = |(dim, size): (&Dim, &usize)| !matches!(dim, Dim::Known(known) if known != size);
        let declared = input.dims.is_none() || dims.len() == shape.rank();
        if !declared || !dims.iter().zip(shape.dims()).all(fits) {
            let declared = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
            let text = format!("the model declares {declared}, but the given shape is {shape}");
            return Err(LowerError::of_input(ErrorKind::Input, &input.name, text));
        }
        for (axis, size) in shape.dims().iter().enumerate() {
            if let Some(named) = self.places.get(&(input.name.clone(), axis)).filter(|named| *named != size) {
                let name = format!("{}[{axis}]", input.name);
                let text = format!(
                    "dimension {} was given as {named}, but the input has {size}; leave out the size",
                    Name(&name)
                );
                let error = LowerError::of_input(ErrorKind::Dimension, &input.name, text);
                return Err(LowerError { symbol: Some(name), ..error });
            }
            if let Some(Dim::Symbol(symbol)) = dims.get(axis) {
                self.name(symbol, *size, format!("in dimension {axis} of input {}", Name(&input.name)), Some(input))?;
            }
        }
        Ok(())
    }

    /// Returns the size of a dimension of an input, if it is known.
    pub fn size(&self, input: &Input, axis: usize) -> Option<usize> {
        let named = || self.places.get(&(input.name.clone(), axis)).copied();
        match input.dims.as_ref()?.get(axis)? {
            Dim::Known(size) => Some(*size),
            Dim::Unknown => named(),
            Dim::Symbol(symbol) => named().or_else(|| self.symbols.get(symbol).map(|known| known.size)),
        }
    }

    /// Returns the dimensions of an input, as far as they are known; `None` if even their number is unknown.
    pub fn dims(&self, input: &Input) -> Option<Vec<Option<usize>>> {
        let count = match &input.dims {
            Some(dims) => dims.len(),
            // Sizes that are named for all axes from 0 on determine their number.
            None => {
                let own: Vec<_> =
                    self.places.keys().filter(|(name, _)| *name == input.name).map(|(_, axis)| *axis).collect();
                let sizes = own.iter().map(|axis| self.places.get(&(input.name.clone(), *axis)).copied());
                return (!own.is_empty() && own.iter().copied().eq(0..own.len())).then(|| sizes.collect());
            }
        };
        Some((0..count).map(|axis| self.size(input, axis)).collect())
    }

    /// Returns the names of the model's open dimensions.
    fn open_names(&self) -> Vec<String> {
        let (mut names, mut known) = (Vec::new(), BTreeSet::new());
        for input in self.inputs {
            let dims = input.dims.iter().flatten().enumerate();
            let unknown = input.dims.is_none().then(|| format!("{}[0]", input.name));
            for name in dims.filter_map(|(axis, dim)| dim.open_name(&input.name, axis)).chain(unknown) {
                if known.insert(name.clone()) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Records a size that a caller gives to an axis of an input.
    fn place(&mut self, input: &Input, axis: usize, size: usize) -> Result<(), LowerError> {
        let name = format!("{}[{axis}]", input.name);
        let wrong = |text: String| {
            let error = LowerError::of_input(ErrorKind::Dimension, &input.name, text);
            LowerError { symbol: Some(name.clone()), ..error }
        };
        match input.dims.as_ref().map(|dims| dims.get(axis).ok_or(dims.len())) {
            Some(Err(count)) => {
                Err(wrong(format!("it has {count} dimensions, counted from 0, but no {}", Name(&name))))
            }
            Some(Ok(Dim::Known(known))) if *known != size => {
                Err(wrong(format!("the model fixes {} to {known}; leave out the size {size}", Name(&name))))
            }
            Some(Ok(Dim::Symbol(symbol))) if !is_loose(symbol) => {
                self.name(symbol, size, format!("as given for {}", Name(&name)), Some(input))
            }
            _ => {
                self.places.insert((input.name.clone(), axis), size);
                Ok(())
            }
        }
    }

    /// Records a symbol's size, which must be unique unless the name is loose: then the first size counts for inputs
    /// that are not given.
    fn name(&mut self, symbol: &str, size: usize, from: String, input: Option<&Input>) -> Result<(), LowerError> {
        let known = self.symbols.entry(symbol.to_owned()).or_insert_with(|| Known { size, from: from.clone() });
        if known.size == size || is_loose(symbol) {
            return Ok(());
        }
        let text = format!(
            "dimension {} is {} {} but {size} {from}: dimensions of one name have one size; make them agree, or rename one of them in \
             the model",
            Name(symbol),
            known.size,
            known.from
        );
        let (input, symbol) = (input.map(|input| input.name.clone()), Some(symbol.to_owned()));
        Err(LowerError { input, symbol, ..LowerError::new(ErrorKind::Dimension, text) })
    }
}

/// Returns the symbols among the inputs' dimensions.
fn symbols_of(inputs: &[Input]) -> BTreeSet<&str> {
    let dims = inputs.iter().flat_map(|input| input.dims.iter().flatten());
    dims.filter_map(|dim| if let Dim::Symbol(symbol) = dim { Some(symbol.as_str()) } else { None }).collect()
}

/// Returns the input and the axis that `x[1]` names.
fn place(name: &str) -> Option<(&str, usize)> {
    let (input, axis) = name.strip_suffix(']')?.rsplit_once('[')?;
    Some((input, axis.parse().ok()?))
}

fn stranger(name: &str, open: &[String]) -> LowerError {
    let known = if open.is_empty() { "all its sizes are fixed".into() } else { format!("it has {}", list(open)) };
    let text = format!("the model has no open dimension {}; {known}", Name(name));
    LowerError { symbol: Some(name.to_owned()), ..LowerError::new(ErrorKind::Dimension, text) }
}
