//! Spelling of a generator's parameters: a size and `key=value` pairs, as in `20,tasks=10-30,edge-probability=0.1`.

use super::GenerateError;
use anabranch_base::quoted::Name;
use std::ops::RangeInclusive;

/// Greatest value in a range. Numbers up to it are exact in `f64`.
const MOST: u64 = 1_000_000_000_000_000;

/// Reason why a text does not spell a generator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum SpellingError {
    /// A family of graphs that does not exist.
    #[error("there is no file or family {}; the families are {known}", Name(name))]
    Family { name: String, known: String },
    /// Parameters after the size of a family that has none.
    #[error("{family} takes a size only, without {}; layered takes parameters", Name(given))]
    SizeOnly { family: &'static str, given: String },
    /// A key that does not exist.
    #[error("there is no parameter {}; the parameters are {known}", Name(key))]
    Key { key: String, known: String },
    /// A key without a value.
    #[error("{} has no value; write KEY=VALUE, with these parameters: {known}", Name(given))]
    Form { given: String, known: String },
    /// A value that is not of the parameter's kind.
    #[error("the {key} is {}, but should be {expected}", Name(value))]
    Value { key: &'static str, value: String, expected: &'static str },
    /// A key that occurs twice.
    #[error("{key} occurs twice; leave out one of them")]
    Repeated { key: &'static str },
    /// A key that a later one replaces.
    #[error("{key} and a later parameter exclude each other; leave out one of them")]
    Replaced { key: &'static str },
    /// Parameters out of their range, or a graph beyond the limits.
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

/// One parameter of a generator `T`.
pub(super) struct Parameter<T> {
    pub(super) key: &'static str,
    pub(super) about: &'static str,
    pub(super) field: Field<T>,
}

/// Place of a parameter's value.
pub(super) enum Field<T> {
    /// Two numbers, as in `20-80`, or one for both.
    Range(fn(&mut T) -> &mut RangeInclusive<u64>),
    /// A probability or a factor.
    Share(fn(&mut T) -> &mut f64),
    /// A whole number up to 10^15.
    Whole(fn(&mut T) -> &mut u64),
    /// A value that has no field of its own.
    Other {
        /// Kind of its values, for messages.
        expected: &'static str,
        /// Returns the value as text; `None` if another parameter replaces it.
        write: fn(&T) -> Option<String>,
        /// Reads the value; `None` if the text is not of the kind.
        read: fn(&mut T, &str) -> Option<()>,
    },
}

/// Kind of probabilities and factors, for messages.
pub(super) const SHARE: &str = "a number from 0 to 1, such as 0.05";

impl<T: Clone> Field<T> {
    /// Kind of the values, for messages.
    fn expected(&self) -> &'static str {
        match self {
            Field::Range(_) => "two whole numbers up to 10^15, the lesser first, as in 20-80",
            Field::Share(_) => SHARE,
            Field::Whole(_) => "a whole number up to 10^15",
            Field::Other { expected, .. } => expected,
        }
    }

    /// Returns the value as text; `None` if another parameter replaces it.
    fn write(&self, target: &T) -> Option<String> {
        let mut target = target.clone();
        Some(match self {
            Field::Range(range) => {
                let range = range(&mut target);
                format!("{}-{}", range.start(), range.end())
            }
            Field::Share(share) => share(&mut target).to_string(),
            Field::Whole(whole) => whole(&mut target).to_string(),
            Field::Other { write, .. } => return write(&target),
        })
    }

    /// Reads the value; `None` if the text is not of the kind.
    fn read(&self, target: &mut T, text: &str) -> Option<()> {
        match self {
            Field::Range(field) => range(text).map(|range| *field(target) = range),
            Field::Share(field) => text.parse().ok().map(|share| *field(target) = share),
            Field::Whole(field) => whole(text).map(|whole| *field(target) = whole),
            Field::Other { read, .. } => read(target, text),
        }
    }
}

/// Returns the size at the start of a text, and the parameters after it, without the comma.
pub(super) fn size(text: &str) -> Result<(u32, Option<&str>), SpellingError> {
    let (size, rest) = text.split_once(',').map_or((text, None), |(size, rest)| (size, Some(rest)));
    match size.parse() {
        Ok(size) => Ok((size, rest)),
        Err(_) => {
            let expected = "a whole number below 4294967296, such as 4";
            Err(SpellingError::Value { key: "size", value: size.into(), expected })
        }
    }
}

/// Sets the parameters that `text` names, with commas between them.
pub(super) fn read<T: Clone>(target: &mut T, text: &str, parameters: &[Parameter<T>]) -> Result<(), SpellingError> {
    let mut given: Vec<&Parameter<T>> = Vec::new();
    for part in text.split(',') {
        let Some((key, value)) = part.split_once('=') else {
            return Err(SpellingError::Form { given: part.into(), known: known(parameters) });
        };
        let Some(parameter) = parameters.iter().find(|parameter| parameter.key == key) else {
            return Err(SpellingError::Key { key: key.into(), known: known(parameters) });
        };
        let &Parameter { key, ref field, .. } = parameter;
        if given.iter().any(|before| before.key == key) {
            return Err(SpellingError::Repeated { key });
        }
        let refused = || SpellingError::Value { key, value: value.into(), expected: field.expected() };
        field.read(target, value).ok_or_else(refused)?;
        given.push(parameter);
    }
    match given.iter().find(|parameter| parameter.field.write(target).is_none()) {
        Some(&&Parameter { key, .. }) => Err(SpellingError::Replaced { key }),
        None => Ok(()),
    }
}

/// Returns the parameters that differ from those of `usual`, each after a comma.
pub(super) fn write<T: Clone>(value: &T, usual: &T, parameters: &[Parameter<T>]) -> String {
    let differs = |parameter: &Parameter<T>| {
        let text = parameter.field.write(value)?;
        (parameter.field.write(usual).as_ref() != Some(&text)).then(|| format!(",{}={text}", parameter.key))
    };
    parameters.iter().filter_map(differs).collect()
}

/// Returns the keys with their meaning.
fn known<T>(parameters: &[Parameter<T>]) -> String {
    let each = parameters.iter().map(|parameter| format!("{} ({})", parameter.key, parameter.about));
    each.collect::<Vec<_>>().join(", ")
}

/// Reads a range `A-B`, or a single number.
fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (whole(first)?, whole(last)?);
    (first <= last).then_some(first..=last)
}

/// Reads a whole number up to 10^15.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&number| number <= MOST)
}
