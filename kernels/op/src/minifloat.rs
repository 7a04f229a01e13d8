//! Floating-point numbers of 8 and 4 bits: one byte each in memory, converted through `f64`.
//!
//! Sources: Micikevicius et al. 2022, "FP8 Formats for Deep Learning"; OCP Microscaling Formats 1.0, section 5.3; ONNX,
//! "Float stored in 8 bits".

use crate::dtype::DType;
use crate::narrowing::{Narrowing, SIGN};

/// Encoding of numbers that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// IEEE 754: the greatest exponent is infinity, or NaN with a mantissa.
    Ieee,
    /// All bits but the sign are NaN; there is no infinity.
    AllOnes,
    /// Negative zero is NaN; there is no infinity.
    NegativeZero,
    /// No encoding: a number that is too large becomes the greatest number, and NaN becomes zero.
    None,
}

/// Format: a sign, then an exponent, then a mantissa.
#[derive(Clone, Copy, Debug)]
pub struct Minifloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

impl Minifloat {
    /// Returns the format of a type, if the type is a minifloat.
    #[inline]
    pub const fn of(dtype: DType) -> Option<Self> {
        let (exponent_bits, mantissa_bits, bias, special) = match dtype {
            DType::F8E4M3Fn => (4, 3, 7, Special::AllOnes),
            DType::F8E4M3Fnuz => (4, 3, 8, Special::NegativeZero),
            DType::F8E5M2 => (5, 2, 15, Special::Ieee),
            DType::F8E5M2Fnuz => (5, 2, 16, Special::NegativeZero),
            DType::F4E2M1 => (2, 1, 1, Special::None),
            _ => return None,
        };
        Some(Self { exponent_bits, mantissa_bits, bias, special })
    }

    #[inline]
    const fn sign(self) -> u8 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Returns the code of the greatest finite number.
    #[inline]
    const fn greatest(self) -> u8 {
        match self.special {
            Special::Ieee => self.sign() - (1 << self.mantissa_bits) - 1,
            Special::AllOnes => self.sign() - 2,
            Special::NegativeZero | Special::None => self.sign() - 1,
        }
    }

    /// Returns the number of a finite code without its sign, or of the code after the greatest.
    #[inline]
    fn magnitude(self, code: u8) -> f64 {
        let ones = f64::from(code & ((1 << self.mantissa_bits) - 1));
        let fraction = ones / f64::from(1u32 << self.mantissa_bits);
        match i32::from(code >> self.mantissa_bits) {
            0 => fraction * power_of_two(1 - self.bias),
            exponent => (1.0 + fraction) * power_of_two(exponent - self.bias),
        }
    }

    /// Returns the number that a code stands for.
    #[inline]
    pub fn decoded(self, code: u8) -> f64 {
        let code = code & (self.sign() | (self.sign() - 1));
        let (negative, rest) = (code & self.sign() != 0, code & (self.sign() - 1));
        let magnitude = match self.special {
            Special::NegativeZero if negative && rest == 0 => f64::NAN,
            Special::Ieee if rest == self.greatest() + 1 => f64::INFINITY,
            _ if rest > self.greatest() => f64::NAN,
            _ => self.magnitude(rest),
        };
        if negative { -magnitude } else { magnitude }
    }

    /// Returns the code of the nearest number; halves go to the even code. A value that rounds beyond the greatest
    /// number becomes infinite, or NaN if there is no infinity.
    #[inline]
    pub fn encoded(self, value: f64) -> u8 {
        let magnitude = value.abs();
        let code = match self.special {
            _ if value.is_nan() => self.nan(),
            special => match (self.nearest(magnitude), special) {
                (Some(code), _) => code,
                (None, Special::None) => self.greatest(),
                (None, Special::Ieee) => self.greatest() + 1,
                (None, Special::AllOnes | Special::NegativeZero) => self.nan(),
            },
        };
        // The sign of a NaN has no meaning; a NaN that becomes zero becomes positive zero.
        let positive = code == 0 && (self.special == Special::NegativeZero || value.is_nan());
        let signed = value.is_sign_negative() && !positive;
        if signed { code | self.sign() } else { code }
    }

