//! A caller's request to divide the rows of a batch.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Request to divide the rows of a batch among devices, such as `batch=auto` or `batch=gpu0:28,cpu0:4`.
///
/// ```
/// # mod anabranch { pub use anabranch_planning::{Parts, Split}; }
/// use anabranch::{Parts, Split};
/// let split: Split = "batch=gpu0:28,cpu0:4".parse()?;
/// assert_eq!(split.parts, Parts::Given(vec![("gpu0".into(), 28), ("cpu0".into(), 4)]));
/// assert_eq!(split.to_string(), "batch=gpu0:28,cpu0:4");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// Dimension whose rows are divided: a symbol of the model, or an input and an axis (`x[0]`).
    pub dim: String,
    /// Parts of the batch.
    pub parts: Parts,
    /// Inputs, by name, and their axes that are the dimension.
    pub(crate) axes: Vec<(String, usize)>,
    /// Names of all dimensions, for errors.
    pub(crate) known: Vec<String>,
}

/// Parts of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// The parts are chosen by the predicted speeds of the devices.
    Auto,
    /// Names of different devices, and the number of rows of each.
    Given(Vec<(String, usize)>),
}

impl Split {
    /// Returns the request with the inputs and axes that are the dimension, and the names of all dimensions.
    #[must_use]
    pub fn along(self, axes: Vec<(String, usize)>, known: Vec<String>) -> Self {
        Self { axes, known, ..self }
    }
}

/// Writes parts as `gpu0:28,cpu0:4`.
pub(super) fn shown(parts: &[(String, usize)]) -> String {
    parts.iter().map(|(name, rows)| format!("{name}:{rows}")).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parts {
            Parts::Auto => write!(f, "{}=auto", self.dim),
            Parts::Given(parts) => write!(f, "{}={}", self.dim, shown(parts)),
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write DIM=auto or DIM=DEVICE:ROWS,…, such as batch=gpu0:28,cpu0:4".to_owned();
        let (dim, parts) = text.rsplit_once('=').filter(|(dim, _)| !dim.is_empty()).ok_or_else(wrong)?;
        let part = |part: &str| {
            let (name, rows) = part.trim().rsplit_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
            Ok::<_, String>((name.to_owned(), rows.parse().map_err(|_| wrong())?))
        };
        let parts = match parts {
            "auto" => Parts::Auto,
            parts => Parts::Given(parts.split(',').map(part).collect::<Result<_, _>>()?),
        };
        if let Parts::Given(parts) = &parts {
            let twice =
                parts.iter().enumerate().find(|(at, (name, _))| parts[..*at].iter().any(|(other, _)| other == name));
            if let Some((_, (name, _))) = twice {
                return Err(format!("{name} has two parts; give each device one part"));
            }
        }
        Ok(Self { dim: dim.to_owned(), parts, axes: Vec::new(), known: Vec::new() })
    }
}

impl Serialize for Split {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_back_and_slips_are_named() {
        for text in ["batch=auto", "x[0]=cpu0:1", "N=gpu0:28,cpu0:4,cpu1:0"] {
            assert_eq!(text.parse::<Split>().expect("a request").to_string(), text);
        }
        for text in ["", "batch", "=auto", "batch=", "batch=gpu0", "batch=gpu0:x", "batch=:3", "batch=gpu0:-1"] {
            assert!(text.parse::<Split>().expect_err("a slip").contains("batch=gpu0:28,cpu0:4"), "{text}");
        }
        assert!("b=cpu0:1,cpu0:2".parse::<Split>().expect_err("a slip").starts_with("cpu0 has two parts"));
    }
}
