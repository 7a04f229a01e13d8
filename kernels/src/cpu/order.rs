//! Elements of any type as unsigned integers of the same order.

use super::elements::elements;
use super::map::{to_f64, to_i64};
use crate::dtype::DType;

/// A number that is greater the greater the element is. NaN is the greatest, and both zeros are one.
pub(super) fn key(dtype: DType, element: &[u8]) -> u64 {
    match dtype {
        DType::U64 => elements::<u64>(element)[0],
        dtype if dtype.is_float() => {
            let mut number = [0.0];
            to_f64(dtype, element, &mut number);
            let number = if number[0].is_nan() { f64::NAN.abs() } else { number[0] + 0.0 };
            let bits = number.to_bits();
            if number.is_sign_negative() { !bits } else { bits | 1 << 63 }
        }
        dtype => {
            let mut number = [0];
            to_i64(dtype, element, &mut number);
            number[0] as u64 ^ 1 << 63
        }
    }
}

/// The [key](key) of a float that is not a number.
pub(super) const NAN: u64 = 0x7FF8_0000_0000_0000 | 1 << 63;
