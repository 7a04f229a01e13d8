//! Conversion of elements of any type to numbers of a domain, and back. It follows Rust's `as`, whose float-to-integer
//! conversions saturate. Integers of 4 and 2 bits keep the low bits.

mod truncate;

use crate::elements::{elements, elements_mut};
use crate::vector::{Isa, LANES, Loop, vectorised};
use anabranch_op::dtype::DType;
use anabranch_op::minifloat::Minifloat;
use anabranch_op::op::Literal;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use truncate::{f32_to_i32, f32_to_i64, f32_to_u32, f32_to_u64, f64_to_i64, f64_to_u64};

/// Computes `out[i] = convert(values[i])`.
fn each<A: Copy, B>(values: &[A], out: &mut [B], convert: impl Fn(A) -> B) {
    vectorised(Each { values, out, function: convert });
}

/// Loop that computes `out[i] = function(values[i])`.
pub struct Each<'a, A, B, F> {
    /// Numbers to convert.
    pub values: &'a [A],
    /// Results, as many as there are numbers.
    pub out: &'a mut [B],
    /// Function of one number. Inlined always.
    pub function: F,
}

impl<A: Copy, B, F: Fn(A) -> B> Loop for Each<'_, A, B, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        self.out.iter_mut().zip(self.values).for_each(|(out, value)| *out = (self.function)(*value));
    }
}

/// Loop that converts IEEE 754 binary16 numbers.
struct FromHalves<'a>(&'a [u8], &'a mut [f32]);

impl Loop for FromHalves<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (blocks, rest) = self.1.as_chunks_mut::<LANES>();
        let (halves, last) = self.0.as_chunks::<{ 2 * LANES }>();
        blocks.iter_mut().zip(halves).for_each(|(block, halves)| I::store(I::halves(halves), block));
        let mut padded = [0; 2 * LANES];
        padded[..2 * rest.len()].copy_from_slice(&last[..2 * rest.len()]);
        I::store_part(I::halves(&padded), rest);
    }
}

/// Loop that converts to IEEE 754 binary16 numbers.
struct ToHalves<'a>(&'a [f32], &'a mut [u8]);

impl Loop for ToHalves<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (blocks, rest) = self.0.as_chunks::<LANES>();
        let (halves, last) = self.1.as_chunks_mut::<{ 2 * LANES }>();
        blocks.iter().zip(halves).for_each(|(block, halves)| I::to_halves(I::load(block), halves));
        let mut padded = [0; 2 * LANES];
        I::to_halves(I::load_part(rest, I::splat(0.0)), &mut padded);
        last.copy_from_slice(&padded[..last.len()]);
    }
}

/// Returns the low bits of a number, as the byte of a signed number.
fn low_signed(x: i64, bits: u32) -> u8 {
    (x << (64 - bits) >> (64 - bits)) as u8
}

/// Match arms of the element types from which `as` converts.
macro_rules! load {
    ($dtype:expr, $bytes:expr, $out:expr, $number:ty, $($half:tt)*) => {
        match $dtype {
            DType::F32 => each(elements::<f32>($bytes), $out, |x| x as $number),
            DType::F64 => each(elements::<f64>($bytes), $out, |x| x as $number),
            DType::I8 => each(elements::<i8>($bytes), $out, |x| x as $number),
            DType::I16 => each(elements::<i16>($bytes), $out, |x| x as $number),
            DType::I32 => each(elements::<i32>($bytes), $out, |x| x as $number),
            DType::I64 => each(elements::<i64>($bytes), $out, |x| x as $number),
            DType::U8 | DType::Bool => each($bytes, $out, |x: u8| x as $number),
            DType::U16 => each(elements::<u16>($bytes), $out, |x| x as $number),
            DType::U32 => each(elements::<u32>($bytes), $out, |x| x as $number),
            DType::U64 => each(elements::<u64>($bytes), $out, |x| x as $number),
            DType::I4 | DType::I2 => each(elements::<i8>($bytes), $out, |x| x as $number),
            DType::U4 | DType::U2 => each($bytes, $out, |x: u8| x as $number),
            $($half)*
            dtype => {
                let format = Minifloat::of(dtype).expect("all other types are matched before");
                each($bytes, $out, |x: u8| format.decoded(x) as $number)
            }
        }
    };
}

