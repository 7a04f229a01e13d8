//! Sequences and optionals in the library's interface: callers give and receive them as parts with names of their own.
//!
//! The elements of a sequence `s` are `s[0]`, `s[1]` and so on. `s[]` is a sequence without elements, and `s[absent]`
//! an empty optional: both are marks, tensors without elements. An optional with content is given like its content.

use super::error::{InputError, SessionError};
use super::inputs::Inputs;
use super::open::Session;
use super::value_info::ValueInfo;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_onnx::import::{Dim, Input, Kind, Output, ValueIndex};
use anabranch_onnx::item::Item;
use anabranch_onnx::lower::Sizes;
use anabranch_onnx::part::Part;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Given parts of one input; `None` stands for the whole input.
type Given<'i> = Vec<(Option<Part>, &'i str)>;

/// Names with their tensors.
pub(super) type Named = Vec<(String, Tensor)>;

impl Inputs {
    /// Adds a sequence of tensors under an input's name, as the inputs `NAME[0]`, `NAME[1]` and so on, or `NAME[]` if
    /// there are none.
    pub fn sequence(self, name: &str, tensors: impl IntoIterator<Item = Tensor>) -> Self {
        self.item(name, Item::Sequence(Arc::new(tensors.into_iter().collect())))
    }

    /// Adds an empty optional under an input's name, as the input `NAME[absent]`.
    pub fn absent(self, name: &str) -> Self {
        self.item(name, Item::Absent)
    }

    /// Adds a tensor, a sequence or an optional under an input's name, and replaces a former value of that name.
    pub fn item(mut self, name: &str, item: Item) -> Self {
        self.forget(|given| given == name || Part::of(given).is_some_and(|(of, _)| of == name));
        let parts = parts(name, item, DType::U8);
        parts.into_iter().fold(self, |inputs, (name, tensor)| inputs.tensor(&name, tensor))
    }
}

/// Splits a value into its parts; a mark is a tensor of type `dtype` without elements.
fn parts(name: &str, item: Item, dtype: DType) -> Named {
    let mark = || Tensor::zeroed(TensorSpec::new(dtype, Shape::new([0]).expect("small")));
    let named = |part: Part, tensor: Tensor| (format!("{name}{part}"), tensor);
    match item {
        Item::Tensor(tensor) => vec![(name.to_owned(), tensor)],
        Item::Absent => vec![named(Part::Absent, mark())],
        Item::Sequence(tensors) if tensors.is_empty() => vec![named(Part::Empty, mark())],
        Item::Sequence(tensors) => {
            tensors.iter().enumerate().map(|(at, tensor)| named(Part::Element(at), tensor.clone())).collect()
        }
    }
}

/// Splits an output into its parts.
///
/// # Errors
/// If its kind differs from the model's declaration, or an element has another type.
pub(super) fn made(item: Item, output: &Output) -> Result<Named, InputError> {
    let refused = |made: String| InputError::Made { name: output.name.clone(), made, declared: declared(output) };
    let Kind { sequence, optional } = output.kind;
    let of_kind = match &item {
        Item::Tensor(_) => !sequence,
        Item::Sequence(_) => sequence,
        Item::Absent => optional,
    };
    if !of_kind {
        return Err(refused(item.about().to_owned()));
    }
    let is_other = |tensor: &&Tensor| output.dtype.is_some_and(|dtype| tensor.dtype() != dtype);
    let other = match &item {
        Item::Sequence(tensors) => {
            tensors.iter().find(is_other).map(|tensor| format!("a sequence with an element of {}", tensor.spec()))
        }
        Item::Tensor(tensor) => Some(tensor).filter(is_other).map(|tensor| tensor.spec().to_string()),
        Item::Absent => None,
    };
    if let Some(other) = other {
        return Err(refused(other));
    }
    Ok(parts(&output.name, item, output.dtype.unwrap_or(DType::U8)))
}

