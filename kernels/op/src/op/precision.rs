//! Precision of matrix products on GPUs: the arithmetic that a user allows instead of `f32`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Arithmetic of matrix products on GPUs with matrix units. Operands and results are `f32` in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// `f32` throughout.
    #[default]
    F32,
    /// Each element is the sum of two `f16`, and products of the two smaller ones are left out. Sums are `f32`.
    F16x3,
    /// Each element is rounded to an `f16`. Sums are `f32`.
    F16,
}

/// Least rows, columns and depth of a product that matrix units compute: a smaller one would mostly fill up tiles.
const LEAST: usize = 32;

impl Precision {
    /// All precisions, the most precise first.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16x3, Self::F16];

    /// Returns the precision in which a GPU computes a product of these rows, columns and depth.
    pub fn of_product(self, sizes: [usize; 3]) -> Self {
        if sizes.into_iter().all(|size| size >= LEAST) { self } else { Self::F32 }
    }

    /// Whether this is `f32`.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::F32)
    }

    /// Returns the name that options and files use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16x3 => "f16x3",
            Self::F16 => "f16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| format!("there is no precision `{name}`; the precisions are f32, f16x3 and f16"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MatMul, Op};
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
            let json = serde_json::to_string(&precision).expect("a word");
            assert_eq!(json, format!("\"{precision}\""));
        }
        assert!("tf32".parse::<Precision>().is_err_and(|error| error.contains("`tf32`")));
    }

    #[test]
    fn only_another_precision_than_the_usual_one_is_written() {
        let of = |precision| Op::MatMul(MatMul { precision, ..MatMul::default() });
        let usual = of(Precision::F32);
        assert!(!format!("{usual:?}").contains("precision"));
        assert!(!serde_json::to_string(&usual).expect("plain data").contains("precision"));
        let half = of(Precision::F16);
        assert!(format!("{half:?}").contains("precision: F16"));
        let json = serde_json::to_string(&half).expect("plain data");
        assert_eq!(serde_json::from_str::<Op>(&json).expect("what was written"), half);
    }
}