/// Match arms of the element types to which `as` converts.
macro_rules! store {
    ($values:expr, $dtype:expr, $bytes:expr, $number:ty, $($half:tt)*) => {
        match $dtype {
            DType::F32 => each($values, elements_mut::<f32>($bytes), |x| x as f32),
            DType::F64 => each($values, elements_mut::<f64>($bytes), |x| x as f64),
            DType::I8 => each($values, elements_mut::<i8>($bytes), |x| x as i8),
            DType::I16 => each($values, elements_mut::<i16>($bytes), |x| x as i16),
            DType::I32 => each($values, elements_mut::<i32>($bytes), |x| x as i32),
            DType::I64 => each($values, elements_mut::<i64>($bytes), |x| x as i64),
            DType::U8 => each($values, $bytes, |x| x as u8),
            DType::U16 => each($values, elements_mut::<u16>($bytes), |x| x as u16),
            DType::U32 => each($values, elements_mut::<u32>($bytes), |x| x as u32),
            DType::U64 => each($values, elements_mut::<u64>($bytes), |x| x as u64),
            DType::Bool => each($values, $bytes, |x| u8::from(x != (0 as $number))),
            DType::I4 => each($values, $bytes, |x| low_signed(x as i64, 4)),
            DType::U4 => each($values, $bytes, |x| x as i64 as u8 & 0xF),
            DType::I2 => each($values, $bytes, |x| low_signed(x as i64, 2)),
            DType::U2 => each($values, $bytes, |x| x as i64 as u8 & 0x3),
            $($half)*
            dtype => {
                let format = Minifloat::of(dtype).expect("all other types are matched before");
                each($values, $bytes, |x| format.encoded(x as f64))
            }
        }
    };
}

/// Returns the `f32` next to an inexact number whose last bit is 1 (rounding to odd). Rounding it again, to fewer bits,
/// gives the same result as rounding the number itself.
#[inline]
fn odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || !near.is_finite() {
        return near;
    }
    let bits = near.to_bits() - u32::from(f64::from(near).abs() > x.abs());
    f32::from_bits(bits | 1)
}

/// Returns the nearest `f16`.
#[inline]
pub fn f16_of(x: f64) -> f16 {
    f16::from_f32(odd(x))
}

/// Returns the nearest `bf16`.
#[inline]
pub fn bf16_of(x: f64) -> bf16 {
    bf16::from_f32(odd(x))
}

/// Returns an integer as `f64` whose last bit is set if any dropped bit was set.
fn sticky(x: u64) -> f64 {
    let kept = if x >> 53 == 0 { x } else { x & !0x7FF | u64::from(x & 0x7FF != 0) << 11 };
    kept as f64
}

/// Returns [`sticky`] of a signed integer.
fn sticky_signed(x: i64) -> f64 {
    sticky(x.unsigned_abs()).copysign(x as f64)
}

/// Converts elements of `dtype` to `f32`.
#[allow(clippy::unnecessary_cast, reason = "one table for all types")]
pub fn to_f32(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    load!(dtype, bytes, out, f32,
        DType::F16 => vectorised(FromHalves(bytes, out)),
        DType::BF16 => elements::<bf16>(bytes).convert_to_f32_slice(out),
    );
}

/// Converts elements of `dtype` to `f64`.
#[allow(clippy::unnecessary_cast, reason = "one table for all types")]
pub fn to_f64(dtype: DType, bytes: &[u8], out: &mut [f64]) {
    load!(dtype, bytes, out, f64,
        DType::F16 => each(elements::<f16>(bytes), out, f16::to_f64),
        DType::BF16 => each(elements::<bf16>(bytes), out, bf16::to_f64),
    );
}