/// Requires that outputs, all of which are made as tensors, are declared as tensors.
///
/// # Errors
/// If an output is declared a sequence.
pub(super) fn require_tensors(outputs: &[Output]) -> Result<(), InputError> {
    let declares = |output: &&Output| output.kind.sequence;
    outputs.iter().find(declares).map_or(Ok(()), |output| {
        let (name, declared) = (output.name.clone(), declared(output));
        Err(InputError::Made { name, made: "a tensor".into(), declared })
    })
}

fn declared(output: &Output) -> String {
    match (output.kind.is_tensor(), output.dtype) {
        (true, None) => "a tensor".to_owned(),
        (true, Some(dtype)) => format!("a tensor of {dtype}"),
        (false, dtype) => format!("{}{}", output.kind, dtype.map_or("tensors", DType::name)),
    }
}

impl Session {
    /// Returns the input that a name stands for, or of which it is a part.
    fn input_of(&self, name: &str) -> Option<(&Input, Option<Part>)> {
        let inputs = &self.model().inputs;
        let whole = inputs.iter().find(|input| input.name == name);
        whole.map(|input| (input, None)).or_else(|| {
            let (of, part) = Part::of(name)?;
            let input = inputs.iter().find(|input| input.name == of && !input.kind.is_tensor())?;
            Some((input, Some(part)))
        })
    }

    /// Returns the input of this name, or with a part of this name ([`Inputs::sequence`]).
    pub fn input_info(&self, name: &str) -> Option<&ValueInfo> {
        let (input, _) = self.input_of(name)?;
        self.inputs().iter().find(|info| info.name() == input.name)
    }

    /// Returns the output of this name, or with a part of this name ([`Inputs::sequence`]).
    pub fn output_info(&self, name: &str) -> Option<&ValueInfo> {
        let find = |name: &str| self.outputs().iter().find(|info| info.name() == name);
        find(name).or_else(|| find(Part::of(name)?.0).filter(|info| !info.kind().is_tensor()))
    }

    /// Returns the given inputs that are sequences or optionals.
    ///
    /// # Errors
    /// If an input is missing, its parts do not fit its kind, types or shapes, or all together exceed the host's memory
    /// limit.
    pub(super) fn items(&self, inputs: &Inputs) -> Result<Vec<(ValueIndex, Item)>, SessionError> {
        let mut given = self.given_parts(inputs);
        let mut bytes = 0u64;
        let mut items = Vec::new();
        for (input, info) in self.model().inputs.iter().zip(self.inputs()) {
            if input.kind.is_tensor() {
                continue;
            }
            let missing =
                || InputError::Missing { name: input.name.clone(), expected: format!("{info}: {}", info.advice()) };
            let parts = given.remove(&*input.name).ok_or_else(missing)?;
            let item = item(inputs, info, parts)?;
            bytes = bytes.saturating_add(item.bytes());
            self.check_bytes(&input.name, bytes)?;
            items.push((input.value, item));
        }
        Ok(items)
    }

    /// Returns the given parts of each input that is not a tensor, by name.
    fn given_parts<'s>(&'s self, inputs: &'s Inputs) -> BTreeMap<&'s str, Given<'s>> {
        let mut given: BTreeMap<&str, Given<'_>> = BTreeMap::new();
        for (name, _) in inputs.specs() {
            if let Some((input, part)) = self.input_of(name).filter(|(input, _)| !input.kind.is_tensor()) {
                given.entry(&input.name).or_default().push((part, name));
            }
        }
        given
    }

    /// Returns a part for each missing sequence or optional: one tensor, with size 1 for unknown sizes.
    pub(super) fn missing_parts(
        &self,
        inputs: &Inputs,
        sizes: &Sizes<'_>,
    ) -> Result<Vec<(String, TensorSpec)>, InputError> {
        let given = self.given_parts(inputs);
        let is_missing = |input: &&Input| !input.kind.is_tensor() && !given.contains_key(&*input.name);
        let part = |input: &Input| {
            let dims = sizes.dims(input).unwrap_or_else(|| vec![None]);
            let shape = Shape::new(dims.into_iter().map(|size| size.unwrap_or(1)).collect::<Vec<_>>());
            let shape = shape.map_err(|problem| InputError::TooLarge { name: input.name.clone(), problem })?;
            let part = if input.kind.sequence { Part::Element(0).to_string() } else { String::new() };
            Ok((format!("{}{part}", input.name), TensorSpec::new(input.dtype, shape)))
        };
        self.model().inputs.iter().filter(is_missing).map(part).collect()
    }
}

