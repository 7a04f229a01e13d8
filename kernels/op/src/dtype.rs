//! Element types of tensors.

use crate::minifloat::Minifloat;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32: the type of all compute-heavy kernels.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
    /// 8-bit float of 4 exponent and 3 mantissa bits, without infinities.
    F8E4M3Fn,
    /// [`Self::F8E4M3Fn`] with another bias, and NaN instead of negative zero.
    F8E4M3Fnuz,
    /// 8-bit float of 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// [`Self::F8E5M2`] with another bias, NaN instead of negative zero, and no infinities.
    F8E5M2Fnuz,
    /// 4-bit float of 2 exponent bits and 1 mantissa bit, in a byte.
    F4E2M1,
    /// 4-bit signed integer, in a byte.
    I4,
    /// 4-bit unsigned integer, in a byte.
    U4,
    /// 2-bit signed integer, in a byte.
    I2,
    /// 2-bit unsigned integer, in a byte.
    U2,
}

impl DType {
    /// Returns the bytes of one element in memory.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F8E4M3Fn | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz => 1,
            Self::F4E2M1 | Self::I4 | Self::U4 | Self::I2 | Self::U2 => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Returns the bits of one element if elements are packed, as in files.
    pub const fn bits(self) -> usize {
        match self {
            Self::F4E2M1 | Self::I4 | Self::U4 => 4,
            Self::I2 | Self::U2 => 2,
            other => 8 * other.size(),
        }
    }

    /// Whether the type holds floating-point numbers.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16) || Minifloat::of(self).is_some()
    }

    /// Returns the number that a byte stands for in a tensor of an 8-bit or 4-bit float type.
    #[inline]
    pub fn number_of_byte(self, byte: u8) -> Option<f64> {
        Some(Minifloat::of(self)?.decoded(byte))
    }

    /// Returns the type's name as in Rust: `f32`, `i64`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
            Self::F8E4M3Fn => "f8e4m3fn",
            Self::F8E4M3Fnuz => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2Fnuz => "f8e5m2fnuz",
            Self::F4E2M1 => "f4e2m1",
            Self::I4 => "i4",
            Self::U4 => "u4",
            Self::I2 => "i2",
            Self::U2 => "u2",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rust type that is the element of some [`DType`].
///
/// `Bool` tensors are bytes: read them through `u8`, which [`Tensor::elements`](crate::Tensor::elements) accepts
/// for both.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// Tensor type that holds this Rust type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}

elements!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
          u8 => U8, u16 => U16, u32 => U32, u64 => U64);
