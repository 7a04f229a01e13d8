//! Operands as bytes, for messages between processes.

use std::ops::Range;
use std::sync::Arc;

/// An operand that can be sent to another process: numbers, rows of numbers, ranges, pairs, strings, and types for
/// which a user implements this trait.
///
/// A message holds one operand and knows its length. A row of numbers is therefore just its numbers, in little-endian
/// order.
///
/// ```
/// # mod anabranch { pub use anabranch_flow as flow; }
/// use anabranch::flow::Parcel;
///
/// struct Point { x: f32, y: f32 }
///
/// impl Parcel for Point {
///     fn pack(&self, bytes: &mut Vec<u8>) {
///         (self.x, self.y).pack(bytes);
///     }
///     fn unpack(bytes: &[u8]) -> Option<Self> {
///         <(f32, f32)>::unpack(bytes).map(|(x, y)| Point { x, y })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Point { x: 1.0, y: -2.0 }.pack(&mut bytes);
/// assert_eq!(bytes.len(), 8);
/// assert!(Point::unpack(&bytes).is_some_and(|point| point.y == -2.0) && Point::unpack(&bytes[1..]).is_none());
/// ```
pub trait Parcel: Sized {
    /// Appends the operand's bytes.
    fn pack(&self, bytes: &mut Vec<u8>);

    /// Returns the operand with exactly these bytes; `None` if they are not valid. Must accept any bytes without panic.
    fn unpack(bytes: &[u8]) -> Option<Self>;
}

/// A number of a fixed length.
pub trait Number: Copy + sealed::Sealed {
    /// Length in bytes.
    #[doc(hidden)]
    const BYTES: usize;

    #[doc(hidden)]
    fn append(self, bytes: &mut Vec<u8>);

    /// Reads a number from exactly [`Self::BYTES`] bytes.
    #[doc(hidden)]
    fn of(bytes: &[u8]) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty as $sent:ty),+) => {$(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const BYTES: usize = size_of::<$sent>();

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&(self as $sent).to_le_bytes());
            }

            fn of(bytes: &[u8]) -> Option<Self> {
                let sent = <$sent>::from_le_bytes(bytes.try_into().ok()?);
                let number = sent as $number;
                // Fails if this process has shorter integers than the other.
                (number as $sent).to_le_bytes().eq(&sent.to_le_bytes()).then_some(number)
            }
        }

        impl Parcel for $number {
            fn pack(&self, bytes: &mut Vec<u8>) {
                self.append(bytes);
            }

            fn unpack(bytes: &[u8]) -> Option<Self> {
                Self::of(bytes)
            }
        }
    )+};
}

numbers!(u8 as u8, u16 as u16, u32 as u32, u64 as u64, usize as u64);
numbers!(i8 as i8, i16 as i16, i32 as i32, i64 as i64, isize as i64, f32 as f32, f64 as f64);

fn pack_all<T: Number>(row: &[T], bytes: &mut Vec<u8>) {
    bytes.reserve(size_of_val(row));
    row.iter().for_each(|number| number.append(bytes));
}

impl<T: Number> Parcel for Vec<T> {
    fn pack(&self, bytes: &mut Vec<u8>) {
        pack_all(self, bytes);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let numbers = bytes.chunks_exact(T::BYTES);
        if !numbers.remainder().is_empty() {
            return None;
        }
        numbers.map(T::of).collect()
    }
}

impl<T: Number> Parcel for Arc<[T]> {
    fn pack(&self, bytes: &mut Vec<u8>) {
        pack_all(self, bytes);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        Vec::unpack(bytes).map(Self::from)
    }
}

impl<T: Parcel> Parcel for Arc<T> {
    fn pack(&self, bytes: &mut Vec<u8>) {
        T::pack(self, bytes);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        T::unpack(bytes).map(Self::new)
    }
}

impl<A: Number, B: Number> Parcel for (A, B) {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.0.append(bytes);
        self.1.append(bytes);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let (a, b) = bytes.split_at_checked(A::BYTES)?;
        Some((A::of(a)?, B::of(b)?))
    }
}

impl<T: Number> Parcel for Range<T> {
    fn pack(&self, bytes: &mut Vec<u8>) {
        (self.start, self.end).pack(bytes);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        <(T, T)>::unpack(bytes).map(|(start, end)| start..end)
    }
}

impl Parcel for String {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn holds<T: Parcel + PartialEq + Debug>(operand: T, length: usize) {
        let mut bytes = Vec::new();
        operand.pack(&mut bytes);
        assert_eq!((bytes.len(), T::unpack(&bytes)), (length, Some(operand)));
    }

    #[test]
    fn operands_come_back_from_as_many_bytes_as_they_have() {
        holds(7u8, 1);
        holds(-7i32, 4);
        holds(usize::MAX, 8);
        holds(0.1f64, 8);
        holds(vec![1.0f32, -2.0], 8);
        holds(Vec::<u32>::new(), 0);
        holds(Arc::<[u32]>::from([1, 2, 3]), 12);
        holds(Arc::new(vec![1u16]), 2);
        holds((1u8, 2.0f64), 9);
        holds(3..9usize, 16);
        holds("fiancé".to_owned(), 7);
    }

    #[test]
    fn other_bytes_are_none() {
        assert_eq!(u32::unpack(&[0; 5]), None);
        assert_eq!(Vec::<f32>::unpack(&[0; 7]), None);
        assert_eq!(<(u8, u8)>::unpack(&[]), None);
        assert_eq!(Range::<usize>::unpack(&[0; 15]), None);
        assert_eq!(String::unpack(&[0xff]), None);
        let nan = f32::unpack(&f32::NAN.to_le_bytes());
        assert!(nan.is_some_and(f32::is_nan));
    }
}