/// Joins parts into a value.
fn item(inputs: &Inputs, info: &ValueInfo, mut parts: Given<'_>) -> Result<Item, InputError> {
    let refused = |given: String| {
        let (name, expected, advice) = (info.name().to_owned(), info.to_string(), info.advice());
        InputError::Parts { name, given, expected, advice }
    };
    parts.sort_unstable();
    let Kind { sequence, optional } = info.kind();
    let item = match parts[..] {
        [(None, name)] if !sequence => Item::Tensor(tensor(inputs, info, name)?),
        [(Some(Part::Absent), name)] if optional && is_mark(inputs, name) => Item::Absent,
        [(Some(Part::Empty), name)] if sequence && is_mark(inputs, name) => Item::Sequence(Arc::default()),
        _ => {
            let numbers = parts.iter().enumerate().all(|(at, (part, _))| *part == Some(Part::Element(at)));
            if !sequence || !numbers {
                return Err(refused(told(&parts)));
            }
            Item::Sequence(Arc::new(
                parts.iter().map(|(_, name)| tensor(inputs, info, name)).collect::<Result<_, _>>()?,
            ))
        }
    };
    let tensors = match &item {
        Item::Tensor(tensor) => std::slice::from_ref(tensor),
        Item::Sequence(tensors) => tensors,
        Item::Absent => &[],
    };
    match tensors.iter().find(|tensor| !fits(info, tensor.spec())) {
        Some(tensor) => Err(refused(format!("with {} in it", tensor.spec()))),
        None => Ok(item),
    }
}

/// Returns the given tensor of this name, which must be on the host.
fn tensor(inputs: &Inputs, info: &ValueInfo, name: &str) -> Result<Tensor, InputError> {
    let away = || InputError::Away { name: info.name().to_owned(), device: "another device".to_owned() };
    inputs.find(name).cloned().ok_or_else(away)
}

fn is_mark(inputs: &Inputs, name: &str) -> bool {
    inputs.find(name).is_some_and(|mark| mark.bytes().is_empty())
}

/// Whether a tensor can be a part of the input. A symbol may stand for another size in each element.
fn fits(info: &ValueInfo, spec: &TensorSpec) -> bool {
    let same = |(dim, size): (&Dim, &usize)| !matches!(dim, Dim::Known(known) if known != size);
    let dims = spec.shape.dims();
    let shape = info.dims().is_none_or(|known| known.len() == dims.len() && known.iter().zip(dims).all(same));
    shape && info.dtype() == Some(spec.dtype)
}

/// Describes the first few given parts.
fn told(parts: &Given<'_>) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<_> = parts.iter().take(SHOWN).map(|(_, name)| format!("`{name}`")).collect();
    let more = if parts.len() > SHOWN { format!(" and {} more", parts.len() - SHOWN) } else { String::new() };
    format!("as {}{more}", shown.join(", "))
}

impl ValueInfo {
    /// Describes how to give the input: by its name, or in parts ([`Inputs::sequence`]).
    pub fn advice(&self) -> String {
        let name = self.name();
        let held = match self.kind().sequence {
            true => format!("its elements as `{name}[0]`, `{name}[1]` and so on, or `{name}[]` for none"),
            false => format!("`{name}`"),
        };
        let nothing = if self.kind().optional { format!(", or `{name}[absent]` for nothing") } else { String::new() };
        format!("give {held}{nothing}")
    }
}