/// Defines the conversions of a type of integers to and from elements of any type.
macro_rules! integers {
    ($($integer:ident: $to:ident, $from:ident, $wide:expr;)*) => {$(
        #[doc = concat!("Converts elements of `dtype` to `", stringify!($integer), "`; wider integers keep the low bits.")]
        #[allow(clippy::unnecessary_cast, reason = "one table for all types")]
        pub fn $to(dtype: DType, bytes: &[u8], out: &mut [$integer]) {
            load!(dtype, bytes, out, $integer,
                DType::F16 => each(elements::<f16>(bytes), out, |x| x.to_f32() as $integer),
                DType::BF16 => each(elements::<bf16>(bytes), out, |x| x.to_f32() as $integer),
            );
        }

        #[doc = concat!("Converts `", stringify!($integer), "` numbers to elements of `dtype`; integers keep the low bits.")]
        #[allow(clippy::unnecessary_cast, reason = "one table for all types")]
        pub fn $from(values: &[$integer], dtype: DType, bytes: &mut [u8]) {
            store!(values, dtype, bytes, $integer,
                DType::F16 => each(values, elements_mut::<f16>(bytes), |x| f16_of($wide(x))),
                DType::BF16 => each(values, elements_mut::<bf16>(bytes), |x| bf16_of($wide(x))),
            );
        }
    )*};
}

integers! {
    i8: to_i8, from_i8, f64::from;
    u8: to_u8, from_u8, f64::from;
    i16: to_i16, from_i16, f64::from;
    u16: to_u16, from_u16, f64::from;
    i32: to_i32, from_i32, f64::from;
    u32: to_u32, from_u32, f64::from;
    i64: to_i64, from_i64, sticky_signed;
    u64: to_u64, from_u64, sticky;
}

