//! Unsigned integers that have the same order as elements of any type.

use super::elements::elements;
use anabranch_op::dtype::DType;
use bytemuck::Pod;
use half::{bf16, f16};

/// Writes `make(position, key)` for each element.
///
/// A key is greater the greater the element is. NaN is the greatest, and both zeros have the same key. Keys of elements
/// of at most 4 bytes are less than 2³².
#[inline(always)]
pub fn keys<K>(dtype: DType, bytes: &[u8], to: &mut [K], make: impl Fn(usize, u64) -> K) {
    match dtype {
        DType::F32 => each(bytes, to, make, of_f32),
        DType::F64 => each(bytes, to, make, of_f64),
        DType::F16 => each(bytes, to, make, |element: f16| of_f32(element.to_f32())),
        DType::BF16 => each(bytes, to, make, |element: bf16| of_f32(element.to_f32())),
        DType::I64 => each(bytes, to, make, |element: i64| element as u64 ^ 1 << 63),
        DType::I32 => each(bytes, to, make, of_i32),
        DType::I16 => each(bytes, to, make, |element: i16| of_i32(element.into())),
        DType::I8 | DType::I4 | DType::I2 => each(bytes, to, make, |element: i8| of_i32(element.into())),
        DType::U64 => each(bytes, to, make, |element: u64| element),
        DType::U32 => each(bytes, to, make, |element: u32| element.into()),
        DType::U16 => each(bytes, to, make, |element: u16| element.into()),
        DType::U8 | DType::Bool | DType::U4 | DType::U2 => each(bytes, to, make, |element: u8| element.into()),
        DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz | DType::F4E2M1 => {
            let number = |byte| dtype.number_of_byte(byte).map_or(f32::NAN, |number| number as f32);
            each(bytes, to, make, |element: u8| of_f32(number(element)));
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
        dtype => dtype.is_float().then(|| of_f32(f32::NAN)),
    }
}

#[inline(always)]
fn each<T: Pod, K>(bytes: &[u8], to: &mut [K], make: impl Fn(usize, u64) -> K, key: impl Fn(T) -> u64) {
    for (at, (element, to)) in elements::<T>(bytes).iter().zip(to).enumerate() {
        *to = make(at, key(*element));
    }
}

#[inline(always)]
fn of_f32(number: f32) -> u64 {
    // Negative zero plus zero is zero.
    let bits = if number.is_nan() { 0x7FC0_0000 } else { (number + 0.0).to_bits() };
    u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
}

#[inline(always)]
fn of_f64(number: f64) -> u64 {
    let bits = if number.is_nan() { 0x7FF8_0000_0000_0000 } else { (number + 0.0).to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[inline(always)]
fn of_i32(number: i32) -> u64 {
    (number as u32 ^ 1 << 31).into()
}
