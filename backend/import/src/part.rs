//! Names of the parts by which callers give and receive a sequence or an optional: `s[0]`, `s[1]` and so on, `s[]`,
//! `s[absent]`.

use std::fmt;

/// Part of a value that is a sequence or an optional, as files name it behind the name of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The tensor at this position of a sequence, counted from 0.
    Element(usize),
    /// The mark of a sequence without tensors.
    Empty,
    /// The mark of an empty optional.
    Absent,
}

impl Part {
    /// Splits a name such as `s[0]` into the name of the value and the part; `None` for other names. The number of an
    /// element has one spelling.
    pub fn of(name: &str) -> Option<(&str, Self)> {
        let (value, part) = name.strip_suffix(']')?.rsplit_once('[')?;
        let number = || part.parse().ok().filter(|at: &usize| at.to_string() == part);
        let part = match part {
            "" => Self::Empty,
            "absent" => Self::Absent,
            _ => Self::Element(number()?),
        };
        Some((value, part))
    }

    /// Whether the part marks an empty sequence or an empty optional. A mark holds no element, and its type does not
    /// matter.
    pub fn is_mark(self) -> bool {
        matches!(self, Self::Empty | Self::Absent)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_one_name() {
        for (of, part) in [("s", Part::Element(0)), ("a[1]", Part::Element(10)), ("", Part::Empty), ("s", Part::Absent)]
        {
            assert_eq!(Part::of(&format!("{of}{part}")), Some((of, part)));
        }
        for name in ["s", "s[", "s]", "s[01]", "s[+1]", "s[-1]", "s[ 1]", "s[99999999999999999999]", "s[none]", "s[0] "]
        {
            assert_eq!(Part::of(name), None, "{name}");
        }
    }
}
