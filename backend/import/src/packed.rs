//! Decodes the elements of tensors that a message does not hold as plain bytes.
//!
//! Typed fields (`float_data`, `int32_data` and so on) hold packed numbers of protobuf, which are counted before they
//! are unpacked. Elements of less than 8 bits share bytes, and are spread to a byte each.

use super::error::{ImportError, Result};
use super::proto::Reader;
use anabranch_kernels::{DType, TensorSpec};

/// Encoding of the numbers in a typed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// `float_data`: four bytes each.
    Float,
    /// `double_data`: eight bytes each.
    Double,
    /// `int32_data`: integers of variable length, for all types of at most 32 bits except `uint32` and `float`; 16-bit
    /// floats are given as their bits.
    Int32,
    /// `int64_data`: integers of variable length.
    Int64,
    /// `uint64_data`: integers of variable length, also for `uint32`.
    Uint64,
}

impl Encoding {
    /// Returns the encoding for elements of `dtype`.
    pub(super) fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::Float,
            DType::F64 => Self::Double,
            DType::I64 => Self::Int64,
            DType::U32 | DType::U64 => Self::Uint64,
            _ => Self::Int32,
        }
    }

    /// Counts the numbers in `chunks`; `None` if a chunk ends within a number. O(bytes), without unpacking.
    pub(super) fn count(self, chunks: &[Vec<u8>]) -> Option<u64> {
        let mut count = 0;
        for chunk in chunks {
            count += match self {
                Self::Float => exact(chunk.len(), 4)?,
                Self::Double => exact(chunk.len(), 8)?,
                Self::Int32 | Self::Int64 | Self::Uint64 if chunk.last().is_some_and(|byte| *byte >= 0x80) => {
                    return None;
                }
                Self::Int32 | Self::Int64 | Self::Uint64 => chunk.iter().filter(|byte| **byte < 0x80).count() as u64,
            };
        }
        Some(count)
    }

    /// Unpacks `chunks` to elements of `dtype`, which this encoding holds. `elements` has room for exactly as many.
    pub(super) fn unpack(self, chunks: &[Vec<u8>], dtype: DType, elements: &mut [u8]) -> Result<()> {
        match self {
            Self::Float | Self::Double => {
                let bytes = chunks.iter().flat_map(|chunk| chunk.iter());
                elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = *byte);
                Ok(())
            }
            Self::Int32 | Self::Int64 | Self::Uint64 => self.unpack_integers(chunks, dtype, elements),
        }
    }

    fn unpack_integers(self, chunks: &[Vec<u8>], dtype: DType, elements: &mut [u8]) -> Result<()> {
        let mut slots = elements.chunks_exact_mut(dtype.size()).enumerate();
        for chunk in chunks {
            let mut reader = Reader::new(chunk);
            while !reader.is_at_end() {
                let (index, slot) = slots.next().ok_or_else(cut)?;
                let bits = reader.varint().map_err(|_| cut())?;
                let value = match self {
                    Self::Uint64 => i128::from(bits),
                    Self::Int64 => i128::from(bits as i64),
                    // As every reader of protobuf does: the low 32 bits count.
                    _ => i128::from(bits as i32),
                };
                store(value, dtype, slot).ok_or_else(|| no_element(index, value, dtype))?;
            }
        }
        Ok(())
    }
}

/// Creates the error of packed data that ends within an element.
pub(super) fn cut() -> ImportError {
    ImportError::malformed("the data ends within an element")
}

/// Creates the error of an element that does not fit its type.
pub(super) fn no_element(index: usize, value: i128, dtype: DType) -> ImportError {
    ImportError::malformed(format!("element {index} is {value}, which is not a valid {dtype}"))
}

fn exact(bytes: usize, width: usize) -> Option<u64> {
    bytes.is_multiple_of(width).then_some((bytes / width) as u64)
}

/// Writes `value` as an element of `dtype` if it fits. Bits of 16-bit floats come as unsigned integers.
fn store(value: i128, dtype: DType, slot: &mut [u8]) -> Option<()> {
    match dtype {
        DType::Bool if !(0..=1).contains(&value) => return None,
        DType::I8 => slot.copy_from_slice(&i8::try_from(value).ok()?.to_le_bytes()),
        DType::U8 | DType::Bool => slot.copy_from_slice(&u8::try_from(value).ok()?.to_le_bytes()),
        DType::I16 => slot.copy_from_slice(&i16::try_from(value).ok()?.to_le_bytes()),
        DType::U16 | DType::F16 | DType::BF16 => slot.copy_from_slice(&u16::try_from(value).ok()?.to_le_bytes()),
        DType::I32 => slot.copy_from_slice(&i32::try_from(value).ok()?.to_le_bytes()),
        DType::U32 | DType::F32 => slot.copy_from_slice(&u32::try_from(value).ok()?.to_le_bytes()),
        DType::I64 => slot.copy_from_slice(&i64::try_from(value).ok()?.to_le_bytes()),
        DType::U64 | DType::F64 => slot.copy_from_slice(&u64::try_from(value).ok()?.to_le_bytes()),
        // The value holds the bits of an 8-bit float, or several narrower elements.
        _ => slot.copy_from_slice(&u8::try_from(value).ok()?.to_le_bytes()),
    }
    Some(())
}

/// Bytes of a tensor's data if several elements share a byte.
pub(super) fn packed_bytes(spec: &TensorSpec) -> usize {
    let each = 8 / spec.dtype.bits().min(8);
    if each == 1 { spec.bytes() } else { spec.shape.elements().div_ceil(each) }
}

/// Writes each element of shared bytes, the first in the lowest bits, to a byte of its own; signed elements keep their
/// sign.
pub(super) fn spread(packed: &[u8], dtype: DType, elements: &mut [u8]) {
    let bits = dtype.bits();
    let each = 8 / bits;
    for (index, element) in elements.iter_mut().enumerate() {
        let high = packed[index / each] << (8 - bits * (index % each + 1));
        *element = match dtype {
            DType::I4 | DType::I2 => (high as i8 >> (8 - bits)) as u8,
            _ => high >> (8 - bits),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_share_bytes_are_spread_from_the_lowest_bits() {
        let mut four = [0; 3];
        spread(&[0x9A, 0x07], DType::U4, &mut four);
        assert_eq!(four, [0xA, 0x9, 0x7]);
        spread(&[0x9A, 0x07], DType::I4, &mut four);
        assert_eq!(four.map(|byte| byte as i8), [-6, -7, 7]);
        let mut two = [0; 5];
        spread(&[0b11_10_01_00, 0b10], DType::I2, &mut two);
        assert_eq!(two.map(|byte| byte as i8), [0, 1, -2, -1, -2]);
    }
}
