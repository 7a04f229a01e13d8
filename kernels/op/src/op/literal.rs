//! Constants of expressions and borders: compared by their bits, and written to text without losing a bit.
//!
//! Two constants are equal if their bits are. NaN therefore equals itself, and −0 is not 0. A plan, a cache or a
//! checker that compares nodes must never confuse the two zeros, or find a node unequal to itself.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A constant. Equality and hashes are those of its bits.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Literal {
    /// A floating-point number, for the float domains. [`Literal::as_f32`] rounds it to 32 bits.
    Float(#[serde(with = "exact")] f64),
    /// An integer for [`Domain::I64`](super::Domain::I64), or the bits of one for [`Domain::U64`](super::Domain::U64).
    Int(i64),
}

/// Bits of a 64-bit float's fraction, and how many more they are than those of a 32-bit float.
const FRACTION: u32 = 52;
const NARROWER: u32 = 29;

impl Literal {
    /// Converts a float of 32 bits, and keeps all bits of a NaN. A processor's conversion would make a signalling NaN
    /// quiet, so none is used.
    pub fn of_f32(value: f32) -> Self {
        let bits = u64::from(value.to_bits());
        Self::Float(match value.is_nan() {
            true => f64::from_bits((bits >> 31) << 63 | 0x7FF << FRACTION | (bits & 0x7F_FFFF) << NARROWER),
            false => f64::from(value),
        })
    }

    /// Returns the nearest float of 32 bits. A NaN keeps its sign and the upper 23 bits of its fraction; if these bits
    /// are all 0, it becomes the quiet NaN of its sign.
    pub fn as_f32(self) -> f32 {
        match self {
            Self::Float(value) if value.is_nan() => {
                let (sign, kept) = ((value.to_bits() >> 63) as u32, (value.to_bits() >> NARROWER) as u32 & 0x7F_FFFF);
                f32::from_bits(sign << 31 | 0x7F80_0000 | if kept == 0 { 0x40_0000 } else { kept })
            }
            Self::Float(value) => value as f32,
            Self::Int(value) => value as f32,
        }
    }

    /// Returns the nearest float of 64 bits.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
        }
    }

    /// Returns the integer; a float is truncated, and saturates.
    pub fn as_i64(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Int(value) => value,
        }
    }

    /// Returns the unsigned integer of the same bits; a float is truncated, and saturates. A negative float has the
    /// bits of the signed integer.
    pub fn as_u64(self) -> u64 {
        match self {
            Self::Float(value) if value < 0.0 => value as i64 as u64,
            Self::Float(value) => value as u64,
            Self::Int(value) => value as u64,
        }
    }

    /// Returns whether the constant is a float, and its bits.
    fn bits(self) -> (bool, u64) {
        match self {
            Self::Float(value) => (true, value.to_bits()),
            Self::Int(value) => (false, value as u64),
        }
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl fmt::Display for Literal {
    /// Writes the number, and a NaN with its bits, so that texts of different constants differ.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) if value.is_nan() => write!(f, "NaN({:#x})", value.to_bits()),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Int(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(_) => write!(f, "Float({self})"),
            Self::Int(_) => write!(f, "Int({self})"),
        }
    }
}

/// A float as a number, or as the hexadecimal digits of its bits if JSON or its readers lack the number: NaN,
/// infinities, −0.
mod exact {
    use super::{Bits, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = value.is_finite() && (*value != 0.0 || value.is_sign_positive());
        match plain {
            true => serializer.serialize_f64(*value),
            false => serializer.collect_str(&format_args!("{:#018x}", value.to_bits())),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_any(Bits)
    }
}

/// Reads what [`exact`] writes.
struct Bits;

impl Visitor<'_> for Bits {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a string of the 64 bits of one such as \"0x7ff0000000000000\"")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
        let whole = |digits: &&str| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let digits = text.strip_prefix("0x").filter(whole);
        let bits = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        bits.map(f64::from_bits).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const QUIET: u64 = 0x7FF8_0000_0000_0000;

    /// Returns floats with different bits that comparisons or decimal texts confuse.
    fn odd() -> Vec<Literal> {
        let bits = [QUIET, QUIET | 1, 1 << 63 | QUIET, 0x7FF0_0000_0000_0001, 0, 1 << 63, 1, 0x7FF << 52, 0xFFF << 52];
        bits.into_iter().map(|bits| Literal::Float(f64::from_bits(bits))).chain([Literal::Int(0)]).collect()
    }

    #[test]
    fn constants_are_equal_if_their_bits_are() {
        for (at, a) in odd().into_iter().enumerate() {
            for (other, b) in odd().into_iter().enumerate() {
                assert_eq!(a == b, at == other, "{a:?} and {b:?}");
                assert_eq!(format!("{a:?}") == format!("{b:?}"), at == other, "{a:?} and {b:?}");
            }
        }
        assert_eq!(odd().into_iter().collect::<HashSet<_>>().len(), odd().len());
    }

    #[test]
    fn every_constant_comes_back_from_json() {
        for literal in odd().into_iter().chain([0.1, 1e300, 5e-324, 3.0].map(Literal::Float)).chain([Literal::Int(-7)])
        {
            let text = serde_json::to_string(&literal).expect("it is written");
            assert_eq!(serde_json::from_str::<Literal>(&text).expect("it is read"), literal, "{text}");
        }
        assert_eq!(serde_json::to_string(&Literal::Float(0.5)).expect("written"), r#"{"float":0.5}"#);
        let text = serde_json::to_string(&Literal::Float(f64::INFINITY)).expect("written");
        assert_eq!(text, r#"{"float":"0x7ff0000000000000"}"#);
        for bad in ["0x7ff", "nan", "0x7ff00000000000000", "0x+ff0000000000000"] {
            assert!(serde_json::from_str::<Literal>(&format!(r#"{{"float":"{bad}"}}"#)).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_float_of_32_bits_keeps_its_bits() {
        for bits in [0x7FC0_0000, 0x7F80_0001, 0xFFC0_1234, 0x7F80_0000, 0x8000_0000, 0x0000_0001, 0x3F80_0000u32] {
            assert_eq!(Literal::of_f32(f32::from_bits(bits)).as_f32().to_bits(), bits);
        }
        // A NaN whose payload 23 bits cannot hold is still a NaN.
        assert!(Literal::Float(f64::from_bits(0x7FF0_0000_0000_0001)).as_f32().is_nan());
    }

    #[test]
    fn integers_are_cut_or_keep_their_bits() {
        assert_eq!([-1.0, 2.9, 1e30].map(|x| Literal::Float(x).as_u64()), [u64::MAX, 2, u64::MAX]);
        assert_eq!([-1.5, 2.9, 1e30].map(|x| Literal::Float(x).as_i64()), [-1, 2, i64::MAX]);
        assert_eq!(Literal::Int(-1).as_u64(), u64::MAX);
    }
}
