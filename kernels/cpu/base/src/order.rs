//! Unsigned integers that have the same order as elements of any type.

use super::elements::elements;
use anabranch_op::dtype::DType;
use bytemuck::Pod;
use half::{bf16, f16};
use std::ops::{BitXor, Not};

/// Work on elements of one type and their keys.
pub trait Keyed {
    /// Does the work; `key` returns an element's key.
    fn run<T: Pod, K: Key>(self, key: impl Fn(T) -> K + Copy);
}

/// A key: `u32` for elements of at most 4 bytes, `u64` for others.
pub trait Key: Copy + Ord + Default + Not<Output = Self> + BitXor<Output = Self> + Into<u64> {
    /// Returns the key whose low bits these are.
    fn of(bits: u64) -> Self;
}

impl Key for u32 {
    #[inline(always)]
    fn of(bits: u64) -> Self {
        bits as u32
    }
}

impl Key for u64 {
    #[inline(always)]
    fn of(bits: u64) -> Self {
        bits
    }
}

/// Does `work` with the keys of a type.
///
/// A key is greater the greater the element is. NaN is the greatest, and both zeros have the same key.
#[inline(always)]
pub fn with_keys(dtype: DType, work: impl Keyed) {
    match dtype {
        DType::F32 => work.run(of_f32),
        DType::F64 => work.run(of_f64),
        DType::F16 => work.run(of_f16),
        DType::BF16 => work.run(|element: bf16| of_f32(f32::from_bits(u32::from(element.to_bits()) << 16))),
        DType::I64 => work.run(|element: i64| element as u64 ^ 1 << 63),
        DType::I32 => work.run(of_i32),
        DType::I16 => work.run(|element: i16| of_i32(element.into())),
        DType::I8 | DType::I4 | DType::I2 => work.run(|element: i8| of_i32(element.into())),
        DType::U64 => work.run(|element: u64| element),
        DType::U32 => work.run(|element: u32| element),
        DType::U16 => work.run(|element: u16| u32::from(element)),
        DType::U8 | DType::Bool | DType::U4 | DType::U2 => work.run(|element: u8| u32::from(element)),
        DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz | DType::F4E2M1 => {
            let number = move |byte| dtype.number_of_byte(byte).map_or(f32::NAN, |number| number as f32);
            work.run(move |element: u8| of_f32(number(element)))
        }
    }
}

/// Writes `make(position, key)` for each element.
#[inline(always)]
pub fn keys<K>(dtype: DType, bytes: &[u8], to: &mut [K], make: impl Fn(usize, u64) -> K) {
    with_keys(dtype, Each { bytes, to, make });
}

struct Each<'a, K, F> {
    bytes: &'a [u8],
    to: &'a mut [K],
    make: F,
}

impl<K, F: Fn(usize, u64) -> K> Keyed for Each<'_, K, F> {
    #[inline(always)]
    fn run<T: Pod, N: Key>(self, key: impl Fn(T) -> N + Copy) {
        for (at, (element, to)) in elements::<T>(self.bytes).iter().zip(self.to).enumerate() {
            *to = (self.make)(at, key(*element).into());
        }
    }
}

/// Returns the [key](keys) of one element.
#[inline]
pub fn key(dtype: DType, element: &[u8]) -> u64 {
    let mut found = [0];
    keys(dtype, element, &mut found, |_, key| key);
    found[0]
}

/// Returns the [key](keys) of NaN, if the type has NaN.
#[inline]
pub fn of_nan(dtype: DType) -> Option<u64> {
    match dtype {
        DType::F64 => Some(of_f64(f64::NAN)),
        dtype => dtype.is_float().then(|| of_f32(f32::NAN).into()),
    }
}

#[inline(always)]
fn of_f32(number: f32) -> u32 {
    // Negative zero plus zero is zero.
    let bits = if number.is_nan() { 0x7FC0_0000 } else { (number + 0.0).to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Returns a key that compares with keys of this type only. It needs no conversion, which does not become vectors.
#[inline(always)]
fn of_f16(number: f16) -> u32 {
    let bits = u32::from(number.to_bits()) << 16;
    let magnitude = bits & 0x7FFF_FFFF;
    of_f32(if magnitude > 0x7C00_0000 { f32::NAN } else { f32::from_bits(bits) })
}

#[inline(always)]
fn of_f64(number: f64) -> u64 {
    let bits = if number.is_nan() { 0x7FF8_0000_0000_0000 } else { (number + 0.0).to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[inline(always)]
fn of_i32(number: i32) -> u32 {
    number as u32 ^ 1 << 31
}
