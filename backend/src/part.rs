//! Names of the parts that a sequence or an optional is given and made as: `s[0]`, `s[1]` and so on, `s[]`, `s[absent]`.

use std::fmt;

/// A part of the value that a sequence or an optional is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The tensor at this place of a sequence.
    Element(usize),
    /// The mark of a sequence without tensors.
    Empty,
    /// The mark of an optional that holds nothing.
    Absent,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(at) => write!(f, "[{at}]"),
            Self::Empty => f.write_str("[]"),
            Self::Absent => f.write_str("[absent]"),
        }
    }
}

/// The value's name and the part that a name stands for, if it has the form of one: the number of an element is written in one way alone.
pub(crate) fn split(name: &str) -> Option<(&str, Part)> {
    let (of, part) = name.strip_suffix(']')?.rsplit_once('[')?;
    let number = || part.parse().ok().filter(|at: &usize| at.to_string() == part);
    let part = match part {
        "" => Part::Empty,
        "absent" => Part::Absent,
        _ => Part::Element(number()?),
    };
    Some((of, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_one_name() {
        for (of, part) in [("s", Part::Element(0)), ("a[1]", Part::Element(10)), ("", Part::Empty), ("s", Part::Absent)]
        {
            assert_eq!(split(&format!("{of}{part}")), Some((of, part)));
        }
        for name in ["s", "s[", "s]", "s[01]", "s[+1]", "s[-1]", "s[ 1]", "s[99999999999999999999]", "s[none]", "s[0] "]
        {
            assert_eq!(split(name), None, "{name}");
        }
    }
}