/// Returns a number truncated to an integer of at most 22 bits and a sign, to which it saturates; 0 for NaN.
///
/// Unlike with `as`, a loop over it is vectorised.
#[inline(always)]
fn short_integer(x: f32) -> i32 {
    const MOST: f32 = 4_194_303.0;
    /// A sum with it has the integer in its low bits.
    const SHIFT: f32 = 12_582_912.0;
    let x = if x > MOST { MOST } else { x };
    let x = if x < -MOST { -MOST } else { x };
    let x = if x.is_nan() { 0.0 } else { x };
    (x.trunc() + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

/// Returns the low 32 bits of a number truncated to an integer between the bounds, to which it saturates; those of 0
/// for NaN. Loops over it are vectorised, as with [`short_integer`].
#[inline(always)]
fn integer(x: f64, least: f64, most: f64) -> u32 {
    let x = if x > most { most } else { x };
    let x = if x < least { least } else { x };
    low_bits(if x.is_nan() { 0.0 } else { x })
}

/// Returns a number as `i32`, like `as`.
#[inline(always)]
fn integer_32(x: f64) -> i32 {
    integer(x, f64::from(i32::MIN), f64::from(i32::MAX)) as i32
}

/// Returns a number as `u32`, like `as`.
#[inline(always)]
fn unsigned_32(x: f64) -> u32 {
    integer(x, 0.0, f64::from(u32::MAX))
}

/// Returns the low 32 bits of a number truncated to an integer, if its magnitude is less than 2⁵¹.
#[inline(always)]
pub fn low_bits(x: f64) -> u32 {
    /// A sum with it has the integer in its low bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    (x.trunc() + SHIFT).to_bits() as u32
}

/// Converts `f32` numbers to elements of `dtype`.
#[allow(clippy::unnecessary_cast, reason = "one table for all types")]
pub fn from_f32(values: &[f32], dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::I8 => return each(values, elements_mut(bytes), |x| short_integer(x).clamp(-128, 127) as i8),
        DType::U8 => return each(values, bytes, |x| short_integer(x).clamp(0, 255) as u8),
        DType::I16 => return each(values, elements_mut(bytes), |x| short_integer(x).clamp(-32_768, 32_767) as i16),
        DType::U16 => return each(values, elements_mut(bytes), |x| short_integer(x).clamp(0, 65_535) as u16),
        DType::I32 => return each(values, elements_mut(bytes), f32_to_i32),
        DType::U32 => return each(values, elements_mut(bytes), f32_to_u32),
        DType::I64 => return each(values, elements_mut(bytes), f32_to_i64),
        DType::U64 => return each(values, elements_mut(bytes), f32_to_u64),
        _ => {}
    }
    store!(values, dtype, bytes, f32,
        DType::F16 => vectorised(ToHalves(values, bytes)),
        DType::BF16 => elements_mut::<bf16>(bytes).convert_from_f32_slice(values),
    );
}

/// Converts `f64` numbers to elements of `dtype`.
#[allow(clippy::unnecessary_cast, reason = "one table for all types")]
pub fn from_f64(values: &[f64], dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::I8 => return each(values, elements_mut(bytes), |x| integer_32(x).clamp(-128, 127) as i8),
        DType::U8 => return each(values, bytes, |x| integer_32(x).clamp(0, 255) as u8),
        DType::I16 => return each(values, elements_mut(bytes), |x| integer_32(x).clamp(-32_768, 32_767) as i16),
        DType::U16 => return each(values, elements_mut(bytes), |x| integer_32(x).clamp(0, 65_535) as u16),
        DType::I32 => return each(values, elements_mut(bytes), integer_32),
        DType::U32 => return each(values, elements_mut(bytes), unsigned_32),
        DType::I64 => return each(values, elements_mut(bytes), f64_to_i64),
        DType::U64 => return each(values, elements_mut(bytes), f64_to_u64),
        _ => {}
    }
    store!(values, dtype, bytes, f64,
        DType::F16 => each(values, elements_mut::<f16>(bytes), f16_of),
        DType::BF16 => each(values, elements_mut::<bf16>(bytes), bf16_of),
    );
}

