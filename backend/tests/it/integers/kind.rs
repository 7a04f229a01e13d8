//! Conversions between integer types and 128-bit numbers.

use anabranch::Tensor;
use anabranch::import::proto::data_type;
use anabranch_kernels::DType;
use arbtest::arbitrary::{Result, Unstructured};

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) dtype: DType,
    pub(crate) code: i64,
    pub(crate) bits: u32,
    pub(crate) signed: bool,
}

const fn kind(dtype: DType, code: i64, bits: u32, signed: bool) -> Kind {
    Kind { dtype, code, bits, signed }
}

pub(crate) const I64: Kind = kind(DType::I64, data_type::INT64, 64, true);
pub(crate) const U64: Kind = kind(DType::U64, data_type::UINT64, 64, false);
pub(crate) const I32: Kind = kind(DType::I32, data_type::INT32, 32, true);
pub(crate) const U32: Kind = kind(DType::U32, data_type::UINT32, 32, false);

pub(crate) const KINDS: [Kind; 8] = [
    kind(DType::I8, data_type::INT8, 8, true),
    kind(DType::I16, data_type::INT16, 16, true),
    I32,
    I64,
    kind(DType::U8, data_type::UINT8, 8, false),
    kind(DType::U16, data_type::UINT16, 16, false),
    U32,
    U64,
];

/// Numbers around which representations change.
const ENDS: [i128; 16] = [
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    (1 << 15) - 1,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 53,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
];

impl Kind {
    pub(crate) fn is_wide(self) -> bool {
        self.bits >= 32
    }

    pub(crate) fn least(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    pub(crate) fn greatest(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// Returns the number of the type with the same low bits.
    pub(crate) fn wrap(self, value: i128) -> i128 {
        let low = value & ((1 << self.bits) - 1);
        if low > self.greatest() { low - (1 << self.bits) } else { low }
    }

    pub(crate) fn bytes(self, values: &[i128]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()[..self.bits as usize / 8].to_vec()).collect()
    }

    pub(crate) fn values(self, tensor: &Tensor) -> Vec<i128> {
        let size = self.bits as usize / 8;
        let whole = |bytes: &[u8]| {
            let mut all = [0; 16];
            all[..size].copy_from_slice(bytes);
            self.wrap(i128::from_le_bytes(all))
        };
        tensor.bytes().chunks_exact(size).map(whole).collect()
    }

    /// Returns a number near one of the ends, or any number.
    pub(crate) fn any(self, u: &mut Unstructured<'_>) -> Result<i128> {
        let base = match u.int_in_range(0..=3)? {
            0 => self.least(),
            1 => self.greatest(),
            2 => i128::from(u.arbitrary::<u64>()?),
            _ => *u.choose(&ENDS)?,
        };
        let value = base + u.int_in_range(-2..=2)?;
        Ok(self.wrap(if u.arbitrary()? { value } else { -value }))
    }

    pub(crate) fn some(self, u: &mut Unstructured<'_>, count: usize) -> Result<Vec<i128>> {
        (0..count).map(|_| self.any(u)).collect()
    }
}