    /// Returns the rounding of an `f32` to the format.
    pub(crate) fn narrowing(self) -> Narrowing {
        let [beyond, nan] = match self.special {
            Special::Ieee => [f32::INFINITY, f32::NAN],
            Special::AllOnes => [f32::NAN; 2],
            Special::NegativeZero => [-f32::NAN; 2],
            Special::None => [self.magnitude(self.greatest()) as f32, 0.0],
        };
        Narrowing {
            dropped: f32::MANTISSA_DIGITS - 1 - self.mantissa_bits,
            least: (power_of_two(1 - self.bias) as f32).to_bits(),
            greatest: (self.magnitude(self.greatest()) as f32).to_bits(),
            beyond: beyond.to_bits(),
            kept_of_nan: 0,
            nan: nan.to_bits(),
            negative_zero: if self.special == Special::NegativeZero { 0 } else { SIGN },
        }
    }

    #[inline]
    const fn nan(self) -> u8 {
        match self.special {
            Special::Ieee | Special::AllOnes => self.sign() - 1,
            Special::NegativeZero => self.sign(),
            Special::None => 0,
        }
    }

    /// Returns the code of the nearest finite number, unless the value rounds beyond the greatest.
    #[inline]
    fn nearest(self, magnitude: f64) -> Option<u8> {
        // Codes ascend with their numbers: the search finds the greatest number that does not exceed the magnitude.
        let (mut low, mut high) = (0, self.greatest());
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.magnitude(middle) <= magnitude { low = middle } else { high = middle - 1 }
        }
        let half = (self.magnitude(low) + self.magnitude(low + 1)) / 2.0;
        let up = magnitude > half || (magnitude == half && low % 2 == 1);
        (low + u8::from(up) <= self.greatest()).then_some(low + u8::from(up))
    }
}

/// Returns `2^exponent` within binary64's normal numbers; `powi` does not promise an exact result.
#[inline]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DType; 5] = [DType::F8E4M3Fn, DType::F8E4M3Fnuz, DType::F8E5M2, DType::F8E5M2Fnuz, DType::F4E2M1];

    fn format(dtype: DType) -> Minifloat {
        Minifloat::of(dtype).expect("one of these")
    }

    #[test]
    fn the_greatest_and_the_least_are_those_of_the_formats() {
        let known = [
            (448.0, power_of_two(-9)),
            (240.0, power_of_two(-10)),
            (57344.0, power_of_two(-16)),
            (57344.0, power_of_two(-17)),
            (6.0, 0.5),
        ];
        for (dtype, (greatest, least)) in ALL.into_iter().zip(known) {
            let format = format(dtype);
            assert_eq!((format.decoded(format.greatest()), format.decoded(1)), (greatest, least), "{dtype}");
        }
    }

    #[test]
    fn every_code_is_the_code_of_its_number() {
        for dtype in ALL {
            let format = format(dtype);
            for code in 0..=(format.sign() | (format.sign() - 1)) {
                let value = format.decoded(code);
                let again = format.encoded(value);
                assert!(again == code || (value.is_nan() && format.decoded(again).is_nan()), "{dtype}: {code}");
            }
        }
    }

    #[test]
    fn numbers_between_two_go_to_the_nearest_or_the_even_one() {
        for dtype in ALL {
            let format = format(dtype);
            for code in 0..format.greatest() {
                let (below, above) = (format.decoded(code), format.decoded(code + 1));
                let middle = (below + above) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!(format.encoded(middle), even, "{dtype}: {code}");
                assert_eq!(format.encoded(middle.next_down()), code, "{dtype}: {code}");
                assert_eq!(format.encoded(middle.next_up()), code + 1, "{dtype}: {code}");
            }
        }
    }

    #[test]
    fn what_is_too_great_becomes_what_stands_for_it() {
        assert!(format(DType::F8E4M3Fn).decoded(format(DType::F8E4M3Fn).encoded(1e6)).is_nan());
        assert!(format(DType::F8E4M3Fnuz).decoded(format(DType::F8E4M3Fnuz).encoded(f64::INFINITY)).is_nan());
        assert_eq!(format(DType::F8E5M2).decoded(format(DType::F8E5M2).encoded(-1e6)), f64::NEG_INFINITY);
        assert_eq!(format(DType::F4E2M1).decoded(format(DType::F4E2M1).encoded(-1e6)), -6.0);
        // Half a unit beyond the greatest number rounds to the code after it, which is even; less than half does not.
        assert_eq!(format(DType::F8E4M3Fn).decoded(format(DType::F8E4M3Fn).encoded(463.0)), 448.0);
        assert_eq!(format(DType::F8E4M3Fnuz).encoded(-1e-9), 0);
    }
}