/// Returns the bytes of one constant element of `dtype`. A float keeps its bits if the type has as many; an integer
/// keeps its low bits.
pub fn bytes_of(literal: Literal, dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; dtype.size()];
    match literal {
        Literal::Float(_) if dtype == DType::F32 => bytes.copy_from_slice(&literal.as_f32().to_ne_bytes()),
        Literal::Float(value) => from_f64(&[value], dtype, &mut bytes),
        Literal::Int(value) => from_i64(&[value], dtype, &mut bytes),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{levels, vectorised_at};

    fn bits(store: impl FnOnce(&mut [u8])) -> u16 {
        let mut bytes = [0; 2];
        store(&mut bytes);
        u16::from_ne_bytes(bytes)
    }

    #[test]
    fn numbers_are_rounded_once() {
        let (small, tiny) = (2f64.powi(-8), 2f64.powi(-40));
        for sign in [1.0, -1.0] {
            let minus = if sign < 0.0 { 0x8000 } else { 0 };
            for (x, dtype, want) in [
                (1.0 + 2f64.powi(-11) + tiny, DType::F16, 0x3c01),
                (1.0 + 2f64.powi(-11), DType::F16, 0x3c00),
                (1.0 + 3.0 * 2f64.powi(-11) - tiny, DType::F16, 0x3c01),
                (65520.0 - 2f64.powi(-30), DType::F16, 0x7bff),
                (65520.0, DType::F16, 0x7c00),
                (2f64.powi(-25) + 2f64.powi(-70), DType::F16, 0x0001),
                (1e-300, DType::F16, 0x0000),
                (1.0 + small + tiny, DType::BF16, 0x3f81),
                (1.0 + small, DType::BF16, 0x3f80),
                (1.0 + 3.0 * small - tiny, DType::BF16, 0x3f81),
                (f64::from(f32::MAX) + 1e20, DType::BF16, 0x7f80),
                (1e300, DType::BF16, 0x7f80),
            ] {
                let found = bits(|bytes| from_f64(&[sign * x], dtype, bytes));
                assert_eq!(found, want | minus, "{} as {dtype}", sign * x);
            }
        }
        assert!(odd(f64::NAN).is_nan());
    }

    #[test]
    fn floats_become_integers_as_by_rust() {
        let mut x: Vec<f64> = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e300, -1e300, 1e-300];
        for exponent in [0, 6, 7, 8, 14, 15, 16, 21, 22, 23, 30, 31, 32, 33, 62, 63, 64] {
            let power = 2f64.powi(exponent);
            for near in [-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5] {
                x.extend([power + near, -power + near]);
            }
        }
        let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        macro_rules! check {
            ($($integer:ty: $dtype:ident),*) => {$({
                let mut bytes = vec![0u64; x.len()];
                let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut bytes)[..x.len() * size_of::<$integer>()];
                from_f64(&x, DType::$dtype, bytes);
                let want: Vec<$integer> = x.iter().map(|x| *x as $integer).collect();
                assert_eq!(bytemuck::cast_slice::<u8, $integer>(bytes), want, "f64 as {}", DType::$dtype);
                from_f32(&narrow, DType::$dtype, bytes);
                let want: Vec<$integer> = narrow.iter().map(|x| *x as $integer).collect();
                assert_eq!(bytemuck::cast_slice::<u8, $integer>(bytes), want, "f32 as {}", DType::$dtype);
            })*};
        }
        check!(i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64);
    }

    #[test]
    fn integers_are_rounded_once() {
        for (exponent, half) in [(40, 32), (62, 54)] {
            let one = 1u16.wrapping_add(((127 + exponent) as u16) << 7);
            let x = (1i64 << exponent) + (1 << half) + 1;
            assert_eq!(bits(|bytes| from_i64(&[x], DType::BF16, bytes)), one);
            assert_eq!(bits(|bytes| from_i64(&[-x], DType::BF16, bytes)), one | 0x8000);
            assert_eq!(bits(|bytes| from_u64(&[x as u64], DType::BF16, bytes)), one);
            assert_eq!(bits(|bytes| from_i64(&[x - 1], DType::BF16, bytes)), one - 1);
        }
        assert_eq!(bits(|bytes| from_u64(&[u64::MAX], DType::BF16, bytes)), 0x5f80);
    }

    /// Numbers of all magnitudes, and special ones.
    fn any(count: u32) -> Vec<f32> {
        (0..count)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)))
            .chain([f32::NAN, -0.0, 65519.9, 65520.0])
            .collect()
    }

    #[test]
    fn halves_are_converted_alike_by_every_instruction_set() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (same, numbers) = (|a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), any(40_000));
        for level in levels() {
            let mut wide = vec![0.0; all.len()];
            vectorised_at(level, FromHalves(bytemuck::cast_slice(&all), &mut wide));
            let is = |(bits, x): (&u16, &f32)| same(*x, f16::from_bits(*bits).to_f32());
            assert!(all.iter().zip(&wide).all(is), "level {level}");
            for numbers in (0..=35).chain([numbers.len()]).map(|count| &numbers[numbers.len() - count..]) {
                let (mut halves, mut wide) = (vec![0u16; numbers.len()], vec![0.0; numbers.len()]);
                vectorised_at(level, ToHalves(numbers, bytemuck::cast_slice_mut(&mut halves)));
                vectorised_at(level, FromHalves(bytemuck::cast_slice(&halves), &mut wide));
                let is = |(x, found): (&f32, &f32)| same(*found, f16::from_f32(*x).to_f32());
                assert!(numbers.iter().zip(&wide).all(is), "level {level}, {} numbers", numbers.len());
            }
        }
    }
}
