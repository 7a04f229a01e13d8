//! Rounding of an `f32` to a narrower float type and back, in integer arithmetic, as a cast to that type and back.
//!
//! A number `±m · 2ᵉ` of a type with few mantissa bits is an `f32` whose last mantissa bits are 0. Rounding these bits
//! away gives the normal numbers of the type; it may carry into the exponent. Smaller numbers are multiples of the
//! type's least number.

use crate::dtype::DType;
use crate::minifloat::Minifloat;

/// Constants that turn the bits of an `f32` into those of the nearest number of a narrower float type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowing {
    /// Mantissa bits of an `f32` that the type lacks.
    pub dropped: u32,
    /// Bits of the type's least normal number; 0 if an `f32` has no smaller normal number either.
    pub least: u32,
    /// Bits of the type's greatest finite number.
    pub greatest: u32,
    /// Bits for magnitudes beyond the greatest.
    pub beyond: u32,
    /// Bits of a NaN that stay.
    pub kept_of_nan: u32,
    /// Bits that are set in a NaN.
    pub nan: u32,
    /// Bits of a zero that was negative.
    pub negative_zero: u32,
}

pub(crate) const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
const QUIET: u32 = 0x7fc0_0000;

impl Narrowing {
    /// Rounding to IEEE 754 binary16.
    pub const F16: Self = Self::ieee(13, 113, 0x477f_e000);
    /// Rounding to the upper half of a binary32.
    pub const BF16: Self = Self::ieee(16, 0, 0x7f7f_0000);

    /// Returns the constants of a type that is a part of IEEE 754's binary32, with infinities and the first bits of a
    /// NaN.
    const fn ieee(dropped: u32, least: u32, greatest: u32) -> Self {
        let kept_of_nan = INFINITY | (0x7f_ffff >> dropped << dropped);
        let [beyond, nan, negative_zero] = [INFINITY, QUIET, SIGN];
        Self { dropped, least: least << 23, greatest, beyond, kept_of_nan, nan, negative_zero }
    }

    /// Returns the rounding to a type, if it has fewer bits than an `f32`.
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            _ => Minifloat::of(dtype).map(Minifloat::narrowing),
        }
    }

    /// Returns the nearest number of the type; halves go to the even number.
    #[inline(always)]
    pub fn applied(self, x: f32) -> f32 {
        let bits = x.to_bits();
        let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
        let odd = (magnitude >> self.dropped) & 1;
        let rounded = (magnitude + (1 << (self.dropped - 1)) - 1 + odd) >> self.dropped << self.dropped;
        // Adding a number whose last bit is the type's least number rounds the sum to a multiple of the least number.
        let coarse = f32::from_bits(self.least + (self.dropped << 23));
        let small = ((f32::from_bits(magnitude) + coarse) - coarse).to_bits();
        let finite = if magnitude < self.least { small } else { rounded };
        let finite = if finite > self.greatest { self.beyond } else { finite };
        let value = if magnitude > INFINITY { (magnitude & self.kept_of_nan) | self.nan } else { finite };
        let zero = if sign == 0 || magnitude > INFINITY { 0 } else { self.negative_zero };
        f32::from_bits(if value == 0 { zero } else { value | sign })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    const TYPES: [DType; 7] =
        [DType::F16, DType::BF16, DType::F8E4M3Fn, DType::F8E4M3Fnuz, DType::F8E5M2, DType::F8E5M2Fnuz, DType::F4E2M1];

    fn stored(dtype: DType, x: f32) -> f32 {
        match dtype {
            DType::F16 => f16::from_f32(x).to_f32(),
            DType::BF16 => bf16::from_f32(x).to_f32(),
            _ => {
                let format = Minifloat::of(dtype).expect("a type of 8 or 4 bits");
                format.decoded(format.encoded(f64::from(x))) as f32
            }
        }
    }

    /// Returns numbers of every exponent: powers of two, their neighbours, halves between numbers of few bits, and
    /// others.
    fn numbers() -> impl Iterator<Item = f32> {
        let halves = (0..1 << 8).map(|at: u32| (at * 9) << 12 & 0x7f_ffff);
        let others = (0..1 << 6).map(|at: u32| at.wrapping_mul(0x00d1_b547) & 0x7f_ffff);
        let mantissas: Vec<u32> = halves.chain(others).collect();
        (0..512u32).flat_map(move |exponent| {
            let near = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
            mantissas.clone().into_iter().flat_map(move |mantissa| near(exponent << 23 | mantissa)).map(f32::from_bits)
        })
    }

    #[test]
    fn rounding_is_storing_and_loading() {
        for dtype in TYPES {
            let narrowing = Narrowing::of(dtype).expect("fewer bits");
            for x in numbers() {
                let (found, want) = (narrowing.applied(x), stored(dtype, x));
                let same = if want.is_nan() { found.is_nan() } else { found.to_bits() == want.to_bits() };
                assert!(same, "{dtype}: {x:e} becomes {found:e}, not {want:e}");
            }
        }
    }

    #[test]
    fn types_of_as_many_bits_round_nothing() {
        assert!(
            [DType::F32, DType::F64, DType::I8, DType::Bool].into_iter().all(|dtype| Narrowing::of(dtype).is_none())
        );
    }
}
